#include "core/checkpoint/side_files.h"

#include <gtest/gtest.h>

#include "core/base/memory_files.h"
#include "core/container/json_document.h"
#include "core/container/safetensors_writer.h"

namespace invar {
namespace {

Result<std::string> to_bf16(std::string_view text, std::vector<std::string>* removed = nullptr) {
  SideFileOptions options;
  options.torch_dtype = "bfloat16";
  return rewrite_config(text, "m/config.json", options, removed);
}

TEST(RewriteConfig, RemovesEveryQuantisationKeyAndKeepsTheOrder) {
  std::vector<std::string> removed;
  const auto text = to_bf16(R"({"zeta":1,"quantization_config":{"a":1},"torch_dtype":"float8_e4m3fn","alpha":1e-05,
      "text_config":{"quantization_config":{},"dtype":"float16","scale_fmt":"ue8m0","deep_config":{"quantization_config":1}},
      "vision_config":{"quantization_config":{},"torch_dtype":"float32","quantization":"kept"},
      "llm_config":{"expert_dtype":"fp4"},"compression_config":{},"expert_dtype":"fp4","scale_fmt":"x",
      "quantization":{"bits":4},"num_nextn_predict_layers":1,"name":"\u00fc"})",
                            &removed);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, R"({
  "zeta": 1,
  "torch_dtype": "bfloat16",
  "alpha": 1e-05,
  "text_config": {
    "dtype": "bfloat16",
    "deep_config": {}
  },
  "vision_config": {
    "torch_dtype": "float32",
    "quantization": "kept"
  },
  "llm_config": {},
  "num_nextn_predict_layers": 1,
  "name": "ü"
}
)");
  EXPECT_EQ(removed.size(), 10u);
}

TEST(RewriteConfig, AddsADtypeWhereNoneStands) {
  EXPECT_EQ(*to_bf16("{\"a\":1}"), "{\n  \"a\": 1,\n  \"torch_dtype\": \"bfloat16\"\n}\n");
  EXPECT_EQ(*to_bf16("{\"dtype\":\"float16\"}"), "{\n  \"dtype\": \"bfloat16\"\n}\n");
}

TEST(RewriteConfig, DeclaresAQuantisation) {
  SideFileOptions options;
  options.quantization_config = R"({"quant_method":"fp8"})";
  const auto text = rewrite_config(R"({"quantization_config":{"old":1},"x":1})", "c", options);
  EXPECT_EQ(*text, "{\n  \"x\": 1,\n  \"quantization_config\": {\n    \"quant_method\": \"fp8\"\n  }\n}\n");
}

TEST(RewriteConfig, RefusesWhatIsNoObject) {
  for (const std::string& text : {std::string("[]"), std::string("{"), std::string("nonsense"), std::string(),
                                  "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}"}) {
    const auto result = to_bf16(text);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().reason(), "checkpoint.bad_config");
    EXPECT_NE(result.status().message().find("m/config.json"), std::string::npos);
  }
}

TEST(SideFiles, AreCopiedRewrittenOrLeftOut) {
  MemoryFiles files;
  files.put("/m/config.json", R"({"quantization_config":{}})");
  files.put("/m/params.json", R"({"dim":4,"quantization":{"q":1}})");
  files.put("/m/hf_quant_config.json", "{}");
  files.put("/m/recipe.yaml", "x: 1");
  files.put("/m/tokenizer.json", std::string(3 << 20, 't'));
  files.put("/m/modeling_x.py", "code");
  files.put("/m/empty.txt", "");
  auto writer = SafetensorsWriter::create(files, "/m/model.safetensors", {{"a", DType::kU8, {0}}});
  ASSERT_TRUE(writer.ok() && writer->close(false).ok());
  const auto folder = CheckpointFolder::open(files, "/m");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  const auto plan = plan_side_files(*folder, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->dropped, (std::vector<std::string>{"hf_quant_config.json", "recipe.yaml"}));
  EXPECT_EQ(plan->findings.size(), 4u);
  ASSERT_TRUE(files.make_directories("/out").ok());
  ASSERT_TRUE(write_side_files(files, plan->files, files, "/out").ok());
  EXPECT_EQ(*read_text(files, "/out/config.json", 100), "{}\n");
  EXPECT_EQ(*read_text(files, "/out/params.json", 100), "{\n  \"dim\": 4\n}\n");
  EXPECT_EQ(*read_text(files, "/out/tokenizer.json", 1 << 23), std::string(3 << 20, 't'));
  EXPECT_EQ(*read_text(files, "/out/modeling_x.py", 100), "code");
  EXPECT_TRUE(files.exists("/out/empty.txt"));
  EXPECT_FALSE(files.exists("/out/recipe.yaml"));
}

// Every case that says what must go loses it.
TEST(SideFiles, CasesLoseWhatTheyMustLose) {
  int judged = 0;
  const auto entries = posix_files().list("tests/cases");
  ASSERT_TRUE(entries.ok());
  for (const DirEntry& entry : *entries) {
    const std::string path = join_path(join_path("tests/cases", entry.name), "case.json");
    if (!posix_files().exists(path)) continue;
    const auto fields = parse_json_object(path, *read_text(posix_files(), path, 1 << 24), "test");
    ASSERT_TRUE(fields.ok());
    if (!fields->contains("config_must_lose")) continue;
    SCOPED_TRACE(entry.name);
    CheckpointFolder::Options options;
    options.follow_links = true;
    const auto folder = CheckpointFolder::open(posix_files(), join_path(parent_path(path), "input"), options);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    SideFileOptions rewrite;
    rewrite.torch_dtype = "bfloat16";
    const auto plan = plan_side_files(*folder, rewrite);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const auto& item : (*fields)["config_must_lose"]) {
      // "quantization_config" of config.json, or "params.json: quantization".
      std::string file = "config.json", key = item.get<std::string>();
      if (const size_t colon = key.find(": "); colon != std::string::npos) {
        file = key.substr(0, colon);
        key = key.substr(colon + 2);
      }
      const auto side = std::find_if(plan->files.begin(), plan->files.end(),
                                     [&](const SideFile& candidate) { return candidate.name == file; });
      ASSERT_NE(side, plan->files.end()) << file;
      const auto config = parse_json_object(file, side->text, "test");
      ASSERT_TRUE(config.ok()) << config.status().message();
      EXPECT_FALSE(config->contains(key)) << key;
    }
    if (fields->contains("files_must_go")) {
      for (const auto& name : (*fields)["files_must_go"]) {
        EXPECT_NE(std::find(plan->dropped.begin(), plan->dropped.end(), name.get<std::string>()), plan->dropped.end())
            << name;
      }
    }
    ++judged;
  }
  EXPECT_GE(judged, 20);
}

}  // namespace
}  // namespace invar
