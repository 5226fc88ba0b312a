// invar.hpp: every wrapper reaches its function; exceptions, moves, threads.
#include "invar/invar.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

namespace invar_test {
namespace {

namespace fs = std::filesystem;
using invar::Error;

struct HostFault {
  int number;
};

// The error that a call throws.
template <typename Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(INVAR_OK, "", "");
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Cpp : public testing::Test {
 protected:
  Cpp() : folder(fs::path(testing::TempDir()) / ("cpp-" + std::to_string(getpid()))) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    // Links that leave the folder, as runfiles are, would be refused.
    fs::copy("tests/cases/autofp8-static-llama/input", folder / "fp8");
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 200; ++i) text << "line " << i << " says that " << i << " and 1 is " << i + 1 << "\n";
  }
  ~Cpp() override { fs::remove_all(folder); }

  // One thread: only what the calling thread works on is told to progress functions.
  static invar::Runtime make_runtime() {
    invar::RuntimeOptions options;
    options.threads = 1;
    return invar::Runtime(options);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  std::string quoted(const std::string& name) const { return "\"" + path(name) + "\""; }
  std::string conversion(const std::string& destination) const {
    return runtime.from_json("convert",
                             R"({"source": )" + quoted("fp8") + R"(, "destination": )" + quoted(destination) + "}");
  }
  // A two-layer model; `more` adds fields.
  std::string train(const std::string& more) const {
    return runtime.from_json("train", R"({"model": {"hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 64}, "micro_batch": 2, "optimizer": {"lr": 0.01},
        "schedule": {"warmup_steps": 1})" +
                                          more + "}");
  }
  std::string on_text(const std::string& output, int steps) const {
    return train(R"(, "output": )" + quoted(output) + R"(, "steps": )" + std::to_string(steps) +
                 R"(, "data": {"sequence_length": 16, "paths": [)" + quoted("text.txt") + "]}");
  }
  std::string host_driven() const {
    return train(R"(, "data": {"sequence_length": 16, "tokenizer": {"kind": "byte"}})");
  }

  invar::Runtime runtime = make_runtime();
  const fs::path folder;
};

TEST_F(Cpp, TellsAboutTheLibrary) {
  EXPECT_EQ(invar::abi_version(), INVAR_ABI_VERSION);
  EXPECT_EQ(invar::version_number(), INVAR_VERSION_MAJOR * 1000000 + INVAR_VERSION_MINOR * 1000 + INVAR_VERSION_PATCH);
  EXPECT_EQ(invar::version(), std::to_string(INVAR_VERSION_MAJOR) + "." + std::to_string(INVAR_VERSION_MINOR) + "." +
                                  std::to_string(INVAR_VERSION_PATCH));
  EXPECT_TRUE(has(std::string(invar::build_info()), "ABI"));
  EXPECT_TRUE(invar::has_feature("cpu"));
  EXPECT_FALSE(invar::has_feature("absent"));
  EXPECT_FALSE(invar::has_feature({}));
  EXPECT_EQ(invar::code_name(INVAR_NOT_FOUND), "NOT_FOUND");
  EXPECT_EQ(invar::dtype_name(INVAR_DTYPE_BF16), "bf16");
  EXPECT_EQ(invar::dtype_bits(INVAR_DTYPE_BF16), 16);
  EXPECT_TRUE(has(runtime.to_json("InfoReport", runtime.info()), "\"threads\":1"));
}

TEST_F(Cpp, WritesAndReadsMessages) {
  const std::string config = runtime.from_json("train", R"({"steps": 7})");
  EXPECT_EQ(runtime.from_text("train", "steps: 7"), config);
  EXPECT_EQ(runtime.to_json("train", config), R"({"steps":7})");
  EXPECT_TRUE(has(runtime.to_json("train", config, true), "\n"));
  EXPECT_TRUE(has(runtime.to_text("train", config), "steps: 7"));
  EXPECT_EQ(runtime.set("train", {}, "steps=7"), config);
  EXPECT_GT(runtime.with_defaults("train", config).size(), config.size());
  runtime.check("train", config);
  EXPECT_TRUE(has(runtime.explain("train.optimizer.lr"), "lr"));
  EXPECT_TRUE(has(runtime.describe("convert"), "\"destination\""));
}

TEST_F(Cpp, ErrorsCarryCodeReasonAndMessage) {
  const Error error = error_of([&] { runtime.from_json("train", R"({"stepz": 7})"); });
  EXPECT_EQ(error.code(), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(error.reason(), "config.unknown_field");
  EXPECT_TRUE(has(error.message(), "stepz"));
  EXPECT_STREQ(error.what(), error.message().c_str());
  EXPECT_EQ(error.callback_value(), 0);
  EXPECT_THROW(runtime.check("train", runtime.from_json("train", R"({"steps": -1})")), std::runtime_error);
  EXPECT_EQ(error_of([&] { runtime.inspect({}); }).reason(), "config.missing_field");
}

TEST_F(Cpp, ConvertsAndProvesWithProgress) {
  int events = 0;
  const auto count = [&](const invar_progress& event) {
    EXPECT_STRNE(event.stage, "");
    ++events;
    return 0;
  };
  EXPECT_TRUE(has(runtime.to_json("InspectReport",
                                  runtime.inspect(runtime.from_json("inspect", R"({"path": )" + quoted("fp8") + "}"))),
                  "k_proj"));
  const std::string report = runtime.convert(conversion("bf16"), count);
  EXPECT_GT(events, 0);
  EXPECT_TRUE(has(runtime.to_json("ConvertReport", report), R"("passed":true)"));
  const std::string verified = runtime.verify(
      runtime.from_json("verify", R"({"source": )" + quoted("fp8") + R"(, "destination": )" + quoted("bf16") + "}"));
  EXPECT_TRUE(has(runtime.to_json("VerifyReport", verified), R"("passed":true)"));
  const std::string difference =
      runtime.diff(runtime.from_json("diff", R"({"a": )" + quoted("bf16") + R"(, "b": )" + quoted("bf16") + "}"));
  EXPECT_TRUE(has(runtime.to_json("DiffReport", difference), R"("identical":true)"));
  EXPECT_EQ(error_of([&] { runtime.calibrate({}); }).code(), INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(error_of([&] { runtime.export_checkpoint({}); }).reason(), "config.missing_field");
  const std::string gemm =
      runtime.bench(runtime.from_json("bench", R"({"kind": "gemm", "rows": 8, "cols": 8, "inner": 8, "repeats": 1})"));
  EXPECT_TRUE(has(runtime.to_json("BenchReport", gemm), "gflop"));
}

TEST_F(Cpp, ProgressStopsWithItsValueOrThrowsItsOwn) {
  const Error stopped =
      error_of([&] { runtime.convert(conversion("stopped"), [](const invar_progress&) { return 42; }); });
  EXPECT_EQ(stopped.code(), INVAR_ABORTED);
  EXPECT_EQ(stopped.callback_value(), 42);
  int calls = 0;
  try {
    runtime.convert(conversion("thrown"), [&](const invar_progress&) -> int32_t {
      ++calls;
      throw HostFault{7};
    });
    FAIL();
  } catch (const HostFault& fault) {
    EXPECT_EQ(fault.number, 7);
  }
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(fs::exists(folder / "stopped"));
  EXPECT_FALSE(fs::exists(folder / "thrown"));
}

TEST_F(Cpp, CancelEndsWorkFromAnotherThread) {
  const invar::Cancel cancel(runtime);
  EXPECT_FALSE(cancel.requested());
  invar::Session session(runtime, on_text("run", 100000));
  std::thread other;
  std::atomic<bool> started = false;
  other = std::thread([&] {
    while (!started) std::this_thread::yield();
    cancel.request();
  });
  const Error error = error_of([&] {
    session.run(
        [&](const invar_progress& event) {
          started = started || event.kind == INVAR_PROGRESS_STEP;
          return 0;
        },
        &cancel);
  });
  other.join();
  EXPECT_EQ(error.code(), INVAR_CANCELLED);
  EXPECT_TRUE(cancel.requested());
  EXPECT_EQ(error_of([&] { runtime.convert(conversion("never"), {}, &cancel); }).code(), INVAR_CANCELLED);
  EXPECT_TRUE(has(runtime.to_json("TrainReport", session.report()), "\"steps\""));
}

TEST_F(Cpp, ReadsACheckpointFromSeveralThreads) {
  invar::Checkpoint checkpoint(runtime, runtime.from_json("open", R"({"path": )" + quoted("fp8") + "}"));
  runtime = invar::Runtime(nullptr);  // children keep it alive
  EXPECT_EQ(checkpoint.count(), 20);
  const int64_t index = checkpoint.find("model.layers.0.self_attn.k_proj.weight");
  const invar_checkpoint_tensor tensor = checkpoint.describe(index);
  EXPECT_EQ(tensor.rows, 32);
  EXPECT_STREQ(tensor.rule, "tensor_scale");
  std::vector<uint16_t> whole(static_cast<size_t>(tensor.elements));
  checkpoint.read_rows(index, 0, tensor.rows, INVAR_DTYPE_BF16, whole);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint16_t> row(64);
      for (int64_t r = t; r < 32; r += 4) {
        checkpoint.read_rows(index, r, 1, INVAR_DTYPE_BF16, row);
        EXPECT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + r * 64));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(error_of([&] { checkpoint.find("absent"); }).reason(), "checkpoint.no_tensor");
}

TEST_F(Cpp, TrainsDrivenByTheHost) {
  invar::Session session(runtime, host_driven());
  EXPECT_TRUE(has(runtime.to_json("ModelInfo", session.info()), "\"hidden_size\":32"));
  std::vector<int32_t> ids(32);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 'a' + static_cast<int32_t>(i % 7);
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    session.begin(1);
    const invar_loss loss = session.forward_backward(2, ids);
    EXPECT_EQ(loss.tokens, 30);
    const invar_step_metrics metrics = step == 3 ? session.step(0.0) : session.step();
    if (step == 3) {
      EXPECT_EQ(metrics.lr, 0);
    }
    (step == 0 ? first : last) = metrics.loss;
  }
  EXPECT_LT(last, first - 1);
  session.save(path("saved"));
  EXPECT_EQ(error_of([&] { session.save(path("saved")); }).reason(), "output.not_empty");
  invar::Session resumed(runtime, host_driven());
  resumed.resume(path("saved"));
  for (invar::Session* each : {&session, &resumed}) each->begin(1);
  const std::vector<uint8_t> mask(32, 1);
  EXPECT_EQ(session.forward_backward(2, ids, {}, mask).sum, resumed.forward_backward(2, ids).sum);
  for (const auto call : {+[](invar::Session&s, std::vector<int32_t>&v) { s.forward_backward(3, v); },
                          +[](invar::Session&s, std::vector<int32_t>&v) { s.forward_backward(0, v); },
                          +[](invar::Session&s, std::vector<int32_t>&v) {
                            s.forward_backward(2, v, {1, 2, 3});
                          }}) {
    EXPECT_EQ(error_of([&] { call(session, ids); }).reason(), "batch.shape");
  }
  EXPECT_EQ(error_of([&] { session.run(); }).code(), INVAR_FAILED_PRECONDITION);
}

TEST_F(Cpp, RunsEvaluatesGeneratesExportsAndLoads) {
  invar::Session session(runtime, on_text("run", 10));
  int steps = 0;
  const std::string report = session.run([&](const invar_progress& event) {
    if (event.kind == INVAR_PROGRESS_STEP) {
      EXPECT_EQ(event.step->step, ++steps);
    }
    return 0;
  });
  EXPECT_EQ(steps, 10);
  EXPECT_TRUE(has(runtime.to_json("TrainReport", report), "\"steps\":10"));
  EXPECT_TRUE(has(runtime.to_json("EvalReport", session.evaluate()), "\"perplexity\""));
  const std::string request = runtime.from_json("generate", R"({"prompt": "line", "max_tokens": 8})");
  const std::string target = runtime.from_json("export", R"({"destination": )" + quoted("out") + "}");
  EXPECT_THROW(session.export_to(target, [](const invar_progress&) -> int32_t { throw HostFault{1}; }), HostFault);
  session.export_to(target);

  std::map<bool, std::string> streamed;
  streamed[false];
  const std::string from_session = session.generate(request, [&](const invar_token& token) {
    streamed[false].append(token.text, token.text_size);
    return 0;
  });
  invar::Model model(runtime, runtime.from_json("load", R"({"path": )" + quoted("out") + "}"));
  EXPECT_TRUE(has(runtime.to_json("ModelInfo", model.info()), "\"hidden_size\":32"));
  model.generate(request, [&](const invar_token& token) {
    streamed[true].append(token.text, token.text_size);
    return 0;
  });
  EXPECT_EQ(streamed[false], streamed[true]);
  EXPECT_TRUE(has(runtime.to_json("GenerateReport", model.generate(request, [](const invar_token&) { return 1; })),
                  R"("finish_reason":"callback")"));
  EXPECT_THROW(model.generate(request, [](const invar_token&) -> int32_t { throw HostFault{2}; }), HostFault);
  EXPECT_THROW(session.generate(request, [](const invar_token&) -> int32_t { throw HostFault{3}; }), HostFault);
  const std::string text = runtime.from_json("EvalConfig", R"({"data": {"paths": [)" + quoted("text.txt") + "]}}");
  EXPECT_TRUE(has(runtime.to_json("EvalReport", model.evaluate(text)), "\"perplexity\""));
  EXPECT_EQ(error_of([&] { invar::Model(runtime, {}); }).reason(), "config.missing_field");

  // A training checkpoint on disk, and the two compared on text.
  runtime.export_checkpoint(runtime.from_json("export", R"({"target": "fp8_tensor", "source": )" + quoted("run") +
                                                            R"(, "destination": )" + quoted("again") + "}"));
  const std::string calibrated = runtime.calibrate(
      runtime.from_json("calibrate", R"({"source": )" + quoted("out") + R"(, "destination": )" + quoted("again") +
                                         R"(, "data": {"paths": [)" + quoted("text.txt") + "]}}"));
  EXPECT_TRUE(has(runtime.to_json("CalibrateReport", calibrated), "\"passed\""));
}

TEST_F(Cpp, TensorsCastQuantizeMultiplyAndShareMemory) {
  int drops = 0;
  std::vector<float> host = {1, 2, 3, 4, 5, 6};
  {
    invar::Tensor view = invar::Tensor::view(runtime, INVAR_DTYPE_FP32, {2, 3}, host, [&] { ++drops; });
    EXPECT_EQ(view.data(), host.data());
    EXPECT_EQ(view.describe().elements, 6);
    const invar::Tensor half = view.cast(INVAR_DTYPE_BF16);
    EXPECT_EQ(half.read(invar::Memory(nullptr, 0)), 12u);
    std::vector<uint16_t> bits(6);
    EXPECT_EQ(half.read(bits), 12u);
    EXPECT_EQ(bits[0], 0x3F80);
    EXPECT_EQ(error_of([&] { half.read(invar::Memory(bits.data(), 4)); }).code(), INVAR_OUT_OF_RANGE);
    const invar::Tensor codes = view.quantize();
    EXPECT_EQ(codes.describe().quantized, 1);
    EXPECT_EQ(codes.dequantize(INVAR_DTYPE_FP32).describe().rank, 2);
    invar::Tensor product = invar::Tensor::matmul(view, false, view, true, INVAR_DTYPE_FP32);
    EXPECT_EQ(static_cast<const float*>(product.data())[3], 16 + 25 + 36);
    const invar::Tensor shared = invar::Tensor::from_dlpack(runtime, product.to_dlpack());
    EXPECT_EQ(invar::Tensor::matmul(shared, false, shared, false, INVAR_DTYPE_BF16).describe().elements, 4);
    EXPECT_EQ(drops, 0);
  }
  EXPECT_EQ(drops, 1);
  EXPECT_EQ(error_of([&] { invar::Tensor::view(runtime, INVAR_DTYPE_FP32, {7}, host, [&] { ++drops; }); }).code(),
            INVAR_INVALID_ARGUMENT);
  EXPECT_EQ(drops, 2) << "dropped also when it fails";
  EXPECT_EQ(invar::Tensor(runtime, INVAR_DTYPE_FP32, {}).describe().elements, 1);
  EXPECT_EQ(error_of([&] { invar::Tensor::from_dlpack(runtime, nullptr); }).code(), INVAR_INVALID_ARGUMENT);
}

TEST_F(Cpp, OptimizesTheHostsTensorsWithAccumulatedGradients) {
  invar::Accumulator accumulator(runtime, {4});
  invar::Tensor gradient(runtime, INVAR_DTYPE_FP32, {4});
  for (int i = 0; i < 4; ++i) static_cast<float*>(gradient.data())[i] = 2;
  accumulator.add(0, gradient);
  accumulator.add(0, gradient);
  accumulator.add_tokens(8);
  EXPECT_EQ(accumulator.summary().tokens, 8);
  EXPECT_NEAR(accumulator.summary().norm, 8, 1e-6);  // sqrt(4 * 4^2)

  invar::Optimizer optimizer(runtime, runtime.from_json("optimizer", R"({"weight_decay": 0, "clip_norm": 0})"));
  invar::Tensor weight(runtime, INVAR_DTYPE_FP32, {2, 2});
  EXPECT_EQ(optimizer.add(weight, true), 0);
  std::vector<invar::Tensor> gradients;
  gradients.push_back(accumulator.gradient(0));
  const invar_optimizer_result result = optimizer.step(gradients, 0.5, 1.0 / 8);
  EXPECT_EQ(result.step, 1);
  EXPECT_NEAR(result.grad_norm, 1, 1e-6);
  EXPECT_NEAR(static_cast<const float*>(weight.data())[0], -0.5, 1e-4);  // lr against the sign, from zero moments
  invar::Tensor moment = optimizer.state(0, INVAR_STATE_FIRST_MOMENT);
  EXPECT_GT(static_cast<const float*>(moment.data())[0], 0);
  optimizer.set_step(9);
  EXPECT_EQ(optimizer.step(gradients, 0.5).step, 10);
  EXPECT_EQ(error_of([&] { optimizer.step({}, 0.5); }).code(), INVAR_INVALID_ARGUMENT);
  accumulator.reset();
  EXPECT_EQ(accumulator.summary().tokens, 0);
}

TEST_F(Cpp, TokenizersEncodeDecodeChatAndLearn) {
  const invar::Tokenizer tokenizer(runtime, "tests/cases/tokenizers/small-llama3");
  const auto ids = tokenizer.encode("Hello<|eot_id|>", INVAR_ENCODE_PARSE_SPECIAL);
  EXPECT_EQ(tokenizer.decode(ids), "Hello<|eot_id|>");
  EXPECT_EQ(tokenizer.decode(ids, INVAR_DECODE_SKIP_SPECIAL), "Hello");
  EXPECT_TRUE(tokenizer.encode({}).empty());
  EXPECT_EQ(tokenizer.decode({}), "");
  EXPECT_TRUE(has(runtime.to_json("TokenizerInfo", tokenizer.info()), "vocab_size"));
  std::ofstream(folder / "t.jinja") << "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
  EXPECT_EQ(tokenizer.chat(runtime.from_json(
                "ChatConfig", R"({"messages_json": "[{\"role\": \"user\", \"content\": \"hi\"}]", "template_path": )" +
                                  quoted("t.jinja") + "}")),
            "user:hi;");
  runtime.train_tokenizer(runtime.from_json(
      "TokenizerTrainConfig",
      R"({"paths": [)" + quoted("text.txt") + R"(], "vocab_size": 270, "output": )" + quoted("learned.json") + "}"));
  EXPECT_LT(invar::Tokenizer(runtime, path("learned.json")).encode("says that").size(), 9u);
  const std::string preview = runtime.preview_data(runtime.from_json(
      "PreviewConfig", R"({"data": {"paths": [)" + quoted("text.txt") + R"(], "tokenizer": {"kind": "byte"}}})"));
  EXPECT_TRUE(has(runtime.to_json("PreviewReport", preview), "\"documents\""));
  EXPECT_EQ(error_of([&] { invar::Tokenizer(runtime, "absent"); }).code(), INVAR_NOT_FOUND);
}

TEST_F(Cpp, MovedFromHandlesAreEmptyAndRefuse) {
  invar::Tensor tensor(runtime, INVAR_DTYPE_FP32, {4});
  invar_tensor* const raw = tensor.get();
  invar::Tensor moved = std::move(tensor);
  EXPECT_EQ(moved.get(), raw);
  EXPECT_TRUE(moved);
  EXPECT_FALSE(tensor);  // NOLINT(bugprone-use-after-move): what this tests
  EXPECT_EQ(error_of([&] { tensor.describe(); }).code(), INVAR_INVALID_ARGUMENT);
  tensor = std::move(moved);
  EXPECT_EQ(tensor.describe().elements, 4);
  // Handles of invar.h go in and out.
  invar_tensor* const owned = tensor.release();
  EXPECT_FALSE(tensor);
  EXPECT_EQ(invar::Tensor(owned).get(), raw);
}

TEST_F(Cpp, LendsLogMemoryAndFilesToARuntime) {
  struct Counts {
    std::atomic<int> lines{0}, allocated{0}, freed{0}, reads{0};
    bool no_memory = false, broken = false;
  };
  const auto counts = std::make_shared<Counts>();
  invar::RuntimeOptions options;
  options.threads = 2;
  options.log_level = INVAR_LOG_DEBUG;
  options.log = [counts](int32_t, std::string_view) {
    ++counts->lines;
    throw HostFault{1};
  };
  options.allocate = [counts](size_t size, size_t alignment) -> void* {
    if (counts->no_memory) throw HostFault{2};
    ++counts->allocated;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  };
  options.deallocate = [counts](void* memory, size_t) {
    ++counts->freed;
    std::free(memory);
  };
  options.file_prefix = "store://";
  const auto local = [this](std::string name) {
    return folder / "fp8" / name.substr(std::min<size_t>(name.size(), 10));
  };
  options.file_size = [local](const char* name) -> int64_t {
    if (!fs::is_regular_file(local(name))) throw Error(INVAR_NOT_FOUND, "", "no such file");
    return static_cast<int64_t>(fs::file_size(local(name)));
  };
  options.file_read_at = [local, counts](const char* name, int64_t offset, invar::Memory buffer) {
    if (counts->broken) throw HostFault{3};
    ++counts->reads;
    std::ifstream file(local(name), std::ios::binary);
    file.seekg(offset);
    file.read(static_cast<char*>(buffer.data()), static_cast<std::streamsize>(buffer.bytes()));
  };
  options.file_list = [this](const char*) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder / "fp8")) names.push_back(entry.path().filename());
    return names;
  };
  {
    const invar::Runtime lent(options);
    const std::string open = lent.from_json("open", R"({"path": "store://m"})");
    const invar::Checkpoint checkpoint(lent, open);
    EXPECT_EQ(checkpoint.count(), 20);
    EXPECT_GT(counts->reads, 0);
    EXPECT_EQ(
        error_of([&] { invar::Checkpoint(lent, lent.from_json("open", R"({"path": "store://m/absent"})")); }).code(),
        INVAR_NOT_FOUND);
    counts->broken = true;
    EXPECT_EQ(error_of([&] { invar::Checkpoint(lent, open); }).code(), INVAR_INTERNAL);
    const invar::Tensor tensor(lent, INVAR_DTYPE_FP32, {100});
    EXPECT_GT(counts->allocated, 0);
    counts->no_memory = true;
    EXPECT_EQ(error_of([&] { invar::Tensor(lent, INVAR_DTYPE_FP32, {100}); }).code(), INVAR_RESOURCE_EXHAUSTED);
    counts->no_memory = false;
    // A change of the recipe is worth a line. A log function that throws does not end the work.
    const std::string precision = R"(precision={"recipe": "fp8_block", "ladder": {"warmup_steps": 1}})";
    invar::Session(lent, lent.set("train", on_text("logged", 2), precision)).run();
    EXPECT_GT(counts->lines, 0);
  }
  EXPECT_EQ(counts->allocated, counts->freed);
  options = {};
  EXPECT_EQ(counts.use_count(), 1) << "the functions are gone with the runtime";
  options.allocate = [counts](size_t, size_t) -> void* { return nullptr; };
  EXPECT_EQ(error_of([&] { invar::Runtime lent(options); }).reason(), "argument.allocator");
  options = {};
  EXPECT_EQ(counts.use_count(), 1) << "also when it could not be made";
}

}  // namespace
}  // namespace invar_test
