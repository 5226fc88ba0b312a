#include "core/device/tensor_operations.h"

#include <algorithm>
#include <cstring>

#include "core/numerics/codec.h"

namespace invar {

namespace {

constexpr int64_t kChunk = 16384;  // even, so that packed 4-bit codes are cut between bytes

bool is_act(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

Status wrong_dtype(std::string_view operation, DType dtype, std::string_view expected) {
  return Error(Code::kInvalidArgument, "tensor.dtype",
               cat(operation, ": dtype ", name_of(dtype), " is not ", expected));
}

std::string shape_text(const Tensor& tensor) {
  std::string out = "[";
  for (const int64_t size : tensor.shape()) out += cat(out.size() > 1 ? ", " : "", size);
  return out + "]";
}

}  // namespace

Result<Tensor> make_tensor(Device& device, DType dtype, std::vector<int64_t> shape) {
  INVAR_ASSIGN(const int64_t bytes, Tensor::bytes_of_shape(dtype, shape));
  INVAR_ASSIGN(DeviceBuffer buffer, device.allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1))));
  INVAR_TRY(device.zero(buffer.data(), buffer.bytes()));
  auto owner = std::make_shared<DeviceBuffer>(std::move(buffer));
  void* data = owner->data();
  return Tensor::view(dtype, std::move(shape), std::shared_ptr<void>(std::move(owner), data));
}

Result<Tensor> cast_tensor(Device& device, const Tensor& tensor, DType to) {
  if (tensor.quantized()) {
    return Error(Code::kInvalidArgument, "tensor.quantized", "cast: tensor is quantised: dequantise it instead");
  }
  float probe[2];
  if (!convert_to_f32(tensor.dtype(), "", probe, 0)) return wrong_dtype("cast", tensor.dtype(), "a float format");
  if (!convert_from_f32(to, probe, probe, 0)) return wrong_dtype("cast", to, "a float format");
  INVAR_ASSIGN(Tensor out, make_tensor(device, to, tensor.shape()));
  if (to == tensor.dtype()) {
    if (tensor.bytes() > 0) std::memcpy(out.data(), tensor.data(), static_cast<size_t>(tensor.bytes()));
    return out;
  }
  const int64_t elements = tensor.elements();
  device.pool().parallel_for((elements + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
    const int64_t first = chunk * kChunk, count = std::min(kChunk, elements - first);
    float values[kChunk];
    convert_to_f32(tensor.dtype(), static_cast<const char*>(tensor.data()) + bytes_of(tensor.dtype(), first), values,
                   count);
    convert_from_f32(to, values, static_cast<char*>(out.data()) + bytes_of(to, first), count);
  });
  return out;
}

Result<Tensor> quantize_tensor(Device& device, const Tensor& tensor, const QuantizeOptions& options) {
  if (!is_act(tensor.dtype())) return wrong_dtype("quantise", tensor.dtype(), "F32 or BF16");
  if (options.format != DType::kE4M3FN && options.format != DType::kE5M2) {
    return wrong_dtype("quantise to", options.format, "F8_E4M3 or F8_E5M2");
  }
  const int64_t rows = tensor.rows(), cols = tensor.cols();
  TensorScales scales;
  switch (options.granularity) {
    case INVAR_SCALE_PER_TENSOR:
      scales.block_rows = std::max<int64_t>(rows, 1), scales.block_cols = std::max<int64_t>(cols, 1);
      break;
    case INVAR_SCALE_PER_ROW: scales.block_rows = 1, scales.block_cols = std::max<int64_t>(cols, 1); break;
    case INVAR_SCALE_BLOCK: scales.block_rows = options.block_rows, scales.block_cols = options.block_cols; break;
    default: break;
  }
  if (scales.block_rows < 1 || scales.block_cols < 1) {
    return Error(Code::kInvalidArgument, "tensor.granularity",
                 cat("quantise: granularity ", options.granularity, " with blocks of ", options.block_rows, "x",
                     options.block_cols, " is not known"));
  }
  scales.rows = (rows + scales.block_rows - 1) / scales.block_rows;
  scales.cols = (cols + scales.block_cols - 1) / scales.block_cols;
  INVAR_ASSIGN(Tensor out, make_tensor(device, options.format, tensor.shape()));
  INVAR_ASSIGN(const Tensor grid, make_tensor(device, DType::kF32, {scales.rows, scales.cols}));
  scales.scale_inv = std::static_pointer_cast<float>(grid.memory());
  if (tensor.elements() > 0) {
    invar_quantize_args args{};
    args.x_dtype = static_cast<int32_t>(tensor.dtype());
    args.format = static_cast<int32_t>(options.format);
    args.granularity = options.granularity;
    args.power_of_two = options.power_of_two;
    args.rows = rows;
    args.cols = cols;
    args.block_rows = scales.block_rows;
    args.block_cols = scales.block_cols;
    args.ldx = cols;
    args.x = tensor.data();
    args.codes = static_cast<uint8_t*>(out.data());
    args.scale_inv = scales.scale_inv.get();
    INVAR_TRY(device.quantize(args));
  }
  out.set_scales(std::move(scales));
  return out;
}

Result<Tensor> dequantize_tensor(Device& device, const Tensor& tensor, DType to) {
  if (!tensor.quantized()) {
    return Error(Code::kInvalidArgument, "tensor.not_quantized", "dequantise: tensor has no scales: cast it instead");
  }
  if (!is_act(to) && to != DType::kF16) return wrong_dtype("dequantise to", to, "F32, BF16 or F16");
  INVAR_ASSIGN(Tensor out, make_tensor(device, to, tensor.shape()));
  const TensorScales& scales = tensor.scales();
  const int64_t cols = tensor.cols();
  device.pool().parallel_for(tensor.rows(), [&](int64_t row, int) {
    const auto* codes = static_cast<const uint8_t*>(tensor.data()) + row * cols;
    const float* scale = scales.scale_inv.get() + row / scales.block_rows * scales.cols;
    float values[kChunk];
    for (int64_t col = 0; col < cols;) {
      const int64_t count = std::min({kChunk, cols - col, scales.block_cols - col % scales.block_cols});
      convert_fp8_to_f32(tensor.dtype(), codes + col, values, count, scale[col / scales.block_cols]);
      convert_from_f32(to, values, static_cast<char*>(out.data()) + bytes_of(to, row * cols + col), count);
      col += count;
    }
  });
  return out;
}

Result<Tensor> matmul_tensors(Device& device, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                              DType to) {
  if (!is_act(a.dtype()) || a.dtype() != b.dtype() || !is_act(to) || a.quantized() || b.quantized()) {
    return Error(Code::kInvalidArgument, "tensor.dtype",
                 cat("matmul: ", name_of(a.dtype()), " by ", name_of(b.dtype()), " to ", name_of(to),
                     ": both must be F32 or both BF16, the result F32 or BF16"));
  }
  if (a.shape().size() != 2 || b.shape().size() != 2) {
    return Error(Code::kInvalidArgument, "tensor.shape",
                 cat("matmul: ", shape_text(a), " by ", shape_text(b), ": both must be matrices"));
  }
  const int64_t rows = a.shape()[transpose_a ? 1 : 0], inner = a.shape()[transpose_a ? 0 : 1];
  const int64_t inner_b = b.shape()[transpose_b ? 1 : 0], cols = b.shape()[transpose_b ? 0 : 1];
  if (inner != inner_b) {
    return Error(Code::kInvalidArgument, "tensor.shape",
                 cat("matmul: ", shape_text(a), transpose_a ? " transposed" : "", " by ", shape_text(b),
                     transpose_b ? " transposed" : "", ": inner sizes ", inner, " and ", inner_b, " differ"));
  }
  INVAR_ASSIGN(Tensor out, make_tensor(device, to, {rows, cols}));
  if (rows == 0 || cols == 0 || inner == 0) return out;  // an empty sum is zero
  invar_matmul_args args{};
  args.a_dtype = args.b_dtype = static_cast<int32_t>(a.dtype());
  args.c_dtype = static_cast<int32_t>(to);
  args.transpose_a = transpose_a;
  args.transpose_b = transpose_b;
  args.rows = rows;
  args.cols = cols;
  args.inner = inner;
  args.a = a.data();
  args.b = b.data();
  args.c = out.data();
  args.lda = a.shape()[1];
  args.ldb = b.shape()[1];
  args.ldc = cols;
  args.alpha = 1;
  INVAR_TRY(device.matmul(args));
  return out;
}

}  // namespace invar
