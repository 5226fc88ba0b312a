#include "core/device/device.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace invar {
namespace {

std::shared_ptr<ThreadPool> pool_of(int threads) { return std::make_shared<ThreadPool>(threads); }

TEST(Device, OpensTheCpuAndDescribesIt) {
  auto device = Device::open("cpu", pool_of(2));
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->name(), "cpu");
  EXPECT_EQ(device_names().at(0), "cpu");
  auto description = describe_device("cpu");
  ASSERT_TRUE(description.ok());
  EXPECT_NE(description->find("cpu"), std::string::npos);
}

TEST(Device, UnknownNameListsThoseThatExist) {
  auto device = Device::open("cud", pool_of(1));
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), Code::kNotFound);
  EXPECT_EQ(device.status().reason(), "device.unknown");
  EXPECT_NE(device.status().message().find("use one of cpu"), std::string::npos);
}

TEST(Device, EveryLevelCapOpensAndAnUnknownOneIsRefused) {
  for (const char* cap : {"portable", "avx2", "avx512", "avx512_bf16", "amx"}) {
    DeviceOptions options;
    options.cpu_level_cap = cap;
    EXPECT_TRUE(Device::open("cpu", pool_of(1), options).ok()) << cap;
  }
  DeviceOptions options;
  options.cpu_level_cap = "sse9";
  EXPECT_EQ(Device::open("cpu", pool_of(1), options).status().code(), Code::kInvalidArgument);
}

TEST(Device, BuffersAreAlignedZeroedAndOutliveTheHandle) {
  DeviceBuffer buffer;
  {
    auto device = Device::open("cpu", pool_of(2));
    ASSERT_TRUE(device.ok());
    auto allocated = (*device)->allocate(9'000'001);
    ASSERT_TRUE(allocated.ok());
    buffer = std::move(*allocated);
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_EQ(buffer.bytes(), 9'000'001u);
  for (size_t i = 0; i < buffer.bytes(); i += 4099) ASSERT_EQ(buffer.as<char>()[i], 0);
  buffer.as<char>()[buffer.bytes() - 1] = 1;
}

TEST(Device, AllocationFailureNamesTheSize) {
  DeviceOptions options;
  options.allocator = {nullptr, [](void*, size_t, size_t) -> void* { return nullptr; }, [](void*, void*, size_t) {}};
  auto device = Device::open("cpu", pool_of(1), options);
  ASSERT_TRUE(device.ok());
  auto buffer = (*device)->allocate(12345);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.status().code(), Code::kResourceExhausted);
  EXPECT_NE(buffer.status().message().find("12345"), std::string::npos);
}

TEST(Device, HostAllocatorGetsBackExactlyWhatItGave) {
  struct Ledger {
    int64_t bytes = 0, calls = 0;
  } ledger;
  DeviceOptions options;
  options.allocator = {&ledger,
                       [](void* user, size_t bytes, size_t alignment) {
                         static_cast<Ledger*>(user)->bytes += static_cast<int64_t>(bytes);
                         ++static_cast<Ledger*>(user)->calls;
                         return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                       },
                       [](void* user, void* memory, size_t bytes) {
                         static_cast<Ledger*>(user)->bytes -= static_cast<int64_t>(bytes);
                         std::free(memory);
                       }};
  {
    auto device = Device::open("cpu", pool_of(2), options);
    ASSERT_TRUE(device.ok());
    auto buffer = (*device)->allocate(1000);
    ASSERT_TRUE(buffer.ok());
    float a[4] = {1, 2, 3, 4}, c[4] = {};
    invar_matmul_args args{};
    args.a_dtype = args.b_dtype = args.c_dtype = static_cast<int32_t>(DType::kF32);
    args.rows = args.cols = args.inner = 2;
    args.lda = args.ldb = args.ldc = 2;
    args.alpha = 1;
    args.a = a;
    args.b = a;
    args.c = c;
    ASSERT_TRUE((*device)->matmul(args).ok());
    EXPECT_EQ(c[0], 7);
    EXPECT_EQ(c[3], 22);
  }
  EXPECT_GT(ledger.calls, 0);
  EXPECT_EQ(ledger.bytes, 0);
}

TEST(Device, FailureNamesOperationSizesAndCause) {
  auto device = Device::open("cpu", pool_of(1));
  ASSERT_TRUE(device.ok());
  float a[6] = {};
  invar_matmul_args args{};
  args.a_dtype = args.b_dtype = args.c_dtype = static_cast<int32_t>(DType::kF32);
  args.rows = args.cols = args.inner = 2;
  args.lda = 1;
  args.ldb = args.ldc = 2;
  args.a = a;
  args.b = a;
  args.c = a + 4;
  const Status status = (*device)->matmul(args);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("matmul 2x2x2"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("leading dimension"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace invar
