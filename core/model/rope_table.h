// Cosines and sines of rotary positions. Su et al. 2021. Thread rule: pure functions.
#pragma once

#include <vector>

#include "core/device/device.h"
#include "core/family/family.h"

namespace invar {

// Radians a position turns each pair of a head by: theta^(-2i / head_dim), stretched as the scaling says.
std::vector<double> rope_frequencies(int64_t head_dim, double theta, const RopeScaling& scaling);

// FP32 [2, positions, head_dim / 2]: cosines, then sines, computed in FP64.
Result<DeviceBuffer> make_rope_table(Device& device, int64_t positions, int64_t head_dim, double theta,
                                     const RopeScaling& scaling);

}  // namespace invar
