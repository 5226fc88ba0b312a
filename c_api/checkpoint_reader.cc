// A checkpoint opened for reading tensor by tensor: a thin handle over core/checkpoint/tensor_reader.
#include <cstddef>

#include "c_api/internal/callbacks.h"
#include "core/checkpoint/tensor_reader.h"
#include "invar/v1/inspect.pb.h"

namespace v1 = invar::v1;
using invar::Code;
using invar::Error;
using invar::Result;
using invar::TensorPlan;
using invar::TensorReader;
using invar::abi::entry;
using invar::abi::Outcome;

struct invar_checkpoint {
  std::shared_ptr<invar::abi::RuntimeState> runtime;
  std::unique_ptr<TensorReader> reader;
  std::vector<std::string> files;  // names, for descriptions
};

namespace {

Result<const TensorPlan*> plan_at(const char* function, const invar_checkpoint& checkpoint, int64_t index) {
  const auto& tensors = checkpoint.reader->layout().tensors;
  if (index >= 0 && static_cast<uint64_t>(index) < tensors.size()) return &tensors[static_cast<size_t>(index)];
  return Error(Code::kOutOfRange, "checkpoint.tensor_index",
               invar::cat(function, ": index ", index, " is not one of ", tensors.size(), " tensors"));
}

}  // namespace

invar_status* invar_checkpoint_open(invar_runtime* runtime, const void* config, size_t config_size,
                                    invar_checkpoint** checkpoint) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (checkpoint != nullptr) *checkpoint = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(checkpoint);
    INVAR_ASSIGN(const auto checked, invar::abi::config_from<v1::OpenConfig>(function, config, config_size));
    TensorReader::Options options;
    options.path = checked.path();
    options.assume = invar::Assumptions(checked.assume().begin(), checked.assume().end());
    options.round_once = checked.rounding() == v1::ROUNDING_FP64;
    options.keep_nan = checked.nan_policy() == v1::NAN_POLICY_KEEP;
    INVAR_ASSIGN(auto reader, TensorReader::open(runtime->runtime->files(), options));
    std::vector<std::string> files;
    for (const TensorPlan& plan : reader->layout().tensors) files.push_back(reader->folder().file_name(*plan.source));
    *checkpoint = new invar_checkpoint{runtime->runtime, std::move(reader), std::move(files)};
    return {};
  });
}

invar_status* invar_checkpoint_count(const invar_checkpoint* checkpoint, int64_t* count) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(checkpoint);
    INVAR_REQUIRE(count);
    *count = static_cast<int64_t>(checkpoint->reader->layout().tensors.size());
    return {};
  });
}

invar_status* invar_checkpoint_find(const invar_checkpoint* checkpoint, const char* name, size_t name_size,
                                    int64_t* index) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(checkpoint);
    INVAR_TEXT(text, name, name_size);
    INVAR_REQUIRE(index);
    const int64_t found = checkpoint->reader->find(text);
    if (found < 0) {
      return Error(
          Code::kNotFound, "checkpoint.no_tensor",
          invar::cat(checkpoint->reader->folder().path(), ": no tensor with values is named ", invar::in_quotes(text)));
    }
    *index = found;
    return {};
  });
}

invar_status* invar_checkpoint_describe(const invar_checkpoint* checkpoint, int64_t index,
                                        invar_checkpoint_tensor* tensor) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(checkpoint);
    INVAR_REQUIRE(tensor);
    INVAR_TRY(invar::abi::check_struct(function, tensor, offsetof(invar_checkpoint_tensor, file) + sizeof(char*)));
    INVAR_ASSIGN(const TensorPlan* plan, plan_at(function, *checkpoint, index));
    invar_checkpoint_tensor info = INVAR_CHECKPOINT_TENSOR_INIT;
    info.dtype = static_cast<invar_dtype>(plan->source->dtype);
    // Containers refuse tensors of more dimensions.
    info.rank = static_cast<int32_t>(plan->shape.size());
    for (size_t i = 0; i < plan->shape.size() && i < INVAR_MAX_RANK; ++i) info.shape[i] = plan->shape[i];
    info.quantized = plan->quantized() ? 1 : 0;
    info.elements = invar::element_count(plan->shape);
    info.rows = TensorReader::rows_of(*plan);
    info.name = plan->name.c_str();
    info.rule = plan->rule.c_str();
    info.layout = plan->layout.c_str();
    info.file = checkpoint->files[static_cast<size_t>(index)].c_str();
    invar::abi::fill_struct(info, tensor);
    return {};
  });
}

invar_status* invar_checkpoint_read_rows(const invar_checkpoint* checkpoint, int64_t index, int64_t first_row,
                                         int64_t rows, invar_dtype dtype, invar_cancel* cancel, void* destination,
                                         size_t capacity) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(checkpoint);
    if (destination == nullptr && capacity > 0) return invar::abi::null_argument(function, "destination");
    INVAR_ASSIGN(const TensorPlan* plan, plan_at(function, *checkpoint, index));
    return checkpoint->reader->read_rows(*plan, first_row, rows, static_cast<invar::DType>(dtype),
                                         {static_cast<std::byte*>(destination), capacity}, *checkpoint->runtime->pool,
                                         cancel == nullptr ? nullptr : cancel->flag.get());
  });
}

void invar_checkpoint_release(invar_checkpoint* checkpoint) noexcept { invar::abi::release_handle(checkpoint); }
