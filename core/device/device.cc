#include "core/device/device.h"

#include <cstdlib>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/device/cpu/cpu_backend.h"

namespace invar {
namespace {

// Backends that are compiled in. A backend in a shared object of its own is loaded and asked here.
const invar_backend* (*const kBackends[])() = {cpu::cpu_backend};

constexpr int32_t kLogError = 4;

#if defined(__linux__)

// The process's own memory. Large blocks are fresh mappings on huge pages where the system has them: a step touches
// gigabytes, and address translation is a visible part of reading them. Fresh mappings read as zero.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kZeroedFrom = 4 * kHugePage;

size_t whole_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

void* map_memory(size_t bytes) {
  // One page more than needed: what lies before and behind the aligned part goes back.
  const size_t wanted = whole_pages(bytes), mapped = wanted + kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(memory);
  char* aligned = reinterpret_cast<char*>(whole_pages(reinterpret_cast<uintptr_t>(begin)));
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  const size_t behind = static_cast<size_t>(begin + mapped - (aligned + wanted));
  if (behind > 0) munmap(aligned + wanted, behind);
  // What is left over behind the last whole huge page stays small.
  madvise(aligned, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return aligned;
}

#else

constexpr size_t kZeroedFrom = 0;

#endif

void* allocate_from_process(void*, size_t bytes, size_t alignment) {
  if (bytes > SIZE_MAX / 2) return nullptr;
#if defined(__linux__)
  if (bytes >= kZeroedFrom && alignment <= kHugePage) return map_memory(bytes);
#endif
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void release_to_process(void*, void* memory, size_t bytes) {
#if defined(__linux__)
  if (bytes >= kZeroedFrom) {
    munmap(memory, whole_pages(bytes));
    return;
  }
#endif
  (void)bytes;
  std::free(memory);
}

struct Place {
  const invar_backend* backend;
  int32_t index;
};

// A backend with one device is called by its name, several are "name:0", "name:1".
std::string name_of(const Place& place) {
  const std::string name = place.backend->name;
  return name == "cpu" ? name : cat(name, ":", place.index);
}

std::vector<Place> places() {
  std::vector<Place> found;
  for (const auto& get : kBackends) {
    const invar_backend* backend = get();
    for (int32_t index = 0; index < backend->device_count(); ++index) found.push_back({backend, index});
  }
  return found;
}

Result<Place> find_place(std::string_view name) {
  std::string known;
  for (const Place& place : places()) {
    const std::string candidate = name_of(place);
    if (candidate == name) return place;
    known += (known.empty() ? "" : ", ") + candidate;
  }
  return Error(Code::kNotFound, "device.unknown", cat("device \"", name, "\" does not exist here: use one of ", known));
}

}  // namespace

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(std::move(other.device_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device_->table_->release(device_->context_, data_, bytes_);
}

Result<std::shared_ptr<Device>> Device::open(std::string_view name, std::shared_ptr<ThreadPool> pool) {
  return open(name, std::move(pool), DeviceOptions{});
}

Result<std::shared_ptr<Device>> Device::open(std::string_view name, std::shared_ptr<ThreadPool> pool,
                                             DeviceOptions options) {
  INVAR_ASSIGN(const Place place, find_place(name));
  return open(*place.backend, place.index, std::move(pool), std::move(options));
}

Result<std::shared_ptr<Device>> Device::open(const invar_backend& backend, int32_t index,
                                             std::shared_ptr<ThreadPool> pool, DeviceOptions options) {
  const std::string name = name_of({&backend, index});
  if (backend.abi != INVAR_BACKEND_ABI || backend.struct_size < sizeof(invar_backend)) {
    return Error(Code::kFailedPrecondition, "device.abi",
                 cat("device \"", name, "\": its backend has interface ", backend.abi, ", this library needs ",
                     INVAR_BACKEND_ABI));
  }
  std::shared_ptr<Device> device(new Device);
  device->name_ = name;
  device->table_ = &backend;
  device->pool_ = std::move(pool);
  device->options_ = std::move(options);
  DeviceAllocator& allocator = device->options_.allocator;
  invar_backend_host& host = device->host_;
  if (allocator.allocate == nullptr) {
    allocator = {nullptr, allocate_from_process, release_to_process};
    host.zeroed_from = kZeroedFrom;
  }
  host.struct_size = sizeof(host);
  host.host = device.get();
  host.threads = device->pool_->threads();
  host.parallel_for = [](void* self, int64_t count, void (*task)(void*, int64_t, int32_t), void* user) {
    static_cast<Device*>(self)->pool_->parallel_for(count, [&](int64_t item, int worker) { task(user, item, worker); });
  };
  host.allocate = [](void* self, size_t bytes, size_t alignment) {
    const DeviceAllocator& from = static_cast<Device*>(self)->options_.allocator;
    return from.allocate(from.user, bytes, alignment);
  };
  host.release = [](void* self, void* memory, size_t bytes) {
    const DeviceAllocator& from = static_cast<Device*>(self)->options_.allocator;
    from.release(from.user, memory, bytes);
  };
  host.log = [](void* self, int32_t level, const char* message) {
    auto* opened = static_cast<Device*>(self);
    if (level == kLogError) {
      opened->detail_ = message;
    } else {
      opened->options_.log.log(static_cast<LogLevel>(level), message);
    }
  };
  const std::string& cap = device->options_.cpu_level_cap;
  host.cpu_level_cap = cap.empty() ? nullptr : cap.c_str();

  INVAR_TRY(device->report(backend.open(&host, index, &device->context_), "open"));
  return device;
}

Device::~Device() {
  if (context_ != nullptr) table_->close(context_);
}

Status Device::report(int32_t code, std::string_view operation) {
  if (code == 0) return {};
  const std::string detail = std::exchange(detail_, {});
  const auto canonical = static_cast<Code>(code);
  if (canonical == Code::kResourceExhausted) {
    return Error(canonical, "device.out_of_memory", cat(name_, ": ", operation, ": not enough memory"));
  }
  return Error(canonical, canonical == Code::kInvalidArgument ? "device.invalid_argument" : "device.failed",
               cat(name_, ": ", operation, ": ", detail.empty() ? "not supported" : detail));
}

Result<DeviceBuffer> Device::allocate(size_t bytes) {
  DeviceBuffer buffer;
  const int32_t code = table_->allocate(context_, bytes, &buffer.data_);
  if (code != 0) {
    buffer.data_ = nullptr;
    return Error(static_cast<Code>(code), "device.out_of_memory", cat(name_, ": cannot allocate ", bytes, " bytes"));
  }
  buffer.bytes_ = bytes;
  buffer.device_ = shared_from_this();
  return buffer;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Place& place : places()) names.push_back(name_of(place));
  return names;
}

Result<std::string> describe_device(std::string_view name) {
  INVAR_ASSIGN(const Place place, find_place(name));
  return std::string(place.backend->describe(place.index));
}

}  // namespace invar
