#include "core/checkpoint/training_manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/container/json_document.h"
#include "core/container/tensor_info.h"

namespace invar {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kFormat = "invar.training";

// JSON has no infinities.
Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::string hex(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[value >> (4 * i) & 15];
  return text;
}

bool is_plain(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos;
}

// Typed access to one JSON object; the first failure is kept.
class Fields {
 public:
  Fields(const Json& object, std::string_view path, std::string where)
      : object_(object), path_(path), where_(std::move(where)) {}

  const Status& status() const { return status_; }

  void get(const char* key, std::string& out) {
    if (const Json* value = find(
            key, [](const Json& v) { return v.is_string(); }, "text"))
      out = value->get<std::string>();
  }
  void get(const char* key, int64_t& out) {
    if (const Json* value = find(key, is_int64, "a whole number")) out = value->get<int64_t>();
  }
  void get(const char* key, uint64_t& out) {
    if (const Json* value = find(
            key, [](const Json& v) { return v.is_number_unsigned(); }, "a whole number")) {
      out = value->get<uint64_t>();
    }
  }
  void get(const char* key, DType& out) {
    std::string name;
    get(key, name);
    if (!status_.ok()) return;
    out = dtype_from_name(name);
    if (out == DType::kUnspecified) bad(key, cat("is ", in_quotes(name), "; a dtype is expected"));
  }
  void get_hex(const char* key, uint64_t& out) {
    std::string text;
    get(key, text);
    if (!status_.ok()) return;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, 16);
    if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
      bad(key, cat("is ", in_quotes(text), "; 16 hexadecimal digits are expected"));
    }
  }
  void get(const char* key, std::vector<int64_t>& out) {
    for (const Json& item : list(key)) {
      if (!is_int64(item) || item.get<int64_t>() < 0) return bad(key, "holds something else than sizes");
      out.push_back(item.get<int64_t>());
    }
  }
  void get(const char* key, std::vector<std::string>& out) {
    for (const Json& item : list(key)) {
      if (!item.is_string()) return bad(key, "holds something else than text");
      out.push_back(item.get<std::string>());
    }
  }
  void get(const char* key, std::map<std::string, int64_t>& out) {
    for (const auto& [name, item] : object(key).items()) {
      if (!is_int64(item)) return bad(key, cat("has no whole number for ", in_quotes(name)));
      out[name] = item.get<int64_t>();
    }
  }
  void get(const char* key, std::map<std::string, double>& out) {
    for (const auto& [name, item] : object(key).items()) {
      if (item.is_number()) {
        out[name] = item.get<double>();
      } else if (item == "inf" || item == "-inf" || item == "nan") {
        out[name] = item == "nan"   ? std::numeric_limits<double>::quiet_NaN()
                    : item == "inf" ? std::numeric_limits<double>::infinity()
                                    : -std::numeric_limits<double>::infinity();
      } else {
        return bad(key, cat("has no number for ", in_quotes(name)));
      }
    }
  }
  void get(const char* key, std::map<std::string, std::string>& out) {
    for (const auto& [name, item] : object(key).items()) {
      if (!item.is_string()) return bad(key, cat("has no text for ", in_quotes(name)));
      out[name] = item.get<std::string>();
    }
  }
  void get_objects(const char* key, std::map<std::string, std::string>& out) {
    for (const auto& [name, item] : object(key).items()) {
      if (!item.is_object()) return bad(key, cat("has no object for ", in_quotes(name)));
      out[name] = item.dump();
    }
  }

  const Json& list(const char* key) {
    const Json* value = find(
        key, [](const Json& v) { return v.is_array(); }, "a list");
    return value != nullptr ? *value : empty_list();
  }
  const Json& object(const char* key) {
    const Json* value = find(
        key, [](const Json& v) { return v.is_object(); }, "an object");
    return value != nullptr ? *value : empty_object();
  }

  void bad(const char* key, const std::string& what) {
    if (status_.ok()) {
      status_ = Error(Code::kDataLoss, "training.bad_manifest", cat(path_, ": ", where_, "\"", key, "\" ", what));
    }
  }

 private:
  static bool is_int64(const Json& value) {
    return value.is_number_integer() &&
           (!value.is_number_unsigned() ||
            value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  }
  static const Json& empty_list() {
    static const Json kEmpty = Json::array();
    return kEmpty;
  }
  static const Json& empty_object() {
    static const Json kEmpty = Json::object();
    return kEmpty;
  }

  template <typename Check>
  const Json* find(const char* key, Check check, const char* expected) {
    const auto it = object_.find(key);
    if (it == object_.end()) return bad(key, "is missing"), nullptr;
    if (!check(*it)) return bad(key, cat("is not ", expected)), nullptr;
    return &*it;
  }

  const Json& object_;
  std::string_view path_;
  std::string where_;
  Status status_;
};

Result<Json> object_from(const std::string& text, const std::string& what) {
  auto object = parse_json_object(what, text, "training.bad_state");
  if (!object.ok()) return Error(Code::kInvalidArgument, "training.bad_state", object.status().message());
  return object;
}

Json piece_json(const PieceRecord& piece) {
  return {{"parameter", piece.parameter}, {"kind", piece.kind},   {"dtype", name_of(piece.dtype)},
          {"shape", piece.shape},         {"first", piece.first}, {"count", piece.count},
          {"file", piece.file},           {"entry", piece.entry}, {"xxh3", hex(piece.hash)}};
}

Result<PieceRecord> read_piece(const Json& json, std::string_view path, size_t index) {
  const std::string where = cat("piece ", index, ": ");
  if (!json.is_object()) return Error(Code::kDataLoss, "training.bad_manifest", cat(path, ": ", where, "is no object"));
  PieceRecord piece;
  Fields fields(json, path, where);
  fields.get("parameter", piece.parameter);
  fields.get("kind", piece.kind);
  fields.get("dtype", piece.dtype);
  fields.get("shape", piece.shape);
  fields.get("first", piece.first);
  fields.get("count", piece.count);
  fields.get("file", piece.file);
  fields.get("entry", piece.entry);
  fields.get_hex("xxh3", piece.hash);
  const std::string_view inside = std::string_view(piece.file).starts_with("training/")
                                      ? std::string_view(piece.file).substr(9)
                                      : std::string_view(piece.file);
  if (!is_plain(inside)) fields.bad("file", cat("is ", in_quotes(piece.file), ", which leaves the checkpoint"));
  INVAR_TRY(fields.status());
  return piece;
}

}  // namespace

Result<std::string> write_manifest(const StoredManifest& stored) {
  const TrainingManifest& manifest = stored.manifest;
  Json json = {{"format", kFormat},           {"format_version", kTrainingFormatVersion},
               {"sequence", stored.sequence}, {"step", manifest.step},
               {"recipe", manifest.recipe},   {"counters", Json::object()},
               {"values", Json::object()},    {"data", Json::object()},
               {"rng", Json::array()},        {"states", Json::object()},
               {"aliases", Json::object()},   {"trainable", manifest.trainable},
               {"config", Json::object()},    {"pieces", Json::array()}};
  for (const auto& [name, value] : manifest.counters) json["counters"][name] = value;
  for (const auto& [name, value] : manifest.values) json["values"][name] = number(value);
  for (const auto& [name, value] : manifest.data) json["data"][name] = value;
  for (const RngState& rng : manifest.rng) {
    json["rng"].push_back({{"name", rng.name}, {"seed", rng.seed}, {"stream", rng.stream}, {"position", rng.position}});
  }
  for (const auto& [name, text] : manifest.states) {
    INVAR_ASSIGN(json["states"][name], object_from(text, "state " + in_quotes(name)));
  }
  for (const auto& [alias, parameter] : manifest.aliases) json["aliases"][alias] = parameter;
  if (!manifest.config.empty()) {
    INVAR_ASSIGN(json["config"], object_from(manifest.config, "the config"));
  }
  for (const PieceRecord& piece : stored.pieces) json["pieces"].push_back(piece_json(piece));
  return json_text(json);
}

Result<StoredManifest> read_manifest(std::string_view text, std::string_view path) {
  INVAR_ASSIGN(const Json json, parse_json_object(path, text, "training.bad_manifest"));
  StoredManifest stored;
  TrainingManifest& manifest = stored.manifest;
  Fields fields(json, path, "");
  std::string format;
  int64_t version = 0;
  fields.get("format", format);
  fields.get("format_version", version);
  INVAR_TRY(fields.status());
  if (format != kFormat || version < 1) {
    return Error(Code::kDataLoss, "training.bad_manifest", cat(path, ": is not the manifest of a training checkpoint"));
  }
  if (version > kTrainingFormatVersion) {
    return Error(Code::kUnimplemented, "training.newer_format",
                 cat(path, ": format version ", version, "; this program reads up to ", kTrainingFormatVersion));
  }
  fields.get("sequence", stored.sequence);
  fields.get("step", manifest.step);
  fields.get("recipe", manifest.recipe);
  fields.get("counters", manifest.counters);
  fields.get("values", manifest.values);
  fields.get("data", manifest.data);
  fields.get_objects("states", manifest.states);
  fields.get("aliases", manifest.aliases);
  fields.get("trainable", manifest.trainable);
  const Json& config = fields.object("config");
  if (!config.empty()) manifest.config = config.dump();
  for (const Json& item : fields.list("rng")) {
    if (!item.is_object()) {
      fields.bad("rng", "holds something else than objects");
      break;
    }
    RngState rng;
    Fields inner(item, path, "rng: ");
    inner.get("name", rng.name);
    inner.get("seed", rng.seed);
    inner.get("stream", rng.stream);
    inner.get("position", rng.position);
    INVAR_TRY(inner.status());
    manifest.rng.push_back(std::move(rng));
  }
  const Json& pieces = fields.list("pieces");
  INVAR_TRY(fields.status());
  for (size_t i = 0; i < pieces.size(); ++i) {
    INVAR_ASSIGN(auto piece, read_piece(pieces[i], path, i));
    stored.pieces.push_back(std::move(piece));
  }
  INVAR_TRY(check_pieces(stored.pieces, path));
  return stored;
}

Status check_pieces(std::vector<PieceRecord>& pieces, std::string_view where) {
  std::sort(pieces.begin(), pieces.end(), [](const PieceRecord& a, const PieceRecord& b) {
    if (a.parameter != b.parameter) return a.parameter < b.parameter;
    return a.kind != b.kind ? a.kind < b.kind : a.first < b.first;
  });
  const auto bad = [&](const PieceRecord& piece, const std::string& what) {
    return Error(Code::kDataLoss, "training.bad_pieces",
                 cat(where, ": ", piece.kind, " of ", in_quotes(piece.parameter), " ", what));
  };
  for (size_t i = 0; i < pieces.size();) {
    const PieceRecord& head = pieces[i];
    int64_t bytes = 0;
    if (checked_byte_size(head.dtype, head.shape, &bytes) != SizeCheck::kOk || bits_of(head.dtype) % 8 != 0) {
      return bad(head, cat("cannot have shape ", shape_text(head.shape), " in ", name_of(head.dtype)));
    }
    const int64_t total = element_count(head.shape);
    int64_t at = 0;
    for (; i < pieces.size() && pieces[i].parameter == head.parameter && pieces[i].kind == head.kind; ++i) {
      const PieceRecord& piece = pieces[i];
      if (piece.dtype != head.dtype || piece.shape != head.shape) return bad(piece, "has pieces of different kinds");
      if (piece.count < 0 || piece.first < 0 || piece.first > total || piece.count > total - piece.first) {
        return bad(piece, cat("has a piece of ", piece.count, " elements from ", piece.first, " of ", total));
      }
      if (piece.first != at) {
        return bad(piece, cat(piece.first < at ? "has elements twice from " : "lacks elements from ",
                              std::min(at, piece.first), " to ", std::max(at, piece.first)));
      }
      at += piece.count;
    }
    if (at != total) return bad(head, cat("lacks elements from ", at, " to ", total));
  }
  return {};
}

}  // namespace invar
