#include "core/model/reference_decoder.h"

#include <algorithm>
#include <cmath>

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

Rows norm(const Rows& x, const Rows& gain, double eps) {
  const size_t cols = gain.size();
  Rows y(x.size());
  for (size_t r = 0; r < x.size() / cols; ++r) {
    double squares = 0;
    for (size_t c = 0; c < cols; ++c) squares += x[r * cols + c] * x[r * cols + c];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (size_t c = 0; c < cols; ++c) y[r * cols + c] = x[r * cols + c] * inverse * gain[c];
  }
  return y;
}

void rotate(Rows& x, int64_t heads, int64_t dim, double theta) {
  const int64_t half = dim / 2, tokens = static_cast<int64_t>(x.size()) / (heads * dim);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      double* head = x.data() + (t * heads + h) * dim;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) * std::pow(theta, -2.0 * static_cast<double>(i) / dim);
        const double a = head[i], b = head[i + half];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
}

Rows attend(const ModelShape& shape, const Rows& q, const Rows& k, const Rows& v) {
  const int64_t dim = shape.head_dim, tokens = static_cast<int64_t>(q.size()) / shape.query_size();
  Rows out(q.size());
  for (int64_t h = 0; h < shape.heads; ++h) {
    const int64_t kv = h / (shape.heads / shape.kv_heads);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> weight(static_cast<size_t>(t + 1));
      double largest = -1e300, total = 0;
      for (int64_t s = 0; s <= t; ++s) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) {
          dot += q[(t * shape.heads + h) * dim + i] * k[(s * shape.kv_heads + kv) * dim + i];
        }
        weight[s] = dot / std::sqrt(static_cast<double>(dim));
        largest = std::max(largest, weight[s]);
      }
      for (double& w : weight) total += w = std::exp(w - largest);
      for (int64_t s = 0; s <= t; ++s) {
        for (int64_t i = 0; i < dim; ++i) {
          out[(t * shape.heads + h) * dim + i] += weight[s] / total * v[(s * shape.kv_heads + kv) * dim + i];
        }
      }
    }
  }
  return out;
}

void add_to(Rows& x, const Rows& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

std::vector<double> reference_logits(const ModelShape& shape, const ReferenceWeights& weights,
                                     std::span<const int32_t> ids) {
  const int64_t hidden = shape.hidden;
  const Rows& table = weights.at("model.embed_tokens.weight");
  Rows x;
  for (int32_t id : ids) x.insert(x.end(), table.begin() + id * hidden, table.begin() + (id + 1) * hidden);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const auto weight = [&](const char* name) -> const Rows& {
      return weights.at("model.layers." + std::to_string(layer) + "." + name + ".weight");
    };
    Rows normed = norm(x, weight("input_layernorm"), shape.norm_eps);
    Rows q = linear(normed, weight("self_attn.q_proj"), hidden);
    Rows k = linear(normed, weight("self_attn.k_proj"), hidden);
    const Rows v = linear(normed, weight("self_attn.v_proj"), hidden);
    rotate(q, shape.heads, shape.head_dim, shape.rope_theta);
    rotate(k, shape.kv_heads, shape.head_dim, shape.rope_theta);
    add_to(x, linear(attend(shape, q, k, v), weight("self_attn.o_proj"), shape.query_size()));
    normed = norm(x, weight("post_attention_layernorm"), shape.norm_eps);
    Rows gate = linear(normed, weight("mlp.gate_proj"), hidden);
    const Rows up = linear(normed, weight("mlp.up_proj"), hidden);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    add_to(x, linear(gate, weight("mlp.down_proj"), shape.intermediate));
  }
  const char* head = shape.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  return linear(norm(x, weights.at("model.norm.weight"), shape.norm_eps), weights.at(head), hidden);
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
