#include "tools/cli/config_file.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace cli {

namespace {

constexpr int kDeepest = 64;
constexpr size_t kLargest = size_t{16} << 20;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// A plain scalar that JSON knows by itself: a number, true, false, null.
bool is_json_literal(const std::string& text) {
  if (text == "true" || text == "false" || text == "null") return true;
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  return parsed.is_number();
}

std::string quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_node(const YAML::Node& node, int depth, const std::string& path, std::string* out) {
  const auto refuse = [&](const std::string& what) {
    throw Failure(kUsage, path + ", line " + std::to_string(node.Mark().line + 1) + ": " + what);
  };
  if (depth > kDeepest) refuse("nested deeper than " + std::to_string(kDeepest));
  if (out->size() > kLargest) refuse("larger than 16 MiB once its references are resolved");
  switch (node.Type()) {
    case YAML::NodeType::Scalar: {
      const std::string& text = node.Scalar();
      const bool quoted = node.Tag() == "!";
      *out += !quoted && (text == "~" || text.empty()) ? "null" : !quoted && is_json_literal(text) ? text : quote(text);
      return;
    }
    case YAML::NodeType::Sequence: {
      *out += '[';
      bool first = true;
      for (const auto& element : node) {
        if (!first) *out += ',';
        first = false;
        write_node(element, depth + 1, path, out);
      }
      *out += ']';
      return;
    }
    case YAML::NodeType::Map: {
      *out += '{';
      bool first = true;
      for (const auto& entry : node) {
        if (!entry.first.IsScalar()) refuse("a key must be a plain word");
        if (!first) *out += ',';
        first = false;
        *out += quote(entry.first.Scalar()) + ':';
        write_node(entry.second, depth + 1, path, out);
      }
      *out += '}';
      return;
    }
    default: *out += "null";
  }
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>(in), {});
  if (!in || in.bad()) throw Failure(kIo, path + ": cannot be read: " + std::strerror(errno));
  if (text.size() > kLargest) throw Failure(kUsage, path + ": larger than 16 MiB");
  return text;
}

void write_file(const std::string& path, const std::string& content) {
  const std::string beside = path + ".partial";
  {
    std::ofstream out(beside, std::ios::binary);
    out << content;
    if (!out.flush()) {
      const std::string why = std::strerror(errno);
      std::remove(beside.c_str());
      throw Failure(kIo, path + ": cannot be written: " + why);
    }
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(beside.c_str());
    throw Failure(kIo, path + ": cannot be written: " + why);
  }
}

std::string yaml_to_json(const std::string& text, const std::string& path) {
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return "{}";
    std::string out;
    write_node(root, 0, path, &out);
    return out;
  } catch (const YAML::Exception& error) {
    throw Failure(kUsage, path + ": not YAML: " + error.what());
  }
}

Message read_config(invar_runtime* runtime, const std::string& type, const std::string& path) {
  const std::string text = path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(path);
  try {
    if (ends_with(path, ".json")) return Message::from_json(runtime, type, text);
    if (ends_with(path, ".textproto") || ends_with(path, ".txtpb") || ends_with(path, ".pbtxt")) {
      return Message::from_text(runtime, type, text);
    }
    if (path == "-" || ends_with(path, ".yaml") || ends_with(path, ".yml")) {
      return Message::from_json(runtime, type, yaml_to_json(text, path));
    }
  } catch (const Failure& failure) {
    const std::string what = failure.what();
    throw Failure(failure.exit_code, what.rfind(path, 0) == 0 ? what : path + ": " + what);
  }
  throw Failure(kUsage, path + ": unknown kind of config: name it .yaml, .yml, .json, .textproto, .txtpb or .pbtxt");
}

}  // namespace cli
