// GPT-OSS experts in MXFP4: "<name>_blocks" U8 [..., rows, groups, 16] with two codes a byte, the low nibble first, and
// "<name>_scales" U8 [..., rows, groups] of E8M0 exponents, one for 32 values. The BF16 form has no suffix and is
// transposed: [experts, inputs, outputs]. The original release writes "<name>.blocks" and "<name>.scales" and keeps
// [experts, outputs, inputs]. Gate and up rows stay interleaved, as both forms have them.
#include <algorithm>

#include "core/checkpoint/rules/rules.h"
#include "core/numerics/formats.h"

namespace invar {
namespace {

constexpr char kLayout[] = "gpt-oss-mxfp4";
constexpr int64_t kGroup = 32, kGroupBytes = 16;
// Of one expert's codes: up to this much is kept, so that a transposed read touches the file once.
constexpr int64_t kWholeMatrix = 24 << 20;
constexpr float kE2M1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

class ExpertDecoder : public Decoder {
 public:
  ExpertDecoder(const TensorInfo& blocks, const TensorInfo& scales, int64_t rows, int64_t groups, bool transposed)
      : blocks_(blocks), scales_(scales), rows_(rows), groups_(groups), transposed_(transposed) {}

  int64_t scratch_bytes() const override {
    const int64_t whole = rows_ * groups_ * kGroupBytes;
    if (!transposed_) return 1 << 20;
    // A call of 131072 elements touches at most that many groups and two more in every row.
    return whole <= kWholeMatrix ? whole + rows_ * groups_ : ((1 << 17) / kGroup + 2 * rows_) * (kGroupBytes + 1);
  }

  Status decode(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                DecoderScratch& scratch) const override {
    const int64_t matrix = rows_ * groups_ * kGroup, end = first + static_cast<int64_t>(values.size());
    for (int64_t at = first; at < end;) {
      const int64_t expert = at / matrix, until = std::min(end, (expert + 1) * matrix);
      const auto part = values.subspan(static_cast<size_t>(at - first), static_cast<size_t>(until - at));
      if (transposed_) {
        INVAR_TRY(decode_columns(folder, expert, at - expert * matrix, part, scratch));
      } else {
        INVAR_TRY(decode_rows(folder, at, part, scratch));
      }
      at = until;
    }
    return {};
  }

 private:
  static float scale_of(std::byte exponent) { return invar::decode(DType::kE8M0, static_cast<uint8_t>(exponent)); }

  // In the stored order: element i lies in group i / 32.
  Status decode_rows(const CheckpointFolder& folder, int64_t first, std::span<float> values,
                     DecoderScratch& scratch) const {
    const int64_t n = static_cast<int64_t>(values.size());
    const int64_t begin = first / kGroup, end = (first + n + kGroup - 1) / kGroup;
    scratch.bytes.resize(static_cast<size_t>((end - begin) * kGroupBytes));
    scratch.more.resize(static_cast<size_t>(end - begin));
    INVAR_TRY(folder.read(blocks_, begin * kGroupBytes, scratch.bytes));
    INVAR_TRY(folder.read(scales_, begin, scratch.more));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = first + i - begin * kGroup;
      const auto pair = static_cast<uint8_t>(scratch.bytes[static_cast<size_t>(at / 2)]);
      values[static_cast<size_t>(i)] =
          kE2M1[at % 2 == 0 ? pair & 15 : pair >> 4] * scale_of(scratch.more[static_cast<size_t>(at / kGroup)]);
    }
    return {};
  }

  // Elements [first, first + n) of one expert's [inputs, outputs], where outputs are the stored rows.
  Status decode_columns(const CheckpointFolder& folder, int64_t expert, int64_t first, std::span<float> values,
                        DecoderScratch& scratch) const {
    const int64_t n = static_cast<int64_t>(values.size());
    const int64_t first_group = first / rows_ / kGroup, last_group = (first + n - 1) / rows_ / kGroup;
    const bool whole = rows_ * groups_ * kGroupBytes <= kWholeMatrix;
    const int64_t base = whole ? 0 : first_group, groups = whole ? groups_ : last_group - first_group + 1;
    INVAR_TRY(load(folder, expert, base, groups, scratch.kept));
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t group = first_group; group <= last_group; ++group) {
        const auto at = static_cast<size_t>(row * groups + group - base);
        const float scale = scale_of(scratch.kept.more[at]);
        const std::byte* codes = scratch.kept.bytes.data() + at * kGroupBytes;
        // Inputs of the group whose element with this row lies in the range.
        const int64_t from = std::max(group * kGroup, (first - row + rows_ - 1) / rows_);
        const int64_t to = std::min((group + 1) * kGroup, (first + n - 1 - row + rows_) / rows_);
        for (int64_t input = from; input < to; ++input) {
          const auto pair = static_cast<uint8_t>(codes[(input - group * kGroup) / 2]);
          values[static_cast<size_t>(input * rows_ + row - first)] =
              kE2M1[input % 2 == 0 ? pair & 15 : pair >> 4] * scale;
        }
      }
    }
    return {};
  }

  // Groups [first, first + groups) of every row of an expert, unless they are the ones that are kept.
  Status load(const CheckpointFolder& folder, int64_t expert, int64_t first, int64_t groups,
              DecoderScratch::Kept& kept) const {
    const int64_t part = expert * groups_ + first;
    const auto bytes = static_cast<size_t>(rows_ * groups * kGroupBytes);
    if (kept.owner == this && kept.part == part && kept.bytes.size() == bytes) return {};
    kept.owner = nullptr;
    kept.bytes.resize(bytes);
    kept.more.resize(static_cast<size_t>(rows_ * groups));
    const int64_t rows_at_once = groups == groups_ ? rows_ : 1;
    for (int64_t row = 0; row < rows_; row += rows_at_once) {
      const int64_t at = (expert * rows_ + row) * groups_ + first, count = rows_at_once * groups;
      const auto codes = std::span(kept.bytes).subspan(static_cast<size_t>(row * groups * kGroupBytes));
      const auto exponents = std::span(kept.more).subspan(static_cast<size_t>(row * groups));
      INVAR_TRY(folder.read(blocks_, at * kGroupBytes, codes.first(static_cast<size_t>(count * kGroupBytes))));
      INVAR_TRY(folder.read(scales_, at, exponents.first(static_cast<size_t>(count))));
    }
    kept.owner = this;
    kept.part = part;
    return {};
  }

  const TensorInfo &blocks_, &scales_;
  int64_t rows_, groups_;
  bool transposed_;
};

}  // namespace

void gpt_oss_rule(const LayoutSource& source, const TensorInfo& blocks, std::vector<Reading>* readings) {
  constexpr std::string_view kEnding = "blocks";
  if (blocks.dtype != DType::kU8 || !blocks.name.ends_with(kEnding) || blocks.name.size() <= kEnding.size()) return;
  const std::string stem = blocks.name.substr(0, blocks.name.size() - kEnding.size());  // with "_" or "."
  if (stem.back() != '_' && stem.back() != '.') return;
  const TensorInfo* scales = source.folder.find(stem + "scales");
  if (scales == nullptr || blocks.shape.size() < 3 || blocks.shape.back() != kGroupBytes) return;
  std::vector<int64_t> wanted(blocks.shape.begin(), blocks.shape.end() - 1);
  if ((scales->dtype != DType::kU8 && scales->dtype != DType::kE8M0) || scales->shape != wanted) {
    readings->push_back(
        failed_reading(blocks, kLayout, true,
                       Error(Code::kDataLoss, "checkpoint.scale_shape",
                             cat(source.label(*scales), " is ", name_of(scales->dtype), " ", shape_text(scales->shape),
                                 "; its blocks ", shape_text(blocks.shape), " need U8 ", shape_text(wanted)))));
    return;
  }
  const bool transposed = stem.back() == '_';
  const int64_t groups = wanted.back();
  wanted.pop_back();
  const int64_t rows = wanted.back();
  wanted.back() = transposed ? groups * kGroup : rows;
  wanted.push_back(transposed ? rows : groups * kGroup);
  Reading reading =
      decoder_reading(blocks, transposed ? "transposed_blocks" : "blocks", kLayout, stem.substr(0, stem.size() - 1),
                      std::move(wanted), std::make_shared<ExpertDecoder>(blocks, *scales, rows, groups, transposed));
  reading.plan.helpers.push_back(scales);
  readings->push_back(std::move(reading));
}

}  // namespace invar
