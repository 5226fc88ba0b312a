#include "core/model/parameters.h"

#include <algorithm>

#include "core/nn/operand.h"

namespace invar {
namespace {

constexpr int64_t kAlignment = 64;
int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Result<std::unique_ptr<ParameterStore>> ParameterStore::create(Device& device, const Arena& arena,
                                                               const ModelShape& shape, const ModelOptions& options) {
  std::unique_ptr<ParameterStore> store(new ParameterStore(device, arena, options));
  for (ParameterSpec& spec : parameters_of(shape)) {
    Parameter parameter;
    parameter.count = spec.count();
    parameter.spec = std::move(spec);
    store->parameters_.push_back(std::move(parameter));
  }
  store->layers_.resize(static_cast<size_t>(shape.layers));
  for (size_t index = 0; index < store->parameters_.size(); ++index) {
    const ParameterSpec& spec = store->parameters_[index].spec;
    LayerWeights* layer = spec.layer >= 0 ? &store->layers_[static_cast<size_t>(spec.layer)] : nullptr;
    switch (spec.role) {
      case ParameterRole::kEmbedding:
        store->embedding_ = store->add_weight({index}, false);
        if (shape.tie_embeddings) store->head_.head = store->embedding_;
        break;
      case ParameterRole::kAttentionNorm: layer->attention.norm = store->add_weight({index}, false); break;
      case ParameterRole::kQuery: layer->attention.qkv = store->add_weight({index, index + 1, index + 2}, true); break;
      case ParameterRole::kQueryBias:
        layer->attention.qkv_bias = store->add_weight({index, index + 1, index + 2}, false);
        break;
      case ParameterRole::kQueryNorm: layer->attention.query_norm = store->add_weight({index}, false); break;
      case ParameterRole::kKeyNorm: layer->attention.key_norm = store->add_weight({index}, false); break;
      case ParameterRole::kAttentionBranchNorm: layer->attention.branch_norm = store->add_weight({index}, false); break;
      case ParameterRole::kMlpBranchNorm: layer->mlp.branch_norm = store->add_weight({index}, false); break;
      case ParameterRole::kAttentionOut: layer->attention.out = store->add_weight({index}, true); break;
      case ParameterRole::kMlpNorm: layer->mlp.norm = store->add_weight({index}, false); break;
      case ParameterRole::kGate: layer->mlp.gate_up = store->add_weight({index, index + 1}, true); break;
      case ParameterRole::kDown: layer->mlp.down = store->add_weight({index}, true); break;
      case ParameterRole::kFinalNorm: store->head_.norm = store->add_weight({index}, false); break;
      case ParameterRole::kHead: store->head_.head = store->add_weight({index}, false); break;
      case ParameterRole::kKey:
      case ParameterRole::kValue:
      case ParameterRole::kKeyBias:
      case ParameterRole::kValueBias:
      case ParameterRole::kUp: break;  // members of the product before
    }
  }
  store->use_recipe(options.precision.recipe);
  INVAR_TRY(store->allocate());
  return store;
}

WeightId ParameterStore::add_weight(std::vector<size_t> members, bool is_linear) {
  Weight weight;
  const ParameterSpec& first = parameters_[members[0]].spec;
  const bool matrix = first.kind == ParameterKind::kMatrix;
  weight.values.dtype = matrix ? activation_dtype(options_.precision.recipe) : DType::kF32;
  for (size_t member : members) {
    weight.count += parameters_[member].count;
    parameters_[member].dtype = weight.values.dtype;
  }
  weight.values.cols = weight.values.ld = matrix ? first.shape.back() : weight.count;
  weight.values.rows = weight.count / weight.values.cols;
  weight.members = std::move(members);
  weight.is_linear = is_linear;
  weights_.push_back(std::move(weight));
  return static_cast<WeightId>(weights_.size()) - 1;
}

Status ParameterStore::allocate() {
  int64_t working = 0, gradients = 0, packed = 0, quantised = 0;
  bool any_fp8 = recipe_uses_fp8(options_.precision.recipe);
  for (Recipe recipe : options_.other_recipes) any_fp8 = any_fp8 || recipe_uses_fp8(recipe);
  // FP32 products read the weights where they are: packed copies would double the model.
  const auto packs = [](const Weight& weight) { return weight.values.dtype == DType::kBF16; };
  const auto packed_bytes = [&](const Weight& weight, WeightUse use) -> int64_t {
    const bool forward = use == WeightUse::kForward;
    if (!packs(weight) || (!forward && !options_.trainable)) return 0;
    // A quantised weight lives in its packed copy alone.
    const bool may_be_quantised = any_fp8 && weight.is_linear;
    if (!may_be_quantised && !device_.matmul_gains_from_packing(weight.values.dtype, forward)) return 0;
    const int64_t inner = forward ? weight.values.cols : weight.values.rows;
    const int64_t cols = forward ? weight.values.rows : weight.values.cols;
    return round_up(static_cast<int64_t>(device_.matmul_packed_bytes(weight.values.dtype, inner, cols, forward)));
  };
  for (const Weight& weight : weights_) {
    working += round_up(bytes_of(weight.values.dtype, weight.count));
    gradients += options_.trainable ? round_up(bytes_of(DType::kF32, weight.count)) : 0;
    for (WeightUse use : {WeightUse::kForward, WeightUse::kDataGradient}) packed += packed_bytes(weight, use);
    if (any_fp8 && weight.is_linear) quantised = std::max(quantised, bytes_of(DType::kBF16, weight.count));
  }
  INVAR_ASSIGN(working_, device_.allocate(static_cast<size_t>(working)));
  if (gradients > 0) {
    INVAR_ASSIGN(gradients_, device_.allocate(static_cast<size_t>(gradients)));
  }
  if (packed > 0) {
    INVAR_ASSIGN(packed_, device_.allocate(static_cast<size_t>(packed)));
  }
  // Behind the values: one float, the scale.
  quantised = quantised > 0 ? round_up(quantised) + kAlignment : 0;
  if (quantised > 0) {
    INVAR_ASSIGN(quantised_, device_.allocate(static_cast<size_t>(quantised)));
  }
  memory_ = {working, gradients, packed + quantised, 0};

  std::byte* next_working = working_.as<std::byte>();
  std::byte* next_gradient = gradients_.as<std::byte>();
  std::byte* next_packed = packed_.as<std::byte>();
  for (Weight& weight : weights_) {
    weight.values.data = next_working;
    weight.gradient = options_.trainable ? reinterpret_cast<float*>(next_gradient) : nullptr;
    int64_t first = 0;
    for (size_t member : weight.members) {
      Parameter& parameter = parameters_[member];
      parameter.working = next_working + bytes_of(weight.values.dtype, first);
      parameter.gradient = options_.trainable ? weight.gradient + first : nullptr;
      first += parameter.count;
    }
    next_working += round_up(bytes_of(weight.values.dtype, weight.count));
    if (options_.trainable) next_gradient += round_up(bytes_of(DType::kF32, weight.count));
    for (WeightUse use : {WeightUse::kForward, WeightUse::kDataGradient}) {
      const int64_t bytes = packed_bytes(weight, use);
      if (bytes > 0) weight.packed[static_cast<int>(use)].data = next_packed;
      next_packed += bytes;
    }
  }
  return {};
}

void ParameterStore::use_recipe(Recipe recipe) {
  for (Weight& weight : weights_) {
    LinearPolicy policy = linear_policy(activation_dtype(recipe) == DType::kF32 ? Recipe::kFp32 : Recipe::kBf16);
    if (weight.is_linear) {
      // A product runs in FP8 when all its members may.
      for (size_t member : weight.members) {
        const ParameterSpec& spec = parameters_[member].spec;
        policy = options_.precision.linear(recipe, spec.name, spec.layer, static_cast<int64_t>(layers_.size()));
        if (!policy.quantized()) break;
      }
      if (options_.served_input) policy.forward_input = served_format(weight);
    }
    if (policy == weight.policy) continue;
    weight.policy = policy;
    for (Packed& packed : weight.packed) packed.fresh = false;
  }
}

OperandFormat ParameterStore::served_format(const Weight& weight) const {
  const ServedInput input = options_.served_input(parameters_[weight.members[0]].spec);
  OperandFormat format{.format = DType::kF32};
  if (input.granularity == Granularity::kNone) return format;
  format = {.format = input.format,
            .granularity = input.granularity,
            .power_of_two = input.power_of_two,
            .fixed_scale_inv = input.scale_inv};
  if (input.granularity == Granularity::kBlock) format.block_rows = 1, format.block_cols = input.block_cols;
  for (size_t member : weight.members) {
    format.fixed_scale_inv =
        std::max(format.fixed_scale_inv, options_.served_input(parameters_[member].spec).scale_inv);
  }
  return format;
}

void ParameterStore::weights_changed() {
  for (Weight& weight : weights_) {
    for (Packed& packed : weight.packed) packed.fresh = false;
  }
}

void ParameterStore::begin_micro_batch(bool first, bool last) {
  last_ = last;
  if (!first) return;
  for (Weight& weight : weights_) weight.written = weight.has_squares = false;
}

Result<double> ParameterStore::gradient_norm_squared() {
  const OperationProfile::Timer timer(profile_, "gradient.norm");
  double total = 0;
  for (Weight& weight : weights_) {
    if (!weight.has_squares) {
      INVAR_ASSIGN(weight.sum_squares, device_.sum_squares(weight.gradient, weight.count));
      weight.has_squares = true;
    }
    total += weight.sum_squares;
  }
  return total;
}

Status ParameterStore::check_reached() const {
  for (const Weight& weight : weights_) {
    if (weight.written) continue;
    return Error(Code::kFailedPrecondition, "model.unreached",
                 cat("parameter \"", parameters_[weight.members[0]].spec.name, "\" got no gradient"));
  }
  return {};
}

Result<WeightView> ParameterStore::weight(WeightId id, WeightUse use) {
  Weight& weight = weights_[static_cast<size_t>(id)];
  Packed& packed = weight.packed[static_cast<int>(use)];
  if (packed.data != nullptr && !packed.fresh && !arena_.planning()) INVAR_TRY(pack(weight, use));
  return WeightView{weight.values, packed.data, packed.scale_inv};
}

Status ParameterStore::pack(Weight& weight, WeightUse use) {
  const OperationProfile::Timer timer(profile_, "pack");
  const bool forward = use == WeightUse::kForward;
  Packed& packed = weight.packed[static_cast<int>(use)];
  const OperandFormat& format = forward ? weight.policy.forward_weight : weight.policy.data_gradient_weight;
  const void* source = weight.values.data;
  packed.scale_inv = 1.0f;
  if (format.quantized()) {
    INVAR_TRY(quantise(weight, format, &packed.scale_inv));
    source = quantised_.data();
  }
  const Matrix& values = weight.values;
  INVAR_TRY(device_.matmul_pack(packed.data, source, values.dtype, forward ? values.cols : values.rows,
                                forward ? values.rows : values.cols, values.cols, forward));
  packed.fresh = true;
  return {};
}

// Into quantised_. Blocks lie on each tensor of a fused product; a scale a tensor means one for the whole product,
// because it multiplies all of the product's columns.
Status ParameterStore::quantise(Weight& weight, const OperandFormat& format, float* scale_inv) {
  float* scale = reinterpret_cast<float*>(quantised_.as<std::byte>() + quantised_.bytes() - kAlignment);
  Matrix whole = weight.values;
  Matrix decoded{quantised_.data(), DType::kBF16, whole.rows, whole.cols, whole.cols};
  if (!format.power_of_two) {
    INVAR_TRY(device_.quantize(quantize_args(whole, format, decoded, scale)));
    return device_.copy(scale_inv, scale, sizeof *scale_inv);
  }
  int64_t first = 0;
  for (size_t member : weight.members) {
    const int64_t rows = parameters_[member].count / whole.cols;
    Matrix from = whole, to = decoded;
    from.data = static_cast<std::byte*>(whole.data) + bytes_of(whole.dtype, first * whole.cols);
    to.data = static_cast<std::byte*>(decoded.data) + bytes_of(decoded.dtype, first * whole.cols);
    from.rows = to.rows = rows;
    INVAR_TRY(device_.quantize(quantize_args(from, format, to, nullptr)));
    first += rows;
  }
  return {};
}

const float* ParameterStore::gain(WeightId id) { return weights_[static_cast<size_t>(id)].values.f32(); }

Result<GradientTarget> ParameterStore::gradient(WeightId id) {
  Weight& weight = weights_[static_cast<size_t>(id)];
  GradientTarget target;
  target.data = weight.gradient;
  if (arena_.planning()) return target;
  target.accumulate = std::exchange(weight.written, true);
  // A linear layer's weight gets one contribution a micro-batch.
  if (last_ && weight.is_linear) {
    target.sum_squares = &weight.sum_squares;
    weight.has_squares = true;
  }
  return target;
}

Result<float*> ParameterStore::gradient_to_add(WeightId id) {
  Weight& weight = weights_[static_cast<size_t>(id)];
  if (arena_.planning()) return weight.gradient;
  if (!std::exchange(weight.written, true)) {
    INVAR_TRY(device_.zero(weight.gradient, static_cast<size_t>(bytes_of(DType::kF32, weight.count))));
  }
  return weight.gradient;
}

}  // namespace invar
