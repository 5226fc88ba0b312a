/* invar: mixed-precision training and checkpoint conversion, as a plain C library.
 *
 * A first program:
 *
 *   invar_runtime* runtime = NULL;
 *   invar_status* status = invar_runtime_create(NULL, &runtime);
 *   if (status != NULL) { puts(invar_status_message(status, NULL)); invar_status_release(status); return 1; }
 *   ...
 *   invar_runtime_release(runtime);
 *
 * Errors. A fallible function returns an owned invar_status*; NULL is success. On failure handle outputs are set to
 * NULL and every other output is untouched, so nothing needs cleaning up. A NULL handle or pointer where none is
 * allowed is INVALID_ARGUMENT. Release functions accept NULL and cannot fail.
 *
 * Ownership, one word for each pointer:
 *   owned       the caller releases it with the release function of its type
 *   borrowed    valid until what it came from is released or changed; never released by the caller
 *   copied      read before the function returns, never kept
 *
 * Handles are reference-counted inside; children keep their parents alive. Release in any order.
 *
 * Configs and reports are serialized protobuf messages of package invar.v1 (proto/invar/v1). A host without protobuf
 * makes them from JSON or text with invar_message_from_json and reads reports with invar_message_to_json. Unknown
 * fields are an error.
 *
 * Strings are UTF-8. Inputs are pointer and size (no terminator needed); outputs are borrowed and end in NUL.
 *
 * Structs begin with struct_size, are filled with their initializer and only ever grow at the end.
 *
 * Threads:
 *   any thread, any time          invar_cancel, invar_runtime, invar_checkpoint, invar_status, invar_bytes, and
 *                                 functions without handles
 *   any thread                    invar_tokenizer
 *   any thread                    invar_tensor: the host orders reads and writes of the elements, as for its own memory
 *   one thread at a time,         invar_model, invar_session, invar_optimizer, invar_accumulator;
 *   any thread in turn            a second call meanwhile gets FAILED_PRECONDITION ("handle.busy")
 * Nothing depends on which thread calls. Work of one runtime shares its thread pool: calls take turns there.
 *
 * Callbacks carry a user pointer and an optional drop function. drop(user) is called exactly once, after the last call,
 * also when the function that took the callback fails. Progress and token callbacks run on the thread that called the
 * library, without locks held, and may use any handle that is not at work; returning non-zero from a progress callback
 * stops the work with ABORTED, and the number comes back in invar_status_callback_value. Log, allocator and file
 * functions of a runtime may be called from any of its threads and must not call the library. An exception that leaves
 * a callback becomes a status (INTERNAL).
 *
 * The library never prints, exits, aborts, installs signal handlers, and writes only where configs say. Of the
 * environment it reads INVAR_CPU_LEVEL (caps the instruction sets, for tests). In a child made by fork every call on a
 * handle made before the fork returns FAILED_PRECONDITION ("runtime.forked"); releasing one there does nothing.
 *
 * Stability: functions are added, never changed or removed, while INVAR_ABI_VERSION stays the same. What stands behind
 * INVAR_EXPERIMENTAL is not promised. */
#ifndef INVAR_INVAR_H_
#define INVAR_INVAR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define INVAR_API
#elif defined(INVAR_BUILDING)
#define INVAR_API __attribute__((visibility("default")))
#else
#define INVAR_API
#endif

#if defined(__GNUC__) || defined(__clang__)
#define INVAR_MUST_USE __attribute__((warn_unused_result))
#else
#define INVAR_MUST_USE
#endif

#ifdef __cplusplus
#define INVAR_NOEXCEPT noexcept
extern "C" {
#else
#define INVAR_NOEXCEPT
#endif

/* ---- Version -------------------------------------------------------------------------------------------------------
 */

#define INVAR_VERSION_MAJOR 0
#define INVAR_VERSION_MINOR 1
#define INVAR_VERSION_PATCH 0
/* Compare with invar_abi_version() at start: they must be equal. */
#define INVAR_ABI_VERSION 0

/* The loaded library's version, major * 1000000 + minor * 1000 + patch. Since 0.1. */
INVAR_API int32_t invar_version_number(void) INVAR_NOEXCEPT;
/* "0.1.0"; borrowed for ever. Since 0.1. */
INVAR_API const char* invar_version_string(void) INVAR_NOEXCEPT;
/* The loaded library's ABI number. Since 0.1. */
INVAR_API int32_t invar_abi_version(void) INVAR_NOEXCEPT;
/* Version, compiler and build options, a few lines for bug reports; borrowed for ever. Since 0.1. */
INVAR_API const char* invar_build_info(void) INVAR_NOEXCEPT;
/* Whether this library can do something by name: "cpu", "cuda", "bf16", "fp8_e4m3", "fp8_block", "safetensors", "gguf",
 * "generate", ... Unknown names are false. Since 0.1. */
INVAR_API bool invar_feature_query(const char* name, size_t name_size) INVAR_NOEXCEPT;

/* ---- Numbers -------------------------------------------------------------------------------------------------------
 */

/* Canonical status codes; equal to those of gRPC and absl. */
typedef int32_t invar_code;
#define INVAR_OK 0
#define INVAR_CANCELLED 1
#define INVAR_UNKNOWN 2
#define INVAR_INVALID_ARGUMENT 3
#define INVAR_DEADLINE_EXCEEDED 4
#define INVAR_NOT_FOUND 5
#define INVAR_ALREADY_EXISTS 6
#define INVAR_PERMISSION_DENIED 7
#define INVAR_RESOURCE_EXHAUSTED 8
#define INVAR_FAILED_PRECONDITION 9
#define INVAR_ABORTED 10
#define INVAR_OUT_OF_RANGE 11
#define INVAR_UNIMPLEMENTED 12
#define INVAR_INTERNAL 13
#define INVAR_UNAVAILABLE 14
#define INVAR_DATA_LOSS 15
#define INVAR_UNAUTHENTICATED 16

/* Number formats; equal to invar.v1.DType. */
typedef int32_t invar_dtype;
#define INVAR_DTYPE_FP32 1
#define INVAR_DTYPE_FP16 2
#define INVAR_DTYPE_BF16 3
#define INVAR_DTYPE_FP64 4
#define INVAR_DTYPE_FP8_E4M3 5
#define INVAR_DTYPE_FP8_E5M2 6
#define INVAR_DTYPE_FP8_E4M3FNUZ 7
#define INVAR_DTYPE_FP8_E5M2FNUZ 8
#define INVAR_DTYPE_E8M0 9
#define INVAR_DTYPE_FP4_E2M1 10
#define INVAR_DTYPE_BOOL 11
#define INVAR_DTYPE_U8 12
#define INVAR_DTYPE_I8 13
#define INVAR_DTYPE_U16 14
#define INVAR_DTYPE_I16 15
#define INVAR_DTYPE_U32 16
#define INVAR_DTYPE_I32 17
#define INVAR_DTYPE_U64 18
#define INVAR_DTYPE_I64 19
#define INVAR_DTYPE_C64 20
#define INVAR_DTYPE_FP6_E2M3 21
#define INVAR_DTYPE_FP6_E3M2 22

/* Dimensions of a tensor at most. */
#define INVAR_MAX_RANK 8

/* Recipes; equal to invar.v1.Recipe. */
typedef int32_t invar_recipe;
#define INVAR_RECIPE_FP32 1
#define INVAR_RECIPE_BF16 2
#define INVAR_RECIPE_FP8_TENSOR 3
#define INVAR_RECIPE_FP8_BLOCK 4

/* "INVALID_ARGUMENT"; "UNKNOWN" for numbers outside the list. Borrowed for ever. Since 0.1. */
INVAR_API const char* invar_code_name(invar_code code) INVAR_NOEXCEPT;
/* "bf16"; "" for numbers outside the list. Borrowed for ever. Since 0.1. */
INVAR_API const char* invar_dtype_name(invar_dtype dtype) INVAR_NOEXCEPT;
/* Bits of one element; 0 for numbers outside the list. Since 0.1. */
INVAR_API int32_t invar_dtype_bits(invar_dtype dtype) INVAR_NOEXCEPT;

/* ---- Status --------------------------------------------------------------------------------------------------------
 */

typedef struct invar_status invar_status;

/* The code; INVAR_OK for NULL. Since 0.1. */
INVAR_API invar_code invar_status_code(const invar_status* status) INVAR_NOEXCEPT;
/* For people: lower-case, names thing, value and expectation. Borrowed from the status; "" for NULL. size: NULL, or
 * receives the length. Since 0.1. */
INVAR_API const char* invar_status_message(const invar_status* status, size_t* size) INVAR_NOEXCEPT;
/* For programs: a stable dotted word, "config.unknown_field". Borrowed from the status; "" for NULL. Since 0.1. */
INVAR_API const char* invar_status_reason(const invar_status* status, size_t* size) INVAR_NOEXCEPT;
/* What a callback returned to stop the work; 0 otherwise. Since 0.1. */
INVAR_API int32_t invar_status_callback_value(const invar_status* status) INVAR_NOEXCEPT;
INVAR_API void invar_status_release(invar_status* status) INVAR_NOEXCEPT;

/* ---- Bytes ---------------------------------------------------------------------------------------------------------
 */

/* An owned result: a serialized message, or text (then NUL follows the last byte). */
typedef struct invar_bytes invar_bytes;

/* Borrowed from bytes; NULL for NULL. Since 0.1. */
INVAR_API const uint8_t* invar_bytes_data(const invar_bytes* bytes) INVAR_NOEXCEPT;
/* Bytes, without the NUL behind a text; 0 for NULL. Since 0.1. */
INVAR_API size_t invar_bytes_size(const invar_bytes* bytes) INVAR_NOEXCEPT;
INVAR_API void invar_bytes_release(invar_bytes* bytes) INVAR_NOEXCEPT;

/* ---- Runtime -------------------------------------------------------------------------------------------------------
 */

/* The thread pool, log sink, allocator and files that work shares. */
typedef struct invar_runtime invar_runtime;

#define INVAR_LOG_DEBUG 1
#define INVAR_LOG_INFO 2
#define INVAR_LOG_WARNING 3
#define INVAR_LOG_ERROR 4

typedef void (*invar_drop_fn)(void* user);
/* message: borrowed during the call, ends in NUL. May be called from any thread, several at once. */
typedef void (*invar_log_fn)(void* user, int32_t level, const char* message, size_t message_size);
/* alignment is a power of two. Returns NULL when there is no memory. May be called from any thread, several at once. */
typedef void* (*invar_allocate_fn)(void* user, size_t size, size_t alignment);
typedef void (*invar_deallocate_fn)(void* user, void* memory, size_t size);

/* Read-only files that the host fetches itself. Each function returns INVAR_OK or a status code (INVAR_NOT_FOUND for a
 * path that does not exist). May be called from any thread, several at once; the path ends in NUL. */
typedef int32_t (*invar_file_size_fn)(void* user, const char* path, int64_t* size);
/* Fills all of buffer from byte offset. */
typedef int32_t (*invar_file_read_at_fn)(void* user, const char* path, int64_t offset, void* buffer, size_t size);
/* Calls add(list, name) for every file name in the directory. */
typedef int32_t (*invar_file_list_fn)(void* user, const char* directory, void (*add)(void* list, const char* name),
                                      void* list);

typedef struct invar_runtime_options {
  uint32_t struct_size;
  /* Thread budget, the calling thread included; 0: one for each usable processor. */
  int32_t threads;
  /* Log sink; NULL: nothing is logged. Messages below log_level are left out. */
  invar_log_fn log;
  void* log_user;
  invar_drop_fn log_drop;
  int32_t log_level;
  int32_t reserved;
  /* Memory of tensors, weights, states and activations; both or none. */
  invar_allocate_fn allocate;
  invar_deallocate_fn deallocate;
  void* allocator_user;
  invar_drop_fn allocator_drop;
  /* Paths that begin with file_prefix ("store://") are read through these; all three or none. copied */
  const char* file_prefix;
  invar_file_size_fn file_size;
  invar_file_read_at_fn file_read_at;
  invar_file_list_fn file_list;
  void* file_user;
  invar_drop_fn file_drop;
} invar_runtime_options;

/* Every field at its default. */
#define INVAR_RUNTIME_OPTIONS_INIT \
  { (uint32_t)sizeof(invar_runtime_options), 0, 0, 0, 0, INVAR_LOG_INFO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* The same for languages without the macro: fills the fields of version 0.1 and says so in struct_size; a host that
 * sets a newer field sets struct_size to what it has. options NULL does nothing. Since 0.1. */
INVAR_API void invar_runtime_options_init(invar_runtime_options* options) INVAR_NOEXCEPT;

/* options: NULL for defaults; copied. runtime: owned. The drop functions run when the runtime and all that was made
 * from it are released, or before a failure returns. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_runtime_create(const invar_runtime_options* options,
                                                            invar_runtime** runtime) INVAR_NOEXCEPT;
/* What this library and machine can do: an InfoReport. report: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_runtime_info(invar_runtime* runtime, invar_bytes** report) INVAR_NOEXCEPT;
INVAR_API void invar_runtime_release(invar_runtime* runtime) INVAR_NOEXCEPT;

/* ---- Cancel --------------------------------------------------------------------------------------------------------
 */

/* A sticky flag that ends work with CANCELLED at its next boundary (a block, a micro-batch, a token). */
typedef struct invar_cancel invar_cancel;

/* cancel: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_cancel_create(invar_runtime* runtime,
                                                           invar_cancel** cancel) INVAR_NOEXCEPT;
/* Sets the flag: one atomic store, so a signal handler may call it. NULL does nothing. Since 0.1. */
INVAR_API void invar_cancel_request(invar_cancel* cancel) INVAR_NOEXCEPT;
/* False for NULL. Since 0.1. */
INVAR_API bool invar_cancel_requested(const invar_cancel* cancel) INVAR_NOEXCEPT;
INVAR_API void invar_cancel_release(invar_cancel* cancel) INVAR_NOEXCEPT;

/* ---- Messages: configs and reports ---------------------------------------------------------------------------------
 */

/* type names a message: "train", "convert", "TrainConfig", "invar.v1.ConvertReport". All inputs are copied; results are
 * owned. Errors: "config.unknown_field" with the nearest name, "config.wrong_type", "config.unknown_value",
 * "config.out_of_range", "config.missing_field", "config.syntax". Since 0.1. */

/* JSON (comments allowed) to the serialized message. Names and types are checked, values are not. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_from_json(invar_runtime* runtime, const char* type,
                                                               size_t type_size, const char* text, size_t text_size,
                                                               invar_bytes** message) INVAR_NOEXCEPT;
/* Protobuf text form to the serialized message. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_from_text(invar_runtime* runtime, const char* type,
                                                               size_t type_size, const char* text, size_t text_size,
                                                               invar_bytes** message) INVAR_NOEXCEPT;
/* A serialized message as JSON: keys in the order of declaration, enums by short name. pretty: one field a line. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_to_json(invar_runtime* runtime, const char* type, size_t type_size,
                                                             const void* message, size_t message_size, bool pretty,
                                                             invar_bytes** text) INVAR_NOEXCEPT;
/* A serialized message in protobuf's text form. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_to_text(invar_runtime* runtime, const char* type, size_t type_size,
                                                             const void* message, size_t message_size,
                                                             invar_bytes** text) INVAR_NOEXCEPT;
/* "optimizer.lr=3e-4"; lists and objects in JSON form, "null" clears a field, "+=" appends to a list. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_set(invar_runtime* runtime, const char* type, size_t type_size,
                                                         const void* message, size_t message_size,
                                                         const char* assignment, size_t assignment_size,
                                                         invar_bytes** result) INVAR_NOEXCEPT;
/* The message with every absent scalar at its default. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_with_defaults(invar_runtime* runtime, const char* type,
                                                                   size_t type_size, const void* message,
                                                                   size_t message_size,
                                                                   invar_bytes** result) INVAR_NOEXCEPT;
/* Ranges, enum values and required fields. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_check(invar_runtime* runtime, const char* type, size_t type_size,
                                                           const void* message, size_t message_size) INVAR_NOEXCEPT;
/* About a field or message, for people: "train.optimizer.lr", "convert". */
INVAR_API INVAR_MUST_USE invar_status* invar_message_explain(invar_runtime* runtime, const char* path, size_t path_size,
                                                             invar_bytes** text) INVAR_NOEXCEPT;
/* All fields below a message as JSON: name, type, default, unit, min, max, above, values, doc, fields. */
INVAR_API INVAR_MUST_USE invar_status* invar_message_describe(invar_runtime* runtime, const char* type,
                                                              size_t type_size, invar_bytes** text) INVAR_NOEXCEPT;

/* ---- Progress ------------------------------------------------------------------------------------------------------
 */

/* One optimizer step; fields as in invar.v1.StepMetrics. */
typedef struct invar_step_metrics {
  uint32_t struct_size;
  invar_recipe recipe;
  int64_t step;     /* 1 for the first */
  double loss;      /* mean token loss over the window, nats */
  double lr;        /* learning rate of this step */
  double grad_norm; /* global norm before clipping */
  int64_t tokens;   /* tokens with loss in this step */
  int64_t total_tokens;
  double seconds;
  double tokens_per_second;
  int64_t total_skipped;
  int32_t skipped;      /* 1: gradients were not finite, nothing was updated */
  int32_t ladder_event; /* INVAR_LADDER_* */
} invar_step_metrics;

#define INVAR_LADDER_NONE 0
#define INVAR_LADDER_RAISED 1
#define INVAR_LADDER_FELL_BACK 2
#define INVAR_LADDER_FINAL 3

#define INVAR_STEP_METRICS_INIT \
  { (uint32_t)sizeof(invar_step_metrics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct invar_eval_metrics {
  uint32_t struct_size;
  int32_t reserved;
  int64_t step; /* optimizer steps done */
  double loss;  /* mean token loss, nats */
  double perplexity;
  int64_t tokens;
  double seconds;
} invar_eval_metrics;

#define INVAR_PROGRESS_WORK 1 /* done and total moved */
#define INVAR_PROGRESS_STEP 2 /* step is set */
#define INVAR_PROGRESS_EVAL 3 /* eval is set */
#define INVAR_PROGRESS_NOTE 4 /* detail says something worth a line */

/* Everything in it is borrowed during the call. */
typedef struct invar_progress {
  uint32_t struct_size;
  int32_t kind;       /* INVAR_PROGRESS_* */
  const char* stage;  /* "convert", "verify", "calibrate", "train", "eval", "save", ... */
  const char* detail; /* a tensor's name, a path or a sentence; may be "" */
  const char* unit;   /* of done and total: "bytes", "tensors", "tokens", "steps" */
  int64_t done;
  int64_t total;  /* 0: not known */
  double seconds; /* since the work began */
  const invar_step_metrics* step;
  const invar_eval_metrics* eval;
} invar_progress;

/* Returns 0 to go on. */
typedef int32_t (*invar_progress_fn)(void* user, const invar_progress* event);

typedef struct invar_progress_callback {
  uint32_t struct_size;
  int32_t reserved;
  invar_progress_fn call;
  void* user;
  invar_drop_fn drop; /* NULL: nothing to drop */
} invar_progress_callback;

#define INVAR_PROGRESS_CALLBACK_INIT \
  { (uint32_t)sizeof(invar_progress_callback), 0, 0, 0, 0 }

/* ---- Checkpoints ---------------------------------------------------------------------------------------------------
 * config: a serialized message, copied; absent fields stand for their defaults. cancel, progress: may be NULL. report:
 * owned. A gate that fails (verify, diff, calibrate) is no error: the work was done and the report says so. Errors name
 * file, tensor, value and expectation: "safetensors.*", "checkpoint.*" for input, "output.*", "file.*" for files. Since
 * 0.1. */

/* InspectConfig to InspectReport: what is stored, by reading headers only. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_inspect(invar_runtime* runtime, const void* config,
                                                                size_t config_size, invar_cancel* cancel,
                                                                const invar_progress_callback* progress,
                                                                invar_bytes** report) INVAR_NOEXCEPT;
/* ConvertConfig to ConvertReport. The destination appears under its name only when complete. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_convert(invar_runtime* runtime, const void* config,
                                                                size_t config_size, invar_cancel* cancel,
                                                                const invar_progress_callback* progress,
                                                                invar_bytes** report) INVAR_NOEXCEPT;
/* VerifyConfig to VerifyReport: proves a converted folder against its source again, with the scalar codecs. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_verify(invar_runtime* runtime, const void* config,
                                                               size_t config_size, invar_cancel* cancel,
                                                               const invar_progress_callback* progress,
                                                               invar_bytes** report) INVAR_NOEXCEPT;
/* DiffConfig to DiffReport: two checkpoints, tensor by tensor. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_diff(invar_runtime* runtime, const void* config,
                                                             size_t config_size, invar_cancel* cancel,
                                                             const invar_progress_callback* progress,
                                                             invar_bytes** report) INVAR_NOEXCEPT;
/* CalibrateConfig to CalibrateReport: loss, KL and agreement of two checkpoints on the same tokens. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_calibrate(invar_runtime* runtime, const void* config,
                                                                  size_t config_size, invar_cancel* cancel,
                                                                  const invar_progress_callback* progress,
                                                                  invar_bytes** report) INVAR_NOEXCEPT;
/* ExportConfig to ExportReport: a training checkpoint as a serving folder. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_export(invar_runtime* runtime, const void* config,
                                                               size_t config_size, invar_cancel* cancel,
                                                               const invar_progress_callback* progress,
                                                               invar_bytes** report) INVAR_NOEXCEPT;
/* MergeConfig to MergeReport: a LoRA adapter folded into its base; reasons "adapter.*" beside the others. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_merge(invar_runtime* runtime, const void* config,
                                                              size_t config_size, invar_cancel* cancel,
                                                              const invar_progress_callback* progress,
                                                              invar_bytes** report) INVAR_NOEXCEPT;
/* BenchConfig to BenchReport: measures this machine. */
INVAR_API INVAR_MUST_USE invar_status* invar_bench_run(invar_runtime* runtime, const void* config, size_t config_size,
                                                       invar_cancel* cancel, const invar_progress_callback* progress,
                                                       invar_bytes** report) INVAR_NOEXCEPT;

/* ---- Checkpoints, tensor by tensor ---------------------------------------------------------------------------------
 * For loaders: what a conversion would write, decoded into the host's own memory, without a second copy on disk. */

/* A checkpoint opened for reading. Headers are read at once, elements when they are asked for. */
typedef struct invar_checkpoint invar_checkpoint;

/* One tensor as a loader sees it; texts are borrowed from the checkpoint and end in NUL. */
typedef struct invar_checkpoint_tensor {
  uint32_t struct_size;
  invar_dtype dtype; /* as it is stored */
  int32_t rank;
  int32_t quantized;             /* 1: codes with scales, read as FP32, BF16 or FP16 */
  int64_t shape[INVAR_MAX_RANK]; /* of the values */
  int64_t elements;
  int64_t rows; /* the first dimension; 1 for a scalar */
  const char* name;
  const char* rule;   /* how it is decoded: "copy", "tensor_scale", "row_scale", "block_scale", "unscaled", ... */
  const char* layout; /* the producer's layout; "" for copies */
  const char* file;   /* name of the file that holds it */
} invar_checkpoint_tensor;

#define INVAR_CHECKPOINT_TENSOR_INIT \
  { (uint32_t)sizeof(invar_checkpoint_tensor), 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0 }

/* config: OpenConfig, copied. Every tensor gets exactly one rule, or the call fails as a conversion would. checkpoint:
 * owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_open(invar_runtime* runtime, const void* config,
                                                             size_t config_size,
                                                             invar_checkpoint** checkpoint) INVAR_NOEXCEPT;
/* Tensors with values; scales are used up by their weights and not among them. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_count(const invar_checkpoint* checkpoint,
                                                              int64_t* count) INVAR_NOEXCEPT;
/* The index of a tensor by its name; NOT_FOUND ("checkpoint.no_tensor"). Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_find(const invar_checkpoint* checkpoint, const char* name,
                                                             size_t name_size, int64_t* index) INVAR_NOEXCEPT;
/* Fills tensor up to its struct_size; index 0 to count - 1, sorted by name as stored. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_describe(const invar_checkpoint* checkpoint, int64_t index,
                                                                 invar_checkpoint_tensor* tensor) INVAR_NOEXCEPT;
/* Decodes rows [first_row, first_row + rows) to the start of destination, row-major without gaps, no alignment needed.
 * dtype: FP32, BF16 or FP16; or dtype as stored, for what is not quantised. On failure destination may be partly
 * written. OUT_OF_RANGE "checkpoint.row_range", and "checkpoint.read_size" when capacity is smaller than the rows.
 * Several threads may read at once. cancel: may be NULL. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_checkpoint_read_rows(const invar_checkpoint* checkpoint, int64_t index,
                                                                  int64_t first_row, int64_t rows, invar_dtype dtype,
                                                                  invar_cancel* cancel, void* destination,
                                                                  size_t capacity) INVAR_NOEXCEPT;
INVAR_API void invar_checkpoint_release(invar_checkpoint* checkpoint) INVAR_NOEXCEPT;

/* ---- Models --------------------------------------------------------------------------------------------------------
 */

/* One generated token; everything in it is borrowed during the call. */
typedef struct invar_token {
  uint32_t struct_size;
  int32_t id;
  int64_t index; /* 0 for the first generated token */
  /* The text that this token completes, whole UTF-8 characters; "" while a character is incomplete. Ends in NUL. */
  const char* text;
  size_t text_size;
} invar_token;

/* Returns 0 to go on. Stopping here is a result, not an error: the report says FINISH_REASON_CALLBACK. */
typedef int32_t (*invar_token_fn)(void* user, const invar_token* token);

typedef struct invar_token_callback {
  uint32_t struct_size;
  int32_t reserved;
  invar_token_fn call;
  void* user;
  invar_drop_fn drop;
} invar_token_callback;

#define INVAR_TOKEN_CALLBACK_INIT \
  { (uint32_t)sizeof(invar_token_callback), 0, 0, 0, 0 }

/* A model loaded for evaluation and generation. */
typedef struct invar_model invar_model;

/* config: LoadConfig, copied. model: owned. Errors: "family.unknown_model_type" lists the supported ones. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_model_load(invar_runtime* runtime, const void* config, size_t config_size,
                                                        invar_cancel* cancel, const invar_progress_callback* progress,
                                                        invar_model** model) INVAR_NOEXCEPT;
/* A ModelInfo. info: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_model_info(invar_model* model, invar_bytes** info) INVAR_NOEXCEPT;
/* EvalConfig (its model field is not read) to EvalReport: token loss and perplexity of text. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_model_evaluate(invar_model* model, const void* config, size_t config_size,
                                                            invar_cancel* cancel,
                                                            const invar_progress_callback* progress,
                                                            invar_bytes** report) INVAR_NOEXCEPT;
/* GenerateConfig (its model field is not read) to GenerateReport. token: may be NULL. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_model_generate(invar_model* model, const void* config, size_t config_size,
                                                            invar_cancel* cancel, const invar_token_callback* token,
                                                            invar_bytes** report) INVAR_NOEXCEPT;
INVAR_API void invar_model_release(invar_model* model) INVAR_NOEXCEPT;

/* ---- Sessions: training --------------------------------------------------------------------------------------------
 * Library-driven: invar_session_run takes batches from the config's data until the config's last step.
 * Host-driven: for every optimizer step
 *     invar_session_begin;  invar_session_forward_backward for each micro-batch;  invar_session_step.
 * The two may alternate between steps. */

typedef struct invar_session invar_session;

/* Token ids of one micro-batch, row-major [sequences, sequence_length]; everything is copied. */
typedef struct invar_batch {
  uint32_t struct_size;
  int32_t reserved;
  int64_t sequences;
  int64_t sequence_length;
  const int32_t* ids;
  /* What each position predicts; negative: no loss there. NULL: the next id of the row, none at its end. */
  const int32_t* targets;
  /* 1 where a position's loss counts, 0 where not; NULL: everywhere. */
  const uint8_t* mask;
} invar_batch;

#define INVAR_BATCH_INIT \
  { (uint32_t)sizeof(invar_batch), 0, 0, 0, 0, 0, 0 }

/* Loss of one micro-batch. */
typedef struct invar_loss {
  uint32_t struct_size;
  int32_t reserved;
  double sum;     /* of token losses, nats */
  int64_t tokens; /* that carried loss */
} invar_loss;

#define INVAR_LOSS_INIT \
  { (uint32_t)sizeof(invar_loss), 0, 0, 0 }

/* config: TrainConfig, copied. session: owned. The model is made or loaded; with resume in the config the newest
 * checkpoint of the output folder is loaded. A host-driven session needs neither data.paths nor output. Cancelled
 * while text is read or weights are loaded: the output folder is left as it was, or empty. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_create(invar_runtime* runtime, const void* config,
                                                            size_t config_size, invar_cancel* cancel,
                                                            const invar_progress_callback* progress,
                                                            invar_session** session) INVAR_NOEXCEPT;
/* Trains to the config's last step: metrics, evaluations, checkpoints and exports as the config says. Cancelled: writes
 * a training checkpoint and returns CANCELLED; the session stays valid and may run on. report: TrainReport, owned.
 * Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_run(invar_session* session, invar_cancel* cancel,
                                                         const invar_progress_callback* progress,
                                                         invar_bytes** report) INVAR_NOEXCEPT;
/* What the session has done so far: a TrainReport. report: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_report(invar_session* session,
                                                            invar_bytes** report) INVAR_NOEXCEPT;
/* A ModelInfo. info: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_info(invar_session* session, invar_bytes** info) INVAR_NOEXCEPT;
/* Opens an accumulation window of micro_batches calls of invar_session_forward_backward, and drops what an unfinished
 * one gathered. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_begin(invar_session* session,
                                                           int64_t micro_batches) INVAR_NOEXCEPT;
/* Adds one micro-batch's gradients to the window. loss: may be NULL. FAILED_PRECONDITION without invar_session_begin.
 * Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_forward_backward(invar_session* session, const invar_batch* batch,
                                                                      invar_loss* loss) INVAR_NOEXCEPT;
/* Closes the window: mean over its tokens, clip, update. Gradients that are not finite skip the update
 * (metrics.skipped); too many in a row are an error. metrics: may be NULL. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_step(invar_session* session,
                                                          invar_step_metrics* metrics) INVAR_NOEXCEPT;
/* The same with the host's own learning rate (finite, 0 or more) for this step; the schedule counts on. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_step_with_lr(invar_session* session, double lr,
                                                                  invar_step_metrics* metrics) INVAR_NOEXCEPT;
/* EvalConfig to EvalReport; config NULL evaluates the held-out data. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_evaluate(invar_session* session, const void* config,
                                                              size_t config_size, invar_cancel* cancel,
                                                              const invar_progress_callback* progress,
                                                              invar_bytes** report) INVAR_NOEXCEPT;
/* GenerateConfig to GenerateReport, with the weights as they are now. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_generate(invar_session* session, const void* config,
                                                              size_t config_size, invar_cancel* cancel,
                                                              const invar_token_callback* token,
                                                              invar_bytes** report) INVAR_NOEXCEPT;
/* Writes a training checkpoint to the folder path, which must not exist or be empty. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_save(invar_session* session, const char* path,
                                                          size_t path_size) INVAR_NOEXCEPT;
/* Loads a training checkpoint; the run continues bit for bit. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_resume(invar_session* session, const char* path,
                                                            size_t path_size) INVAR_NOEXCEPT;
/* ExportConfig (its source field is not read) to ExportReport: a serving folder of the weights as they are now. A call
 * that fails or is cancelled leaves no folder. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_export(invar_session* session, const void* config,
                                                            size_t config_size, invar_cancel* cancel,
                                                            const invar_progress_callback* progress,
                                                            invar_bytes** report) INVAR_NOEXCEPT;
INVAR_API void invar_session_release(invar_session* session) INVAR_NOEXCEPT;

#ifdef INVAR_EXPERIMENTAL
/* ---- Experimental --------------------------------------------------------------------------------------------------
 * For hosts that define INVAR_EXPERIMENTAL: may change or go with any release, and is exported in a version node of its
 * own, INVAR_EXPERIMENTAL, so that a host which uses it can be told apart. */

/* The last finished optimizer step, 0 before the first; also while another thread's call is at work on the session.
 * INVALID_ARGUMENT for NULL. Any thread, any time. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_session_last_step(const invar_session* session,
                                                               int64_t* step) INVAR_NOEXCEPT;
#endif

/* ---- Tensors -------------------------------------------------------------------------------------------------------
 */

/* Row-major numbers in host memory; a quantised tensor carries its scales. */
typedef struct invar_tensor invar_tensor;

typedef struct invar_tensor_info {
  uint32_t struct_size;
  invar_dtype dtype;
  int32_t rank;
  int32_t quantized; /* 1: value = code * scale_inv of its block */
  int64_t shape[INVAR_MAX_RANK];
  int64_t elements;
  size_t bytes;
  /* Quantised: elements of one scale's block, and the FP32 grid [scale_rows, scale_cols]; borrowed from the tensor. */
  int64_t block_rows, block_cols;
  int64_t scale_rows, scale_cols;
  const float* scale_inv;
} invar_tensor_info;

#define INVAR_TENSOR_INFO_INIT \
  { (uint32_t)sizeof(invar_tensor_info), 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0 }

#define INVAR_GRANULARITY_TENSOR 1
#define INVAR_GRANULARITY_ROW 2
#define INVAR_GRANULARITY_BLOCK 3

typedef struct invar_quantize_options {
  uint32_t struct_size;
  invar_dtype dtype;    /* INVAR_DTYPE_FP8_E4M3 or INVAR_DTYPE_FP8_E5M2 */
  int32_t granularity;  /* INVAR_GRANULARITY_* */
  int32_t power_of_two; /* 1: scales are powers of two */
  int64_t block_rows;   /* INVAR_GRANULARITY_BLOCK */
  int64_t block_cols;
} invar_quantize_options;

/* E4M3 in 128x128 blocks. */
#define INVAR_QUANTIZE_OPTIONS_INIT \
  { (uint32_t)sizeof(invar_quantize_options), INVAR_DTYPE_FP8_E4M3, INVAR_GRANULARITY_BLOCK, 0, 128, 128 }

/* Zeros. shape: copied, every size >= 0, rank at most INVAR_MAX_RANK. tensor: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_create(invar_runtime* runtime, invar_dtype dtype,
                                                           const int64_t* shape, int32_t rank,
                                                           invar_tensor** tensor) INVAR_NOEXCEPT;
/* A view of the host's memory, which must stay valid until drop(user) is called (drop NULL: until the tensor is
 * released). data_size: bytes behind data, at least those of the shape. On failure drop is called. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_view(invar_runtime* runtime, invar_dtype dtype,
                                                         const int64_t* shape, int32_t rank, void* data,
                                                         size_t data_size, void* user, invar_drop_fn drop,
                                                         invar_tensor** tensor) INVAR_NOEXCEPT;
struct DLManagedTensorVersioned;
/* DLPack 1.x, CPU, row-major without gaps. Takes over managed on success: its deleter runs when the tensor is released.
 * On failure managed still belongs to the caller. tensor: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_from_dlpack(invar_runtime* runtime,
                                                                struct DLManagedTensorVersioned* managed,
                                                                invar_tensor** tensor) INVAR_NOEXCEPT;
/* The tensor's memory for another library; keeps the tensor alive until managed->deleter(managed) is called. Quantised
 * tensors are refused: DLPack has no place for scales. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_to_dlpack(invar_tensor* tensor,
                                                              struct DLManagedTensorVersioned** managed) INVAR_NOEXCEPT;
/* Fills info up to its struct_size. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_describe(const invar_tensor* tensor,
                                                             invar_tensor_info* info) INVAR_NOEXCEPT;
/* The elements; borrowed from the tensor. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_data(invar_tensor* tensor, void** data) INVAR_NOEXCEPT;
/* Copies the elements' bytes to destination. needed: NULL, or receives their number; destination NULL asks for it only.
 * OUT_OF_RANGE when capacity is smaller. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_read(const invar_tensor* tensor, void* destination, size_t capacity,
                                                         size_t* needed) INVAR_NOEXCEPT;
/* Another float format, rounded to nearest even; FP8 saturates. result: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_cast(const invar_tensor* tensor, invar_dtype dtype,
                                                         invar_tensor** result) INVAR_NOEXCEPT;
/* FP32 or BF16, rank 1 or 2 (rank 1 is one row), to codes with scale_inv = amax / largest code of each block. result:
 * owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_quantize(const invar_tensor* tensor,
                                                             const invar_quantize_options* options,
                                                             invar_tensor** result) INVAR_NOEXCEPT;
/* code * scale_inv in FP32, rounded to nearest even to dtype (FP32, BF16 or FP16). result: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_dequantize(const invar_tensor* tensor, invar_dtype dtype,
                                                               invar_tensor** result) INVAR_NOEXCEPT;
/* [rows, inner] x [inner, cols] with FP32 accumulation. a and b: both FP32 or both BF16, rank 2; transpose_*: stored
 * the other way round. dtype: FP32 or BF16 of the result. result: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tensor_matmul(const invar_tensor* a, bool transpose_a,
                                                           const invar_tensor* b, bool transpose_b, invar_dtype dtype,
                                                           invar_tensor** result) INVAR_NOEXCEPT;
INVAR_API void invar_tensor_release(invar_tensor* tensor) INVAR_NOEXCEPT;

/* ---- Optimizer on the host's own tensors ---------------------------------------------------------------------------
 */

typedef struct invar_optimizer invar_optimizer;

typedef struct invar_optimizer_result {
  uint32_t struct_size;
  int32_t skipped;    /* 1: gradients were not finite, nothing was updated */
  int64_t step;       /* updates done */
  double grad_norm;   /* global norm of gradient * grad_scale before clipping */
  double clip_factor; /* 1 when not clipped */
} invar_optimizer_result;

#define INVAR_OPTIMIZER_RESULT_INIT \
  { (uint32_t)sizeof(invar_optimizer_result), 0, 0, 0, 0 }

#define INVAR_STATE_MASTER 1
#define INVAR_STATE_FIRST_MOMENT 2
#define INVAR_STATE_SECOND_MOMENT 3

/* config: OptimizerConfig, copied. optimizer: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_optimizer_create(invar_runtime* runtime, const void* config,
                                                              size_t config_size,
                                                              invar_optimizer** optimizer) INVAR_NOEXCEPT;
/* parameter: FP32 (updated in place) or BF16 (an FP32 master is kept inside); kept alive. decays: the config's weight
 * decay applies; by rule it does for matrices and not for gains and biases. All parameters are added before the first
 * step or state. index: receives 0, 1, ... Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_optimizer_add(invar_optimizer* optimizer, invar_tensor* parameter,
                                                           bool decays, int64_t* index) INVAR_NOEXCEPT;
/* One update of every parameter. gradients: one FP32 tensor for each, with as many elements, in the order of their
 * indices. lr: this step's rate. grad_scale: multiplies every gradient first (1 / tokens). result: may be NULL. Since
 * 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_optimizer_step(invar_optimizer* optimizer,
                                                            const invar_tensor* const* gradients,
                                                            int64_t gradient_count, double lr, double grad_scale,
                                                            invar_optimizer_result* result) INVAR_NOEXCEPT;
/* One state (INVAR_STATE_*) of one parameter as an FP32 tensor that shares its memory: read it to save, write it to
 * restore. state: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_optimizer_state(invar_optimizer* optimizer, int64_t index, int32_t which,
                                                             invar_tensor** state) INVAR_NOEXCEPT;
/* Sets the count of updates done, which the bias correction uses. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_optimizer_set_step(invar_optimizer* optimizer,
                                                                int64_t step) INVAR_NOEXCEPT;
INVAR_API void invar_optimizer_release(invar_optimizer* optimizer) INVAR_NOEXCEPT;

/* ---- Gradient accumulator ------------------------------------------------------------------------------------------
 */

/* FP32 sums of gradients over the micro-batches of a window, and its tokens. */
typedef struct invar_accumulator invar_accumulator;

typedef struct invar_accumulator_info {
  uint32_t struct_size;
  int32_t finite; /* 1: every sum is */
  int64_t tokens;
  double norm; /* global norm of the sums */
} invar_accumulator_info;

#define INVAR_ACCUMULATOR_INFO_INIT \
  { (uint32_t)sizeof(invar_accumulator_info), 0, 0, 0 }

/* elements: of each gradient, copied; count of them, 1 or more. accumulator: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_accumulator_create(invar_runtime* runtime, const int64_t* elements,
                                                                int64_t count,
                                                                invar_accumulator** accumulator) INVAR_NOEXCEPT;
/* sum[index] += gradient (FP32 or BF16, of a sum of token losses). Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_accumulator_add(invar_accumulator* accumulator, int64_t index,
                                                             const invar_tensor* gradient) INVAR_NOEXCEPT;
/* Counts tokens (0 or more) of one micro-batch. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_accumulator_add_tokens(invar_accumulator* accumulator,
                                                                    int64_t tokens) INVAR_NOEXCEPT;
/* What the window holds by now: its tokens, the norm of the sums, whether all are finite. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_accumulator_summary(invar_accumulator* accumulator,
                                                                 invar_accumulator_info* info) INVAR_NOEXCEPT;
/* One sum as an FP32 tensor of rank 1 that shares its memory; zeros before anything was added. gradient: owned. Since
 * 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_accumulator_gradient(invar_accumulator* accumulator, int64_t index,
                                                                  invar_tensor** gradient) INVAR_NOEXCEPT;
/* Sums and tokens back to zero. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_accumulator_reset(invar_accumulator* accumulator) INVAR_NOEXCEPT;
INVAR_API void invar_accumulator_release(invar_accumulator* accumulator) INVAR_NOEXCEPT;

/* ---- Tokenizers and chat templates ---------------------------------------------------------------------------------
 */

typedef struct invar_tokenizer invar_tokenizer;

/* Bits of invar_tokenizer_encode's flags. */
#define INVAR_ENCODE_ADD_SPECIAL 1u   /* what the tokenizer puts around a text, such as a begin token */
#define INVAR_ENCODE_PARSE_SPECIAL 2u /* special tokens written in the text become their ids */
#define INVAR_ENCODE_TRUNCATE 4u      /* as the tokenizer's file says, if it does */
/* Bits of invar_tokenizer_decode's flags. */
#define INVAR_DECODE_SKIP_SPECIAL 1u /* special tokens are left out */
#define INVAR_DECODE_BYTES 2u        /* an unfinished character stays; else U+FFFD stands for it */

/* path: a tokenizer.json, or a folder that holds one. tokenizer: owned. "tokenizer.unsupported" names what is not
 * supported in the file. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tokenizer_load(invar_runtime* runtime, const char* path, size_t path_size,
                                                            invar_tokenizer** tokenizer) INVAR_NOEXCEPT;
/* A TokenizerInfo. info: owned. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tokenizer_info(invar_tokenizer* tokenizer,
                                                            invar_bytes** info) INVAR_NOEXCEPT;
/* ids: owned; 32-bit integers in the machine's byte order. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tokenizer_encode(invar_tokenizer* tokenizer, const char* text,
                                                              size_t text_size, uint32_t flags,
                                                              invar_bytes** ids) INVAR_NOEXCEPT;
/* text: owned. "tokenizer.id_out_of_range" names the place. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tokenizer_decode(invar_tokenizer* tokenizer, const int32_t* ids,
                                                              size_t count, uint32_t flags,
                                                              invar_bytes** text) INVAR_NOEXCEPT;
/* A conversation (ChatConfig) as the tokenizer's chat template writes it; encode it with INVAR_ENCODE_PARSE_SPECIAL.
 * text: owned. "template.raised" carries what the template itself refuses. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tokenizer_chat(invar_tokenizer* tokenizer, const void* config,
                                                            size_t config_size, invar_bytes** text) INVAR_NOEXCEPT;
/* Learns a byte-level vocabulary: TokenizerTrainConfig to TokenizerTrainReport. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_tokenizer_train(invar_runtime* runtime, const void* config,
                                                             size_t config_size, invar_cancel* cancel,
                                                             const invar_progress_callback* progress,
                                                             invar_bytes** report) INVAR_NOEXCEPT;
INVAR_API void invar_tokenizer_release(invar_tokenizer* tokenizer) INVAR_NOEXCEPT;
/* Data files as training sees them, token by token: PreviewConfig to PreviewReport. Since 0.1. */
INVAR_API INVAR_MUST_USE invar_status* invar_data_preview(invar_runtime* runtime, const void* config,
                                                          size_t config_size, invar_cancel* cancel,
                                                          const invar_progress_callback* progress,
                                                          invar_bytes** report) INVAR_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* INVAR_INVAR_H_ */
