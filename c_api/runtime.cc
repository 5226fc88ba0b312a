// Version, bytes, runtime and cancel.
#include <cstddef>
#include <cstring>
#include <thread>

#include "c_api/internal/callbacks.h"
#include "c_api/internal/host_files.h"
#include "core/family/family.h"
#include "core/numerics/cpu_features.h"
#include "core/numerics/dtype.h"
#include "invar/v1/report.pb.h"

namespace invar::abi {

namespace {

#define INVAR_STRING_INNER(x) #x
#define INVAR_STRING(x) INVAR_STRING_INNER(x)
#define INVAR_VERSION_TEXT \
  INVAR_STRING(INVAR_VERSION_MAJOR) "." INVAR_STRING(INVAR_VERSION_MINOR) "." INVAR_STRING(INVAR_VERSION_PATCH)

constexpr char kCompiler[] = "gcc " __VERSION__;
constexpr char kBuildInfo[] = "invar " INVAR_VERSION_TEXT ", ABI " INVAR_STRING(INVAR_ABI_VERSION) "\n"
                              "compiler: gcc " __VERSION__ "\n"
#ifdef NDEBUG
                              "assertions: off\n"
#else
                              "assertions: on\n"
#endif
                              "backends: cpu\n";

// What invar_feature_query answers. A line is added with the feature.
constexpr std::string_view kFeatures[] = {
    "cpu",     "fp32",    "bf16",   "fp8_e4m3", "fp8_e5m2",  "fp8_tensor",  "fp8_block", "safetensors",
    "inspect", "convert", "verify", "diff",     "calibrate", "train",       "evaluate",  "generate",
    "export",  "bench",   "dlpack", "tensor",   "optimizer", "accumulator",
};

constexpr int kMostThreads = 4096;
// Bytes of the options of version 0.1.
constexpr size_t kOptionsVersion1 = offsetof(invar_runtime_options, file_drop) + sizeof(invar_drop_fn);

struct HostAllocator {
  invar_allocate_fn allocate;
  invar_deallocate_fn deallocate;
  void* user;
  Dropper dropper;
};

Status check_options(const char* function, const invar_runtime_options& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    return Error(Code::kInvalidArgument, "argument.threads",
                 cat(function, ": threads ", options.threads, " is not in 0..", kMostThreads));
  }
  if ((options.allocate == nullptr) != (options.deallocate == nullptr)) {
    return Error(Code::kInvalidArgument, "argument.allocator", cat(function, ": allocate and deallocate go together"));
  }
  const int given = (options.file_size != nullptr) + (options.file_read_at != nullptr) + (options.file_list != nullptr);
  const bool has_prefix = options.file_prefix != nullptr && options.file_prefix[0] != '\0';
  if (given != 0 && (given != 3 || !has_prefix)) {
    return Error(Code::kInvalidArgument, "argument.files",
                 cat(function, ": file_prefix, file_size, file_read_at and file_list go together"));
  }
  return {};
}

void use_log(const invar_runtime_options& options, std::shared_ptr<Dropper> dropper, RuntimeState* state) {
  if (options.log == nullptr) return;
  state->log = Logger([log = options.log, user = options.log_user, level = options.log_level,
                       dropper = std::move(dropper)](LogLevel message_level, std::string_view message) {
    if (static_cast<int32_t>(message_level) < level) return;
    try {
      const std::string text(message);
      log(user, static_cast<int32_t>(message_level), text.c_str(), text.size());
    } catch (...) {
      // A log line is not worth a failure.
    }
  });
}

void use_allocator(const invar_runtime_options& options, std::shared_ptr<HostAllocator> allocator,
                   RuntimeState* state) {
  if (options.allocate == nullptr) return;
  state->device_options.allocator = {allocator.get(),
                                     [](void* user, size_t bytes, size_t alignment) -> void* {
                                       const auto* host = static_cast<HostAllocator*>(user);
                                       try {
                                         return host->allocate(host->user, bytes, alignment);
                                       } catch (...) {
                                         return nullptr;
                                       }
                                     },
                                     [](void* user, void* memory, size_t bytes) {
                                       const auto* host = static_cast<HostAllocator*>(user);
                                       try {
                                         host->deallocate(host->user, memory, bytes);
                                       } catch (...) {
                                         // Nothing can be done about memory the host does not take back.
                                       }
                                     }};
  state->device_options.keep_alive = std::move(allocator);
}

v1::InfoReport make_info(const RuntimeState& state) {
  v1::InfoReport report;
  report.set_version(INVAR_VERSION_TEXT);
  report.set_abi(INVAR_ABI_VERSION);
  report.set_build(kBuildInfo);
  report.set_compiler(kCompiler);
  std::string features = describe(cpu_features());
  for (size_t at = 0; at < features.size();) {
    const size_t end = std::min(features.find(' ', at), features.size());
    if (end > at) report.add_cpu_features(features.substr(at, end - at));
    at = end + 1;
  }
  for (const std::string& name : device_names()) {
    auto* device = report.add_devices();
    device->set_name(name);
    const auto text = describe_device(name);
    if (text.ok()) device->set_description(text.value());
  }
  for (const auto feature : kFeatures) report.add_features(std::string(feature));
  for (const Family* family : families()) report.add_families(std::string(family->name));
  report.set_processors(std::thread::hardware_concurrency());
  report.set_threads(state.threads);
  report.set_kernels(std::string(cpu_level_name(cpu_level())));
  return report;
}

}  // namespace

Dropper::~Dropper() {
  if (drop_ == nullptr) return;
  try {
    drop_(user_);
  } catch (...) {
    // The end of a user's data cannot fail a call.
  }
}

Status RuntimeState::check_process() const {
  if (process == getpid()) return {};
  return Error(Code::kFailedPrecondition, "runtime.forked",
               "this handle was made before a fork: make a new runtime in the child");
}

std::shared_ptr<ThreadPool> RuntimeState::pool_for(int64_t wanted) const {
  if (wanted == 0 || wanted == threads) return pool;
  return std::make_shared<ThreadPool>(static_cast<int>(wanted));
}

Result<std::shared_ptr<Device>> RuntimeState::open_device(std::string_view name, std::shared_ptr<ThreadPool> on) const {
  return Device::open(name, std::move(on), device_options);
}

Status Turn::status(const char* function) const {
  if (mine_) return {};
  return Error(Code::kFailedPrecondition, "handle.busy", cat(function, ": another call is at work on this handle"));
}

Result<invar_bytes*> make_bytes(std::string content) { return new invar_bytes{std::move(content)}; }

}  // namespace invar::abi

using invar::Code;
using invar::Error;
using invar::Status;
using invar::abi::entry;
using invar::abi::Outcome;

int32_t invar_version_number(void) noexcept {
  return INVAR_VERSION_MAJOR * 1000000 + INVAR_VERSION_MINOR * 1000 + INVAR_VERSION_PATCH;
}

const char* invar_version_string(void) noexcept { return INVAR_VERSION_TEXT; }

int32_t invar_abi_version(void) noexcept { return INVAR_ABI_VERSION; }

const char* invar_build_info(void) noexcept { return invar::abi::kBuildInfo; }

bool invar_feature_query(const char* name, size_t name_size) noexcept {
  if (name == nullptr) return false;
  for (const auto feature : invar::abi::kFeatures) {
    if (feature == std::string_view(name, name_size)) return true;
  }
  return false;
}

const char* invar_dtype_name(invar_dtype dtype) noexcept {
  const invar::config::MessageType* type = invar::config::find_message("TensorInfo");
  for (const auto& value : type->find("dtype")->enumeration->values) {
    if (value.number == dtype && dtype != 0) return value.name;
  }
  return "";
}

int32_t invar_dtype_bits(invar_dtype dtype) noexcept { return invar::bits_of(static_cast<invar::DType>(dtype)); }

const uint8_t* invar_bytes_data(const invar_bytes* bytes) noexcept {
  return bytes == nullptr ? nullptr : reinterpret_cast<const uint8_t*>(bytes->content.c_str());
}

size_t invar_bytes_size(const invar_bytes* bytes) noexcept { return bytes == nullptr ? 0 : bytes->content.size(); }

void invar_bytes_release(invar_bytes* bytes) noexcept { delete bytes; }

void invar_runtime_options_init(invar_runtime_options* options) noexcept {
  if (options == nullptr) return;
  // A host compiled against the first header has room for no more; newer fields stand for their defaults.
  invar_runtime_options defaults = INVAR_RUNTIME_OPTIONS_INIT;
  defaults.struct_size = invar::abi::kOptionsVersion1;
  std::memcpy(options, &defaults, invar::abi::kOptionsVersion1);
}

invar_status* invar_runtime_create(const invar_runtime_options* options, invar_runtime** runtime) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (runtime != nullptr) *runtime = nullptr;
    invar_runtime_options given = INVAR_RUNTIME_OPTIONS_INIT;
    if (options != nullptr) {
      INVAR_TRY(invar::abi::copy_struct(function, options, invar::abi::kOptionsVersion1, &given));
    }
    // From here on every path drops what the host handed over.
    auto log_dropper = std::make_shared<invar::abi::Dropper>(given.log_drop, given.log_user);
    std::shared_ptr<invar::abi::HostAllocator> allocator(new invar::abi::HostAllocator{
        given.allocate, given.deallocate, given.allocator_user, {given.allocator_drop, given.allocator_user}});
    auto file_dropper = std::make_shared<invar::abi::Dropper>(given.file_drop, given.file_user);
    INVAR_REQUIRE(runtime);
    INVAR_TRY(invar::abi::check_options(function, given));
    auto state = std::make_shared<invar::abi::RuntimeState>();
    state->pool = std::make_shared<invar::ThreadPool>(given.threads);
    state->threads = state->pool->threads();
    invar::abi::use_log(given, std::move(log_dropper), state.get());
    invar::abi::use_allocator(given, std::move(allocator), state.get());
    if (given.file_size != nullptr) {
      state->host_files = invar::abi::make_host_files(
          {given.file_prefix, given.file_size, given.file_read_at, given.file_list, given.file_user},
          std::move(file_dropper));
    }
    state->device_options.log = state->log;
    INVAR_ASSIGN(state->device, state->open_device("cpu", state->pool));
    *runtime = new invar_runtime{std::move(state)};
    return {};
  });
}

invar_status* invar_runtime_info(invar_runtime* runtime, invar_bytes** report) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (report != nullptr) *report = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(report);
    INVAR_ASSIGN(*report, invar::abi::make_bytes(invar::abi::make_info(*runtime->runtime).SerializeAsString()));
    return {};
  });
}

void invar_runtime_release(invar_runtime* runtime) noexcept { invar::abi::release_handle(runtime); }

invar_status* invar_cancel_create(invar_runtime* runtime, invar_cancel** cancel) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (cancel != nullptr) *cancel = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(cancel);
    *cancel = new invar_cancel{runtime->runtime, std::make_shared<invar::CancelFlag>()};
    return {};
  });
}

void invar_cancel_request(invar_cancel* cancel) noexcept {
  if (cancel != nullptr) cancel->flag->cancel();
}

bool invar_cancel_requested(const invar_cancel* cancel) noexcept {
  return cancel != nullptr && cancel->flag->cancelled();
}

void invar_cancel_release(invar_cancel* cancel) noexcept { invar::abi::release_handle(cancel); }
