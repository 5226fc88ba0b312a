#include "core/model/reference_decoder.h"

#include <algorithm>
#include <cmath>

#include "core/model/rope_table.h"

namespace invar::testing {
namespace {

using Rows = std::vector<double>;  // row-major

// x [rows, inputs] times W^T, W [outputs, inputs].
Rows linear(const Rows& x, const Rows& weight, int64_t inputs) {
  const int64_t rows = static_cast<int64_t>(x.size()) / inputs, outputs = static_cast<int64_t>(weight.size()) / inputs;
  Rows y(static_cast<size_t>(rows * outputs));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < inputs; ++i) sum += x[r * inputs + i] * weight[o * inputs + i];
      y[r * outputs + o] = sum;
    }
  }
  return y;
}

Rows norm(const Rows& x, const Rows& gain, const ModelShape& shape) {
  const size_t cols = gain.size();
  Rows y(x.size());
  for (size_t r = 0; r < x.size() / cols; ++r) {
    double squares = 0;
    for (size_t c = 0; c < cols; ++c) squares += x[r * cols + c] * x[r * cols + c];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(cols) + shape.norm_eps);
    for (size_t c = 0; c < cols; ++c) {
      y[r * cols + c] = x[r * cols + c] * inverse * (gain[c] + shape.norm_gain_offset);
    }
  }
  return y;
}

void rotate(Rows& x, int64_t heads, int64_t dim, const std::vector<double>& frequencies, double factor) {
  const int64_t half = dim / 2, tokens = static_cast<int64_t>(x.size()) / (heads * dim);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      double* head = x.data() + (t * heads + h) * dim;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) * frequencies[static_cast<size_t>(i)];
        const double a = head[i], b = head[i + half];
        head[i] = factor * (a * std::cos(angle) - b * std::sin(angle));
        head[i + half] = factor * (b * std::cos(angle) + a * std::sin(angle));
      }
    }
  }
}

double capped(double value, double cap) { return cap > 0 ? cap * std::tanh(value / cap) : value; }

Rows attend(const ModelShape& shape, int64_t window, const Rows& q, const Rows& k, const Rows& v) {
  const int64_t dim = shape.head_dim, tokens = static_cast<int64_t>(q.size()) / shape.query_size();
  const double scale = shape.attention_scale > 0 ? shape.attention_scale : 1 / std::sqrt(static_cast<double>(dim));
  Rows out(q.size());
  for (int64_t h = 0; h < shape.heads; ++h) {
    const int64_t kv = h / (shape.heads / shape.kv_heads);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t first = window > 0 ? std::max<int64_t>(0, t - window + 1) : 0;
      std::vector<double> weight(static_cast<size_t>(t + 1));
      double largest = -1e300, total = 0;
      for (int64_t s = first; s <= t; ++s) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) {
          dot += q[(t * shape.heads + h) * dim + i] * k[(s * shape.kv_heads + kv) * dim + i];
        }
        weight[s] = capped(dot * scale, shape.attention_soft_cap);
        largest = std::max(largest, weight[s]);
      }
      for (int64_t s = first; s <= t; ++s) total += weight[s] = std::exp(weight[s] - largest);
      for (int64_t s = first; s <= t; ++s) {
        for (int64_t i = 0; i < dim; ++i) {
          out[(t * shape.heads + h) * dim + i] += weight[s] / total * v[(s * shape.kv_heads + kv) * dim + i];
        }
      }
    }
  }
  return out;
}

void add_to(Rows& x, const Rows& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i % y.size()];
}

double gated(double gate, Gate function) {
  if (function == Gate::kSilu) return gate / (1.0 + std::exp(-gate));
  return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
}

}  // namespace

std::vector<double> reference_logits(const ModelShape& shape, const ReferenceWeights& weights,
                                     std::span<const int32_t> ids) {
  const int64_t hidden = shape.hidden;
  const Rows& table = weights.at("model.embed_tokens.weight");
  Rows x;
  for (int32_t id : ids) x.insert(x.end(), table.begin() + id * hidden, table.begin() + (id + 1) * hidden);
  for (double& value : x) value *= shape.embedding_scale;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto tensor = [&](const std::string& name) -> const Rows& {
      return weights.at("model.layers." + std::to_string(layer) + "." + name);
    };
    const auto weight = [&](const std::string& name) -> const Rows& { return tensor(name + ".weight"); };
    const auto normalise = [&](const Rows& rows, const char* name) { return norm(rows, weight(name), shape); };
    const bool is_local = shape.window(layer) > 0 && shape.local_rope_theta > 0;
    const RopeScaling scaling = is_local ? RopeScaling{} : shape.rope_scaling;
    const auto frequencies =
        rope_frequencies(shape.head_dim, is_local ? shape.local_rope_theta : shape.rope_theta, scaling);

    Rows normed = normalise(x, "input_layernorm");
    const auto project = [&](const std::string& name) {
      Rows rows = linear(normed, weight("self_attn." + name + "_proj"), hidden);
      if (shape.qkv_bias) add_to(rows, tensor("self_attn." + name + "_proj.bias"));
      return rows;
    };
    Rows q = project("q"), k = project("k");
    const Rows v = project("v");
    if (shape.query_key_norm) {
      q = normalise(q, "self_attn.q_norm");
      k = normalise(k, "self_attn.k_norm");
    }
    rotate(q, shape.heads, shape.head_dim, frequencies, scaling.attention_factor);
    rotate(k, shape.kv_heads, shape.head_dim, frequencies, scaling.attention_factor);
    Rows branch = linear(attend(shape, shape.window(layer), q, k, v), weight("self_attn.o_proj"), shape.query_size());
    if (shape.branch_norms) branch = normalise(branch, "post_attention_layernorm");
    add_to(x, branch);
    normed = normalise(x, shape.branch_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    Rows gate = linear(normed, weight("mlp.gate_proj"), hidden);
    const Rows up = linear(normed, weight("mlp.up_proj"), hidden);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gated(gate[i], shape.gate) * up[i];
    branch = linear(gate, weight("mlp.down_proj"), shape.intermediate);
    if (shape.branch_norms) branch = normalise(branch, "post_feedforward_layernorm");
    add_to(x, branch);
  }
  const char* head = shape.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  Rows logits = linear(norm(x, weights.at("model.norm.weight"), shape), weights.at(head), hidden);
  for (double& value : logits) value = capped(value, shape.logit_soft_cap);
  return logits;
}

double reference_loss(const ModelShape& shape, const ReferenceWeights& weights, std::span<const int32_t> ids,
                      std::span<const int32_t> targets, std::span<const int32_t> offsets) {
  double total = 0;
  for (size_t s = 1; s < offsets.size(); ++s) {
    const size_t first = static_cast<size_t>(offsets[s - 1]), count = static_cast<size_t>(offsets[s]) - first;
    const std::vector<double> logits = reference_logits(shape, weights, ids.subspan(first, count));
    for (size_t t = 0; t < count; ++t) {
      if (targets[first + t] < 0) continue;
      const double* row = logits.data() + t * static_cast<size_t>(shape.vocab);
      const double largest = *std::max_element(row, row + shape.vocab);
      double sum = 0;
      for (int64_t v = 0; v < shape.vocab; ++v) sum += std::exp(row[v] - largest);
      total += largest + std::log(sum) - row[targets[first + t]];
    }
  }
  return total;
}

}  // namespace invar::testing
