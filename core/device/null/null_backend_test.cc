#include "core/device/null/null_backend.h"

#include <gtest/gtest.h>

#include "core/device/device.h"

namespace invar {
namespace {

std::shared_ptr<Device> open_null() {
  auto device = Device::open(null_backend(), 0, std::make_shared<ThreadPool>(1));
  EXPECT_TRUE(device.ok());
  return std::move(device).value();
}

TEST(NullBackend, RecordsOperationsInOrderWithTheirSizes) {
  const auto device = open_null();
  EXPECT_EQ(device->name(), "null:0");
  std::vector<float> x(6, 1.f), gain(3, 1.f), y(6, 7.f);
  invar_rmsnorm_args norm{};
  norm.x_dtype = norm.y_dtype = static_cast<int32_t>(DType::kF32);
  norm.rows = 2, norm.cols = 3, norm.x = x.data(), norm.y = y.data(), norm.gain = gain.data();
  ASSERT_TRUE(device->rmsnorm(norm).ok());
  ASSERT_TRUE(device->add(y.data(), x.data(), x.data(), DType::kF32, 6).ok());
  const NullRecorder& recorder = null_recorder(device->context());
  EXPECT_EQ(recorder.operations(), "rmsnorm add");
  EXPECT_EQ(recorder.calls[0].sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(recorder.count("add"), 1);
  EXPECT_EQ(y, std::vector<float>(6, 7.f));
}

TEST(NullBackend, MemoryIsRealAndBranchResultsAreFixed) {
  const auto device = open_null();
  auto buffer = device->allocate(64);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->as<int64_t>()[7], 0);
  const int64_t five = 5;
  ASSERT_TRUE(device->copy(buffer->data(), &five, sizeof five).ok());
  EXPECT_EQ(buffer->as<int64_t>()[0], 5);
  std::vector<float> x(4, 3.f);
  EXPECT_EQ(*device->sum_squares(x.data(), 4), 0.0);
  EXPECT_TRUE(*device->all_finite(x.data(), 4));
}

TEST(NullBackend, FailsTheCallItIsToldTo) {
  const auto device = open_null();
  NullRecorder& recorder = null_recorder(device->context());
  recorder.fail_at = 1;
  recorder.fail_code = 8;
  std::vector<float> x(4, 3.f);
  EXPECT_TRUE(device->add(x.data(), x.data(), x.data(), DType::kF32, 4).ok());
  const Status failed = device->add(x.data(), x.data(), x.data(), DType::kF32, 4);
  EXPECT_EQ(failed.code(), Code::kResourceExhausted);
  EXPECT_TRUE(device->add(x.data(), x.data(), x.data(), DType::kF32, 4).ok());
  EXPECT_EQ(recorder.calls.size(), 3u);
}

}  // namespace
}  // namespace invar
