#include "core/model/rope_table.h"

#include <algorithm>
#include <cmath>

namespace invar {
namespace {

constexpr double kTurn = 2 * M_PI;

// Llama 3.1: long wavelengths are stretched, short ones kept, those between mixed.
double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double turns = static_cast<double>(scaling.original_positions) * frequency / kTurn;
  if (turns < scaling.low_frequency) return frequency / scaling.factor;
  if (turns > scaling.high_frequency) return frequency;
  const double kept = (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

// YaRN (Peng et al. 2023, section 3.2): pairs that turn often are kept, pairs that turn less than once are stretched,
// between them a ramp over the index of the pair.
struct YarnRamp {
  YarnRamp(int64_t head_dim, double theta, const RopeScaling& scaling) {
    const auto pair_that_turns = [&](double turns) {
      const double positions = static_cast<double>(scaling.original_positions);
      return static_cast<double>(head_dim) * std::log(positions / (turns * kTurn)) / (2 * std::log(theta));
    };
    low = pair_that_turns(scaling.beta_fast), high = pair_that_turns(scaling.beta_slow);
    if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, static_cast<double>(head_dim - 1));
    if (low == high) high += 0.001;
  }
  double stretched(int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  }
  double low, high;
};

}  // namespace

std::vector<double> rope_frequencies(int64_t head_dim, double theta, const RopeScaling& scaling) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  const YarnRamp ramp(head_dim, theta, scaling);
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double& frequency = frequencies[static_cast<size_t>(i)];
    frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    switch (scaling.kind) {
      case RopeKind::kPlain: break;
      case RopeKind::kLinear: frequency /= scaling.factor; break;
      case RopeKind::kLlama3: frequency = llama3_frequency(frequency, scaling); break;
      case RopeKind::kYarn: {
        const double stretched = ramp.stretched(i);
        frequency = frequency / scaling.factor * stretched + frequency * (1 - stretched);
        break;
      }
    }
  }
  return frequencies;
}

Result<DeviceBuffer> make_rope_table(Device& device, int64_t positions, int64_t head_dim, double theta,
                                     const RopeScaling& scaling) {
  const int64_t half = head_dim / 2, count = positions * half;
  const std::vector<double> frequency = rope_frequencies(head_dim, theta, scaling);
  const double factor = scaling.attention_factor;
  std::vector<float> table(static_cast<size_t>(2 * count));
  device.pool().parallel_for(positions, [&](int64_t position, int) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequency[static_cast<size_t>(i)];
      table[static_cast<size_t>(position * half + i)] = static_cast<float>(factor * std::cos(angle));
      table[static_cast<size_t>(count + position * half + i)] = static_cast<float>(factor * std::sin(angle));
    }
  });
  INVAR_ASSIGN(DeviceBuffer buffer, device.allocate(table.size() * sizeof(float)));
  INVAR_TRY(device.copy(buffer.data(), table.data(), table.size() * sizeof(float)));
  return buffer;
}

}  // namespace invar
