/* The layout of every public struct, as hosts compiled against version 1 know it. A struct only grows at its end: an
 * offset here never changes. Checked when compiled; running it proves the initializers. */
#include <stddef.h>
#include <stdio.h>

#include "invar/invar.h"

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " moved")
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " changed its size")

AT(invar_runtime_options, struct_size, 0);
AT(invar_runtime_options, threads, 4);
AT(invar_runtime_options, log, 8);
AT(invar_runtime_options, log_user, 16);
AT(invar_runtime_options, log_drop, 24);
AT(invar_runtime_options, log_level, 32);
AT(invar_runtime_options, allocate, 40);
AT(invar_runtime_options, deallocate, 48);
AT(invar_runtime_options, allocator_user, 56);
AT(invar_runtime_options, allocator_drop, 64);
AT(invar_runtime_options, file_prefix, 72);
AT(invar_runtime_options, file_size, 80);
AT(invar_runtime_options, file_read_at, 88);
AT(invar_runtime_options, file_list, 96);
AT(invar_runtime_options, file_user, 104);
AT(invar_runtime_options, file_drop, 112);
SIZE(invar_runtime_options, 120);

AT(invar_step_metrics, recipe, 4);
AT(invar_step_metrics, step, 8);
AT(invar_step_metrics, loss, 16);
AT(invar_step_metrics, lr, 24);
AT(invar_step_metrics, grad_norm, 32);
AT(invar_step_metrics, tokens, 40);
AT(invar_step_metrics, total_tokens, 48);
AT(invar_step_metrics, seconds, 56);
AT(invar_step_metrics, tokens_per_second, 64);
AT(invar_step_metrics, total_skipped, 72);
AT(invar_step_metrics, skipped, 80);
AT(invar_step_metrics, ladder_event, 84);
SIZE(invar_step_metrics, 88);

AT(invar_eval_metrics, step, 8);
AT(invar_eval_metrics, loss, 16);
AT(invar_eval_metrics, perplexity, 24);
AT(invar_eval_metrics, tokens, 32);
AT(invar_eval_metrics, seconds, 40);
SIZE(invar_eval_metrics, 48);

AT(invar_progress, kind, 4);
AT(invar_progress, stage, 8);
AT(invar_progress, detail, 16);
AT(invar_progress, unit, 24);
AT(invar_progress, done, 32);
AT(invar_progress, total, 40);
AT(invar_progress, seconds, 48);
AT(invar_progress, step, 56);
AT(invar_progress, eval, 64);
SIZE(invar_progress, 72);

AT(invar_progress_callback, call, 8);
AT(invar_progress_callback, user, 16);
AT(invar_progress_callback, drop, 24);
SIZE(invar_progress_callback, 32);
AT(invar_token_callback, call, 8);
AT(invar_token_callback, user, 16);
AT(invar_token_callback, drop, 24);
SIZE(invar_token_callback, 32);

AT(invar_token, id, 4);
AT(invar_token, index, 8);
AT(invar_token, text, 16);
AT(invar_token, text_size, 24);
SIZE(invar_token, 32);

AT(invar_batch, sequences, 8);
AT(invar_batch, sequence_length, 16);
AT(invar_batch, ids, 24);
AT(invar_batch, targets, 32);
AT(invar_batch, mask, 40);
SIZE(invar_batch, 48);

AT(invar_loss, sum, 8);
AT(invar_loss, tokens, 16);
SIZE(invar_loss, 24);

AT(invar_tensor_info, dtype, 4);
AT(invar_tensor_info, rank, 8);
AT(invar_tensor_info, quantized, 12);
AT(invar_tensor_info, shape, 16);
AT(invar_tensor_info, elements, 80);
AT(invar_tensor_info, bytes, 88);
AT(invar_tensor_info, block_rows, 96);
AT(invar_tensor_info, scale_rows, 112);
AT(invar_tensor_info, scale_inv, 128);
SIZE(invar_tensor_info, 136);

AT(invar_quantize_options, dtype, 4);
AT(invar_quantize_options, granularity, 8);
AT(invar_quantize_options, power_of_two, 12);
AT(invar_quantize_options, block_rows, 16);
AT(invar_quantize_options, block_cols, 24);
SIZE(invar_quantize_options, 32);

AT(invar_checkpoint_tensor, dtype, 4);
AT(invar_checkpoint_tensor, rank, 8);
AT(invar_checkpoint_tensor, quantized, 12);
AT(invar_checkpoint_tensor, shape, 16);
AT(invar_checkpoint_tensor, elements, 80);
AT(invar_checkpoint_tensor, rows, 88);
AT(invar_checkpoint_tensor, name, 96);
AT(invar_checkpoint_tensor, file, 120);
SIZE(invar_checkpoint_tensor, 128);

AT(invar_optimizer_result, skipped, 4);
AT(invar_optimizer_result, step, 8);
AT(invar_optimizer_result, grad_norm, 16);
AT(invar_optimizer_result, clip_factor, 24);
SIZE(invar_optimizer_result, 32);

AT(invar_accumulator_info, finite, 4);
AT(invar_accumulator_info, tokens, 8);
AT(invar_accumulator_info, norm, 16);
SIZE(invar_accumulator_info, 24);

static int failures = 0;
static void expect(int ok, const char* what) {
  if (!ok) {
    ++failures;
    printf("%s\n", what);
  }
}

int main(void) {
  const invar_runtime_options options = INVAR_RUNTIME_OPTIONS_INIT;
  const invar_tensor_info info = INVAR_TENSOR_INFO_INIT;
  const invar_quantize_options quantize = INVAR_QUANTIZE_OPTIONS_INIT;
  const invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
  const invar_batch batch = INVAR_BATCH_INIT;
  const invar_loss loss = INVAR_LOSS_INIT;
  const invar_token_callback token = INVAR_TOKEN_CALLBACK_INIT;
  const invar_progress_callback progress = INVAR_PROGRESS_CALLBACK_INIT;
  const invar_optimizer_result result = INVAR_OPTIMIZER_RESULT_INIT;
  const invar_accumulator_info sums = INVAR_ACCUMULATOR_INFO_INIT;
  invar_runtime_options filled;
  invar_runtime_options_init(&filled);
  expect(options.struct_size == sizeof options && options.log_level == INVAR_LOG_INFO, "runtime options");
  expect(filled.struct_size == sizeof filled && filled.log_level == INVAR_LOG_INFO && filled.file_drop == NULL, "init");
  expect(info.struct_size == sizeof info && info.scale_inv == NULL, "tensor info");
  expect(quantize.dtype == INVAR_DTYPE_FP8_E4M3 && quantize.block_cols == 128, "quantize options");
  expect(metrics.struct_size == sizeof metrics, "step metrics");
  expect(batch.struct_size == sizeof batch && batch.mask == NULL, "batch");
  expect(loss.struct_size == sizeof loss, "loss");
  expect(token.struct_size == sizeof token && progress.struct_size == sizeof progress, "callbacks");
  expect(result.struct_size == sizeof result && sums.struct_size == sizeof sums, "results");
  expect(invar_abi_version() == INVAR_ABI_VERSION, "header and library are of one ABI");
  printf("%d failures\n", failures);
  return failures != 0;
}
