// Checkpoints that the host fetches itself: what is read through its functions, and what their failures become.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

namespace fs = std::filesystem;

enum class Fault { kNone, kStatus, kThrow, kUnknownCode, kNegativeSize };

// What the host holds, by path. Reached from several threads at once.
struct Store {
  std::map<std::string, std::string> files;
  std::atomic<Fault> on_size{Fault::kNone}, on_read{Fault::kNone}, on_list{Fault::kNone};
  std::atomic<int> reads{0}, lists{0}, dropped{0};

  static int32_t fail(Fault fault) {
    if (fault == Fault::kThrow) throw std::runtime_error("the host's own fault");
    return fault == Fault::kStatus ? INVAR_UNAVAILABLE : fault == Fault::kUnknownCode ? 4711 : INVAR_OK;
  }
  static int32_t size(void* user, const char* path, int64_t* size) {
    auto* store = static_cast<Store*>(user);
    const auto found = store->files.find(path);
    if (found == store->files.end()) return INVAR_NOT_FOUND;
    const Fault fault = store->on_size;
    *size = fault == Fault::kNegativeSize ? -5 : static_cast<int64_t>(found->second.size());
    return fail(fault);
  }
  static int32_t read(void* user, const char* path, int64_t offset, void* buffer, size_t size) {
    auto* store = static_cast<Store*>(user);
    ++store->reads;
    const int32_t code = fail(store->on_read);
    if (code != INVAR_OK) return code;
    const auto found = store->files.find(path);
    if (found == store->files.end()) return INVAR_NOT_FOUND;
    std::memcpy(buffer, found->second.data() + offset, size);
    return INVAR_OK;
  }
  static int32_t list(void* user, const char* directory, void (*add)(void*, const char*), void* to) {
    auto* store = static_cast<Store*>(user);
    ++store->lists;
    const int32_t code = fail(store->on_list);
    if (code != INVAR_OK) return code;
    const std::string prefix = std::string(directory) + "/";
    bool any = false;
    for (const auto& [path, bytes] : store->files) {
      if (path.rfind(prefix, 0) != 0 || path.find('/', prefix.size()) != std::string::npos) continue;
      add(to, path.c_str() + prefix.size());
      any = true;
    }
    return any ? INVAR_OK : INVAR_NOT_FOUND;
  }
};

// One FP8 matrix of ones in one block of scale 2, and a BF16 gain.
std::string checkpoint() {
  const std::string header = R"({"l.gain":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                             R"("l.weight":{"dtype":"F8_E4M3","shape":[4,4],"data_offsets":[4,20]},)"
                             R"("l.weight_scale_inv":{"dtype":"F32","shape":[1,1],"data_offsets":[20,24]}})";
  const uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += header + std::string("\x80\x3f\x80\x3f", 4) + std::string(16, '\x38');
  const float two = 2;
  return bytes + std::string(reinterpret_cast<const char*>(&two), sizeof two);
}

class HostStore : public testing::Test {
 protected:
  HostStore() : out_((fs::path(testing::TempDir()) / ("store-" + std::to_string(getpid()))).string()) {
    fs::remove_all(out_);
    store_.files["store://model/model.safetensors"] = checkpoint();
    store_.files["store://model/config.json"] =
        R"({"model_type": "llama", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";
    store_.files["store://model/tokenizer.json"] = "{}";
    invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
    options.threads = 2;
    options.file_prefix = "store://";
    options.file_size = Store::size;
    options.file_read_at = Store::read;
    options.file_list = Store::list;
    options.file_user = &store_;
    options.file_drop = [](void* user) { ++static_cast<Store*>(user)->dropped; };
    invar_runtime* runtime = nullptr;
    EXPECT_EQ(text_of(invar_runtime_create(&options, &runtime)), "ok");
    runtime_.reset(runtime);
  }
  ~HostStore() override { fs::remove_all(out_); }

  using Work = invar_status* (*)(invar_runtime*, const void*, size_t, invar_cancel*, const invar_progress_callback*,
                                 invar_bytes**);
  std::string run(Work work, const std::string& type, const std::string& config, std::string* report = nullptr,
                  const std::string& report_type = "") {
    const std::string bytes = message(runtime_.get(), type, config);
    invar_bytes* made = nullptr;
    const std::string result = text_of(work(runtime_.get(), bytes.data(), bytes.size(), nullptr, nullptr, &made));
    const Owned<invar_bytes> owner(made);
    if (report != nullptr && made != nullptr) *report = json(runtime_.get(), report_type, made);
    return result;
  }
  std::string convert() {
    return run(invar_checkpoint_convert, "convert", R"({"source": "store://model", "destination": ")" + out_ + R"("})");
  }

  Store store_;
  std::string out_;
  Owned<invar_runtime> runtime_;
};

TEST_F(HostStore, IsInspectedConvertedVerifiedAndCompared) {
  std::string report;
  ASSERT_EQ(run(invar_checkpoint_inspect, "inspect", R"({"path": "store://model"})", &report, "InspectReport"), "ok");
  EXPECT_NE(report.find("\"layout\":\"fp8-block-scale-inv\""), std::string::npos) << report;
  ASSERT_EQ(convert(), "ok");
  EXPECT_GT(store_.reads, 0);
  EXPECT_GT(store_.lists, 0);
  std::ifstream file(out_ + "/model.safetensors", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::string twos;
  for (int i = 0; i < 16; ++i) twos += std::string("\x00\x40", 2);
  EXPECT_NE(bytes.find(twos), std::string::npos) << "16 times 2.0 in BF16";
  EXPECT_TRUE(fs::exists(out_ + "/tokenizer.json"));
  const std::string both = R"({"source": "store://model", "destination": ")" + out_ + R"("})";
  ASSERT_EQ(run(invar_checkpoint_verify, "verify", both, &report, "VerifyReport"), "ok");
  EXPECT_NE(report.find("\"passed\":true"), std::string::npos) << report;
  ASSERT_EQ(
      run(invar_checkpoint_diff, "diff", R"({"a": "store://model", "b": ")" + out_ + R"("})", &report, "DiffReport"),
      "ok");
  EXPECT_NE(report.find("\"identical\":true"), std::string::npos) << report;
}

TEST_F(HostStore, FailuresNameThePathAndLeaveNothing) {
  const auto expect = [&](const std::string& begin, const std::string& words) {
    const std::string said = convert();
    EXPECT_EQ(said.substr(0, begin.size()), begin) << said;
    EXPECT_NE(said.find("store://model"), std::string::npos) << said;
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_FALSE(fs::exists(out_));
  };
  store_.on_read = Fault::kStatus;
  expect("UNAVAILABLE file.host_failed", "the host's read_at returned UNAVAILABLE");
  store_.on_read = Fault::kThrow;
  expect("INTERNAL callback.exception", "let an exception out");
  store_.on_read = Fault::kUnknownCode;
  expect("UNKNOWN file.host_failed", "returned 4711");
  store_.on_read = Fault::kNone;
  store_.on_size = Fault::kStatus;
  expect("UNAVAILABLE", "UNAVAILABLE");
  store_.on_size = Fault::kNegativeSize;
  expect("INTERNAL file.host_failed", "gave the size -5");
  store_.on_size = Fault::kNone;
  store_.files["store://model/model.safetensors"].pop_back();
  expect("DATA_LOSS safetensors.truncated", "model.safetensors");
  store_.files.clear();
  expect("NOT_FOUND", "store://model");
}

TEST_F(HostStore, ListsThatFailAreErrorsAndNotEmptyFolders) {
  for (const Fault fault : {Fault::kStatus, Fault::kThrow}) {
    store_.on_list = fault;
    EXPECT_NE(convert(), "ok");
    EXPECT_FALSE(fs::exists(out_));
  }
}

TEST_F(HostStore, IsNeverWrittenTo) {
  const auto before = store_.files;
  const std::string said =
      run(invar_checkpoint_convert, "convert", R"({"source": "store://model", "destination": "store://model-bf16"})");
  EXPECT_EQ(said.substr(0, said.find(':')), "INVALID_ARGUMENT file.read_only") << said;
  EXPECT_EQ(store_.files, before);
}

TEST_F(HostStore, IsDroppedOnceWithTheLastThatUsesIt) {
  auto tensor = make_tensor(runtime_.get(), INVAR_DTYPE_FP32, {2});
  runtime_.reset();
  EXPECT_EQ(store_.dropped, 0);
  tensor.reset();
  EXPECT_EQ(store_.dropped, 1);
}

}  // namespace
}  // namespace invar_test
