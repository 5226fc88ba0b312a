// The names that pickles of checkpoints may hold, with what a call of each means. Private to the pickle reader.
#pragma once

#include <array>
#include <string_view>

namespace invar {

enum class PickleName {
  kData,       // a class or function of which only name and arguments matter
  kDictClass,  // makes an empty dict
  kListClass,  // makes a list of its only argument
  kTuple,      // gives its only argument
};

struct AllowedName {
  std::string_view name;  // module and name
  PickleName meaning = PickleName::kData;
};

// Names from training states are there because DeepSpeed's and Megatron's files hold them beside weights.
constexpr auto kAllowed = std::to_array<AllowedName>({
    {"collections.OrderedDict", PickleName::kDictClass},
    {"collections.defaultdict", PickleName::kDictClass},
    {"builtins.dict", PickleName::kDictClass},
    {"__builtin__.dict", PickleName::kDictClass},
    {"builtins.list", PickleName::kListClass},
    {"__builtin__.list", PickleName::kListClass},
    {"builtins.set", PickleName::kListClass},
    {"__builtin__.set", PickleName::kListClass},
    {"builtins.frozenset", PickleName::kListClass},
    {"torch.Size", PickleName::kTuple},
    {"torch._utils._rebuild_tensor"},
    {"torch._utils._rebuild_tensor_v2"},
    {"torch._utils._rebuild_tensor_v3"},
    {"torch._utils._rebuild_parameter"},
    {"torch._utils._rebuild_parameter_with_state"},
    {"torch._tensor._rebuild_from_type_v2"},
    {"torch.Tensor"},
    {"torch.nn.parameter.Parameter"},
    {"torch.nn.parameter.Buffer"},
    {"torch.storage.UntypedStorage"},
    {"torch.storage.TypedStorage"},
    {"torch.device"},
    {"torch.dtype"},
    {"torch.serialization._get_layout"},
    {"_codecs.encode"},
    {"builtins.bytearray"},
    {"builtins.bytes"},
    {"builtins.slice"},
    {"builtins.complex"},
    {"_io.BytesIO"},  // Transformer Engine's extra state
    {"io.BytesIO"},
    {"argparse.Namespace"},  // Megatron's arguments
    {"numpy.core.multiarray._reconstruct"},
    {"numpy.core.multiarray.scalar"},
    {"numpy._core.multiarray._reconstruct"},
    {"numpy._core.multiarray.scalar"},
    {"numpy.ndarray"},
    {"numpy.dtype"},
    {"pathlib.PosixPath"},
    {"pathlib.PurePosixPath"},
    {"pathlib.WindowsPath"},
    {"pathlib._local.PosixPath"},
    {"pathlib._local.WindowsPath"},
    {"torch.distributed.checkpoint.filesystem._StorageInfo"},
    {"torch.distributed.checkpoint.filesystem._StoragePrefix"},
    {"torch.distributed.checkpoint.metadata.BytesStorageMetadata"},
    {"torch.distributed.checkpoint.metadata.ChunkStorageMetadata"},
    {"torch.distributed.checkpoint.metadata.Metadata"},
    {"torch.distributed.checkpoint.metadata.MetadataIndex"},
    {"torch.distributed.checkpoint.metadata.StorageMeta"},
    {"torch.distributed.checkpoint.metadata.TensorProperties"},
    {"torch.distributed.checkpoint.metadata.TensorStorageMetadata"},
    {"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING"},
    {"deepspeed.runtime.fp16.loss_scaler.LossScaler"},
    {"deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler"},
    {"deepspeed.runtime.zero.config.ZeroStageEnum"},
    {"deepspeed.utils.tensor_fragment.fragment_address"},
    {"torch.FloatStorage"},
    {"torch.DoubleStorage"},
    {"torch.HalfStorage"},
    {"torch.BFloat16Storage"},
    {"torch.LongStorage"},
    {"torch.IntStorage"},
    {"torch.ShortStorage"},
    {"torch.CharStorage"},
    {"torch.ByteStorage"},
    {"torch.BoolStorage"},
    {"torch.ComplexFloatStorage"},
    {"torch.ComplexDoubleStorage"},
    {"torch.UntypedStorage"},
    {"torch.QInt8Storage"},
    {"torch.QUInt8Storage"},
    {"torch.QInt32Storage"},
    {"torch.QUInt4x2Storage"},
    {"torch.QUInt2x4Storage"},
    {"torch.float64"},
    {"torch.float32"},
    {"torch.float16"},
    {"torch.bfloat16"},
    {"torch.int64"},
    {"torch.int32"},
    {"torch.int16"},
    {"torch.int8"},
    {"torch.uint64"},
    {"torch.uint32"},
    {"torch.uint16"},
    {"torch.uint8"},
    {"torch.bool"},
    {"torch.complex64"},
    {"torch.complex128"},
    {"torch.float8_e4m3fn"},
    {"torch.float8_e4m3fnuz"},
    {"torch.float8_e5m2"},
    {"torch.float8_e5m2fnuz"},
    {"torch.float8_e8m0fnu"},
    {"torch.float4_e2m1fn_x2"},
    {"torch.qint8"},
    {"torch.quint8"},
    {"torch.qint32"},
});

}  // namespace invar
