// The optimizer on the host's own tensors, and the gradient accumulator.
#include <cmath>
#include <cstddef>

#include "c_api/internal/callbacks.h"
#include "core/device/tensor_operations.h"
#include "core/optim/adamw.h"
#include "core/optim/gradient_accumulator.h"
#include "invar/v1/optimizer.pb.h"

using invar::AdamW;
using invar::Code;
using invar::DType;
using invar::Error;
using invar::GradientAccumulator;
using invar::OptimizedParameter;
using invar::Result;
using invar::Status;
using invar::Tensor;
using invar::abi::entry;
using invar::abi::Outcome;
using invar::abi::RuntimeState;

struct invar_optimizer {
  std::shared_ptr<RuntimeState> runtime;
  invar::v1::OptimizerConfig config;
  std::vector<OptimizedParameter> parameters;  // until the first step or state
  std::vector<Tensor> held;                    // parameters and the masters made for BF16 ones
  std::vector<Tensor> masters;                 // one a parameter
  std::shared_ptr<AdamW> adamw;
  std::atomic<bool> busy{false};
};

struct invar_accumulator {
  std::shared_ptr<RuntimeState> runtime;
  std::shared_ptr<GradientAccumulator> sums;
  std::vector<int64_t> counts;
  std::atomic<bool> busy{false};
};

namespace {

Status start(invar_optimizer& optimizer) {
  if (optimizer.adamw != nullptr) return {};
  if (optimizer.parameters.empty()) {
    return Error(Code::kFailedPrecondition, "optimizer.no_parameters",
                 "the optimizer has no parameters: add them first");
  }
  INVAR_ASSIGN(AdamW made, AdamW::create(optimizer.runtime->device, optimizer.parameters,
                                         {.beta1 = optimizer.config.beta1(),
                                          .beta2 = optimizer.config.beta2(),
                                          .eps = optimizer.config.eps(),
                                          .weight_decay = optimizer.config.weight_decay()}));
  optimizer.adamw = std::make_shared<AdamW>(std::move(made));
  return {};
}

Status check_index(const char* function, int64_t index, size_t count) {
  if (index >= 0 && static_cast<size_t>(index) < count) return {};
  return Error(Code::kOutOfRange, "argument.index",
               invar::cat(function, ": index ", index, " is not in [0, ", count, ")"));
}

// Global norm of gradient * grad_scale; not finite when an element is not.
Result<double> norm_of(RuntimeState& runtime, const invar_tensor* const* gradients, int64_t count, double grad_scale) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& gradient = gradients[i]->tensor;
    INVAR_ASSIGN(const double part,
                 runtime.device->sum_squares(static_cast<const float*>(gradient.data()), gradient.elements()));
    sum += part;
  }
  return std::sqrt(sum) * std::fabs(grad_scale);
}

// A part of memory that `owner` holds, as an FP32 tensor of rank 1 or of `shape`.
template <typename Owner>
Result<Tensor> share(std::shared_ptr<Owner> owner, float* data, std::vector<int64_t> shape) {
  return Tensor::view(DType::kF32, std::move(shape), std::shared_ptr<void>(std::move(owner), data));
}

}  // namespace

invar_status* invar_optimizer_create(invar_runtime* runtime, const void* config, size_t config_size,
                                     invar_optimizer** optimizer) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (optimizer != nullptr) *optimizer = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(optimizer);
    INVAR_ASSIGN(auto checked, invar::abi::config_from<invar::v1::OptimizerConfig>(function, config, config_size));
    auto made = std::make_unique<invar_optimizer>();
    made->runtime = runtime->runtime;
    made->config = std::move(checked);
    *optimizer = made.release();
    return {};
  });
}

invar_status* invar_optimizer_add(invar_optimizer* optimizer, invar_tensor* parameter, bool decays,
                                  int64_t* index) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(optimizer);
    INVAR_HANDLE(parameter);
    INVAR_REQUIRE(index);
    if (optimizer->adamw != nullptr) {
      return Error(Code::kFailedPrecondition, "optimizer.started",
                   invar::cat(function, ": parameters are added before the first step or state"));
    }
    const Tensor& tensor = parameter->tensor;
    if (tensor.dtype() != DType::kF32 && tensor.dtype() != DType::kBF16) {
      return Error(Code::kInvalidArgument, "tensor.dtype",
                   invar::cat(function, ": parameter is ", name_of(tensor.dtype()), ", expected F32 or BF16"));
    }
    RuntimeState& runtime = *optimizer->runtime;
    const std::lock_guard<std::mutex> lock(runtime.device_mutex);
    const bool narrow = tensor.dtype() == DType::kBF16;
    Tensor master = tensor;
    if (narrow) {
      INVAR_ASSIGN(master, invar::cast_tensor(*runtime.device, tensor, DType::kF32));
    }
    const auto number = static_cast<int64_t>(optimizer->parameters.size());
    optimizer->parameters.push_back({.name = invar::cat("parameter ", number),
                                     .count = tensor.elements(),
                                     .master = static_cast<float*>(master.data()),
                                     .working = narrow ? tensor.data() : nullptr,
                                     .decays = decays});
    optimizer->held.push_back(tensor);
    optimizer->masters.push_back(std::move(master));
    *index = number;
    return {};
  });
}

invar_status* invar_optimizer_step(invar_optimizer* optimizer, const invar_tensor* const* gradients,
                                   int64_t gradient_count, double lr, double grad_scale,
                                   invar_optimizer_result* result) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(optimizer);
    INVAR_REQUIRE(gradients);
    INVAR_TRY(
        invar::abi::check_struct(function, result, offsetof(invar_optimizer_result, clip_factor) + sizeof(double)));
    RuntimeState& runtime = *optimizer->runtime;
    const std::lock_guard<std::mutex> lock(runtime.device_mutex);
    INVAR_TRY(start(*optimizer));
    AdamW& adamw = *optimizer->adamw;
    const auto count = static_cast<int64_t>(adamw.parameters().size());
    if (gradient_count != count) {
      return Error(Code::kInvalidArgument, "optimizer.gradients",
                   invar::cat(function, ": ", gradient_count, " gradients for ", count, " parameters"));
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      INVAR_REQUIRE(gradients[i]);
      const Tensor& gradient = gradients[i]->tensor;
      if (gradient.dtype() != DType::kF32 || gradient.elements() != adamw.parameters()[at].count) {
        return Error(Code::kInvalidArgument, "optimizer.gradients",
                     invar::cat(function, ": gradient ", i, " is ", name_of(gradient.dtype()), " with ",
                                gradient.elements(), " elements, expected F32 with ", adamw.parameters()[at].count));
      }
    }
    INVAR_ASSIGN(const double norm, norm_of(runtime, gradients, count, grad_scale));
    invar_optimizer_result filled = INVAR_OPTIMIZER_RESULT_INIT;
    filled.grad_norm = norm;
    filled.skipped = !std::isfinite(norm);
    filled.clip_factor = filled.skipped != 0 ? 1 : invar::clip_factor(norm, optimizer->config.clip_norm());
    if (filled.skipped == 0) {
      for (int64_t i = 0; i < count; ++i) {
        adamw.set_gradient(static_cast<size_t>(i), static_cast<const float*>(gradients[i]->tensor.data()));
      }
      INVAR_TRY(adamw.step(lr, grad_scale * filled.clip_factor));
    }
    filled.step = adamw.steps();
    if (result != nullptr) invar::abi::fill_struct(filled, result);
    return {};
  });
}

invar_status* invar_optimizer_state(invar_optimizer* optimizer, int64_t index, int32_t which,
                                    invar_tensor** state) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (state != nullptr) *state = nullptr;
    INVAR_TURN(optimizer);
    INVAR_REQUIRE(state);
    RuntimeState& runtime = *optimizer->runtime;
    const std::lock_guard<std::mutex> lock(runtime.device_mutex);
    INVAR_TRY(start(*optimizer));
    INVAR_TRY(check_index(function, index, optimizer->masters.size()));
    const auto at = static_cast<size_t>(index);
    const Tensor& master = optimizer->masters[at];
    Result<Tensor> made = master;
    if (which == INVAR_STATE_FIRST_MOMENT || which == INVAR_STATE_SECOND_MOMENT) {
      float* data = which == INVAR_STATE_FIRST_MOMENT ? optimizer->adamw->m(at) : optimizer->adamw->v(at);
      made = share(optimizer->adamw, data, master.shape());
    } else if (which != INVAR_STATE_MASTER) {
      return Error(Code::kInvalidArgument, "argument.state", invar::cat(function, ": state ", which, " is not known"));
    }
    INVAR_TRY(made.status());
    *state = new invar_tensor{optimizer->runtime, std::move(made).value()};
    return {};
  });
}

invar_status* invar_optimizer_set_step(invar_optimizer* optimizer, int64_t step) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(optimizer);
    if (step < 0) {
      return Error(Code::kInvalidArgument, "argument.step", invar::cat(function, ": step ", step, " is not >= 0"));
    }
    const std::lock_guard<std::mutex> lock(optimizer->runtime->device_mutex);
    INVAR_TRY(start(*optimizer));
    optimizer->adamw->set_steps(step);
    return {};
  });
}

void invar_optimizer_release(invar_optimizer* optimizer) noexcept { invar::abi::release_handle(optimizer); }

invar_status* invar_accumulator_create(invar_runtime* runtime, const int64_t* elements, int64_t count,
                                       invar_accumulator** accumulator) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (accumulator != nullptr) *accumulator = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(elements);
    INVAR_REQUIRE(accumulator);
    constexpr int64_t kMost = 1 << 24;
    if (count < 1 || count > kMost) {
      return Error(Code::kInvalidArgument, "argument.count",
                   invar::cat(function, ": count ", count, " is not in 1..", kMost));
    }
    auto made = std::make_unique<invar_accumulator>();
    made->runtime = runtime->runtime;
    made->counts.assign(elements, elements + count);
    for (const int64_t each : made->counts) INVAR_TRY(Tensor::bytes_of_shape(DType::kF32, {{each}}).status());
    const std::lock_guard<std::mutex> lock(runtime->runtime->device_mutex);
    INVAR_ASSIGN(auto sums, GradientAccumulator::create(runtime->runtime->device, made->counts));
    made->sums = std::make_shared<GradientAccumulator>(std::move(sums));
    *accumulator = made.release();
    return {};
  });
}

invar_status* invar_accumulator_add(invar_accumulator* accumulator, int64_t index,
                                    const invar_tensor* gradient) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(accumulator);
    INVAR_HANDLE(gradient);
    INVAR_TRY(check_index(function, index, accumulator->counts.size()));
    const Tensor& tensor = gradient->tensor;
    const bool known = tensor.dtype() == DType::kF32 || tensor.dtype() == DType::kBF16;
    const int64_t expected = accumulator->counts[static_cast<size_t>(index)];
    if (!known || tensor.elements() != expected) {
      return Error(Code::kInvalidArgument, "accumulator.gradient",
                   invar::cat(function, ": gradient ", index, " is ", name_of(tensor.dtype()), " with ",
                              tensor.elements(), " elements, expected F32 or BF16 with ", expected));
    }
    const std::lock_guard<std::mutex> lock(accumulator->runtime->device_mutex);
    return accumulator->sums->add(static_cast<size_t>(index), tensor.data(), tensor.dtype());
  });
}

invar_status* invar_accumulator_add_tokens(invar_accumulator* accumulator, int64_t tokens) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(accumulator);
    if (tokens < 0) {
      return Error(Code::kInvalidArgument, "argument.tokens",
                   invar::cat(function, ": tokens ", tokens, " is not >= 0"));
    }
    accumulator->sums->add_tokens(tokens);
    return {};
  });
}

invar_status* invar_accumulator_summary(invar_accumulator* accumulator, invar_accumulator_info* info) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(accumulator);
    INVAR_REQUIRE(info);
    INVAR_TRY(invar::abi::check_struct(function, info, offsetof(invar_accumulator_info, norm) + sizeof(double)));
    const std::lock_guard<std::mutex> lock(accumulator->runtime->device_mutex);
    INVAR_ASSIGN(const double squared, accumulator->sums->norm_squared());
    invar_accumulator_info filled = INVAR_ACCUMULATOR_INFO_INIT;
    filled.norm = std::sqrt(squared);
    filled.finite = std::isfinite(squared);
    filled.tokens = accumulator->sums->tokens();
    invar::abi::fill_struct(filled, info);
    return {};
  });
}

invar_status* invar_accumulator_gradient(invar_accumulator* accumulator, int64_t index,
                                         invar_tensor** gradient) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (gradient != nullptr) *gradient = nullptr;
    INVAR_TURN(accumulator);
    INVAR_REQUIRE(gradient);
    INVAR_TRY(check_index(function, index, accumulator->counts.size()));
    const auto at = static_cast<size_t>(index);
    INVAR_ASSIGN(Tensor made,
                 share(accumulator->sums, const_cast<float*>(accumulator->sums->sum(at)), {accumulator->counts[at]}));
    *gradient = new invar_tensor{accumulator->runtime, std::move(made)};
    return {};
  });
}

invar_status* invar_accumulator_reset(invar_accumulator* accumulator) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_TURN(accumulator);
    const std::lock_guard<std::mutex> lock(accumulator->runtime->device_mutex);
    return accumulator->sums->begin();
  });
}

void invar_accumulator_release(invar_accumulator* accumulator) noexcept { invar::abi::release_handle(accumulator); }
