// A host with another protobuf (whose messages have the library's names), with OpenMP, and with threads of small
// stacks.
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

#include <filesystem>

#include "c_api/tests/abi_support.h"
#include "invar/v1/convert.pb.h"

namespace invar_test {
namespace {

namespace fs = std::filesystem;

constexpr char kCase[] = "tests/cases/autofp8-static-llama/input";

// Inspects, converts, trains, generates and reads a tensor.
void work(const std::string& name) {
  const auto runtime = make_runtime(2);
  const fs::path folder = fs::path(testing::TempDir()) / ("invar-" + name + "-" + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::create_directories(folder / "in");
  for (const auto& entry : fs::directory_iterator(kCase)) {  // runfiles are links
    fs::copy_file(fs::canonical(entry.path()), folder / "in" / entry.path().filename());
  }
  const std::string source = (folder / "in").string();
  const std::string convert =
      message(runtime.get(), "convert",
              R"({"source": ")" + source + R"(", "destination": ")" + (folder / "out").string() + R"("})");
  invar_bytes* bytes = nullptr;
  ASSERT_EQ(text_of(invar_checkpoint_convert(runtime.get(), convert.data(), convert.size(), nullptr, nullptr, &bytes)),
            "ok");
  const Owned<invar_bytes> report(bytes);
  EXPECT_NE(json(runtime.get(), "ConvertReport", report.get()).find("\"passed\":true"), std::string::npos);

  const std::string train = message(
      runtime.get(), "train",
      R"({"model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64},
          "micro_batch": 2, "data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}}})");
  invar_session* made = nullptr;
  ASSERT_EQ(text_of(invar_session_create(runtime.get(), train.data(), train.size(), nullptr, nullptr, &made)), "ok");
  const Owned<invar_session> session(made);
  int32_t ids[32];
  for (int i = 0; i < 32; ++i) ids[i] = 'a' + i % 7;
  invar_batch batch = INVAR_BATCH_INIT;
  batch.sequences = 2;
  batch.sequence_length = 16;
  batch.ids = ids;
  invar_loss loss = INVAR_LOSS_INIT;
  invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
  ASSERT_EQ(text_of(invar_session_begin(made, 1)), "ok");
  ASSERT_EQ(text_of(invar_session_forward_backward(made, &batch, &loss)), "ok");
  ASSERT_EQ(text_of(invar_session_step(made, &metrics)), "ok");
  EXPECT_GT(metrics.loss, 0);
  const std::string request = message(runtime.get(), "generate", R"({"prompt": "a", "max_tokens": 4})");
  bytes = nullptr;
  ASSERT_EQ(text_of(invar_session_generate(made, request.data(), request.size(), nullptr, nullptr, &bytes)), "ok");
  invar_bytes_release(bytes);
  fs::remove_all(folder);
}

TEST(Neighbours, AnotherProtobufKeepsItsMessagesAndTheLibraryItsOwn) {
  invar::v1::ConvertConfig theirs;
  theirs.set_source("host");
  theirs.set_something_else(7);
  const std::string before = theirs.SerializeAsString();
  work("protobuf");
  EXPECT_EQ(theirs.SerializeAsString(), before);
  EXPECT_EQ(invar::v1::ConvertConfig::descriptor()->field_count(), 2);
  // The library reads the bytes by its own definition, and says so.
  const auto runtime = make_runtime();
  invar_bytes* text = nullptr;
  const std::string reason =
      reason_of(invar_message_to_json(runtime.get(), "ConvertConfig", 13, before.data(), before.size(), false, &text));
  const Owned<invar_bytes> owner(text);
  EXPECT_NE(reason, "") << string_of(text);
}

TEST(Neighbours, OpenMpOfTheHostGoesOnWorking) {
  omp_set_num_threads(3);
  int64_t sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < 1000; ++i) sum += i;
  EXPECT_EQ(sum, 499'500);
  work("openmp");
  EXPECT_EQ(omp_get_max_threads(), 3) << "the library changed the host's setting";
  // And from inside a parallel region.
#pragma omp parallel num_threads(2)
  {
    const auto runtime = make_runtime(2);
    const auto tensor = make_tensor(runtime.get(), INVAR_DTYPE_FP32, {64, 64});
    invar_tensor* product = nullptr;
    EXPECT_EQ(text_of(invar_tensor_matmul(tensor.get(), false, tensor.get(), true, INVAR_DTYPE_FP32, &product)), "ok");
    invar_tensor_release(product);
  }
}

TEST(Neighbours, SmallStacksAreEnough) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes, [](void*) -> void* { return work("stack"), nullptr; }, nullptr),
            0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace
}  // namespace invar_test
