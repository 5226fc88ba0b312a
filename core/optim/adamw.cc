#include "core/optim/adamw.h"

#include <algorithm>
#include <cmath>

namespace invar {
namespace {

constexpr int64_t kAlign = 16;  // elements: 64 bytes

Status check_options(const AdamWOptions& options) {
  const auto bad = [](std::string_view name, double value, std::string_view expected) {
    return Error(Code::kInvalidArgument, "optimizer.bad_option", cat(name, " is ", value, "; expected ", expected));
  };
  if (!(options.beta1 >= 0 && options.beta1 < 1)) return bad("beta1", options.beta1, "[0, 1)");
  if (!(options.beta2 >= 0 && options.beta2 < 1)) return bad("beta2", options.beta2, "[0, 1)");
  if (!(options.eps > 0)) return bad("eps", options.eps, "a positive number");
  if (!(options.weight_decay >= 0)) return bad("weight_decay", options.weight_decay, "0 or more");
  return {};
}

}  // namespace

Result<AdamW> AdamW::create(std::shared_ptr<Device> device, std::vector<OptimizedParameter> parameters,
                            const AdamWOptions& options) {
  INVAR_TRY(check_options(options));
  AdamW optimizer;
  int64_t elements = 0;
  for (const OptimizedParameter& parameter : parameters) {
    if (parameter.count < 0 || (parameter.count > 0 && parameter.master == nullptr)) {
      return Error(Code::kInvalidArgument, "optimizer.bad_parameter",
                   cat("\"", parameter.name, "\": ", parameter.count, " elements; a master is needed"));
    }
    optimizer.offsets_.push_back(elements);
    elements += (parameter.count + kAlign - 1) / kAlign * kAlign;
  }
  const size_t bytes = std::max<size_t>(static_cast<size_t>(elements), 1) * sizeof(float);
  // Device memory is zero at first.
  INVAR_ASSIGN(optimizer.m_, device->allocate(bytes));
  INVAR_ASSIGN(optimizer.v_, device->allocate(bytes));
  optimizer.device_ = std::move(device);
  optimizer.parameters_ = std::move(parameters);
  optimizer.options_ = options;
  return optimizer;
}

Status AdamW::step(double lr, double grad_scale) {
  if (!std::isfinite(lr) || lr < 0 || !std::isfinite(grad_scale)) {
    return Error(Code::kInvalidArgument, "optimizer.bad_step",
                 cat("learning rate ", lr, ", gradient scale ", grad_scale, ": expected finite numbers"));
  }
  std::vector<invar_adamw_tensor> tensors(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const OptimizedParameter& parameter = parameters_[i];
    if (parameter.count > 0 && parameter.gradient == nullptr) {
      return Error(Code::kFailedPrecondition, "optimizer.no_gradient", cat("\"", parameter.name, "\" has no gradient"));
    }
    tensors[i] = {.master = parameter.master,
                  .gradient = parameter.gradient,
                  .m = m(i),
                  .v = v(i),
                  .working = parameter.working,
                  .count = parameter.count,
                  .weight_decay = parameter.decays ? static_cast<float>(options_.weight_decay) : 0.0f};
  }
  const auto k = static_cast<double>(steps_ + 1);
  invar_adamw_args args{};
  args.struct_size = sizeof(args);
  args.tensors = tensors.data();
  args.tensor_count = static_cast<int64_t>(tensors.size());
  args.lr = static_cast<float>(lr);
  args.beta1 = static_cast<float>(options_.beta1);
  args.beta2 = static_cast<float>(options_.beta2);
  args.eps = static_cast<float>(options_.eps);
  args.bias1 = 1 - std::pow(options_.beta1, k);
  args.bias2 = 1 - std::pow(options_.beta2, k);
  args.grad_scale = static_cast<float>(grad_scale);
  INVAR_TRY(device_->adamw(args));
  ++steps_;
  return {};
}

double clip_factor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace invar
