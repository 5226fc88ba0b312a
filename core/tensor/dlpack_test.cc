// Sharing both ways; under AddressSanitizer these are the lifetime tests.
#include "core/tensor/dlpack.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace invar {
namespace {

// The layout that every other library compiles against.
static_assert(sizeof(DLDataType) == 4 && sizeof(DLDevice) == 8 && sizeof(DLTensor) == 48);
static_assert(offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24);
static_assert(offsetof(DLTensor, strides) == 32 && offsetof(DLTensor, byte_offset) == 40);
static_assert(offsetof(DLManagedTensor, manager_ctx) == 48 && sizeof(DLManagedTensor) == 64);
static_assert(offsetof(DLManagedTensorVersioned, deleter) == 16 && offsetof(DLManagedTensorVersioned, flags) == 24);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32 && sizeof(DLManagedTensorVersioned) == 80);

TEST(DlPack, EveryDtypeGoesBothWays) {
  for (int number = 1; number <= static_cast<int>(DType::kE3M2); ++number) {
    const DType dtype = static_cast<DType>(number);
    const DLDataType type = dlpack_type_of(dtype);
    EXPECT_EQ(type.bits, bits_of(dtype)) << name_of(dtype);
    EXPECT_EQ(type.lanes, 1);
    EXPECT_EQ(dtype_from_dlpack(type), dtype);
  }
  EXPECT_EQ(dlpack_type_of(DType::kBF16).code, 4);
  EXPECT_EQ(dlpack_type_of(DType::kE4M3FN).code, 10);
  EXPECT_EQ(dlpack_type_of(DType::kE5M2).code, 12);
  EXPECT_EQ(dlpack_type_of(DType::kUnspecified).code, 255);
  EXPECT_EQ(dtype_from_dlpack({2, 32, 4}), DType::kUnspecified);
  EXPECT_EQ(dtype_from_dlpack({2, 8, 1}), DType::kUnspecified);
  EXPECT_EQ(dtype_from_dlpack({7, 8, 1}), DType::kUnspecified);
}

TEST(DlPack, AnExportKeepsTheMemoryUntilItsDeleter) {
  int released = 0;
  float memory[6] = {0, 1, 2, 3, 4, 5};
  DLManagedTensorVersioned* managed = nullptr;
  DLManagedTensor* old = nullptr;
  {
    const std::shared_ptr<void> owner(memory, [&](void*) { ++released; });
    const Tensor tensor = *Tensor::view(DType::kF32, {2, 3}, owner);
    managed = *tensor_to_dlpack(tensor);
    old = *tensor_to_dlpack_unversioned(tensor);
  }
  EXPECT_EQ(released, 0);
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->flags, 0u);
  const DLTensor& view = managed->dl_tensor;
  EXPECT_EQ(view.device.device_type, 1);
  EXPECT_EQ(view.ndim, 2);
  EXPECT_EQ(view.shape[1], 3);
  EXPECT_EQ(view.strides[0], 3);
  EXPECT_EQ(view.strides[1], 1);
  EXPECT_EQ(view.byte_offset, 0u);
  EXPECT_EQ(static_cast<float*>(view.data)[5], 5);
  managed->deleter(managed);
  EXPECT_EQ(released, 0);
  EXPECT_EQ(static_cast<float*>(old->dl_tensor.data)[5], 5);
  old->deleter(old);
  EXPECT_EQ(released, 1);
}

// A producer as another library would be; its memory is spoilt by the deleter, so that a late read shows.
struct Producer {
  std::vector<float> memory = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<int64_t> shape = {2, 3}, strides = {3, 1};
  int deleted = 0;

  template <typename Managed>
  static void count_deletion(Managed* self) {
    auto* producer = static_cast<Producer*>(self->manager_ctx);
    ++producer->deleted;
    producer->memory.assign(8, -1.0f);
    delete self;
  }

  DLTensor view() { return {memory.data(), {1, 0}, 2, {2, 32, 1}, shape.data(), strides.data(), 4}; }
  DLManagedTensorVersioned* versioned() {
    return new DLManagedTensorVersioned{{1, 0}, this, count_deletion<DLManagedTensorVersioned>, 0, view()};
  }
  DLManagedTensor* unversioned() { return new DLManagedTensor{view(), this, count_deletion<DLManagedTensor>}; }
};

TEST(DlPack, AnImportHonoursTheOffsetAndDeletesWithTheLastCopy) {
  Producer producer;
  {
    Tensor copy = *Tensor::view(DType::kF32, {}, nullptr);
    {
      const Tensor tensor = *tensor_from_dlpack(producer.versioned());
      copy = tensor;
    }
    EXPECT_EQ(producer.deleted, 0);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(static_cast<float*>(copy.data())[i], static_cast<float>(i + 1));
  }
  EXPECT_EQ(producer.deleted, 1);
  { const Tensor tensor = *tensor_from_dlpack(producer.unversioned()); }
  EXPECT_EQ(producer.deleted, 2);
}

TEST(DlPack, StridesMayBeAbsentOrMeaningless) {
  Producer producer;
  DLManagedTensorVersioned* managed = producer.versioned();
  managed->dl_tensor.strides = nullptr;
  EXPECT_EQ(static_cast<float*>(tensor_from_dlpack(managed)->data())[5], 6);
  // The stride of a size of one is never used.
  Producer other;
  other.shape = {1, 3};
  other.strides = {77, 1};
  EXPECT_TRUE(tensor_from_dlpack(other.versioned()).ok());
  // Nor is any stride of a tensor without elements, which may have no data.
  Producer empty;
  empty.shape = {0, 3};
  empty.strides = {5, 5};
  managed = empty.versioned();
  managed->dl_tensor.data = nullptr;
  EXPECT_EQ(tensor_from_dlpack(managed)->elements(), 0);
  EXPECT_EQ(empty.deleted, 1);
}

template <typename Change>
std::string reason_after(const Change& change) {
  Producer producer;
  DLManagedTensorVersioned* managed = producer.versioned();
  change(*managed);
  const auto result = tensor_from_dlpack(managed);
  EXPECT_EQ(producer.deleted, result.ok() ? 1 : 0);
  if (result.ok()) return "ok";
  managed->deleter(managed);
  return result.status().reason();
}

TEST(DlPack, ARefusedImportStaysTheCallers) {
  EXPECT_EQ(reason_after([](auto& managed) { managed.version.major = 2; }), "dlpack.version");
  EXPECT_EQ(reason_after([](auto& managed) { managed.flags = 1; }), "dlpack.read_only");
  EXPECT_EQ(reason_after([](auto& managed) { managed.flags = 4; }), "dlpack.layout");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.device.device_type = 2; }), "dlpack.device");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.dtype.lanes = 2; }), "dlpack.dtype");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.dtype.code = 3; }), "dlpack.dtype");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.ndim = -1; }), "dlpack.layout");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.ndim = 9; }), "dlpack.layout");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.shape = nullptr; }), "dlpack.layout");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.shape[0] = -2; }), "tensor.shape");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.shape[0] = INT64_MAX; }), "tensor.shape");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.strides[0] = 4; }), "dlpack.layout");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.strides[1] = -1; }), "dlpack.layout");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.data = nullptr; }), "dlpack.layout");
  EXPECT_EQ(reason_after([](auto& managed) { managed.dl_tensor.byte_offset = 2; }), "dlpack.layout");
  EXPECT_EQ(tensor_from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)).status().reason(), "dlpack.layout");
  EXPECT_EQ(tensor_from_dlpack(static_cast<DLManagedTensor*>(nullptr)).status().reason(), "dlpack.layout");
}

TEST(DlPack, QuantisedTensorsAreNotExported) {
  const auto memory = std::make_shared<std::vector<uint8_t>>(4);
  Tensor codes = *Tensor::view(DType::kE4M3FN, {2, 2}, std::shared_ptr<void>(memory, memory->data()));
  codes.set_scales({std::make_shared<float>(1.0f), 1, 1, 2, 2});
  EXPECT_EQ(tensor_to_dlpack(codes).status().reason(), "dlpack.quantized");
  EXPECT_EQ(tensor_to_dlpack_unversioned(codes).status().reason(), "dlpack.quantized");
}

TEST(DlPack, ATripThroughTheStructIsTheSameMemory) {
  for (DType dtype : {DType::kE5M2, DType::kBF16, DType::kE2M1}) {
    const auto memory = std::make_shared<std::vector<uint64_t>>(8);
    const Tensor tensor = *Tensor::view(dtype, {3, 4}, std::shared_ptr<void>(memory, memory->data()));
    const Tensor back = *tensor_from_dlpack(*tensor_to_dlpack(tensor));
    EXPECT_EQ(back.data(), tensor.data());
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.shape(), tensor.shape());
    EXPECT_EQ(memory.use_count(), 3);
  }
}

}  // namespace
}  // namespace invar
