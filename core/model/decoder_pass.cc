// The passes of the decoder: what runs in which order, and what is saved.
#include <algorithm>

#include "core/model/cache.h"
#include "core/model/decoder.h"
#include "core/nn/embedding.h"

namespace invar {

Status DecoderModel::check_batch(const MicroBatch& batch, bool with_targets) const {
  const auto refuse = [](std::string_view reason, std::string message) {
    return Error(Code::kInvalidArgument, reason, std::move(message));
  };
  const int64_t tokens = static_cast<int64_t>(batch.ids.size());
  if (tokens < 1 || tokens > options_.max_tokens) {
    return refuse("model.tokens",
                  cat("micro-batch has ", tokens, " tokens: expected 1 to max_tokens ", options_.max_tokens));
  }
  if (with_targets && batch.targets.size() != batch.ids.size()) {
    return refuse("model.targets", cat("micro-batch has ", batch.targets.size(), " targets for ", tokens, " tokens"));
  }
  if (!batch.positions.empty() && batch.positions.size() != batch.ids.size()) {
    return refuse("model.positions",
                  cat("micro-batch has ", batch.positions.size(), " positions for ", tokens, " tokens"));
  }
  if (batch.offsets.size() < 2 || batch.offsets.size() > batch.ids.size() + 1 || batch.offsets.front() != 0 ||
      batch.offsets.back() != tokens) {
    return refuse("model.offsets", cat("sequence offsets must begin with 0 and end with ", tokens));
  }
  for (size_t s = 1; s < batch.offsets.size(); ++s) {
    const int64_t length = int64_t{batch.offsets[s]} - batch.offsets[s - 1];
    if (length < 1)
      return refuse("model.offsets", cat("sequence ", s - 1, " has ", length, " tokens: expected 1 or more"));
    if (batch.positions.empty() && length > options_.max_positions) {
      return refuse("model.positions", cat("sequence ", s - 1, " has ", length,
                                           " tokens: expected at most max_positions ", options_.max_positions));
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    if (batch.ids[t] < 0 || batch.ids[t] >= shape_.vocab) {
      return refuse("model.vocabulary", cat("token id ", batch.ids[t], " at row ", t, ": the model's vocabulary has ",
                                            shape_.vocab, " entries"));
    }
    if (with_targets && batch.targets[t] >= shape_.vocab) {
      return refuse("model.vocabulary", cat("target ", batch.targets[t], " at row ", t, ": the model's vocabulary has ",
                                            shape_.vocab, " entries"));
    }
    if (!batch.positions.empty() && (batch.positions[t] < 0 || batch.positions[t] >= options_.max_positions)) {
      return refuse("model.positions", cat("position ", batch.positions[t], " at row ", t, ": expected 0 to ",
                                           options_.max_positions - 1));
    }
  }
  return {};
}

Result<DecoderModel::DeviceBatch> DecoderModel::upload(const MicroBatch& batch, bool with_targets) {
  const int64_t tokens = static_cast<int64_t>(batch.ids.size());
  const auto send = [&](const char* name, std::span<const int32_t> values) -> Result<Scratch> {
    INVAR_ASSIGN(Scratch scratch, ctx_->scratch(name, DType::kI32, static_cast<int64_t>(values.size()), 1));
    if (!ctx_->planning()) INVAR_TRY(device_->copy(scratch.matrix.data, values.data(), values.size_bytes()));
    return scratch;
  };
  std::span<const int32_t> positions = batch.positions;
  if (positions.empty()) {
    for (size_t s = 1; s < batch.offsets.size(); ++s) {
      const int32_t begin = batch.offsets[s - 1], end = batch.offsets[s];
      for (int32_t t = begin; t < end; ++t) positions_[static_cast<size_t>(t)] = t - begin;
    }
    positions = {positions_.data(), static_cast<size_t>(tokens)};
  }
  DeviceBatch device_batch;
  INVAR_ASSIGN(device_batch.ids, send("ids", batch.ids));
  if (with_targets) {
    INVAR_ASSIGN(device_batch.targets, send("targets", batch.targets));
  }
  INVAR_ASSIGN(device_batch.positions, send("positions", positions));
  INVAR_ASSIGN(device_batch.offsets, send("offsets", batch.offsets));
  Rows rows;
  rows.tokens = tokens;
  rows.sequences = static_cast<int64_t>(batch.offsets.size()) - 1;
  rows.offsets = static_cast<const int32_t*>(device_batch.offsets.matrix.data);
  rows.positions = static_cast<const int32_t*>(device_batch.positions.matrix.data);
  ctx_->begin(rows, activation_dtype(recipes_[active_]));
  return device_batch;
}

Status DecoderModel::embed(const DeviceBatch& batch) {
  INVAR_ASSIGN(const Matrix stream, ctx_->save(0, Slot::kInput, DType::kF32, ctx_->rows().tokens, shape_.hidden));
  return embedding_forward(*ctx_, store_->embedding(), static_cast<const int32_t*>(batch.ids.matrix.data), stream,
                           static_cast<float>(shape_.embedding_scale));
}

Status DecoderModel::forward(bool save, const LayerCache* caches, const LayerHook& hook) {
  const bool save_all = save && options_.recompute == Recompute::kNone;
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const LayerWeights& weights = store_->layers()[static_cast<size_t>(layer)];
    INVAR_TRY(attention_forward(*ctx_, attention_[static_cast<size_t>(layer)], weights.attention, layer,
                                caches == nullptr ? nullptr : caches + layer));
    INVAR_TRY(mlp_forward(*ctx_, mlp_, weights.mlp, layer, /*with_output=*/true));
    if (hook && !ctx_->planning()) INVAR_TRY(hook(layer, ctx_->saved(layer + 1, Slot::kInput).f32()));
    if (!save_all) ctx_->drop_all_but_input(layer);
    if (!save) ctx_->drop(layer, Slot::kInput);
  }
  return {};
}

Status DecoderModel::train_pass(const MicroBatch& batch, float grad_scale, HeadResult& result) {
  INVAR_ASSIGN(const DeviceBatch device_batch, upload(batch, /*with_targets=*/true));
  INVAR_TRY(embed(device_batch));
  INVAR_TRY(forward(/*save=*/true, nullptr));

  const int64_t tokens = ctx_->rows().tokens, layers = shape_.layers;
  // Backward: the gradient of the residual stream in FP32, and beside it what the products read.
  INVAR_ASSIGN(const Scratch gradient, ctx_->scratch("d_stream", DType::kF32, tokens, shape_.hidden));
  Scratch rounded;
  if (ctx_->activations() != DType::kF32) {
    INVAR_ASSIGN(rounded, ctx_->scratch("d_stream_rounded", ctx_->activations(), tokens, shape_.hidden));
  }
  const Matrix& copy = rounded.block.empty() ? gradient.matrix : rounded.matrix;
  INVAR_TRY(head_loss(*ctx_, store_->head(), head_, ctx_->saved(layers, Slot::kInput),
                      static_cast<const int32_t*>(device_batch.targets.matrix.data), {}, grad_scale, gradient.matrix,
                      copy, result));
  ctx_->drop(layers, Slot::kInput);
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    const LayerWeights& weights = store_->layers()[static_cast<size_t>(layer)];
    if (options_.recompute == Recompute::kLayer) {
      INVAR_TRY(attention_forward(*ctx_, attention_[static_cast<size_t>(layer)], weights.attention, layer));
      INVAR_TRY(mlp_forward(*ctx_, mlp_, weights.mlp, layer, /*with_output=*/false));
    }
    INVAR_TRY(mlp_backward(*ctx_, mlp_, weights.mlp, layer, gradient.matrix, copy));
    INVAR_TRY(attention_backward(*ctx_, attention_[static_cast<size_t>(layer)], weights.attention, layer,
                                 gradient.matrix, copy));
  }
  return embedding_backward(*ctx_, store_->embedding(), static_cast<const int32_t*>(device_batch.ids.matrix.data),
                            gradient.matrix, static_cast<float>(shape_.embedding_scale));
}

Status DecoderModel::evaluate_pass(const MicroBatch& batch, const TokenResults& results, HeadResult& result) {
  INVAR_ASSIGN(const DeviceBatch device_batch, upload(batch, /*with_targets=*/true));
  INVAR_TRY(embed(device_batch));
  INVAR_TRY(forward(/*save=*/false, nullptr));
  INVAR_TRY(head_loss(*ctx_, store_->head(), head_, ctx_->saved(shape_.layers, Slot::kInput),
                      static_cast<const int32_t*>(device_batch.targets.matrix.data), {results.loss, results.top1}, 1.0f,
                      {}, {}, result));
  ctx_->drop(shape_.layers, Slot::kInput);
  return {};
}

Status DecoderModel::logits_pass(const MicroBatch& batch, float* out, const LayerHook& hook) {
  INVAR_ASSIGN(const DeviceBatch device_batch, upload(batch, /*with_targets=*/false));
  INVAR_TRY(embed(device_batch));
  INVAR_TRY(forward(/*save=*/false, nullptr, hook));
  const Matrix logits{out, DType::kF32, ctx_->rows().tokens, shape_.vocab, shape_.vocab};
  INVAR_TRY(head_logits(*ctx_, store_->head(), head_, ctx_->saved(shape_.layers, Slot::kInput), logits));
  ctx_->drop(shape_.layers, Slot::kInput);
  return {};
}

Result<std::unique_ptr<KeyValueCache>> DecoderModel::new_cache(int64_t capacity) {
  if (capacity < 1 || capacity > options_.max_positions) {
    return Error(Code::kInvalidArgument, "model.positions",
                 cat("cache of ", capacity, " positions: expected 1 to max_positions ", options_.max_positions));
  }
  INVAR_ASSIGN(std::unique_ptr<KeyValueCache> cache,
               DecoderCache::create(*device_, shape_, activation_dtype(recipes_[active_]), capacity));
  return cache;
}

Status DecoderModel::extend(KeyValueCache& cache, std::span<const int32_t> ids, float* logits) {
  // Only new_cache makes caches.
  DecoderCache& rows = static_cast<DecoderCache&>(cache);
  if (&rows.shape() != &shape_) {
    return Error(Code::kInvalidArgument, "model.cache", "the cache belongs to another model");
  }
  if (ids.empty()) return Error(Code::kInvalidArgument, "model.tokens", "no tokens to append");
  if (rows.length() + static_cast<int64_t>(ids.size()) > rows.capacity()) {
    return Error(Code::kOutOfRange, "model.cache_full",
                 cat(ids.size(), " tokens behind ", rows.length(), ": the cache holds ", rows.capacity()));
  }
  for (size_t first = 0; first < ids.size();) {
    const size_t count = std::min(ids.size() - first, static_cast<size_t>(options_.max_tokens));
    const bool last = first + count == ids.size();
    const int32_t whole[2] = {0, static_cast<int32_t>(count)};
    INVAR_TRY(check_batch({ids.subspan(first, count), {}, whole, {}}, /*with_targets=*/false));
    INVAR_TRY(run(kExtend, [&] { return extend_pass(&rows, ids.subspan(first, count), last ? logits : nullptr); }));
    rows.set_length(rows.length() + static_cast<int64_t>(count));
    first += count;
  }
  return {};
}

Status DecoderModel::extend_pass(KeyValueCache* cache, std::span<const int32_t> ids, float* logits) {
  DecoderCache* rows = static_cast<DecoderCache*>(cache);
  const int32_t past = rows == nullptr ? 0 : static_cast<int32_t>(rows->length());
  const int32_t count = static_cast<int32_t>(ids.size());
  for (int32_t t = 0; t < count; ++t) positions_[static_cast<size_t>(t)] = past + t;
  const int32_t offsets[4] = {0, count, 0, past + count};
  MicroBatch batch{ids, {}, {offsets, 2}, {positions_.data(), static_cast<size_t>(count)}};
  INVAR_ASSIGN(const DeviceBatch device_batch, upload(batch, /*with_targets=*/false));
  INVAR_ASSIGN(const Scratch key_offsets, ctx_->scratch("key_offsets", DType::kI32, 2, 1));
  std::vector<LayerCache> caches(static_cast<size_t>(shape_.layers));
  if (!ctx_->planning()) {
    INVAR_TRY(device_->copy(key_offsets.matrix.data, offsets + 2, 2 * sizeof(int32_t)));
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      caches[static_cast<size_t>(layer)] = {rows->layer(layer), past,
                                            static_cast<const int32_t*>(key_offsets.matrix.data)};
    }
  }
  INVAR_TRY(embed(device_batch));
  INVAR_TRY(forward(/*save=*/false, caches.data()));
  Matrix stream = ctx_->saved(shape_.layers, Slot::kInput);
  stream.data = stream.f32() + (stream.rows - 1) * stream.ld;
  stream.rows = 1;
  INVAR_ASSIGN(const Scratch out, ctx_->scratch("logits", DType::kF32, 1, shape_.vocab));
  INVAR_TRY(head_logits(*ctx_, store_->head(), head_, stream, out.matrix));
  if (logits != nullptr && !ctx_->planning()) {
    INVAR_TRY(device_->copy(logits, out.matrix.data, sizeof(float) * static_cast<size_t>(shape_.vocab)));
  }
  ctx_->drop(shape_.layers, Slot::kInput);
  return {};
}

}  // namespace invar
