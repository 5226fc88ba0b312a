#include "core/nn/operand.h"

namespace invar {

invar_quantize_args quantize_args(const Matrix& source, const OperandFormat& format, const Matrix& decoded,
                                  float* scale_inv) {
  invar_quantize_args args{};
  args.x_dtype = source.device_dtype();
  args.format = static_cast<int32_t>(format.format);
  args.granularity = static_cast<int32_t>(format.granularity);
  args.power_of_two = format.power_of_two;
  args.rows = source.rows;
  args.cols = source.cols;
  args.block_rows = format.block_rows;
  args.block_cols = format.block_cols;
  args.ldx = source.ld;
  args.ld_dequantized = decoded.ld;
  args.x = source.data;
  args.dequantized = decoded.data;
  args.scale_inv = scale_inv;
  args.fixed_scale_inv = format.fixed_scale_inv;
  // In FP32 the copy holds code * scale, which is rounded once; in BF16 it must be exact.
  args.dequantized_dtype = decoded.device_dtype();
  args.apply_scale = decoded.dtype == DType::kF32;
  return args;
}

Result<Operand> make_operand(Context& ctx, const Matrix& source, const OperandFormat& format) {
  Operand operand;
  operand.matrix = source;
  if (!format.quantized()) return operand;
  INVAR_ASSIGN(Scratch decoded, ctx.scratch("quantised", source.dtype, source.rows, source.cols));
  INVAR_ASSIGN(Scratch scale, ctx.scratch("scale", DType::kF32, 1, 1));
  const bool scale_outside = source.dtype != DType::kF32 && !format.power_of_two;
  INVAR_TRY(ctx.run<&Device::quantize>(
      "quantise", quantize_args(source, format, decoded.matrix, scale_outside ? scale.matrix.f32() : nullptr)));
  operand.matrix = decoded.matrix;
  if (scale_outside && !ctx.planning()) {
    INVAR_TRY(ctx.device().copy(&operand.scale_inv, scale.matrix.data, sizeof operand.scale_inv));
  }
  operand.decoded = std::move(decoded.block);
  operand.scale = std::move(scale.block);
  return operand;
}

}  // namespace invar
