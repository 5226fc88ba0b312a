// AdamW over a list of parameters: owns the moments, steps masters and working copies in one pass.
//
//   INVAR_ASSIGN(auto optimizer, AdamW::create(device, parameters, {.beta1 = 0.9, .beta2 = 0.95}));
//   const double norm = ...;                                            // of the mean gradient
//   INVAR_TRY(optimizer.step(lr, clip_factor(norm, 1.0) / tokens));     // gradients hold a sum over tokens
//
// g = gradient * grad_scale; p -= lr*decay*p (decaying parameters only); m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
// p -= lr * (m / (1-b1^k)) / (sqrt(v / (1-b2^k)) + eps), k = 1 for the first step (Loshchilov and Hutter 2019).
// Invariant: a step that fails its checks has touched nothing; steps() counts successful ones only.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/device/device.h"

namespace invar {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
};

// Pointers are the owner's and stay valid as long as the optimizer.
struct OptimizedParameter {
  std::string name;
  int64_t count = 0;
  float* master = nullptr;          // F32
  const float* gradient = nullptr;  // F32, the sum over the window; may come later by set_gradient
  void* working = nullptr;          // BF16 copy written by each step, or null when the master itself is used
  bool decays = true;               // matrices do; gains and biases do not
};

class AdamW {
 public:
  AdamW() = default;  // no parameters
  static Result<AdamW> create(std::shared_ptr<Device> device, std::vector<OptimizedParameter> parameters,
                              const AdamWOptions& options);

  // grad_scale: everything that turns the stored sum into the gradient: 1/tokens, the clip factor, the unscale.
  Status step(double lr, double grad_scale);

  // Where the next steps read the gradient of parameter `index`.
  void set_gradient(size_t index, const float* gradient) { parameters_[index].gradient = gradient; }

  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }  // on resume, together with the moments
  const AdamWOptions& options() const { return options_; }
  const std::vector<OptimizedParameter>& parameters() const { return parameters_; }
  // The moments of parameter `index`, [count]; written on resume.
  float* m(size_t index) const { return m_.as<float>() + offsets_[index]; }
  float* v(size_t index) const { return v_.as<float>() + offsets_[index]; }
  int64_t memory() const { return static_cast<int64_t>(m_.bytes() + v_.bytes()); }

 private:
  std::shared_ptr<Device> device_;
  std::vector<OptimizedParameter> parameters_;
  AdamWOptions options_;
  std::vector<int64_t> offsets_;  // of each parameter in the moment buffers, in elements
  DeviceBuffer m_, v_;
  int64_t steps_ = 0;
};

// min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace invar
