#include "core/checkpoint/side_files.h"

#include <algorithm>
#include <array>

#include "core/container/json_document.h"

namespace invar {
namespace {

using Json = nlohmann::ordered_json;

// Objects inside config.json that describe the language model of a larger one.
constexpr std::array<std::string_view, 3> kLanguageConfigs = {"text_config", "language_config", "llm_config"};
// Whatever says how weights are stored.
constexpr std::array<std::string_view, 5> kQuantizationKeys = {"quantization_config", "compression_config",
                                                               "quantization", "expert_dtype", "scale_fmt"};
// Files that only describe a quantisation.
constexpr std::array<std::string_view, 4> kQuantizationFiles = {"hf_quant_config.json", "recipe.yaml",
                                                                "quantize_config.json", "quant_config.json"};

// Where a quant_method lists the modules that it leaves alone.
struct ExceptionList {
  std::string_view method, key;
};
constexpr std::array<ExceptionList, 9> kExceptionLists = {{
    {"fp8", "ignored_layers"},  // only where it stands already
    {"fp8", "modules_to_not_convert"},
    {"fbgemm_fp8", "modules_to_not_convert"},
    {"mxfp4", "modules_to_not_convert"},
    {"torchao", "modules_to_not_convert"},
    {"compressed-tensors", "ignore"},
    {"modelopt", "ignore"},
    {"quark", "exclude"},
    {"bitsandbytes", "llm_int8_skip_modules"},
}};

template <size_t N>
bool contains(const std::array<std::string_view, N>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

void remove_keys(Json& object, const std::string& prefix, std::vector<std::string>& removed) {
  for (const std::string_view key : kQuantizationKeys) {
    const std::string name(key);
    if (object.contains(name)) {
      object.erase(name);
      removed.push_back(prefix + name);
    }
  }
}

// Other parts of a multimodal model may keep their own declaration under a "..._config".
void remove_nested(Json& object, const std::string& prefix, std::vector<std::string>& removed) {
  for (auto& [key, value] : object.items()) {
    if (!value.is_object() || !key.ends_with("_config")) continue;
    const std::string inside = prefix + key + ".";
    if (contains(kLanguageConfigs, key)) {
      remove_keys(value, inside, removed);
    } else if (value.contains("quantization_config")) {
      value.erase("quantization_config");
      removed.push_back(inside + "quantization_config");
    }
    remove_nested(value, inside, removed);
  }
}

// Appends to object[key], which may be absent or null.
Status extend_list(Json& object, const std::string& key, const std::vector<std::string>& modules,
                   std::string_view where) {
  Json& list = object[key];
  if (list.is_null()) list = Json::array();
  if (!list.is_array()) {
    return Error(Code::kDataLoss, "checkpoint.bad_config", cat(where, ": \"", key, "\" is not a list"));
  }
  for (const std::string& module : modules) list.push_back(module);
  return {};
}

// The declaration of what stays quantised, with the exceptions that are new.
Status extend_exceptions(Json& declaration, const std::vector<std::string>& modules, const std::string& where) {
  const auto stated = declaration.find("quant_method");
  const std::string method =
      stated != declaration.end() && stated->is_string() ? stated->get<std::string>() : std::string();
  for (const ExceptionList& list : kExceptionLists) {
    const std::string key(list.key);
    if (list.method != method || (list.key == "ignored_layers" && !declaration.contains(key))) continue;
    return extend_list(declaration, key, modules, where);
  }
  return Error(Code::kInvalidArgument, "convert.partial_unsupported",
               cat(where, ": quant_method ", in_quotes(method),
                   " has no known list of modules that are not quantised, so that its readers could not be told of "
                   "a partial conversion; leave `only` out"));
}

Status extend_declarations(Json& object, const std::vector<std::string>& modules, const std::string& where) {
  for (auto& [key, value] : object.items()) {
    if (!value.is_object()) continue;
    if (key == "quantization_config" || key == "compression_config") {
      INVAR_TRY(extend_exceptions(value, modules, cat(where, ": ", key)));
    } else if (contains(kLanguageConfigs, key)) {
      INVAR_TRY(extend_declarations(value, modules, cat(where, ": ", key)));
    }
  }
  return {};
}

// Both spellings are in use; the one that stands there stays.
bool set_dtype(Json& object, const std::string& dtype) {
  bool found = false;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (object.contains(key)) {
      object[key] = dtype;
      found = true;
    }
  }
  return found;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Result<std::string> rewrite_config(std::string_view text, std::string_view path, const SideFileOptions& options,
                                   std::vector<std::string>* removed) {
  INVAR_ASSIGN(Json config, parse_json_object(path, text, "checkpoint.bad_config"));
  std::vector<std::string> gone;
  if (options.no_longer_quantized.empty()) {
    remove_keys(config, "", gone);
    remove_nested(config, "", gone);
  } else {
    INVAR_TRY(extend_declarations(config, options.no_longer_quantized, std::string(path)));
  }
  if (!options.torch_dtype.empty()) {
    if (!set_dtype(config, options.torch_dtype)) config["torch_dtype"] = options.torch_dtype;
    for (const std::string_view name : kLanguageConfigs) {
      const auto nested = config.find(std::string(name));
      if (nested != config.end() && nested->is_object()) (void)set_dtype(*nested, options.torch_dtype);
    }
  }
  if (!options.quantization_config.empty()) {
    INVAR_ASSIGN(config["quantization_config"],
                 parse_json_object("quantization_config", options.quantization_config, "checkpoint.bad_config"));
  }
  if (removed != nullptr) removed->insert(removed->end(), gone.begin(), gone.end());
  return json_text(config);
}

Result<SideFilePlan> plan_side_files(const CheckpointFolder& source, const SideFileOptions& options) {
  SideFilePlan plan;
  const bool partial = !options.no_longer_quantized.empty();
  for (const std::string& name : source.side_files()) {
    const std::string path = join_path(source.path(), name);
    if (partial && name == "hf_quant_config.json") {
      INVAR_ASSIGN(const std::string text, source.side_text(name));
      INVAR_ASSIGN(Json config, parse_json_object(path, text, "checkpoint.bad_config"));
      const auto inside = config.find("quantization");
      if (inside != config.end() && inside->is_object()) {
        INVAR_TRY(extend_list(*inside, "exclude_modules", options.no_longer_quantized, path));
      }
      plan.files.push_back({name, json_text(config), ""});
    } else if (!partial && contains(kQuantizationFiles, name)) {
      plan.dropped.push_back(name);
      plan.findings.push_back({"side_files.dropped", cat(path, ": describes the quantisation and was left out")});
    } else if (name == "config.json") {
      INVAR_ASSIGN(const std::string text, source.side_text(name));
      std::vector<std::string> removed;
      INVAR_ASSIGN(std::string rewritten, rewrite_config(text, path, options, &removed));
      if (!removed.empty())
        plan.findings.push_back({"side_files.keys_removed", cat(path, ": removed ", joined(removed))});
      plan.files.push_back({name, std::move(rewritten), ""});
    } else if (name == "params.json") {
      INVAR_ASSIGN(const std::string text, source.side_text(name));
      INVAR_ASSIGN(Json params, parse_json_object(path, text, "checkpoint.bad_config"));
      if (partial && params.contains("quantization")) {
        return Error(Code::kInvalidArgument, "convert.partial_unsupported",
                     cat(path,
                         ": \"quantization\" has no list of modules that are not quantised, so that readers "
                         "could not be told of a partial conversion; leave `only` out"));
      }
      if (params.erase("quantization") == 0) {
        plan.files.push_back({name, "", path});
      } else {
        plan.findings.push_back({"side_files.keys_removed", cat(path, ": removed quantization")});
        plan.files.push_back({name, json_text(params), ""});
      }
    } else {
      plan.files.push_back({name, "", path});
    }
  }
  return plan;
}

Status write_side_files(FileSystem& files, const std::vector<SideFile>& side_files, FileSystem& source_files,
                        const std::string& folder, bool durable) {
  std::vector<std::byte> buffer;
  for (const SideFile& side : side_files) {
    INVAR_ASSIGN(auto out, files.create(join_path(folder, side.name)));
    if (side.copied_from.empty()) {
      INVAR_TRY(out->append(std::as_bytes(std::span(side.text))));
    } else {
      INVAR_ASSIGN(const auto in, source_files.open(side.copied_from));
      buffer.resize(static_cast<size_t>(std::min<int64_t>(in->size(), 1 << 20)));
      for (int64_t at = 0; at < in->size();) {
        const auto piece = std::span(buffer).first(static_cast<size_t>(std::min<int64_t>(in->size() - at, 1 << 20)));
        INVAR_TRY(in->read_at(at, piece));
        INVAR_TRY(out->append(piece));
        at += static_cast<int64_t>(piece.size());
      }
    }
    INVAR_TRY(out->close(durable));
  }
  return {};
}

}  // namespace invar
