/* Structs that methods fill. In Go they are read field by field by cgo, without accessors. */
%{
typedef invar_step_metrics StepMetrics;
typedef invar_loss Loss;
typedef invar_tensor_info TensorInfo;
typedef invar_checkpoint_tensor CheckpointTensor;
typedef invar_optimizer_result OptimizerResult;
typedef invar_accumulator_info AccumulatorInfo;
%}
#ifndef SWIGGO
%immutable;
typedef struct {
  int32_t recipe;
  int64_t step;
  double loss;
  double lr;
  double grad_norm;
  int64_t tokens;
  int64_t total_tokens;
  double seconds;
  double tokens_per_second;
  int64_t total_skipped;
  int32_t skipped;
  int32_t ladder_event;
} StepMetrics;
%extend StepMetrics {
  StepMetrics() {
    StepMetrics* made = (StepMetrics*)calloc(1, sizeof(StepMetrics));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(*made);
    return made;
  }
  ~StepMetrics() { free($self); }
}
typedef struct {
  double sum;
  int64_t tokens;
} Loss;
%extend Loss {
  Loss() {
    Loss* made = (Loss*)calloc(1, sizeof(Loss));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(*made);
    return made;
  }
  ~Loss() { free($self); }
}
typedef struct {
  int32_t dtype;
  int32_t rank;
  int32_t quantized;
  int64_t elements;
  size_t bytes;
  int64_t block_rows;
  int64_t block_cols;
  int64_t scale_rows;
  int64_t scale_cols;
} TensorInfo;
%extend TensorInfo {
  TensorInfo() {
    TensorInfo* made = (TensorInfo*)calloc(1, sizeof(TensorInfo));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(*made);
    return made;
  }
  ~TensorInfo() { free($self); }
  int64_t size(int32_t axis) { return axis >= 0 && axis < $self->rank ? $self->shape[axis] : 0; }
  invar_address scaleInv() { return (uintptr_t)$self->scale_inv; }
}
typedef struct {
  int32_t dtype;
  int32_t rank;
  int32_t quantized;
  int64_t elements;
  int64_t rows;
  const char* name;
  const char* rule;
  const char* layout;
  const char* file;
} CheckpointTensor;
%extend CheckpointTensor {
  CheckpointTensor() {
    CheckpointTensor* made = (CheckpointTensor*)calloc(1, sizeof(CheckpointTensor));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(*made);
    return made;
  }
  ~CheckpointTensor() { free($self); }
  int64_t size(int32_t axis) { return axis >= 0 && axis < $self->rank ? $self->shape[axis] : 0; }
}
typedef struct {
  int32_t skipped;
  int64_t step;
  double grad_norm;
  double clip_factor;
} OptimizerResult;
%extend OptimizerResult {
  OptimizerResult() {
    OptimizerResult* made = (OptimizerResult*)calloc(1, sizeof(OptimizerResult));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(*made);
    return made;
  }
  ~OptimizerResult() { free($self); }
}
typedef struct {
  int32_t finite;
  int64_t tokens;
  double norm;
} AccumulatorInfo;
%extend AccumulatorInfo {
  AccumulatorInfo() {
    AccumulatorInfo* made = (AccumulatorInfo*)calloc(1, sizeof(AccumulatorInfo));
    if (made != NULL) made->struct_size = (uint32_t)sizeof(*made);
    return made;
  }
  ~AccumulatorInfo() { free($self); }
}
%mutable;
#endif
