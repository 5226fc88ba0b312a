#include "core/checkpoint/adapter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/checkpoint/values.h"
#include "core/container/json_document.h"

namespace invar {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kConfig[] = "adapter_config.json";
constexpr int64_t kMaxConfigBytes = 16'000'000;
constexpr std::string_view kPrefix = "base_model.model.";

// Declared features that change what a merge means and are not known here: true, a number or a non-empty list says
// that one is used.
constexpr const char* kRefused[] = {"use_qalora",
                                    "use_bdlora",
                                    "arrow_config",
                                    "layer_replication",
                                    "target_parameters",
                                    "trainable_token_indices",
                                    "alora_invocation_tokens"};
// Ways of choosing A and B that leave the base as it is; the others subtract their start from it.
constexpr const char* kPlainStarts[] = {"gaussian", "eva", "orthogonal"};

bool is_used(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  return value.is_number() || !value.empty();
}

bool is_literal(std::string_view pattern) {
  return std::all_of(pattern.begin(), pattern.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

struct AdapterConfig {
  std::string path;
  double alpha = 0;
  bool rank_stabilized = false, dora = false, fan_in_fan_out = false;
  std::map<std::string, double> alphas;  // by module name or the end of one

  Status refuse(std::string_view field, const Json& value) const {
    return Error(Code::kUnimplemented, "adapter.unsupported",
                 cat(path, ": ", field, " is ", value.dump(-1, ' ', false, Json::error_handler_t::replace),
                     ", which a merge does not know"));
  }
  Status wrong(std::string_view field, const Json& value, std::string_view expected) const {
    return Error(Code::kDataLoss, "adapter.bad_config",
                 cat(path, ": ", field, " is ", value.dump(-1, ' ', false, Json::error_handler_t::replace),
                     "; expected ", expected));
  }

  Status read(const Json& config);
  double alpha_of(const std::string& module) const;
};

Status AdapterConfig::read(const Json& config) {
  const Json none;
  const auto field = [&](const char* name) -> const Json& {
    const auto it = config.find(name);
    return it == config.end() ? none : *it;
  };
  if (const Json& type = field("peft_type"); type != "LORA") {
    if (!type.is_string()) return wrong("peft_type", type, "\"LORA\"");
    return refuse("peft_type", type);
  }
  for (const char* name : kRefused) {
    if (is_used(field(name))) return refuse(name, field(name));
  }
  if (const Json& start = field("init_lora_weights"); start.is_string()) {
    const auto plain = std::find(std::begin(kPlainStarts), std::end(kPlainStarts), start.get<std::string>());
    if (plain == std::end(kPlainStarts)) return refuse("init_lora_weights", start);
  }
  const auto flag = [&](const char* name, bool* out) -> Status {
    const Json& value = field(name);
    if (value.is_null()) return {};
    if (!value.is_boolean()) return wrong(name, value, "true or false");
    *out = value.get<bool>();
    return {};
  };
  INVAR_TRY(flag("use_rslora", &rank_stabilized));
  INVAR_TRY(flag("use_dora", &dora));
  INVAR_TRY(flag("fan_in_fan_out", &fan_in_fan_out));
  const Json& given = field("lora_alpha");
  if (!given.is_number() || !std::isfinite(given.get<double>())) return wrong("lora_alpha", given, "a number");
  alpha = given.get<double>();
  const Json& pattern = field("alpha_pattern");
  if (!pattern.is_null() && !pattern.is_object()) return wrong("alpha_pattern", pattern, "an object");
  for (const auto& [key, value] : pattern.items()) {
    if (!value.is_number()) return wrong(cat("alpha_pattern.", key), value, "a number");
    std::string_view name = key;
    if (name.starts_with("^")) name.remove_prefix(1);
    if (name.ends_with("$")) name.remove_suffix(1);
    if (!is_literal(name)) return refuse("alpha_pattern", key);
    alphas[std::string(name)] = value.get<double>();
  }
  return {};
}

double AdapterConfig::alpha_of(const std::string& module) const {
  for (const auto& [name, value] : alphas) {
    if (module == name || module.ends_with("." + name)) return value;
  }
  return alpha;
}

// The ends of stored names and what they hold.
enum class Part { kA, kB, kMagnitudes, kBiasOfB };
struct PartName {
  std::string_view end;
  Part part;
  bool embedding;
};
constexpr PartName kParts[] = {
    {".lora_A.weight", Part::kA, false},
    {".lora_B.weight", Part::kB, false},
    {".lora_B.bias", Part::kBiasOfB, false},
    {".lora_embedding_A", Part::kA, true},
    {".lora_embedding_B", Part::kB, true},
    {".lora_magnitude_vector", Part::kMagnitudes, false},
    {".lora_magnitude_vector.weight", Part::kMagnitudes, false},
};

std::string without(std::string text, std::string_view part) {
  const auto at = text.find(part);
  return at == std::string::npos ? text : text.erase(at, part.size());
}

}  // namespace

std::vector<int64_t> AdapterChange::shape() const {
  if (whole != nullptr) return whole->shape;
  const int64_t outputs = b->shape[0], inputs = a->shape[1];
  return transposed ? std::vector<int64_t>{inputs, outputs} : std::vector<int64_t>{outputs, inputs};
}

Result<Adapter> Adapter::open(FileSystem& files, const std::string& path) {
  Adapter adapter;
  INVAR_ASSIGN(auto opened, CheckpointFolder::open(files, path));
  adapter.folder_ = std::make_shared<const CheckpointFolder>(std::move(opened));
  const CheckpointFolder& folder = *adapter.folder_;
  AdapterConfig config;
  config.path = join_path(folder.path(), kConfig);
  if (!folder.has_side_file(kConfig)) {
    return Error(Code::kNotFound, "adapter.bad_config",
                 cat(config.path, ": is missing; an adapter's folder holds it beside adapter_model.safetensors"));
  }
  INVAR_ASSIGN(const std::string text, folder.side_text(kConfig, kMaxConfigBytes));
  INVAR_ASSIGN(const Json json, parse_json_object(config.path, text, "adapter.bad_config"));
  INVAR_TRY(config.read(json));

  const auto bad = [&](const TensorInfo& tensor, std::string_view what) {
    return Error(Code::kDataLoss, "adapter.bad_tensor",
                 cat(join_path(folder.path(), folder.file_name(tensor)), ": tensor ", in_quotes(tensor.name), " ",
                     shape_text(tensor.shape), " ", what));
  };
  std::map<std::string, AdapterChange> changes;
  for (const TensorInfo& tensor : folder.tensors()) {
    if (!tensor.name.starts_with(kPrefix)) return bad(tensor, cat("is not named ", kPrefix, "*"));
    if (!is_float(tensor.dtype)) return bad(tensor, cat("is ", name_of(tensor.dtype), ", not a float"));
    const std::string name = tensor.name.substr(kPrefix.size());
    const auto part = std::find_if(std::begin(kParts), std::end(kParts),
                                   [&](const PartName& known) { return name.ends_with(known.end); });
    if (part == std::end(kParts)) {
      if (name.find(".lora_") != std::string::npos) return bad(tensor, "has no known meaning");
      const std::string saved = without(without(name, ".base_layer"), ".modules_to_save");
      AdapterChange& change = changes[saved];
      if (!change.rule.empty()) return bad(tensor, "is saved whole and has an adapter too");
      change.name = saved;
      change.rule = "replaced";
      change.whole = &tensor;
      continue;
    }
    if (part->part == Part::kBiasOfB) {
      return Error(Code::kUnimplemented, "adapter.unsupported",
                   cat(join_path(folder.path(), folder.file_name(tensor)), ": tensor ", in_quotes(tensor.name),
                       " is a bias of an adapter (lora_bias), which a merge does not know"));
    }
    const std::string module = name.substr(0, name.size() - part->end.size());
    AdapterChange& change = changes[module + ".weight"];
    if (change.whole != nullptr) return bad(tensor, "belongs to a weight that is saved whole too");
    if (change.rule.empty()) {
      change.name = module + ".weight";
      change.rule = "lora";
      change.transposed = part->embedding || config.fan_in_fan_out;
    }
    if (part->part == Part::kMagnitudes) {
      change.rule = "dora";
      change.magnitudes = &tensor;
    } else {
      if (tensor.shape.size() != 2) return bad(tensor, "is not a matrix");
      (part->part == Part::kA ? change.a : change.b) = &tensor;
    }
  }
  if (changes.empty()) {
    return Error(Code::kDataLoss, "adapter.bad_tensor", cat(folder.path(), ": holds no tensor of an adapter"));
  }
  for (auto& [name, change] : changes) {
    if (change.whole == nullptr) {
      const TensorInfo& any = change.a != nullptr ? *change.a : change.b != nullptr ? *change.b : *change.magnitudes;
      if (change.a == nullptr || change.b == nullptr) {
        return bad(any, cat("has no partner: ", change.a == nullptr ? "lora_A" : "lora_B", " is missing"));
      }
      const int64_t rank = change.rank(), outputs = change.b->shape[0];
      if (rank == 0 || change.b->shape[1] != rank) {
        return bad(*change.b, cat("does not fit its partner of ", shape_text(change.a->shape), ": [outputs, ", rank,
                                  "] is expected"));
      }
      if (config.dora != (change.magnitudes != nullptr)) {
        return bad(any, config.dora ? "has no magnitudes although use_dora is set"
                                    : "has magnitudes although use_dora is not set");
      }
      if (change.magnitudes != nullptr && element_count(change.magnitudes->shape) != outputs) {
        return bad(*change.magnitudes, cat("is not one number for each of ", outputs, " outputs"));
      }
      if (change.magnitudes != nullptr && change.transposed) return bad(any, "is DoRA on a transposed weight");
      const std::string module = name.substr(0, name.size() - std::string_view(".weight").size());
      const double rank_number = static_cast<double>(rank);
      change.scaling = config.alpha_of(module) / (config.rank_stabilized ? std::sqrt(rank_number) : rank_number);
    }
    adapter.changes_.push_back(std::move(change));
  }
  return adapter;
}

Result<Factors> Adapter::factors_of(const AdapterChange& change) const {
  Factors factors;
  factors.rank_ = change.rank();
  factors.inputs_ = change.a->shape[1];
  factors.outputs_ = change.b->shape[0];
  factors.transposed_ = change.transposed;
  factors.scaling_ = change.scaling;
  ValueReader reader(*folder_);
  const auto read = [&](const TensorInfo& tensor, std::vector<float>* out) -> Status {
    out->resize(static_cast<size_t>(element_count(tensor.shape)));
    INVAR_TRY(reader.read(tensor, 0, std::span(*out)));
    const auto odd = std::find_if(out->begin(), out->end(), [](float value) { return !std::isfinite(value); });
    if (odd == out->end()) return {};
    return Error(Code::kDataLoss, "checkpoint.not_finite",
                 cat(join_path(folder_->path(), folder_->file_name(tensor)), ": tensor ", in_quotes(tensor.name),
                     " is ", *odd, " at element ", odd - out->begin()));
  };
  INVAR_TRY(read(*change.a, &factors.a_));
  INVAR_TRY(read(*change.b, &factors.b_));
  if (change.magnitudes != nullptr) INVAR_TRY(read(*change.magnitudes, &factors.magnitudes_));
  return factors;
}

void Factors::apply(double weight, int64_t first, std::span<float> values) const {
  const int64_t cols = transposed_ ? outputs_ : inputs_;
  const int64_t rows = static_cast<int64_t>(values.size()) / cols;
  const auto scaling = static_cast<float>(weight * scaling_);
  std::vector<float> change(static_cast<size_t>(cols));
  for (int64_t row = 0; row < rows; ++row) {
    std::fill(change.begin(), change.end(), 0.0f);
    for (int64_t r = 0; r < rank_; ++r) {
      if (transposed_) {
        const float factor = a_[static_cast<size_t>(r * inputs_ + first + row)];
        for (int64_t col = 0; col < cols; ++col) {
          change[static_cast<size_t>(col)] += factor * b_[static_cast<size_t>(col * rank_ + r)];
        }
      } else {
        const float factor = b_[static_cast<size_t>((first + row) * rank_ + r)];
        const float* a = a_.data() + r * inputs_;
        for (int64_t col = 0; col < cols; ++col) change[static_cast<size_t>(col)] += factor * a[col];
      }
    }
    float* out = values.data() + row * cols;
    for (int64_t col = 0; col < cols; ++col) out[col] += scaling * change[static_cast<size_t>(col)];
    if (magnitudes_.empty()) continue;
    double square = 0;
    for (int64_t col = 0; col < cols; ++col) square += static_cast<double>(out[col]) * out[col];
    if (square == 0) continue;
    const double ratio = magnitudes_[static_cast<size_t>(first + row)] / std::sqrt(square);
    for (int64_t col = 0; col < cols; ++col) out[col] = static_cast<float>(out[col] * ratio);
  }
}

}  // namespace invar
