// NULL where it is not allowed is INVALID_ARGUMENT from every function, and handle outputs become NULL.
#include "c_api/tests/abi_support.h"

namespace invar_test {
namespace {

// A non-NULL value, so that a test sees it being reset.
template <typename T>
T* dangling() {
  return reinterpret_cast<T*>(sizeof(T*));
}

#define EXPECT_INVALID(call) EXPECT_EQ(code_of(call), INVAR_INVALID_ARGUMENT) << #call
// The call fails and sets its handle output to NULL.
#define EXPECT_INVALID_OUT(out, call)                       \
  do {                                                      \
    out = dangling<std::remove_pointer_t<decltype(out)>>(); \
    EXPECT_INVALID(call);                                   \
    EXPECT_EQ(out, nullptr) << #call;                       \
  } while (0)

TEST(NullArguments, AccessorsGiveNeutralValues) {
  size_t size = 9;
  EXPECT_EQ(invar_status_code(nullptr), INVAR_OK);
  EXPECT_STREQ(invar_status_message(nullptr, &size), "");
  EXPECT_EQ(size, 0u);
  EXPECT_STREQ(invar_status_reason(nullptr, nullptr), "");
  EXPECT_EQ(invar_status_callback_value(nullptr), 0);
  EXPECT_EQ(invar_bytes_data(nullptr), nullptr);
  EXPECT_EQ(invar_bytes_size(nullptr), 0u);
  EXPECT_FALSE(invar_cancel_requested(nullptr));
  EXPECT_FALSE(invar_feature_query(nullptr, 3));
  invar_cancel_request(nullptr);
  invar_runtime_options_init(nullptr);
  EXPECT_STREQ(invar_code_name(-5), "UNKNOWN");
  EXPECT_STREQ(invar_code_name(17), "UNKNOWN");
  EXPECT_STREQ(invar_dtype_name(0), "");
  EXPECT_STREQ(invar_dtype_name(-1), "");
  EXPECT_EQ(invar_dtype_bits(1 << 20), 0);
}

TEST(NullArguments, ReleaseAcceptsNull) {
  invar_status_release(nullptr);
  invar_bytes_release(nullptr);
  invar_runtime_release(nullptr);
  invar_cancel_release(nullptr);
  invar_model_release(nullptr);
  invar_session_release(nullptr);
  invar_tensor_release(nullptr);
  invar_optimizer_release(nullptr);
  invar_accumulator_release(nullptr);
  invar_tokenizer_release(nullptr);
}

TEST(NullArguments, Tokenizers) {
  const auto owner = make_runtime();
  invar_tokenizer* tokenizer;
  invar_bytes* bytes;
  EXPECT_INVALID_OUT(tokenizer, invar_tokenizer_load(nullptr, "a", 1, &tokenizer));
  EXPECT_INVALID_OUT(tokenizer, invar_tokenizer_load(owner.get(), nullptr, 1, &tokenizer));
  EXPECT_INVALID_OUT(tokenizer, invar_tokenizer_load(owner.get(), nullptr, 0, &tokenizer));
  EXPECT_INVALID(invar_tokenizer_load(owner.get(), "a", 1, nullptr));
  EXPECT_INVALID_OUT(bytes, invar_tokenizer_info(nullptr, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_tokenizer_encode(nullptr, "a", 1, 0, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_tokenizer_decode(nullptr, nullptr, 0, 0, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_tokenizer_chat(nullptr, "", 0, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_tokenizer_train(nullptr, "", 0, nullptr, nullptr, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_data_preview(nullptr, "", 0, nullptr, nullptr, &bytes));
  EXPECT_INVALID(invar_data_preview(owner.get(), "", 0, nullptr, nullptr, nullptr));
  EXPECT_INVALID(invar_tokenizer_train(owner.get(), "", 0, nullptr, nullptr, nullptr));
}

TEST(NullArguments, RuntimeAndMessages) {
  const auto owner = make_runtime();
  invar_runtime* const runtime = owner.get();
  invar_bytes* bytes;
  invar_cancel* cancel;
  EXPECT_INVALID(invar_runtime_create(nullptr, nullptr));
  EXPECT_INVALID_OUT(bytes, invar_runtime_info(nullptr, &bytes));
  EXPECT_INVALID(invar_runtime_info(runtime, nullptr));
  EXPECT_INVALID_OUT(cancel, invar_cancel_create(nullptr, &cancel));
  EXPECT_INVALID(invar_cancel_create(runtime, nullptr));

  EXPECT_INVALID_OUT(bytes, invar_message_from_json(nullptr, "train", 5, "{}", 2, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_from_json(runtime, nullptr, 5, "{}", 2, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_from_json(runtime, "train", 5, nullptr, 2, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_from_json(runtime, "train", 5, nullptr, 0, &bytes));  // empty is no object
  EXPECT_INVALID(invar_message_from_json(runtime, "train", 5, "{}", 2, nullptr));
  EXPECT_INVALID_OUT(bytes, invar_message_from_text(nullptr, "train", 5, "", 0, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_from_text(runtime, "train", 5, nullptr, 1, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_to_json(nullptr, "train", 5, "", 0, true, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_to_json(runtime, "train", 5, nullptr, 1, true, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_to_text(nullptr, "train", 5, "", 0, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_set(nullptr, "train", 5, "", 0, "steps=1", 7, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_set(runtime, "train", 5, "", 0, nullptr, 7, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_with_defaults(nullptr, "train", 5, "", 0, &bytes));
  EXPECT_INVALID(invar_message_with_defaults(runtime, "train", 5, "", 0, nullptr));
  EXPECT_INVALID(invar_message_check(nullptr, "train", 5, "", 0));
  EXPECT_INVALID(invar_message_check(runtime, nullptr, 5, "", 0));
  EXPECT_INVALID(invar_message_check(runtime, "train", 5, nullptr, 3));
  EXPECT_INVALID_OUT(bytes, invar_message_explain(nullptr, "train", 5, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_explain(runtime, nullptr, 5, &bytes));
  EXPECT_INVALID(invar_message_explain(runtime, "train", 5, nullptr));
  EXPECT_INVALID_OUT(bytes, invar_message_describe(nullptr, "train", 5, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_message_describe(runtime, nullptr, 5, &bytes));
}

TEST(NullArguments, Checkpoints) {
  const auto owner = make_runtime();
  invar_runtime* const runtime = owner.get();
  invar_bytes* bytes;
  for (const auto& work :
       {invar_checkpoint_inspect, invar_checkpoint_convert, invar_checkpoint_verify, invar_checkpoint_diff,
        invar_checkpoint_calibrate, invar_checkpoint_export, invar_checkpoint_merge, invar_bench_run}) {
    EXPECT_INVALID_OUT(bytes, work(nullptr, "", 0, nullptr, nullptr, &bytes));
    EXPECT_INVALID_OUT(bytes, work(runtime, nullptr, 5, nullptr, nullptr, &bytes));
    EXPECT_INVALID(work(runtime, "", 0, nullptr, nullptr, nullptr));
    EXPECT_INVALID_OUT(bytes, work(runtime, "\xff", 1, nullptr, nullptr, &bytes));  // damaged
    invar_progress_callback callback = INVAR_PROGRESS_CALLBACK_INIT;
    callback.struct_size = 3;
    EXPECT_INVALID_OUT(bytes, work(runtime, "", 0, nullptr, &callback, &bytes));
  }
}

TEST(NullArguments, ModelsAndSessions) {
  const auto owner = make_runtime();
  invar_runtime* const runtime = owner.get();
  invar_bytes* bytes;
  invar_model* model;
  invar_session* session;
  EXPECT_INVALID_OUT(model, invar_model_load(nullptr, "", 0, nullptr, nullptr, &model));
  EXPECT_INVALID_OUT(model, invar_model_load(runtime, nullptr, 1, nullptr, nullptr, &model));
  EXPECT_INVALID_OUT(model, invar_model_load(runtime, "", 0, nullptr, nullptr, &model));  // path is required
  EXPECT_INVALID(invar_model_load(runtime, "", 0, nullptr, nullptr, nullptr));
  EXPECT_INVALID_OUT(bytes, invar_model_info(nullptr, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_model_evaluate(nullptr, "", 0, nullptr, nullptr, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_model_generate(nullptr, "", 0, nullptr, nullptr, &bytes));

  EXPECT_INVALID_OUT(session, invar_session_create(nullptr, "", 0, nullptr, nullptr, &session));
  EXPECT_INVALID_OUT(session, invar_session_create(runtime, nullptr, 1, nullptr, nullptr, &session));
  EXPECT_INVALID(invar_session_create(runtime, "", 0, nullptr, nullptr, nullptr));
  EXPECT_INVALID_OUT(bytes, invar_session_run(nullptr, nullptr, nullptr, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_session_report(nullptr, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_session_info(nullptr, &bytes));
  EXPECT_INVALID(invar_session_begin(nullptr, 1));
  EXPECT_INVALID(invar_session_forward_backward(nullptr, nullptr, nullptr));
  EXPECT_INVALID(invar_session_step(nullptr, nullptr));
  EXPECT_INVALID(invar_session_step_with_lr(nullptr, 0.1, nullptr));
  EXPECT_INVALID_OUT(bytes, invar_session_evaluate(nullptr, nullptr, 0, nullptr, nullptr, &bytes));
  EXPECT_INVALID_OUT(bytes, invar_session_generate(nullptr, "", 0, nullptr, nullptr, &bytes));
  EXPECT_INVALID(invar_session_save(nullptr, "x", 1));
  EXPECT_INVALID(invar_session_resume(nullptr, "x", 1));
  EXPECT_INVALID_OUT(bytes, invar_session_export(nullptr, "", 0, nullptr, nullptr, &bytes));
}

TEST(NullArguments, Tensors) {
  const auto owner = make_runtime();
  invar_runtime* const runtime = owner.get();
  const auto tensor = make_tensor(runtime, INVAR_DTYPE_FP32, {2, 2});
  const int64_t shape[] = {2, 2};
  float data[4];
  invar_tensor* out;
  DLManagedTensorVersioned* managed;
  EXPECT_INVALID_OUT(out, invar_tensor_create(nullptr, INVAR_DTYPE_FP32, shape, 2, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_create(runtime, INVAR_DTYPE_FP32, nullptr, 2, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_create(runtime, INVAR_DTYPE_FP32, shape, -1, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_create(runtime, INVAR_DTYPE_FP32, shape, 99, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_create(runtime, 0, shape, 2, &out));
  EXPECT_INVALID(invar_tensor_create(runtime, INVAR_DTYPE_FP32, shape, 2, nullptr));
  EXPECT_INVALID_OUT(out, invar_tensor_view(nullptr, INVAR_DTYPE_FP32, shape, 2, data, 16, nullptr, nullptr, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_view(runtime, INVAR_DTYPE_FP32, shape, 2, nullptr, 16, nullptr, nullptr, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_view(runtime, INVAR_DTYPE_FP32, shape, 2, data, 15, nullptr, nullptr, &out));
  EXPECT_INVALID(invar_tensor_view(runtime, INVAR_DTYPE_FP32, shape, 2, data, 16, nullptr, nullptr, nullptr));
  EXPECT_INVALID_OUT(out, invar_tensor_from_dlpack(runtime, nullptr, &out));
  EXPECT_INVALID_OUT(managed, invar_tensor_to_dlpack(nullptr, &managed));
  EXPECT_INVALID(invar_tensor_to_dlpack(tensor.get(), nullptr));
  EXPECT_INVALID(invar_tensor_describe(nullptr, nullptr));
  EXPECT_INVALID(invar_tensor_describe(tensor.get(), nullptr));
  invar_tensor_info info{};
  EXPECT_INVALID(invar_tensor_describe(tensor.get(), &info));  // struct_size 0
  EXPECT_INVALID(invar_tensor_data(tensor.get(), nullptr));
  EXPECT_INVALID(invar_tensor_data(nullptr, nullptr));
  EXPECT_INVALID(invar_tensor_read(nullptr, data, 16, nullptr));
  EXPECT_INVALID(invar_tensor_read(tensor.get(), nullptr, 0, nullptr));
  EXPECT_INVALID_OUT(out, invar_tensor_cast(nullptr, INVAR_DTYPE_BF16, &out));
  EXPECT_INVALID(invar_tensor_cast(tensor.get(), INVAR_DTYPE_BF16, nullptr));
  EXPECT_INVALID_OUT(out, invar_tensor_cast(tensor.get(), INVAR_DTYPE_I32, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_quantize(nullptr, nullptr, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_dequantize(nullptr, INVAR_DTYPE_BF16, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_dequantize(tensor.get(), INVAR_DTYPE_BF16, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_matmul(nullptr, false, tensor.get(), false, INVAR_DTYPE_FP32, &out));
  EXPECT_INVALID_OUT(out, invar_tensor_matmul(tensor.get(), false, nullptr, false, INVAR_DTYPE_FP32, &out));
}

TEST(NullArguments, OptimizerAndAccumulator) {
  const auto owner = make_runtime();
  invar_runtime* const runtime = owner.get();
  const auto tensor = make_tensor(runtime, INVAR_DTYPE_FP32, {4});
  invar_optimizer* optimizer;
  invar_accumulator* accumulator;
  invar_tensor* out;
  int64_t index = 7;
  EXPECT_INVALID_OUT(optimizer, invar_optimizer_create(nullptr, "", 0, &optimizer));
  EXPECT_INVALID(invar_optimizer_create(runtime, "", 0, nullptr));
  EXPECT_EQ(text_of(invar_optimizer_create(runtime, nullptr, 0, &optimizer)), "ok");
  const Owned<invar_optimizer> optimizer_owner(optimizer);
  EXPECT_INVALID(invar_optimizer_add(nullptr, tensor.get(), true, &index));
  EXPECT_INVALID(invar_optimizer_add(optimizer, nullptr, true, &index));
  EXPECT_INVALID(invar_optimizer_add(optimizer, tensor.get(), true, nullptr));
  EXPECT_EQ(index, 7);
  EXPECT_INVALID(invar_optimizer_step(nullptr, nullptr, 0, 1, 1, nullptr));
  EXPECT_INVALID(invar_optimizer_step(optimizer, nullptr, 0, 1, 1, nullptr));
  const invar_tensor* none[] = {nullptr};
  EXPECT_EQ(code_of(invar_optimizer_step(optimizer, none, 1, 1, 1, nullptr)), INVAR_FAILED_PRECONDITION);
  EXPECT_INVALID_OUT(out, invar_optimizer_state(nullptr, 0, INVAR_STATE_MASTER, &out));
  EXPECT_INVALID(invar_optimizer_set_step(nullptr, 1));

  const int64_t counts[] = {4};
  EXPECT_INVALID_OUT(accumulator, invar_accumulator_create(nullptr, counts, 1, &accumulator));
  EXPECT_INVALID_OUT(accumulator, invar_accumulator_create(runtime, nullptr, 1, &accumulator));
  EXPECT_INVALID_OUT(accumulator, invar_accumulator_create(runtime, counts, 0, &accumulator));
  EXPECT_INVALID(invar_accumulator_create(runtime, counts, 1, nullptr));
  EXPECT_EQ(text_of(invar_accumulator_create(runtime, counts, 1, &accumulator)), "ok");
  const Owned<invar_accumulator> accumulator_owner(accumulator);
  EXPECT_INVALID(invar_accumulator_add(nullptr, 0, tensor.get()));
  EXPECT_INVALID(invar_accumulator_add(accumulator, 0, nullptr));
  EXPECT_EQ(code_of(invar_accumulator_add(accumulator, 1, tensor.get())), INVAR_OUT_OF_RANGE);
  EXPECT_INVALID(invar_accumulator_add_tokens(nullptr, 1));
  EXPECT_INVALID(invar_accumulator_add_tokens(accumulator, -1));
  EXPECT_INVALID(invar_accumulator_summary(accumulator, nullptr));
  EXPECT_INVALID_OUT(out, invar_accumulator_gradient(nullptr, 0, &out));
  EXPECT_INVALID(invar_accumulator_gradient(accumulator, 0, nullptr));
  EXPECT_INVALID(invar_accumulator_reset(nullptr));
}

}  // namespace
}  // namespace invar_test
