#include "core/checkpoint/declared.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base/glob.h"
#include "core/container/json_document.h"

namespace invar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxConfigBytes = 64 << 20;
constexpr int64_t kMaxBlock = int64_t{1} << 31;

// One object of a config file with the path that names it in messages.
struct Node {
  const Json& json;
  std::string where;

  Status wrong(std::string_view key, const Json& value, std::string_view expected) const {
    std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (shown.size() > 80) shown = shown.substr(0, 77) + "...";
    return Error(Code::kDataLoss, "checkpoint.bad_config",
                 cat(where, ": \"", key, "\" is ", shown, "; expected ", expected));
  }

  // Absent and null leave `out` untouched.
  Status text(const char* key, std::string* out) const {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) return {};
    if (!it->is_string()) return wrong(key, *it, "a string");
    *out = it->get<std::string>();
    return {};
  }
  Status number(const char* key, int64_t* out) const {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) return {};
    if (!it->is_number_integer() || it->get<int64_t>() < 0) return wrong(key, *it, "a whole number of at least 0");
    *out = it->get<int64_t>();
    return {};
  }
  // [128, 128], or the older "128x128".
  Status block(const char* key, std::optional<BlockSize>* out) const {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) return {};
    int64_t rows = 0, cols = 0;
    if (it->is_array() && it->size() == 2 && (*it)[0].is_number_integer() && (*it)[1].is_number_integer()) {
      rows = (*it)[0].get<int64_t>();
      cols = (*it)[1].get<int64_t>();
    } else if (it->is_string()) {
      const std::string value = it->get<std::string>();
      const auto cross = value.find('x');
      if (cross != std::string::npos && value.size() < 24 &&
          value.find_first_not_of("0123456789x") == std::string::npos && cross > 0 && cross + 1 < value.size()) {
        rows = std::atoll(value.c_str());
        cols = std::atoll(value.c_str() + cross + 1);
      }
    }
    if (rows < 1 || cols < 1 || rows > kMaxBlock || cols > kMaxBlock) {
      return wrong(key, *it, "two positive whole numbers [rows, cols]");
    }
    *out = BlockSize{rows, cols};
    return {};
  }
};

Status read_quantizer(const Node& parent, const char* key, std::optional<DeclaredQuantizer>* out) {
  const auto it = parent.json.find(key);
  if (it == parent.json.end() || it->is_null()) return {};
  if (!it->is_object()) return parent.wrong(key, *it, "an object or null");
  const Node node{*it, parent.where + "." + key};
  DeclaredQuantizer quantizer;
  INVAR_TRY(node.text("type", &quantizer.type));
  INVAR_TRY(node.text("strategy", &quantizer.strategy));
  INVAR_TRY(node.text("scale_dtype", &quantizer.scale_dtype));
  int64_t bits = 0;
  INVAR_TRY(node.number("num_bits", &bits));
  quantizer.bits = static_cast<int>(std::min<int64_t>(bits, 64));
  const auto group = it->find("group_size");  // -1 also means none
  if (group != it->end() && group->is_number_integer()) quantizer.group_size = std::max<int64_t>(0, *group);
  const auto dynamic = it->find("dynamic");
  quantizer.dynamic = dynamic != it->end() && (dynamic->is_boolean() ? dynamic->get<bool>() : dynamic->is_string());
  INVAR_TRY(node.block("block_structure", &quantizer.block));
  *out = quantizer;
  return {};
}

Status read_groups(const Node& quantization, std::vector<WeightGroup>* out) {
  const auto it = quantization.json.find("config_groups");
  if (it == quantization.json.end() || it->is_null()) return {};
  if (!it->is_object()) return quantization.wrong("config_groups", *it, "an object of groups");
  for (const auto& [name, value] : it->items()) {
    if (!value.is_object()) return quantization.wrong("config_groups." + name, value, "an object");
    const Node node{value, quantization.where + ".config_groups." + name};
    WeightGroup group;
    group.name = name;
    INVAR_TRY(node.text("format", &group.format));
    INVAR_TRY(read_quantizer(node, "weights", &group.weights));
    INVAR_TRY(read_quantizer(node, "input_activations", &group.inputs));
    const auto targets = value.find("targets");
    if (targets != value.end() && !targets->is_null()) {
      if (!targets->is_array()) return node.wrong("targets", *targets, "a list of strings");
      for (const Json& target : *targets) {
        if (!target.is_string()) return node.wrong("targets", target, "strings");
        group.targets.push_back(target.get<std::string>());
      }
    }
    out->push_back(std::move(group));
  }
  return {};
}

// ModelOpt's own note of who wrote: {"name", "version"}.
Status read_producer(const Node& node, const std::string& file, Declared* declared) {
  const auto it = node.json.find("producer");
  if (it == node.json.end() || !it->is_object() || !declared->producer.empty()) return {};
  std::string version;
  const Node producer{*it, node.where + ".producer"};
  INVAR_TRY(producer.text("name", &declared->producer));
  INVAR_TRY(producer.text("version", &version));
  if (declared->producer.empty()) return {};
  if (!version.empty()) declared->producer += " " + version;
  declared->producer_file = file;
  return {};
}

Status read_quantization(const Node& node, Declared* declared) {
  declared->quantized = true;
  INVAR_TRY(node.text("quant_method", &declared->method));
  INVAR_TRY(node.text("quant_algo", &declared->algorithm));
  INVAR_TRY(node.text("format", &declared->format));
  INVAR_TRY(node.text("scale_fmt", &declared->scale_format));
  INVAR_TRY(node.text("activation_scheme", &declared->activation_scheme));
  INVAR_TRY(node.block("weight_block_size", &declared->block));
  return read_groups(node, &declared->groups);
}

// Multimodal wrappers keep the language model's fields in a nested object.
constexpr const char* kNested[] = {"text_config", "language_config", "llm_config"};

Status read_config(const Json& config, const std::string& file, Declared* declared) {
  const Node root{config, file};
  INVAR_TRY(root.text("model_type", &declared->model_type));
  std::vector<Node> nodes = {root};
  for (const char* key : kNested) {
    const auto it = config.find(key);
    if (it != config.end() && it->is_object()) nodes.push_back({*it, cat(file, ": ", key)});
  }
  for (const Node& node : nodes) {
    INVAR_TRY(node.number("num_attention_heads", &declared->heads));
    INVAR_TRY(node.number("num_key_value_heads", &declared->kv_heads));
    INVAR_TRY(node.number("head_dim", &declared->head_dim));
    INVAR_TRY(node.text("expert_dtype", &declared->expert_dtype));
    int64_t hidden = 0;
    INVAR_TRY(node.number("hidden_size", &hidden));
    if (declared->head_dim == 0 && declared->heads > 0 && hidden > 0) declared->head_dim = hidden / declared->heads;
    for (const char* key : {"quantization_config", "compression_config"}) {
      const auto it = node.json.find(key);
      if (it == node.json.end() || it->is_null()) continue;
      if (!it->is_object()) return node.wrong(key, *it, "an object");
      declared->file = file;
      const Node quantization{*it, cat(node.where, &node == &nodes[0] ? ": " : ".", key)};
      INVAR_TRY(read_quantization(quantization, declared));
      INVAR_TRY(read_producer(quantization, file, declared));
    }
  }
  if (declared->kv_heads == 0) declared->kv_heads = declared->heads;
  return {};
}

Result<Json> parse_side(const CheckpointFolder& folder, const char* name) {
  INVAR_ASSIGN(const std::string text, folder.side_text(name, kMaxConfigBytes));
  return parse_json_object(join_path(folder.path(), name), text, "checkpoint.bad_config");
}

bool is_class_name(std::string_view target) { return target.find('.') == std::string_view::npos; }

// The usual patterns of config writers as shell patterns: literals, ".", ".*", ".+", "\.", "^", "$" and one level of
// "(a|b)". Anything else gives no pattern: a config comes from a stranger, and a backtracking matcher may not end.
std::vector<std::string> globs_of(std::string_view pattern) {
  std::vector<std::string> globs = {""};
  if (pattern.starts_with("^")) pattern.remove_prefix(1);
  const bool anchored = pattern.ends_with("$");
  if (anchored) pattern.remove_suffix(1);
  const auto append = [&globs](std::string_view text) {
    for (std::string& glob : globs) glob += text;
  };
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size() && std::ispunct(static_cast<unsigned char>(pattern[i + 1]))) {
      append(pattern.substr(++i, 1));
    } else if (c == '.' && i + 1 < pattern.size() && (pattern[i + 1] == '*' || pattern[i + 1] == '+')) {
      append(pattern[++i] == '*' ? "*" : "?*");
    } else if (c == '.') {
      append("?");
    } else if (c == '(') {
      const auto close = pattern.find(')', i);
      if (close == std::string_view::npos) return {};
      std::string_view inside = pattern.substr(i + 1, close - i - 1);
      if (inside.starts_with("?:")) inside.remove_prefix(2);
      std::vector<std::string> expanded;
      for (size_t begin = 0; begin <= inside.size();) {
        const size_t end = std::min(inside.find('|', begin), inside.size());
        const std::string_view choice = inside.substr(begin, end - begin);
        if (choice.find_first_of("\\.*+?[](){}^$") != std::string_view::npos) return {};
        for (const std::string& glob : globs) expanded.push_back(glob + std::string(choice));
        begin = end + 1;
      }
      if (expanded.size() > 64) return {};
      globs = std::move(expanded);
      i = close;
    } else if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-') {
      append(pattern.substr(i, 1));
    } else {
      return {};
    }
  }
  if (!anchored) append("*");  // writers match from the start, not to the end
  return globs;
}

bool target_names(const std::string& target, std::string_view module) {
  if (target.starts_with("re:")) {
    for (const std::string& glob : globs_of(std::string_view(target).substr(3))) {
      if (glob_match(glob, module)) return true;
    }
    return false;
  }
  return module == target || (module.size() > target.size() && module.ends_with(target) &&
                              module[module.size() - target.size() - 1] == '.');
}

}  // namespace

const WeightGroup* Declared::group_of(std::string_view module) const {
  if (groups.size() == 1) return &groups[0];  // the tensor is quantised: no other group can have done it
  for (const WeightGroup& group : groups) {
    for (const std::string& target : group.targets) {
      if ((target.starts_with("re:") || !is_class_name(target)) && target_names(target, module)) return &group;
    }
  }
  for (const WeightGroup& group : groups) {
    for (const std::string& target : group.targets) {
      if (!target.starts_with("re:") && is_class_name(target) && (target == "Linear" || target_names(target, module))) {
        return &group;
      }
    }
  }
  return nullptr;
}

Result<Declared> read_declared(const CheckpointFolder& folder) {
  Declared declared;
  if (folder.has_side_file("config.json")) {
    INVAR_ASSIGN(const Json config, parse_side(folder, "config.json"));
    INVAR_TRY(read_config(config, "config.json", &declared));
  }
  if (folder.has_side_file("hf_quant_config.json")) {
    INVAR_ASSIGN(const Json config, parse_side(folder, "hf_quant_config.json"));
    INVAR_TRY(read_producer({config, "hf_quant_config.json: "}, "hf_quant_config.json", &declared));
    const auto it = config.find("quantization");
    if (it != config.end() && it->is_object()) {
      declared.quantized = true;
      if (declared.file.empty()) declared.file = "hf_quant_config.json";
      if (declared.method.empty()) declared.method = "modelopt";
      if (declared.algorithm.empty()) {
        INVAR_TRY((Node{*it, "hf_quant_config.json: quantization"}.text("quant_algo", &declared.algorithm)));
      }
    }
  }
  if (folder.has_side_file("params.json")) {
    INVAR_ASSIGN(const Json params, parse_side(folder, "params.json"));
    const auto it = params.find("quantization");
    if (it != params.end() && it->is_object()) {
      declared.quantized = true;
      if (declared.file.empty()) declared.file = "params.json";
      if (declared.method.empty()) declared.method = "mistral";
    }
  }
  return declared;
}

}  // namespace invar
