#include "core/tensor/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/tensor/dlpack.h"

namespace invar {
namespace {

TEST(Tensor, CountsElementsAndBytes) {
  const auto tensor = Tensor::view(DType::kE2M1, {3, 5}, nullptr);
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->elements(), 15);
  EXPECT_EQ(tensor->bytes(), 8);
  EXPECT_EQ(tensor->rows(), 3);
  EXPECT_EQ(Tensor::view(DType::kF32, {}, nullptr)->elements(), 1);
  EXPECT_EQ(Tensor::view(DType::kF32, {4, 0}, nullptr)->rows(), 0);
}

TEST(Tensor, RefusesImpossibleShapes) {
  EXPECT_EQ(Tensor::view(DType::kF32, {-1}, nullptr).status().reason(), "tensor.shape");
  EXPECT_EQ(Tensor::view(DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}, nullptr).status().reason(), "tensor.shape");
  EXPECT_EQ(Tensor::view(DType::kF32, std::vector<int64_t>(9, 1), nullptr).status().reason(), "tensor.shape");
  EXPECT_EQ(Tensor::view(static_cast<DType>(99), {1}, nullptr).status().reason(), "tensor.dtype");
  EXPECT_EQ(Tensor::view(DType::kF32, {0, int64_t{1} << 40}, nullptr)->elements(), 0);
}

TEST(DlPack, RoundTripSharesMemoryAndRunsTheDeleterOnce) {
  auto memory = std::make_shared<std::vector<float>>(6);
  const std::weak_ptr<std::vector<float>> watch = memory;
  float* data = memory->data();
  auto tensor = Tensor::view(DType::kF32, {2, 3}, std::shared_ptr<void>(memory, data));
  memory.reset();
  auto managed = tensor_to_dlpack(*tensor);
  ASSERT_TRUE(managed.ok());
  tensor = Error(Code::kInternal, "gone", "gone");
  EXPECT_FALSE(watch.expired());
  {
    const auto back = tensor_from_dlpack(*managed);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->data(), data);
    EXPECT_EQ(back->shape(), (std::vector<int64_t>{2, 3}));
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(DlPack, RefusesWhatItCannotHold) {
  float data[6] = {};
  int64_t shape[] = {2, 3}, strides[] = {3, 1};
  int deleted = 0;
  DLManagedTensorVersioned managed{};
  managed.version = {1, 0};
  managed.manager_ctx = &deleted;
  managed.deleter = [](DLManagedTensorVersioned* self) { ++*static_cast<int*>(self->manager_ctx); };
  managed.dl_tensor = {data, {1, 0}, 2, {2, 32, 1}, shape, strides, 0};
  const auto reason = [&] { return tensor_from_dlpack(&managed).status().reason(); };
  managed.version.major = 2;
  EXPECT_EQ(reason(), "dlpack.version");
  managed.version.major = 1;
  managed.dl_tensor.device.device_type = 2;
  EXPECT_EQ(reason(), "dlpack.device");
  managed.dl_tensor.device.device_type = 1;
  strides[0] = 4;
  EXPECT_EQ(reason(), "dlpack.layout");
  strides[0] = 3;
  managed.dl_tensor.dtype.lanes = 2;
  EXPECT_EQ(reason(), "dlpack.dtype");
  managed.dl_tensor.dtype.lanes = 1;
  managed.flags = 1;
  EXPECT_EQ(reason(), "dlpack.read_only");
  managed.flags = 0;
  managed.dl_tensor.ndim = -1;
  EXPECT_EQ(reason(), "dlpack.layout");
  managed.dl_tensor.ndim = 2;
  shape[0] = -2;
  EXPECT_EQ(reason(), "tensor.shape");
  shape[0] = 2;
  EXPECT_EQ(deleted, 0);
  EXPECT_TRUE(tensor_from_dlpack(&managed).ok());
  EXPECT_EQ(deleted, 1);
}

}  // namespace
}  // namespace invar
