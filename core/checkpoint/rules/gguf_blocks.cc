// GGUF's block formats: every block holds its own scales, so a tensor stands alone.
#include <algorithm>

#include "core/checkpoint/rules/rules.h"
#include "core/numerics/ggml_blocks.h"

namespace invar {
namespace {

class BlockDecoder : public Decoder {
 public:
  BlockDecoder(const TensorInfo& tensor, const GgmlType& type) : tensor_(tensor), type_(type) {}

  Status decode(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                DecoderScratch& scratch) const override {
    const int64_t n = static_cast<int64_t>(values.size()), width = type_.block_elements;
    const int64_t begin = first / width, end = (first + n + width - 1) / width;
    scratch.bytes.resize(static_cast<size_t>((end - begin) * type_.block_bytes));
    INVAR_TRY(folder.read(tensor_, begin * type_.block_bytes, scratch.bytes));
    const auto* block = reinterpret_cast<const uint8_t*>(scratch.bytes.data());
    float whole[kWidestBlock];
    for (int64_t b = begin; b < end; ++b, block += type_.block_bytes) {
      const int64_t at = b * width - first;  // of the block's first element in `values`
      if (at >= 0 && at + width <= n) {
        type_.decode(block, values.data() + at);
        continue;
      }
      type_.decode(block, whole);
      for (int64_t i = std::max<int64_t>(0, -at); i < std::min(width, n - at); ++i) {
        values[static_cast<size_t>(at + i)] = whole[i];
      }
    }
    return {};
  }

 private:
  static constexpr int kWidestBlock = 256;
  const TensorInfo& tensor_;
  const GgmlType& type_;
};

}  // namespace

void gguf_block_rule(const LayoutSource& source, const TensorInfo& tensor, std::vector<Reading>* readings) {
  if (tensor.encoding.empty()) return;
  const GgmlType* type = ggml_type(tensor.encoding);
  if (type == nullptr || type->decode == nullptr) {
    readings->push_back(failed_reading(
        tensor, "gguf", true,
        Error(Code::kUnimplemented, "checkpoint.unsupported_layout",
              cat(source.label(tensor), " is stored as ", tensor.encoding, ", which cannot be read yet"))));
    return;
  }
  std::vector<int64_t> shape = tensor.shape;
  shape.back() = shape.back() / type->block_bytes * type->block_elements;
  readings->push_back(decoder_reading(tensor, "blocks", cat("gguf-", tensor.encoding), tensor.name, std::move(shape),
                                      std::make_shared<BlockDecoder>(tensor, *type)));
}

}  // namespace invar
