/* The raw layer of Go and Java: one class for each handle of invar/invar.h, one method for each of its functions.
 *
 * Every fallible method ends in `invar_status** error`. A language's typemaps, invar_go.swg or invar_java.swg, decide how that
 * arrives (Go: a word the caller looks at; Java: an exception), and what these become:
 *
 *   (const void* NAME, size_t NAME_size)   a serialized message: the host's bytes, not copied
 *   (const char* NAME, size_t NAME_size)   text: the host's string, not copied
 *   invar_bytes*                           an owned result: the host's byte array
 *   invar_cancel* cancel                   NULL for none
 *   invar_host                             a word that names an object of the host: a function, a sink; 0 for none
 *   invar_ids*                             an owned result of token ids: the host's array of 32-bit integers
 *   (const int32_t* NAME, size_t NAME_count) and the like         the host's elements, not copied
 *   StepMetrics*, Loss*, ...  structs that a method fills
 *
 * The C functions that a language's typemaps define (invar_swig_*, declared in host.i) bring calls to those objects.
 *
 * Run SWIG with -DSWIGWORDSIZE64 (int64_t is long, as in glibc), without -c++:
 *
 *   swig -java -DSWIGWORDSIZE64 -Ic_api/include -package NAME -outdir OUT -o OUT/wrap.c bindings/swig/invar.i
 *
 * Nothing is thrown through C: a method that failed has left *error set and returns NULL. */
%module invar

%{
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "invar/invar.h"
%}

%include "stdint.i"
%include "host.i"

#ifdef SWIGGO
%include "invar_go.swg"
#endif
#ifdef SWIGJAVA
%include "invar_java.swg"
#endif

%nodefaultctor;
%nodefaultdtor;

/* The header's numbers, without its functions. */
%include "numbers.i"

/* ---- Functions without handles -------------------------------------------------------------------------------- */

%rename(versionNumber) invar_version_number;
%rename(versionString) invar_version_string;
%rename(abiVersion) invar_abi_version;
%rename(buildInfo) invar_build_info;
%rename(featureQuery) invar_feature_query;
%rename(codeName) invar_code_name;
%rename(dtypeName) invar_dtype_name;
%rename(dtypeBits) invar_dtype_bits;
int32_t invar_version_number(void);
const char* invar_version_string(void);
int32_t invar_abi_version(void);
const char* invar_build_info(void);
bool invar_feature_query(const char* text, size_t text_size);
const char* invar_code_name(int32_t code);
const char* invar_dtype_name(int32_t dtype);
int32_t invar_dtype_bits(int32_t dtype);

/* ---- Structs that methods fill or read ------------------------------------------------------------------------- */

%include "structs.i"

/* ---- Handles --------------------------------------------------------------------------------------------------- */

/* SWIG names the C function of a method CLASS_METHOD: the classes are aliases, so that none is a function of the header. */
%{
typedef invar_status Status;
typedef invar_runtime Runtime;
typedef invar_cancel Cancel;
typedef invar_checkpoint Checkpoint;
typedef invar_model Model;
typedef invar_session Session;
typedef invar_tensor Tensor;
typedef invar_optimizer Optimizer;
typedef invar_accumulator Accumulator;
typedef invar_tokenizer Tokenizer;
%}
typedef struct {
} Status;
typedef struct {
} Runtime;
typedef struct {
} Cancel;
typedef struct {
} Checkpoint;
typedef struct {
} Model;
typedef struct {
} Session;
typedef struct {
} Tensor;
typedef struct {
} Optimizer;
typedef struct {
} Accumulator;
typedef struct {
} Tokenizer;

%extend Status {
  ~Status() { invar_status_release($self); }
  int32_t code() { return invar_status_code($self); }
  const char* message() { return invar_status_message($self, NULL); }
  const char* reason() { return invar_status_reason($self, NULL); }
  int32_t callbackValue() { return invar_status_callback_value($self); }
}

/* A method that takes a config and gives back a report. */
%define CONFIG_TO_REPORT(METHOD, FUNCTION)
  invar_bytes* METHOD(const void* config, size_t config_size, Cancel* cancel, invar_host progress,
                      invar_status** error) {
    invar_bytes* report = NULL;
    invar_progress_callback callback;
    *error = FUNCTION($self, config, config_size, cancel, progress_of(progress, &callback), &report);
    return report;
  }
%enddef

/* A method on a message and one text that gives back bytes. */
%define BYTES_RESULT(CALL)
    invar_bytes* result = NULL;
    *error = CALL;
    return result;
%enddef

%extend Runtime {
  /* log: the host's sink; files: what reads paths that begin with file_prefix. Memory comes from the library. */
  Runtime(int32_t threads, invar_host log, int32_t log_level, invar_host files, const char* file_prefix,
                invar_status** error) {
    Runtime* runtime = NULL;
    *error = create_runtime(threads, log, log_level, files, file_prefix, &runtime);
    return runtime;
  }
  ~Runtime() { invar_runtime_release($self); }
  invar_bytes* info(invar_status** error) { BYTES_RESULT(invar_runtime_info($self, &result)) }

  invar_bytes* messageFromJson(const char* type, size_t type_size, const char* text, size_t text_size,
                               invar_status** error) {
    BYTES_RESULT(invar_message_from_json($self, type, type_size, text, text_size, &result))
  }
  invar_bytes* messageFromText(const char* type, size_t type_size, const char* text, size_t text_size,
                               invar_status** error) {
    BYTES_RESULT(invar_message_from_text($self, type, type_size, text, text_size, &result))
  }
  invar_bytes* messageToJson(const char* type, size_t type_size, const void* message, size_t message_size, bool pretty,
                             invar_status** error) {
    BYTES_RESULT(invar_message_to_json($self, type, type_size, message, message_size, pretty, &result))
  }
  invar_bytes* messageToText(const char* type, size_t type_size, const void* message, size_t message_size,
                             invar_status** error) {
    BYTES_RESULT(invar_message_to_text($self, type, type_size, message, message_size, &result))
  }
  invar_bytes* messageSet(const char* type, size_t type_size, const void* message, size_t message_size,
                          const char* text, size_t text_size, invar_status** error) {
    BYTES_RESULT(invar_message_set($self, type, type_size, message, message_size, text, text_size, &result))
  }
  invar_bytes* messageWithDefaults(const char* type, size_t type_size, const void* message, size_t message_size,
                                   invar_status** error) {
    BYTES_RESULT(invar_message_with_defaults($self, type, type_size, message, message_size, &result))
  }
  void messageCheck(const char* type, size_t type_size, const void* message, size_t message_size,
                    invar_status** error) {
    *error = invar_message_check($self, type, type_size, message, message_size);
  }
  invar_bytes* messageExplain(const char* text, size_t text_size, invar_status** error) {
    BYTES_RESULT(invar_message_explain($self, text, text_size, &result))
  }
  invar_bytes* messageDescribe(const char* type, size_t type_size, invar_status** error) {
    BYTES_RESULT(invar_message_describe($self, type, type_size, &result))
  }

  CONFIG_TO_REPORT(inspect, invar_checkpoint_inspect)
  CONFIG_TO_REPORT(convert, invar_checkpoint_convert)
  CONFIG_TO_REPORT(verify, invar_checkpoint_verify)
  CONFIG_TO_REPORT(diff, invar_checkpoint_diff)
  CONFIG_TO_REPORT(calibrate, invar_checkpoint_calibrate)
  CONFIG_TO_REPORT(exportCheckpoint, invar_checkpoint_export)
  CONFIG_TO_REPORT(merge, invar_checkpoint_merge)
  CONFIG_TO_REPORT(bench, invar_bench_run)
  CONFIG_TO_REPORT(trainTokenizer, invar_tokenizer_train)
  CONFIG_TO_REPORT(previewData, invar_data_preview)
}

%extend Cancel {
  Cancel(Runtime* runtime, invar_status** error) {
    Cancel* cancel = NULL;
    *error = invar_cancel_create(runtime, &cancel);
    return cancel;
  }
  ~Cancel() { invar_cancel_release($self); }
  void request() { invar_cancel_request($self); }
  bool requested() { return invar_cancel_requested($self); }
}

%extend Checkpoint {
  Checkpoint(Runtime* runtime, const void* config, size_t config_size, invar_status** error) {
    Checkpoint* checkpoint = NULL;
    *error = invar_checkpoint_open(runtime, config, config_size, &checkpoint);
    return checkpoint;
  }
  ~Checkpoint() { invar_checkpoint_release($self); }
  int64_t count(invar_status** error) {
    int64_t count = 0;
    *error = invar_checkpoint_count($self, &count);
    return count;
  }
  int64_t find(const char* text, size_t text_size, invar_status** error) {
    int64_t index = -1;
    *error = invar_checkpoint_find($self, text, text_size, &index);
    return index;
  }
  void describe(int64_t index, CheckpointTensor* tensor, invar_status** error) {
    *error = invar_checkpoint_describe($self, index, tensor);
  }
  void readRows(int64_t index, int64_t first_row, int64_t rows, int32_t dtype, Cancel* cancel, void* memory,
                size_t memory_size, invar_status** error) {
    *error = invar_checkpoint_read_rows($self, index, first_row, rows, dtype, cancel, memory, memory_size);
  }
}

%extend Model {
  Model(Runtime* runtime, const void* config, size_t config_size, Cancel* cancel,
              invar_host progress, invar_status** error) {
    Model* model = NULL;
    invar_progress_callback callback;
    *error = invar_model_load(runtime, config, config_size, cancel, progress_of(progress, &callback), &model);
    return model;
  }
  ~Model() { invar_model_release($self); }
  invar_bytes* info(invar_status** error) { BYTES_RESULT(invar_model_info($self, &result)) }
  CONFIG_TO_REPORT(evaluate, invar_model_evaluate)
  invar_bytes* generate(const void* config, size_t config_size, Cancel* cancel,
                        invar_host token, invar_status** error) {
    invar_token_callback callback;
    BYTES_RESULT(invar_model_generate($self, config, config_size, cancel, token_of(token, &callback), &result))
  }
}

%extend Session {
  Session(Runtime* runtime, const void* config, size_t config_size, Cancel* cancel,
                invar_host progress, invar_status** error) {
    Session* session = NULL;
    invar_progress_callback callback;
    *error = invar_session_create(runtime, config, config_size, cancel, progress_of(progress, &callback), &session);
    return session;
  }
  ~Session() { invar_session_release($self); }
  invar_bytes* run(Cancel* cancel, invar_host progress, invar_status** error) {
    invar_progress_callback callback;
    BYTES_RESULT(invar_session_run($self, cancel, progress_of(progress, &callback), &result))
  }
  invar_bytes* report(invar_status** error) { BYTES_RESULT(invar_session_report($self, &result)) }
  invar_bytes* info(invar_status** error) { BYTES_RESULT(invar_session_info($self, &result)) }
  void begin(int64_t micro_batches, invar_status** error) { *error = invar_session_begin($self, micro_batches); }
  /* ids: sequences * sequence_length elements; targets and mask: as many or none. */
  void forwardBackward(int64_t sequences, int64_t sequence_length, const int32_t* ids, size_t ids_count,
                       const int32_t* targets, size_t targets_count, const uint8_t* mask, size_t mask_count,
                       Loss* loss, invar_status** error) {
    *error = forward_backward($self, sequences, sequence_length, ids, ids_count, targets, targets_count,
                                         mask, mask_count, loss);
  }
  void step(StepMetrics* metrics, invar_status** error) { *error = invar_session_step($self, metrics); }
  void stepWithLr(double lr, StepMetrics* metrics, invar_status** error) {
    *error = invar_session_step_with_lr($self, lr, metrics);
  }
  CONFIG_TO_REPORT(evaluate, invar_session_evaluate)
  invar_bytes* generate(const void* config, size_t config_size, Cancel* cancel,
                        invar_host token, invar_status** error) {
    invar_token_callback callback;
    BYTES_RESULT(invar_session_generate($self, config, config_size, cancel, token_of(token, &callback), &result))
  }
  void save(const char* text, size_t text_size, invar_status** error) {
    *error = invar_session_save($self, text, text_size);
  }
  void resume(const char* text, size_t text_size, invar_status** error) {
    *error = invar_session_resume($self, text, text_size);
  }
  CONFIG_TO_REPORT(exportModel, invar_session_export)
}

%newobject Tensor::cast;
%newobject Tensor::quantize;
%newobject Tensor::dequantize;
%newobject Tensor::matmul;
%newobject Tensor::view;
%newobject Tensor::fromDlpack;
%newobject Optimizer::state;
%newobject Accumulator::gradient;

%extend Tensor {
  Tensor(Runtime* runtime, int32_t dtype, const int64_t* shape, size_t shape_count, invar_status** error) {
    Tensor* tensor = NULL;
    *error = invar_tensor_create(runtime, dtype, shape, (int32_t)shape_count, &tensor);
    return tensor;
  }
  ~Tensor() { invar_tensor_release($self); }
  /* A tensor over the host's memory; owner keeps it in place until the tensor is gone. */
  static Tensor* view(Runtime* runtime, int32_t dtype, const int64_t* shape, size_t shape_count,
                            void* memory, size_t memory_size, invar_host owner, invar_status** error) {
    Tensor* tensor = NULL;
    *error = invar_tensor_view(runtime, dtype, shape, (int32_t)shape_count, memory, memory_size, (void*)owner,
                               invar_swig_drop, &tensor);
    return tensor;
  }
  void describe(TensorInfo* info, invar_status** error) { *error = invar_tensor_describe($self, info); }
  /* The address of the elements; borrowed from the tensor. */
  invar_address data(invar_status** error) {
    void* data = NULL;
    *error = invar_tensor_data($self, &data);
    return (uintptr_t)data;
  }
  /* Copies all elements to the host's memory. */
  void read(void* memory, size_t memory_size, invar_status** error) {
    *error = invar_tensor_read($self, memory, memory_size, NULL);
  }
  Tensor* cast(int32_t dtype, invar_status** error) {
    Tensor* result = NULL;
    *error = invar_tensor_cast($self, dtype, &result);
    return result;
  }
  Tensor* quantize(int32_t dtype, int32_t granularity, bool power_of_two, int64_t block_rows,
                         int64_t block_cols, invar_status** error) {
    invar_quantize_options options = INVAR_QUANTIZE_OPTIONS_INIT;
    Tensor* result = NULL;
    options.dtype = dtype;
    options.granularity = granularity;
    options.power_of_two = power_of_two;
    options.block_rows = block_rows;
    options.block_cols = block_cols;
    *error = invar_tensor_quantize($self, &options, &result);
    return result;
  }
  Tensor* dequantize(int32_t dtype, invar_status** error) {
    Tensor* result = NULL;
    *error = invar_tensor_dequantize($self, dtype, &result);
    return result;
  }
  Tensor* matmul(bool transpose, Tensor* other, bool transpose_other, int32_t dtype,
                       invar_status** error) {
    Tensor* result = NULL;
    *error = invar_tensor_matmul($self, transpose, other, transpose_other, dtype, &result);
    return result;
  }
  /* DLPack capsules as addresses of DLManagedTensorVersioned. */
  static Tensor* fromDlpack(Runtime* runtime, invar_address managed, invar_status** error) {
    Tensor* result = NULL;
    *error = invar_tensor_from_dlpack(runtime, (struct DLManagedTensorVersioned*)managed, &result);
    return result;
  }
  invar_address toDlpack(invar_status** error) {
    struct DLManagedTensorVersioned* managed = NULL;
    *error = invar_tensor_to_dlpack($self, &managed);
    return (uintptr_t)managed;
  }
}

%extend Optimizer {
  Optimizer(Runtime* runtime, const void* config, size_t config_size, invar_status** error) {
    Optimizer* optimizer = NULL;
    *error = invar_optimizer_create(runtime, config, config_size, &optimizer);
    return optimizer;
  }
  ~Optimizer() { invar_optimizer_release($self); }
  int64_t add(Tensor* parameter, bool decays, invar_status** error) {
    int64_t index = -1;
    *error = invar_optimizer_add($self, parameter, decays, &index);
    return index;
  }
  void step(const invar_tensor* const* tensors, size_t tensors_count, double lr, double grad_scale,
            OptimizerResult* result, invar_status** error) {
    *error = invar_optimizer_step($self, tensors, (int64_t)tensors_count, lr, grad_scale, result);
  }
  Tensor* state(int64_t index, int32_t which, invar_status** error) {
    Tensor* result = NULL;
    *error = invar_optimizer_state($self, index, which, &result);
    return result;
  }
  void setStep(int64_t step, invar_status** error) { *error = invar_optimizer_set_step($self, step); }
}

%extend Accumulator {
  Accumulator(Runtime* runtime, const int64_t* elements, size_t elements_count, invar_status** error) {
    Accumulator* accumulator = NULL;
    *error = invar_accumulator_create(runtime, elements, (int64_t)elements_count, &accumulator);
    return accumulator;
  }
  ~Accumulator() { invar_accumulator_release($self); }
  void add(int64_t index, Tensor* gradient, invar_status** error) {
    *error = invar_accumulator_add($self, index, gradient);
  }
  void addTokens(int64_t tokens, invar_status** error) { *error = invar_accumulator_add_tokens($self, tokens); }
  void summary(AccumulatorInfo* info, invar_status** error) {
    *error = invar_accumulator_summary($self, info);
  }
  Tensor* gradient(int64_t index, invar_status** error) {
    Tensor* result = NULL;
    *error = invar_accumulator_gradient($self, index, &result);
    return result;
  }
  void reset(invar_status** error) { *error = invar_accumulator_reset($self); }
}

%extend Tokenizer {
  Tokenizer(Runtime* runtime, const char* text, size_t text_size, invar_status** error) {
    Tokenizer* tokenizer = NULL;
    *error = invar_tokenizer_load(runtime, text, text_size, &tokenizer);
    return tokenizer;
  }
  ~Tokenizer() { invar_tokenizer_release($self); }
  invar_bytes* info(invar_status** error) { BYTES_RESULT(invar_tokenizer_info($self, &result)) }
  invar_ids* encode(const char* text, size_t text_size, int32_t flags, invar_status** error) {
    BYTES_RESULT(invar_tokenizer_encode($self, text, text_size, (uint32_t)flags, &result))
  }
  invar_bytes* decode(const int32_t* tokens, size_t tokens_count, int32_t flags, invar_status** error) {
    BYTES_RESULT(invar_tokenizer_decode($self, tokens, tokens_count, (uint32_t)flags, &result))
  }
  invar_bytes* chat(const void* config, size_t config_size, invar_status** error) {
    BYTES_RESULT(invar_tokenizer_chat($self, config, config_size, &result))
  }
}
