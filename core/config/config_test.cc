#include "core/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/config/tree.h"
#include "invar/v1/common.pb.h"
#include "invar/v1/convert.pb.h"
#include "invar/v1/inspect.pb.h"
#include "invar/v1/report.pb.h"
#include "invar/v1/train.pb.h"

namespace invar::config {
namespace {

using v1::ConvertConfig;
using v1::TrainConfig;

template <typename T>
std::string failure(const Result<T>& result) {
  return result.ok() ? "ok" : cat(result.status().reason(), " | ", result.status().message());
}
std::string failure(const Status& status) { return status.ok() ? "ok" : cat(status.reason(), " | ", status.message()); }

TEST(Table, EveryDefaultParsesAndIsInRange) {
  for (const MessageType& type : message_types()) {
    for (const Field& field : type.fields) {
      if (field.default_text == nullptr) continue;
      const auto value = parse_scalar(field, field.default_text, cat(type.full_name, ".", field.name));
      EXPECT_TRUE(value.ok()) << failure(value);
    }
    Node node(type);
    fill_defaults(node);
    // Required fields have no default; everything else must pass its own check.
    const Status status = check(node);
    EXPECT_TRUE(status.ok() || status.reason() == "config.missing_field") << failure(status);
  }
}

TEST(Table, EveryFieldOfAConfigIsDocumentedOrSelfEvident) {
  for (const MessageType& type : message_types()) {
    for (const Field& field : type.fields) EXPECT_EQ(type.find(field.number), &field) << field.name;
  }
  EXPECT_NE(std::string(find_message("train")->find("steps")->doc), "");
  EXPECT_EQ(find_message("TrainConfig"), find_message("invar.v1.TrainConfig"));
  EXPECT_EQ(find_message("no_such"), nullptr);
}

TEST(Json, ReadsEveryKindOfField) {
  const auto config = from_json<TrainConfig>(R"({
    // notes are allowed
    "output": "run", "steps": 1e3, "seed": 18446744073709551615,
    "data": {"paths": ["a.txt", "b.jsonl"], "shuffle": false, "format": "jsonl"},
    "precision": {"recipe": "fp8-block", "ladder": {"warmup_steps": 5}},
    "optimizer": {"lr": 3e-4}})");
  ASSERT_TRUE(config.ok()) << failure(config);
  EXPECT_EQ(config->steps(), 1000);
  EXPECT_EQ(config->seed(), 18446744073709551615u);
  EXPECT_EQ(config->data().paths_size(), 2);
  EXPECT_FALSE(config->data().shuffle());
  EXPECT_EQ(config->data().format(), v1::DATA_FORMAT_JSONL);
  EXPECT_EQ(config->precision().recipe(), v1::RECIPE_FP8_BLOCK);
  EXPECT_EQ(config->precision().ladder().warmup_steps(), 5);
  EXPECT_EQ(config->optimizer().lr(), 3e-4);
  EXPECT_FALSE(config->has_micro_batch());
}

TEST(Json, UnitsAsPeopleWriteThem) {
  const auto config =
      from_json<ConvertConfig>(R"({"memory_bytes": "256MiB", "calibrate": {"max_loss_delta": "0.5%"}})");
  ASSERT_TRUE(config.ok()) << failure(config);
  EXPECT_EQ(config->memory_bytes(), 268435456);
  EXPECT_EQ(config->calibrate().max_loss_delta(), 0.005);
}

TEST(Json, ErrorsNamePathAndExpectation) {
  const auto train = [](const char* text) { return failure(from_json<TrainConfig>(text)); };
  EXPECT_EQ(train(R"({"optimizer": {"lrr": 1}})"),
            "config.unknown_field | optimizer.lrr: unknown field of OptimizerConfig; did you mean \"lr\"?");
  EXPECT_EQ(train(R"({"stpes": 1})"),
            "config.unknown_field | stpes: unknown field of TrainConfig; did you mean \"steps\"?");
  EXPECT_EQ(train(R"({"steps": "ten"})"), "config.wrong_type | steps: \"ten\" is not an integer");
  EXPECT_EQ(train(R"({"steps": 1.5})"), "config.wrong_type | steps: \"1.5\" is not an integer");
  EXPECT_EQ(train(R"({"steps": true})"), "config.wrong_type | steps: expected an integer, got a boolean");
  EXPECT_EQ(train(R"({"steps": [1]})"), "config.wrong_type | steps: expected an integer, got a list");
  EXPECT_EQ(train(R"({"steps": {}})"), "config.wrong_type | steps: expected an integer, got an object");
  EXPECT_EQ(train(R"({"optimizer": 3})"), "config.wrong_type | optimizer: expected an object, got a number");
  EXPECT_EQ(train(R"({"data": {"paths": "a"}})"),
            "config.wrong_type | data.paths: expected a list, each element a string, got a string");
  EXPECT_EQ(train(R"({"data": {"paths": [1]}})"), "config.wrong_type | data.paths[0]: expected a string, got a number");
  EXPECT_EQ(
      train(R"({"precision": {"recipe": "bf61"}})"),
      "config.unknown_value | precision.recipe: \"bf61\" is not one of fp32, bf16, fp8_tensor, fp8_block; did you "
      "mean \"bf16\"?");
  EXPECT_EQ(train(R"({"steps": 1, "steps": 2})"), "config.duplicate_field | steps: given twice");
  EXPECT_EQ(train("[]"), "config.wrong_type | json: expected an object, got a list");
  EXPECT_EQ(train("3"), "config.wrong_type | json: expected an object, got a number");
  EXPECT_THAT(train("{\"steps\": "), testing::StartsWith("config.syntax | json, byte "));
  EXPECT_THAT(train(""), testing::StartsWith("config.syntax | json, byte "));
  EXPECT_THAT(train("{\"steps\": 1} x"), testing::StartsWith("config.syntax | json, byte "));
  EXPECT_THAT(train("{\"output\": \"\xff\"}"), testing::StartsWith("config.syntax | json, byte "));
}

TEST(Json, HugeNumbersAndDepthAreRefused) {
  const auto train = [](const std::string& text) { return failure(from_json<TrainConfig>(text)); };
  EXPECT_THAT(train(R"({"steps": 99999999999999999999999})"), testing::StartsWith("config.wrong_type | steps"));
  EXPECT_THAT(train(R"({"optimizer": {"lr": 1e999}})"), testing::StartsWith("config.syntax"));
  EXPECT_THAT(train(R"({"seed": -1})"), testing::StartsWith("config.wrong_type | seed"));
  EXPECT_THAT(train(std::string(1000000, '[')), testing::StartsWith("config.wrong_type"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"data\":";
  EXPECT_THAT(train(deep), testing::StartsWith("config.unknown_field | data.data"));
  const std::string list = "{\"data\":{\"paths\":" + std::string(100000, '[');
  EXPECT_THAT(train(list), testing::StartsWith("config.wrong_type | data.paths[0]"));
}

TEST(Json, NonFiniteNumbersTravelAsStringsAndFailTheRangeCheck) {
  v1::CalibrateReport report;
  report.set_source_loss(std::numeric_limits<double>::quiet_NaN());
  report.set_kl_max(std::numeric_limits<double>::infinity());
  const std::string text = to_json(report, false);
  EXPECT_EQ(text, R"({"source_loss":"NaN","kl_max":"Infinity"})");
  const auto back = from_json<v1::CalibrateReport>(text);
  ASSERT_TRUE(back.ok()) << failure(back);
  EXPECT_TRUE(std::isnan(back->source_loss()));
  EXPECT_TRUE(std::isinf(back->kl_max()));
  const auto config = from_json<TrainConfig>(R"({"optimizer": {"lr": "NaN"}})");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(failure(check(*config)), "config.out_of_range | optimizer.lr: NaN is not > 0 and <= 10");
}

TEST(Forms, RoundTripThroughJsonTextAndWire) {
  ConvertConfig config;
  config.set_source("with \"quotes\", \n lines and \xC3\xA4 \x01");
  config.set_memory_bytes(std::numeric_limits<int64_t>::max());
  config.set_target(v1::TARGET_FORMAT_FP8_BLOCK);
  config.set_dry_run(false);
  (*config.mutable_assume())["block"] = "128x128";
  (*config.mutable_assume())["a"] = "";
  config.add_keep("x");
  config.add_keep("");
  config.mutable_calibrate()->set_max_loss_delta(0.1 + 0.2);
  config.mutable_calibrate()->mutable_data()->add_paths("p");
  const auto json = from_json<ConvertConfig>(to_json(config));
  const auto text = from_text<ConvertConfig>(to_text(config));
  const auto wire = parse<ConvertConfig>(config.SerializeAsString());
  ASSERT_TRUE(json.ok()) << failure(json);
  ASSERT_TRUE(text.ok()) << failure(text) << to_text(config);
  ASSERT_TRUE(wire.ok()) << failure(wire);
  for (const auto* each : {&*json, &*text, &*wire}) EXPECT_EQ(to_json(*each), to_json(config));
  EXPECT_EQ(json->memory_bytes(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(json->calibrate().max_loss_delta(), 0.1 + 0.2);

  v1::InspectReport report;
  for (const int64_t n : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) report.add_tensor()->add_shape(n);
  const auto back = from_json<v1::InspectReport>(to_json(report));
  ASSERT_TRUE(back.ok()) << failure(back);
  EXPECT_EQ(back->tensor(2).shape(0), int64_t{1} << 40);
  EXPECT_EQ(back->tensor(1).shape(0), -1);
}

TEST(Forms, KeyOrderIsThatOfTheDeclaration) {
  const auto config = from_json<TrainConfig>(R"({"steps": 1, "output": "x", "model": {"path": "m"}})");
  EXPECT_EQ(to_json(*config, false), R"({"output":"x","model":{"path":"m"},"steps":1})");
  EXPECT_EQ(to_json(v1::TrainReport(), true), "{}");
}

TEST(Text, ReadsProtobufTextForm) {
  const auto config = from_text<TrainConfig>(R"(
    # a comment
    output: "run" "2"; steps: 0x10
    optimizer { lr: 3e-4, beta1: .5 }
    data < paths: ["a", 'b'] paths: "c" >
    precision: { recipe: RECIPE_BF16 })");
  ASSERT_TRUE(config.ok()) << failure(config);
  EXPECT_EQ(config->output(), "run2");
  EXPECT_EQ(config->steps(), 16);
  EXPECT_EQ(config->optimizer().beta1(), 0.5);
  EXPECT_EQ(config->data().paths_size(), 3);
  EXPECT_EQ(config->precision().recipe(), v1::RECIPE_BF16);
}

TEST(Text, IsReadByOtherReaders) {
  TrainConfig config;
  config.mutable_precision()->set_recipe(v1::RECIPE_BF16);
  config.mutable_optimizer()->set_eps(std::numeric_limits<double>::infinity());
  EXPECT_EQ(to_text(config), "precision {\n  recipe: RECIPE_BF16\n}\noptimizer {\n  eps: inf\n}\n");
}

TEST(Text, ErrorsNameLineAndPath) {
  const auto train = [](const std::string& text) { return failure(from_text<TrainConfig>(text)); };
  EXPECT_EQ(train("\noptimizer { learning_rate: 1 }"),
            "config.unknown_field | optimizer.learning_rate: unknown field of OptimizerConfig; known: kind, lr, beta1, "
            "beta2, eps, weight_decay, clip_norm (line 2)");
  EXPECT_EQ(train("steps: 1 steps: 2"), "config.duplicate_field | steps: given twice (line 1)");
  EXPECT_EQ(train("steps 1"), "config.syntax | text, line 1: expected \":\" after steps, got \"1\"");
  EXPECT_EQ(train("output: run"), "config.wrong_type | output: expected a string, got run");
  EXPECT_EQ(train("optimizer {"), "config.syntax | text, line 1: expected \"}\", got the end");
  EXPECT_EQ(train("output: \"run"), "config.syntax | text, line 1: string without its end");
  EXPECT_EQ(train("output: \"\\q\""), "config.syntax | text, line 1: unknown escape \\q");
  EXPECT_EQ(train("output: \"\\377\""), "config.not_utf8 | output: not UTF-8");
  EXPECT_EQ(train("steps: nan"), "config.wrong_type | steps: \"nan\" is not an integer");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "data {";
  EXPECT_THAT(train(deep), testing::StartsWith("config.unknown_field | data.data"));
}

TEST(Overrides, SetScalarsListsMapsAndMessages) {
  TrainConfig config;
  EXPECT_EQ(failure(set(config, "optimizer.lr=3e-4")), "ok");
  EXPECT_EQ(failure(set(config, "data.paths=a,b.txt")), "ok");
  EXPECT_EQ(failure(set(config, "data.paths+=c")), "ok");
  EXPECT_EQ(failure(set(config, "precision.ladder={\"warmup_steps\": 3}")), "ok");
  EXPECT_EQ(failure(set(config, "output=a=b")), "ok");
  EXPECT_EQ(to_json(config, false),
            R"({"output":"a=b","data":{"paths":["a,b.txt","c"]},"precision":{"ladder":{"warmup_steps":3}},)"
            R"("optimizer":{"lr":3e-4}})");
  EXPECT_EQ(failure(set(config, "output=[a] folder")), "ok");
  EXPECT_EQ(config.output(), "[a] folder");
  EXPECT_EQ(failure(set(config, "data.paths=[\"x\", \"y\"]")), "ok");
  EXPECT_EQ(config.data().paths_size(), 2);
  EXPECT_EQ(failure(set(config, "precision.ladder=null")), "ok");
  EXPECT_FALSE(config.precision().has_ladder());

  ConvertConfig convert;
  EXPECT_EQ(failure(set(convert, "assume.block=64x64")), "ok");
  EXPECT_EQ(failure(set(convert, "assume.block=128x128")), "ok");
  EXPECT_EQ(convert.assume().at("block"), "128x128");
}

TEST(Overrides, ErrorsNameThePath) {
  TrainConfig config;
  EXPECT_EQ(failure(set(config, "optimizer.lrr=1")),
            "config.unknown_field | optimizer.lrr: unknown field of OptimizerConfig; did you mean \"lr\"?");
  EXPECT_EQ(failure(set(config, "optimizer=1")), "config.wrong_type | optimizer: \"1\" is not an object");
  EXPECT_EQ(failure(set(config, "steps.x=1")), "config.unknown_field | steps.x: steps is an integer");
  EXPECT_EQ(failure(set(config, "steps")), "config.syntax | \"steps\": expected key=value, such as optimizer.lr=3e-4");
  EXPECT_EQ(failure(set(config, "=1")), "config.syntax | \"=1\": expected key=value, such as optimizer.lr=3e-4");
  EXPECT_EQ(failure(set(config, "data.paths=[1]")),
            "config.wrong_type | data.paths[0]: expected a string, got a number");
  EXPECT_THAT(failure(set(config, ".=1")),
              testing::StartsWith("config.unknown_field | : unknown field of TrainConfig"));
}

TEST(Defaults, FillEveryScalarButNotMeaningfulPresence) {
  TrainConfig given;
  given.set_steps(7);
  const TrainConfig full = with_defaults(given);
  EXPECT_EQ(full.steps(), 7);
  EXPECT_EQ(full.optimizer().lr(), 0.001);
  EXPECT_EQ(full.optimizer().beta2(), 0.95);
  EXPECT_EQ(full.data().sequence_length(), 512);
  EXPECT_EQ(full.precision().recipe(), v1::RECIPE_BF16);
  EXPECT_TRUE(full.checkpoint().save_final());
  EXPECT_FALSE(full.precision().has_ladder());
  EXPECT_FALSE(defaults<ConvertConfig>().has_calibrate());
  EXPECT_EQ(defaults<ConvertConfig>().rounding(), v1::ROUNDING_FP32);
}

TEST(Check, NamesValueAndRange) {
  const auto checked = [](const char* text) {
    const auto config = from_json<TrainConfig>(text);
    return config.ok() ? failure(check(*config)) : failure(config);
  };
  EXPECT_EQ(checked(R"({"optimizer": {"lr": -0.1}})"), "config.out_of_range | optimizer.lr: -0.1 is not > 0 and <= 10");
  EXPECT_EQ(checked(R"({"micro_batch": 0})"), "config.out_of_range | micro_batch: 0 is not >= 1 and <= 1048576");
  EXPECT_EQ(checked("{}"), "ok");
  EXPECT_EQ(failure(check(ConvertConfig())), "config.missing_field | source: must be given: a string");
}

TEST(Wire, RefusesWhatItDoesNotKnow) {
  const std::string unknown = "\xc0\x3e\x01";  // field 1000, varint 1
  EXPECT_EQ(failure(parse<TrainConfig>(unknown)),
            "config.unknown_field | #1000: TrainConfig has no field number 1000; was it written for a newer version?");
  TrainConfig config;
  config.mutable_optimizer()->set_lr(1);
  config.set_output("x");
  const std::string bytes = config.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = parse<TrainConfig>(bytes.substr(0, size));
    EXPECT_EQ(cut.ok() ? "config.corrupt" : cut.status().reason(), "config.corrupt");
  }
  EXPECT_EQ(failure(parse<TrainConfig>("\x0a\xff\xff\xff\xff\x0f")), "config.corrupt | output: damaged protobuf bytes");
  EXPECT_EQ(failure(parse<TrainConfig>("\x08\x01")), "config.corrupt | output: damaged protobuf bytes");
  EXPECT_EQ(failure(parse<TrainConfig>("\x0a\x01\xff")), "config.not_utf8 | output: not UTF-8");
}

TEST(Explain, TellsTypeDefaultRangeAndDoc) {
  const auto lr = explain("train.optimizer.lr");
  ASSERT_TRUE(lr.ok());
  EXPECT_EQ(*lr,
            "train.optimizer.lr: double, default 0.001, > 0, <= 10\n"
            "Peak learning rate; the schedule multiplies it.\n");
  EXPECT_THAT(explain("convert.target").value(),
              testing::HasSubstr("  fp8_block: E4M3 with one FP32 weight_scale_inv"));
  EXPECT_THAT(explain("train").value(), testing::HasSubstr("  steps: int64, default 300"));
  EXPECT_THAT(failure(explain("train.optimiser")), testing::HasSubstr("did you mean \"optimizer\"?"));
  EXPECT_THAT(failure(explain("trein")), testing::HasSubstr("known: "));
  EXPECT_THAT(failure(explain("train.steps.x")), testing::HasSubstr("train.steps has no fields below it"));
}

TEST(Explain, DescriptionIsJson) {
  for (const MessageType& type : message_types()) {
    EXPECT_THAT(describe_json(type), testing::StartsWith("{\"name\":\"" + std::string(type.short_name())));
  }
}

// protobuf's own parser complains about text that is not UTF-8 on standard error unless it is silenced.
TEST(Silence, NothingIsPrinted) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  TrainConfig config;
  EXPECT_FALSE(config.ParseFromString("\x0a\x01\xff"));
  config.set_output("\xff");
  (void)config.SerializeAsString();
  (void)to_json(config);
  (void)parse<TrainConfig>("\x0a\x01\xff");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace invar::config
