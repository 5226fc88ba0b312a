// Conversion, verification and difference on small checkpoints: what they write, what they find, and that a failure,
// a cancellation or a kill leaves the destination as it was.
#include "core/checkpoint/convert.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "core/base/memory_files.h"
#include "core/checkpoint/diff.h"
#include "core/checkpoint/test_checkpoint.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/verify.h"
#include "core/container/checkpoint_folder.h"

namespace invar {
namespace {

v1::ConvertConfig from_to(const std::string& source, const std::string& destination) {
  v1::ConvertConfig config;
  config.set_source(source);
  config.set_destination(destination);
  return config;
}

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Everything below `folder`, so that states can be compared.
std::map<std::string, std::string> state_of(const MemoryFiles& files, const std::string& folder) {
  std::map<std::string, std::string> state;
  for (const auto& [path, bytes] : files.snapshot()) {
    if (path.starts_with(folder)) state[path] = bytes;
  }
  return state;
}

class Conversion : public testing::Test {
 protected:
  Conversion() { block_checkpoint().write(files_, "/in", kBlockConfig); }

  Result<v1::ConvertReport> run(const v1::ConvertConfig& config) { return convert(config, {files_, pool_}); }
  Result<v1::VerifyReport> prove(const std::string& destination) {
    v1::VerifyConfig config;
    config.set_source("/in");
    config.set_destination(destination);
    return verify(config, {files_, pool_});
  }
  std::vector<std::byte> tensor(const std::string& folder, const std::string& name) {
    const auto opened = CheckpointFolder::open(files_, folder);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    const TensorInfo* info = opened->find(name);
    EXPECT_NE(info, nullptr) << name;
    return info == nullptr ? std::vector<std::byte>{} : *opened->read_all(*info);
  }

  MemoryFiles files_;
  ThreadPool pool_{2};
};

TEST_F(Conversion, GivesTheRoundedProductInEveryTarget) {
  TestCheckpoint made = block_checkpoint();
  const auto& codes = made.bytes_of_tensor("l.q_proj.weight");
  const auto& scales = made.bytes_of_tensor("l.q_proj.weight_scale_inv");
  const std::pair<v1::TargetFormat, DType> targets[] = {{v1::TARGET_FORMAT_BF16, DType::kBF16},
                                                        {v1::TARGET_FORMAT_FP16, DType::kF16},
                                                        {v1::TARGET_FORMAT_FP32, DType::kF32}};
  for (const auto& [target, dtype] : targets) {
    for (v1::Rounding rounding : {v1::ROUNDING_FP32, v1::ROUNDING_FP64}) {
      SCOPED_TRACE(testing::Message() << name_of(dtype) << " rounding " << rounding);
      const std::string out = cat("/out", target, rounding);
      v1::ConvertConfig config = from_to("/in", out);
      config.set_target(target);
      config.set_rounding(rounding);
      config.set_verify(true);
      const auto report = run(config);
      ASSERT_TRUE(report.ok()) << report.status().message();
      EXPECT_TRUE(report->verification().passed());
      EXPECT_EQ(report->verification().reencode_checked(), 40 * 72);
      const auto got = tensor(out, "l.q_proj.weight");
      for (int64_t row = 0; row < 40; ++row) {
        for (int64_t col = 0; col < 72; ++col) {
          const int64_t i = row * 72 + col;
          float scale;
          std::memcpy(&scale, scales.data() + (row / 16 * 5 + col / 16) * 4, 4);
          const float value = decode(DType::kE4M3FN, static_cast<uint8_t>(codes[static_cast<size_t>(i)]));
          const double exact = static_cast<double>(value) * scale;
          const float product = rounding == v1::ROUNDING_FP64 ? round_to_odd(exact) : value * scale;
          const float want = dtype == DType::kBF16  ? f32_from_bf16(bf16_from_f32(product))
                             : dtype == DType::kF16 ? f32_from_f16(f16_from_f32(product))
                                                    : static_cast<float>(exact);
          ASSERT_EQ(result_value(dtype, got.data(), i), want) << row << ", " << col;
        }
      }
      EXPECT_EQ(tensor(out, "l.gate.e_score_correction_bias"), made.bytes_of_tensor("l.gate.e_score_correction_bias"));
    }
  }
}

TEST_F(Conversion, WritesTheSameBytesWithAnyNumberOfThreads) {
  ASSERT_TRUE(run(from_to("/in", "/two")).ok());
  for (int threads : {1, 5}) {
    ThreadPool pool(threads);
    ASSERT_TRUE(convert(from_to("/in", "/other"), {files_, pool}).ok());
    EXPECT_EQ(files_.snapshot()["/two/model.safetensors"], files_.snapshot()["/other/model.safetensors"]);
    ASSERT_TRUE(files_.remove_all("/other").ok());
  }
}

TEST_F(Conversion, CutsFilesThatGrowBeyondTheLimit) {
  TestCheckpoint large;
  large.add_codes("a.weight", DType::kE4M3FN, {400, 1024}, 1).add_scales("a.weight_scale", {}, 2);
  large.add_codes("b.weight", DType::kE4M3FN, {400, 1024}, 3).add_scales("b.weight_scale", {}, 4);
  large.write(files_, "/large", "");
  v1::ConvertConfig config = from_to("/large", "/cut");
  config.set_shard_bytes(1 << 20);
  config.set_verify(true);
  const auto report = run(config);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(files_.exists("/cut/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(files_.exists("/cut/model.safetensors.index.json"));
}

TEST_F(Conversion, LeavesTheDestinationAloneWhenAnyWriteFails) {
  FaultyFiles counting(files_, -1, false);
  ASSERT_TRUE(convert(from_to("/in", "/out"), {counting, pool_}).ok());
  const int64_t operations = counting.operations();
  ASSERT_GT(operations, 8);
  ASSERT_TRUE(files_.remove_all("/out").ok());
  const auto before = state_of(files_, "/in");
  for (bool stays_dead : {false, true}) {
    for (int64_t k = 0; k < operations; ++k) {
      SCOPED_TRACE(testing::Message() << "operation " << k << (stays_dead ? " and all after" : ""));
      FaultyFiles faulty(files_, k, stays_dead);
      const auto report = convert(from_to("/in", "/out"), {faulty, pool_});
      // The last operation is the sync of a folder that has its final name already.
      EXPECT_FALSE(report.ok());
      if (files_.exists("/out/model.safetensors")) {
        const auto proof = prove("/out");
        EXPECT_TRUE(proof.ok() && proof->passed()) << "half a result under its final name";
        ASSERT_TRUE(files_.remove_all("/out").ok());
      }
      ASSERT_TRUE(files_.remove_all("/out.journal").ok());  // may be left, and means nothing without its folder
      EXPECT_TRUE(stays_dead || state_of(files_, "/out").empty());
      EXPECT_EQ(state_of(files_, "/in"), before);
      ASSERT_TRUE(files_.remove_all("/out.partial").ok());
      ASSERT_TRUE(files_.remove_all("/out").ok());
    }
  }
}

TEST_F(Conversion, StopsWhenCancelledAndLeavesNothing) {
  CancelFlag cancel;
  const WorkContext context{files_, pool_, &cancel, [&](int64_t, int64_t) { cancel.cancel(); }};
  const auto report = convert(from_to("/in", "/out"), context);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), Code::kCancelled);
  EXPECT_TRUE(state_of(files_, "/out").empty());
}

TEST_F(Conversion, CountsProgressUpToTheWhole) {
  int64_t last = 0, total = 0;
  const WorkContext context{files_, pool_, nullptr, [&](int64_t done, int64_t all) {
                              EXPECT_GT(done, last);
                              last = done;
                              total = all;
                            }};
  ASSERT_TRUE(convert(from_to("/in", "/out"), context).ok());
  EXPECT_EQ(last, total);
  EXPECT_GT(total, 40 * 72);
}

TEST_F(Conversion, DryRunReportsEveryTensorAndWritesNothing) {
  v1::ConvertConfig config;
  config.set_source("/in");
  config.set_dry_run(true);
  const auto before = files_.snapshot();
  const auto report = run(config);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tensors_size(), 4);
  EXPECT_EQ(report->scales_used(), 1);
  EXPECT_EQ(report->layout(), "fp8-block-scale-inv");
  EXPECT_EQ(files_.snapshot(), before);
}

TEST_F(Conversion, RefusesDestinationsThatWouldLoseSomething) {
  EXPECT_EQ(run(from_to("/in", "/in")).status().reason(), "output.same_as_input");
  EXPECT_EQ(run(from_to("/in", "")).status().reason(), "output.missing");
  files_.put("/full/notes.txt", "mine");
  EXPECT_EQ(run(from_to("/in", "/full")).status().reason(), "output.not_empty");
  EXPECT_EQ(files_.snapshot()["/full/notes.txt"], "mine");
  // The staging folder of this destination is the source.
  block_checkpoint().write(files_, "/model.partial", kBlockConfig);
  const auto before = state_of(files_, "/model.partial");
  EXPECT_EQ(run(from_to("/model.partial", "/model")).status().reason(), "output.same_as_input");
  EXPECT_EQ(state_of(files_, "/model.partial"), before);
  EXPECT_EQ(run(from_to("/nowhere", "/out")).status().code(), Code::kNotFound);
}

TEST_F(Conversion, RefusesTargetsAndMemoryItCannotServe) {
  v1::ConvertConfig config = from_to("/in", "/out");
  config.set_memory_bytes(1 << 20);
  const auto report = run(config);
  ASSERT_FALSE(report.ok());
  EXPECT_TRUE(mentions(report.status().message(), "memory_bytes")) << report.status().message();
}

TEST_F(Conversion, QuantisesAnyReadableSourceAndBack) {
  for (v1::TargetFormat target :
       {v1::TARGET_FORMAT_FP8_BLOCK, v1::TARGET_FORMAT_FP8_TENSOR, v1::TARGET_FORMAT_FP8_CHANNEL}) {
    SCOPED_TRACE(target);
    const std::string out = cat("/fp8-", target);
    v1::ConvertConfig config = from_to("/in", out);
    config.set_target(target);
    const auto report = run(config);
    ASSERT_TRUE(report.ok()) << report.status().message();
    const auto made = CheckpointFolder::open(files_, out);
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->find("l.q_proj.weight")->dtype, DType::kE4M3FN);
    EXPECT_EQ(made->find("embed.weight")->dtype, DType::kBF16);
    EXPECT_EQ(tensor(out, "l.gate.e_score_correction_bias"), tensor("/in", "l.gate.e_score_correction_bias"));
    v1::ConvertConfig back = from_to(out, out + "-bf16");
    back.set_verify(true);
    const auto again = run(back);
    ASSERT_TRUE(again.ok()) << again.status().message();
    v1::DiffConfig between;
    between.set_a("/in");
    between.set_b(out + "-bf16");
    const auto distance = diff(between, {files_, pool_});
    ASSERT_TRUE(distance.ok());
    ASSERT_EQ(distance->tensors_size(), 1);
    EXPECT_GT(distance->tensors(0).sqnr_db(), 28) << "E4M3 keeps about 31 dB";
  }
  v1::ConvertConfig config = from_to("/in", "/refused");
  config.set_target(v1::TARGET_FORMAT_FP8_BLOCK);
  config.set_rounding(v1::ROUNDING_FP64);
  EXPECT_EQ(run(config).status().reason(), "convert.unsupported_option");
}

// Every scale and code of an FP8 result is made again from the source, whatever the source is stored as.
TEST_F(Conversion, Fp8ResultsAreProvenAndDamageIsFound) {
  ASSERT_TRUE(run(from_to("/in", "/bf16")).ok());
  for (const std::string source : {"/in", "/bf16"}) {
    for (const v1::TargetFormat target :
         {v1::TARGET_FORMAT_FP8_BLOCK, v1::TARGET_FORMAT_FP8_TENSOR, v1::TARGET_FORMAT_FP8_CHANNEL}) {
      SCOPED_TRACE(cat(source, " to ", static_cast<int>(target)));
      v1::ConvertConfig config = from_to(source, cat("/proven", source, target));
      config.set_target(target);
      config.set_verify(true);
      const auto made = run(config);
      ASSERT_TRUE(made.ok()) << made.status().message();
      EXPECT_TRUE(made->verification().passed());
      EXPECT_EQ(made->verification().reencode_checked(), 40 * 72);
      EXPECT_EQ(made->verification().reencode_mismatched(), 0);
      EXPECT_EQ(made->verification().elements(), 40 * 72 + 32 * 40 + 3);
      const std::string out = config.destination(), file = out + "/model.safetensors";
      const std::string whole = files_.snapshot()[file];
      const auto folder = CheckpointFolder::open(files_, out);
      ASSERT_TRUE(folder.ok());
      const TensorInfo& codes = *folder->find("l.q_proj.weight");
      const TensorInfo* scale = folder->find("l.q_proj.weight_scale_inv");
      if (scale == nullptr) scale = folder->find("l.q_proj.weight_scale");
      ASSERT_NE(scale, nullptr);
      const auto damaged = [&](int64_t byte, const std::string& kind, const std::string& words) {
        std::string bytes = whole;
        bytes[static_cast<size_t>(byte)] = static_cast<char>(bytes[static_cast<size_t>(byte)] ^ 1);
        files_.put(file, bytes);
        v1::VerifyConfig again;
        again.set_source(source);
        again.set_destination(out);
        const auto report = verify(again, {files_, pool_});
        ASSERT_TRUE(report.ok()) << report.status().message();
        EXPECT_FALSE(report->passed());
        ASSERT_GE(report->problems_size(), 1);
        EXPECT_EQ(report->problems(0).kind(), kind);
        EXPECT_TRUE(mentions(report->problems(0).detail(), words)) << report->problems(0).detail();
      };
      damaged(codes.begin + 75, "value", "at [1, 3]");
      damaged(scale->begin, "scale", "which asks for");
      damaged(folder->find("embed.weight")->begin + 2 * 41, "value", "at [1, 1]");
      files_.put(file, whole);
      files_.put(out + "/config.json", R"({"model_type": "llama"})");
      v1::VerifyConfig again;
      again.set_source(source);
      again.set_destination(out);
      const auto undeclared = verify(again, {files_, pool_});
      ASSERT_TRUE(undeclared.ok());
      EXPECT_FALSE(undeclared->passed());
      EXPECT_EQ(undeclared->problems(0).kind(), "config");
    }
  }
}

TEST_F(Conversion, ReadsOddScalesByTheScalarPath) {
  // Zero scale over zero codes, scales beyond the fast range, every finite code.
  TestCheckpoint odd;
  std::vector<std::byte> codes;
  for (int row = 0; row < 4; ++row) {
    for (int i = 0; i < 256; ++i) {
      const bool nan = (i & 0x7F) == 0x7F;
      codes.push_back(static_cast<std::byte>(row == 0 || nan ? 0 : i));
    }
  }
  const std::vector<float> scales = {0.0f, 0x1p-120f, 0x1p+118f, 3e-39f};
  odd.add("a.weight", DType::kE4M3FN, {4, 256}, codes).add_f32("a.weight_scale", {4, 1}, scales);
  odd.write(files_, "/odd", "");
  ASSERT_TRUE(run(from_to("/odd", "/out")).ok());
  const auto got = tensor("/out", "a.weight");
  for (int64_t i = 0; i < 1024; ++i) {
    const float product = decode(DType::kE4M3FN, static_cast<uint8_t>(codes[static_cast<size_t>(i)])) *
                          scales[static_cast<size_t>(i / 256)];
    ASSERT_EQ(result_value(DType::kBF16, got.data(), i), f32_from_bf16(bf16_from_f32(product))) << i;
  }
}

TEST_F(Conversion, DividesWhereTheUserSaysSo) {
  TestCheckpoint inverted;
  inverted.add_codes("a.weight", DType::kE4M3FN, {8, 8}, 1).add_f32("a.weight_scale", {}, {3000.0f});
  inverted.write(files_, "/inverted", "");
  const auto plain = run(from_to("/inverted", "/multiplied"));
  ASSERT_TRUE(plain.ok());
  ASSERT_GT(plain->warnings_size(), 0);
  EXPECT_TRUE(mentions(plain->warnings(0), "checkpoint.suspicious_scale")) << plain->warnings(0);
  v1::ConvertConfig config = from_to("/inverted", "/divided");
  (*config.mutable_assume())["scale"] = "divides";
  const auto report = run(config);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->warnings_size(), 1);
  EXPECT_TRUE(mentions(report->warnings(0), "checkpoint.assumed: scale=divides")) << report->warnings(0);
  EXPECT_EQ(report->reencode_mismatched(), 0);
  const auto got = tensor("/divided", "a.weight");
  const auto& codes = inverted.bytes_of_tensor("a.weight");
  for (int64_t i = 0; i < 64; ++i) {
    const float value = decode(DType::kE4M3FN, static_cast<uint8_t>(codes[static_cast<size_t>(i)]));
    ASSERT_EQ(result_value(DType::kBF16, got.data(), i), f32_from_bf16(bf16_from_f32(value / 3000.0f)));
  }
}

TEST_F(Conversion, ReportsCodesThatStopWhereOtherFormatsEnd) {
  TestCheckpoint narrow;
  const std::vector<std::byte> codes(4096, std::byte{0x77});  // 240
  for (const char* name : {"a", "b"}) {
    narrow.add(cat(name, ".weight"), DType::kE4M3FN, {64, 64}, codes);
    narrow.add_f32(cat(name, ".weight_scale"), {}, {0.001f});
  }
  narrow.write(files_, "/narrow", "");
  const auto report = run(from_to("/narrow", "/narrow-out"));
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->warnings_size(), 1);
  EXPECT_TRUE(mentions(report->warnings(0), "checkpoint.narrow_codes")) << report->warnings(0);
  EXPECT_TRUE(mentions(report->warnings(0), "--assume e4m3=fnuz")) << report->warnings(0);
}

TEST_F(Conversion, ReportsWhatFp16CannotHold) {
  TestCheckpoint wide;
  std::vector<std::byte> codes(64, static_cast<std::byte>(0x7E));  // 448
  codes[5] = static_cast<std::byte>(0x01);                         // 2^-9
  wide.add("a.weight", DType::kE4M3FN, {8, 8}, codes).add_f32("a.weight_scale", {}, {1000.0f});
  wide.add("b.weight", DType::kE4M3FN, {8, 8}, codes).add_f32("b.weight_scale", {}, {0x1p-20f});
  wide.write(files_, "/wide", "");
  v1::ConvertConfig config = from_to("/wide", "/out");
  config.set_target(v1::TARGET_FORMAT_FP16);
  const auto report = run(config);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tensors(0).overflows(), 63);
  EXPECT_EQ(report->tensors(0).underflows(), 0);
  EXPECT_EQ(report->tensors(1).overflows(), 0);
  EXPECT_EQ(report->tensors(1).underflows(), 1);
}

TEST_F(Conversion, VerifyNamesEveryKindOfDamage) {
  const auto damaged = [&](const std::string& kind, const std::string& names, auto&& damage) {
    SCOPED_TRACE(kind);
    ASSERT_TRUE(files_.remove_all("/out").ok());
    ASSERT_TRUE(run(from_to("/in", "/out")).ok());
    damage();
    const auto proof = prove("/out");
    ASSERT_TRUE(proof.ok()) << proof.status().message();
    EXPECT_FALSE(proof->passed());
    ASSERT_GT(proof->problems_size(), 0);
    EXPECT_EQ(proof->problems(0).kind(), kind) << proof->problems(0).detail();
    EXPECT_TRUE(mentions(proof->problems(0).detail(), names)) << proof->problems(0).detail();
  };
  const auto rewrite = [&](auto&& change) {
    auto opened = CheckpointFolder::open(files_, "/out");
    ASSERT_TRUE(opened.ok());
    TestCheckpoint copy;
    for (const TensorInfo& info : opened->tensors()) change(copy, info, *opened->read_all(info));
    copy.write(files_, "/out", "");
  };
  damaged("value", "[3, 5]", [&] {
    rewrite([](TestCheckpoint& copy, const TensorInfo& info, std::vector<std::byte> bytes) {
      if (info.name == "l.q_proj.weight") bytes[(3 * 72 + 5) * 2] ^= std::byte{1};
      copy.add(info.name, info.dtype, info.shape, bytes);
    });
  });
  damaged("value", "byte 8", [&] {
    rewrite([](TestCheckpoint& copy, const TensorInfo& info, std::vector<std::byte> bytes) {
      if (info.name == "l.gate.e_score_correction_bias") bytes[8] ^= std::byte{1};
      copy.add(info.name, info.dtype, info.shape, bytes);
    });
  });
  damaged("missing", "embed.weight", [&] {
    rewrite([](TestCheckpoint& copy, const TensorInfo& info, std::vector<std::byte> bytes) {
      if (info.name != "embed.weight") copy.add(info.name, info.dtype, info.shape, bytes);
    });
  });
  damaged("extra", "more.weight", [&] {
    rewrite([](TestCheckpoint& copy, const TensorInfo& info, std::vector<std::byte> bytes) {
      copy.add(info.name, info.dtype, info.shape, bytes);
      if (info.name == "embed.weight") copy.add("more.weight", info.dtype, info.shape, bytes);
    });
  });
  damaged("shape", "[72, 40]", [&] {
    rewrite([](TestCheckpoint& copy, const TensorInfo& info, std::vector<std::byte> bytes) {
      const bool turn = info.name == "l.q_proj.weight";
      copy.add(info.name, info.dtype, turn ? std::vector<int64_t>{72, 40} : info.shape, bytes);
    });
  });
  damaged("dtype", "F16", [&] {
    rewrite([](TestCheckpoint& copy, const TensorInfo& info, std::vector<std::byte> bytes) {
      copy.add(info.name, info.name == "embed.weight" ? DType::kF16 : info.dtype, info.shape, bytes);
    });
  });
  damaged("config", "quantisation", [&] { files_.put("/out/config.json", kBlockConfig); });
  damaged("file", "truncated", [&] {
    const std::string whole = files_.snapshot()["/out/model.safetensors"];
    files_.put("/out/model.safetensors", whole.substr(0, whole.size() - 7));
  });
}

TEST_F(Conversion, DiffMeasuresTheRoundingOfAConversion) {
  ASSERT_TRUE(run(from_to("/in", "/out")).ok());
  v1::DiffConfig config;
  config.set_a("/in");
  config.set_b("/out");
  const auto report = diff(config, {files_, pool_});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->only_in_a_size() + report->only_in_b_size(), 0);
  EXPECT_EQ(report->compared(), 3);
  EXPECT_FALSE(report->identical());
  ASSERT_EQ(report->tensors_size(), 1);
  EXPECT_EQ(report->tensors(0).name(), "l.q_proj.weight");
  // One rounding to 8 bits: at most half a unit, 2^-9, of each value; about 56 dB over all.
  EXPECT_LE(report->tensors(0).max_rel(), 0x1p-8);
  EXPECT_GT(report->tensors(0).sqnr_db(), 52);
  EXPECT_LT(report->tensors(0).sqnr_db(), 60);
  EXPECT_EQ(report->tensors(0).difference(), "value");
  EXPECT_EQ(report->first_different(), "l.q_proj.weight");
  config.set_tolerance(0.01);
  const auto tolerant = diff(config, {files_, pool_});
  EXPECT_TRUE(tolerant->identical());
  EXPECT_FALSE(tolerant->has_first_different());
  EXPECT_EQ(tolerant->tensors(0).difference(), "within_tolerance");
  config.clear_tolerance();
  config.set_b("/in");
  EXPECT_TRUE(diff(config, {files_, pool_})->identical());
  config.set_decode(false);
  config.set_b("/out");
  const auto stored = diff(config, {files_, pool_});
  ASSERT_TRUE(stored.ok());
  ASSERT_EQ(stored->only_in_a_size(), 1);
  EXPECT_EQ(stored->only_in_a(0), "l.q_proj.weight_scale_inv");
}

TEST_F(Conversion, DiffTellsShapesNamesAndDtypesFromValues) {
  const std::vector<std::byte> bytes(24);
  TestCheckpoint a, b;
  a.add("same", DType::kF32, {2, 3}, bytes);
  b.add("same", DType::kF32, {2, 3}, bytes);
  a.add("turned", DType::kF32, {2, 3}, bytes);
  b.add("turned", DType::kF32, {3, 2}, bytes);
  a.add("stored", DType::kF32, {6}, bytes);
  b.add("stored", DType::kF64, {6}, std::vector<std::byte>(48));
  a.add("packed", DType::kE2M1, {48}, bytes);
  b.add("packed", DType::kF32, {48}, std::vector<std::byte>(192));
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6};
  a.add_f32("values", {2, 3}, numbers);
  numbers[4] = 5.5f;
  numbers[5] = 7;
  b.add_f32("values", {2, 3}, numbers);
  std::vector<std::byte> codes = bytes;
  a.add("codes", DType::kE2M1, {2, 24}, codes);
  codes[12] = std::byte{0x31};  // elements 24 and 25: [1, 0] and [1, 1]
  b.add("codes", DType::kE2M1, {2, 24}, codes);
  a.add("zz_only_a", DType::kF32, {6}, bytes);
  b.add("zz_only_b", DType::kF32, {6}, bytes);
  a.write(files_, "/a", "");
  b.write(files_, "/b", "");
  v1::DiffConfig config;
  config.set_a("/a");
  config.set_b("/b");
  const auto report = diff(config, {files_, pool_});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->identical());
  EXPECT_EQ(report->first_different(), "codes");
  EXPECT_EQ(report->compared(), 6);
  EXPECT_EQ(report->equal(), 2);
  ASSERT_EQ(report->only_in_a_size(), 1);
  ASSERT_EQ(report->only_in_b_size(), 1);
  EXPECT_EQ(report->only_in_a(0), "zz_only_a");
  EXPECT_EQ(report->only_in_b(0), "zz_only_b");
  std::map<std::string, v1::TensorDiff> lines;
  for (const auto& line : report->tensors()) lines[line.name()] = line;
  EXPECT_EQ(lines.count("same"), 0u);
  EXPECT_EQ(lines["stored"].difference(), "stored_as");
  for (const char* name : {"turned", "packed"}) {
    const v1::TensorDiff& line = lines[name];
    EXPECT_EQ(line.difference(), line.name() == "turned" ? "shape" : "dtype");
    EXPECT_FALSE(line.has_different() || line.has_max_abs() || line.has_max_rel() || line.has_sqnr_db()) << name;
  }
  EXPECT_EQ(lines["turned"].shape_b(0), 3);
  EXPECT_EQ(lines["values"].different(), 2);
  ASSERT_EQ(lines["values"].first_at_size(), 2);
  EXPECT_EQ(lines["values"].first_at(0), 1);
  EXPECT_EQ(lines["values"].first_at(1), 1);
  EXPECT_EQ(lines["values"].first_a(), 5);
  EXPECT_EQ(lines["values"].first_b(), 5.5);
  EXPECT_EQ(lines["codes"].different(), 2);
  EXPECT_EQ(lines["codes"].first_at(0), 1);
  EXPECT_EQ(lines["codes"].first_at(1), 0);
  EXPECT_FALSE(lines["codes"].has_max_abs());
}

// On the operating system's files: what another process or a kill can do.
class ConversionOnDisk : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(std::getenv("TEST_TMPDIR")) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    TestCheckpoint large;
    large.add_codes("a.weight", DType::kE4M3FN, {1024, 1024}, 1).add_scales("a.weight_scale", {1024, 1}, 2);
    large.write(posix_files(), path("in"), "");
  }
  std::string path(const std::string& name) const { return (root_ / name).string(); }
  std::filesystem::path root_;
};

TEST_F(ConversionOnDisk, KilledInTheMiddleLeavesNoResult) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ThreadPool pool(2);
    (void)convert(from_to(path("in"), path("out")), {posix_files(), pool, nullptr, [](int64_t done, int64_t total) {
                                                       if (done > total / 3) kill(getpid(), SIGKILL);
                                                     }});
    _exit(0);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFSIGNALED(state));
  EXPECT_FALSE(posix_files().exists(path("out")));
  EXPECT_TRUE(posix_files().exists(path("out.partial")));
  // The next run clears what the killed one left.
  ThreadPool pool(2);
  ASSERT_TRUE(convert(from_to(path("in"), path("out")), {posix_files(), pool}).ok());
  EXPECT_FALSE(posix_files().exists(path("out.partial")));
}

TEST_F(ConversionOnDisk, NoticesASourceThatIsCutOrChanged) {
  for (bool cut : {true, false}) {
    SCOPED_TRACE(cut);
    const std::string file = path("in/model.safetensors");
    bool touched = false;
    ThreadPool pool(1);
    const auto report = convert(from_to(path("in"), path("out")),
                                {posix_files(), pool, nullptr, [&](int64_t, int64_t) {
                                   if (std::exchange(touched, true)) return;
                                   if (cut) {
                                     std::filesystem::resize_file(file, 300000);
                                   } else {
                                     std::filesystem::last_write_time(
                                         file, std::filesystem::last_write_time(file) + std::chrono::seconds(5));
                                   }
                                 }});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().reason(), cut ? "file.short_read" : "checkpoint.source_changed")
        << report.status().message();
    EXPECT_TRUE(mentions(report.status().message(), "model.safetensors"));
    EXPECT_FALSE(posix_files().exists(path("out")));
    EXPECT_FALSE(posix_files().exists(path("out.partial")));
    SetUp();
  }
}

}  // namespace
}  // namespace invar
