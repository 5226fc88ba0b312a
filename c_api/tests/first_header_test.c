/* A host that was compiled against the header of version 0.1 and meets today's library: structs of their first sizes,
 * every kind of handle. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "invar/invar.h"

static int failures = 0;

static void expect(bool holds, const char* what) {
  if (holds) return;
  printf("%s\n", what);
  ++failures;
}

static void ok(invar_status* status, const char* what) {
  if (status == NULL) return;
  printf("%s: %s\n", what, invar_status_message(status, NULL));
  invar_status_release(status);
  ++failures;
}

static int32_t count_events(void* user, const invar_progress* event) {
  if (event->kind == INVAR_PROGRESS_WORK) ++*(int*)user;
  return 0;
}

static invar_bytes* config(invar_runtime* runtime, const char* type, const char* json) {
  invar_bytes* bytes = NULL;
  ok(invar_message_from_json(runtime, type, strlen(type), json, strlen(json), &bytes), type);
  return bytes;
}

static void tensors(invar_runtime* runtime) {
  float values[8] = {1, -2, 3, 4, 0.5f, -0.25f, 7, 8};
  float back[8] = {0};
  const int64_t shape[2] = {2, 4};
  invar_tensor *view = NULL, *codes = NULL, *wide = NULL;
  invar_tensor_info info = INVAR_TENSOR_INFO_INIT;
  invar_quantize_options options = INVAR_QUANTIZE_OPTIONS_INIT;
  size_t size = 0;
  options.granularity = INVAR_GRANULARITY_ROW;
  ok(invar_tensor_view(runtime, INVAR_DTYPE_FP32, shape, 2, values, sizeof values, NULL, NULL, &view), "view");
  ok(invar_tensor_quantize(view, &options, &codes), "quantize");
  ok(invar_tensor_describe(codes, &info), "describe");
  expect(info.rank == 2 && info.dtype == INVAR_DTYPE_FP8_E4M3 && info.scale_inv != NULL, "a quantised tensor");
  ok(invar_tensor_dequantize(codes, INVAR_DTYPE_FP32, &wide), "dequantize");
  ok(invar_tensor_read(wide, back, sizeof back, &size), "read");
  expect(size == sizeof back && back[0] > 0.9f && back[7] == 8, "values");
  invar_tensor_release(wide);
  invar_tensor_release(codes);
  invar_tensor_release(view);
}

static void training(invar_runtime* runtime) {
  invar_bytes* bytes = config(runtime, "train",
                              "{\"model\": {\"hidden_size\": 32, \"num_hidden_layers\": 1, \"num_attention_heads\": 2,"
                              " \"intermediate_size\": 64}, \"micro_batch\": 2,"
                              " \"data\": {\"sequence_length\": 8, \"tokenizer\": {\"kind\": \"byte\"}}}");
  invar_session* session = NULL;
  int32_t ids[16];
  invar_batch batch = INVAR_BATCH_INIT;
  invar_loss loss = INVAR_LOSS_INIT;
  invar_step_metrics metrics = INVAR_STEP_METRICS_INIT;
  for (int i = 0; i < 16; ++i) ids[i] = 'a' + i % 5;
  batch.sequences = 2;
  batch.sequence_length = 8;
  batch.ids = ids;
  ok(invar_session_create(runtime, invar_bytes_data(bytes), invar_bytes_size(bytes), NULL, NULL, &session), "create");
  ok(invar_session_begin(session, 1), "begin");
  ok(invar_session_forward_backward(session, &batch, &loss), "forward_backward");
  ok(invar_session_step(session, &metrics), "step");
  expect(loss.tokens == 14 && metrics.step == 1 && metrics.loss > 0, "a step");
  invar_session_release(session);
  invar_bytes_release(bytes);
}

static void checkpoints(invar_runtime* runtime, const char* path) {
  char json[4096];
  int events = 0;
  invar_progress_callback progress = INVAR_PROGRESS_CALLBACK_INIT;
  invar_checkpoint_tensor tensor = INVAR_CHECKPOINT_TENSOR_INIT;
  invar_bytes *inspect, *open, *report = NULL;
  invar_checkpoint* checkpoint = NULL;
  int64_t count = 0;
  progress.call = count_events;
  progress.user = &events;
  snprintf(json, sizeof json, "{\"path\": \"%s\"}", path);
  inspect = config(runtime, "inspect", json);
  ok(invar_checkpoint_inspect(runtime, invar_bytes_data(inspect), invar_bytes_size(inspect), NULL, &progress, &report),
     "inspect");
  expect(report != NULL && invar_bytes_size(report) > 0, "a report");
  open = config(runtime, "OpenConfig", json);
  ok(invar_checkpoint_open(runtime, invar_bytes_data(open), invar_bytes_size(open), &checkpoint), "open");
  ok(invar_checkpoint_count(checkpoint, &count), "count");
  ok(invar_checkpoint_describe(checkpoint, count - 1, &tensor), "describe");
  expect(count > 0 && tensor.name != NULL && tensor.elements > 0, "a tensor");
  invar_checkpoint_release(checkpoint);
  invar_bytes_release(report);
  invar_bytes_release(open);
  invar_bytes_release(inspect);
}

/* A copy beside the test: a link may not be followed out of its folder. */
static const char* copied(const char* path) {
  static char copy[4096];
  static char buffer[1 << 16];
  const char* folder = getenv("TEST_TMPDIR");
  FILE *from, *to;
  size_t n;
  snprintf(copy, sizeof copy, "%s/model.safetensors", folder == NULL ? "." : folder);
  from = fopen(path, "rb");
  to = fopen(copy, "wb");
  expect(from != NULL && to != NULL, "the case can be copied");
  if (from == NULL || to == NULL) return path;
  while ((n = fread(buffer, 1, sizeof buffer, from)) > 0) expect(fwrite(buffer, 1, n, to) == n, "copying");
  fclose(from);
  fclose(to);
  return copy;
}

int main(int argc, char** argv) {
  invar_runtime_options options;
  invar_runtime* runtime = NULL;
  if (argc != 2) return 2;
  expect(invar_abi_version() == INVAR_ABI_VERSION, "the ABI number");
  invar_runtime_options_init(&options);
  expect(options.struct_size <= sizeof options, "the initializer wrote behind the struct");
  options.threads = 2;
  ok(invar_runtime_create(&options, &runtime), "runtime");
  tensors(runtime);
  training(runtime);
  checkpoints(runtime, copied(argv[1]));
  invar_runtime_release(runtime);
  return failures == 0 ? 0 : 1;
}
