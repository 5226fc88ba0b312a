#include "core/checkpoint/verify.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>

#include "core/checkpoint/declared.h"
#include "core/checkpoint/layout.h"
#include "core/checkpoint/partial.h"
#include "core/checkpoint/tile.h"
#include "core/checkpoint/tile_runner.h"
#include "core/checkpoint/verify_quantized.h"
#include "core/config/config.h"
#include "core/numerics/formats.h"
#include "core/numerics/fp_mode.h"

namespace invar {
namespace {

constexpr size_t kListedProblems = 100;
// Scales of a tile up to which every code's expected result is tabulated once.
constexpr int64_t kTabulatedScales = 1024;

// One stored code under one scale.
struct Expected {
  uint32_t bits = 0;  // of the result
  bool is_nan = false;
  bool encodes_back = true;
};

struct Rule {
  DType code = DType::kUnspecified, target = DType::kBF16;
  bool round_once = false, divides = false;

  Expected of(uint8_t stored, float scale) const {
    Expected expected;
    const float value = decode(code, stored);
    const float product = !divides ? value * scale : scale == 0 ? value : value / scale;
    const double exact = !divides     ? static_cast<double>(value) * scale
                         : scale == 0 ? value
                                      : static_cast<double>(value) / scale;
    float result;
    if (target == DType::kBF16) {
      expected.bits = round_once ? bf16_from_f64(exact) : bf16_from_f32(product);
      result = f32_from_bf16(static_cast<uint16_t>(expected.bits));
    } else if (target == DType::kF16) {
      expected.bits = f16_from_f32(round_once ? round_to_odd(exact) : product);
      result = f32_from_f16(static_cast<uint16_t>(expected.bits));
    } else {
      result = round_once ? static_cast<float>(exact) : product;
      expected.bits = std::bit_cast<uint32_t>(result);
    }
    expected.is_nan = std::isnan(result);
    if (scale != 0 && std::isfinite(result)) {
      expected.encodes_back = encode_fp8(code, divides ? result * scale : result / scale) == stored;
    }
    return expected;
  }
};

uint32_t stored_bits(DType dtype, const std::byte* values, int64_t index) {
  uint32_t bits = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&bits, values + index * 4, 4);
  } else {
    uint16_t half;
    std::memcpy(&half, values + index * 2, 2);
    bits = half;
  }
  return bits;
}

// Code number `k` of a run.
uint8_t stored_code(const TensorPlan& plan, const std::vector<std::byte>& bytes, int64_t k) {
  if (plan.coding != Coding::kPackedFp4) return static_cast<uint8_t>(bytes[static_cast<size_t>(k)]);
  const auto pair = static_cast<uint8_t>(bytes[static_cast<size_t>(k / 2)]);
  return k % 2 == 0 ? pair & 15 : pair >> 4;
}

struct Difference {
  int64_t count = 0, first = -1;
  std::string detail;

  void note(int64_t element, std::string text) {
    ++count;
    if (first < 0 || element < first) {
      first = element;
      detail = std::move(text);
    }
  }
};

struct Piece {
  const TensorPlan* plan;
  const TensorInfo* result;
  int64_t first, count;
};

struct Buffers {
  std::vector<std::byte> source, result;
  std::vector<float> values;
  DecoderScratch scratch;
  ScaleWindow scales;
  std::vector<Expected> table;
  std::vector<char> tabulated;
};

class Verification {
 public:
  Verification(v1::VerifyConfig config, const WorkContext& context) : config_(std::move(config)), context_(context) {}

  Result<v1::VerifyReport> run() {
    const auto begin = std::chrono::steady_clock::now();
    INVAR_ASSIGN(auto source, CheckpointFolder::open(context_.files, config_.source()));
    opened_ = std::make_unique<CheckpointFolder>(std::move(source));
    source_ = opened_.get();
    INVAR_ASSIGN(classified_, classify(*source_, Assumptions(config_.assume().begin(), config_.assume().end())));
    layout_ = &classified_;
    if (config_.only_size() > 0) {
      INVAR_TRY(keep_all_but({config_.only().begin(), config_.only().end()}, *source_, &classified_, &converted_));
    }
    auto opened = CheckpointFolder::open(context_.files, config_.destination());
    if (!opened.ok()) {
      // A damaged result is a finding; one that is not there is a wrong argument.
      if (opened.status().code() == Code::kNotFound) return opened.status();
      problem("", opened.status().reason().starts_with("index.") ? "index" : "file", opened.status().message(), 0);
    } else {
      result_ = std::make_unique<CheckpointFolder>(std::move(*opened));
      INVAR_TRY(is_quantized_result(*layout_, *result_) ? compare_quantized() : compare());
    }
    return finish(begin, static_cast<int64_t>(layout_->tensors.size()));
  }

  // One file of the result.
  Result<v1::VerifyReport> run_file(const CheckpointFolder& source, const Layout& layout) {
    const auto begin = std::chrono::steady_clock::now();
    source_ = &source;
    layout_ = &layout;
    INVAR_ASSIGN(auto opened, CheckpointFolder::open(context_.files, config_.destination()));
    result_ = std::make_unique<CheckpointFolder>(std::move(opened));
    INVAR_TRY(compare_tensors(/*all=*/false));
    return finish(begin, static_cast<int64_t>(result_->tensors().size()));
  }

 private:
  v1::VerifyReport finish(std::chrono::steady_clock::time_point begin, int64_t tensors) {
    report_.set_source(config_.source());
    report_.set_destination(config_.destination());
    report_.set_tensors(tensors);
    report_.set_problem_count(problem_count_);
    report_.set_passed(problem_count_ == 0);
    if (reencode_mismatched_ > 0) {
      report_.add_warnings(cat("checkpoint.reencode: ", reencode_mismatched_, " of ", reencode_checked_,
                               " results do not encode back to their stored code: the target cannot hold them"));
    }
    report_.set_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return std::move(report_);
  }

  void problem(const std::string& tensor, std::string_view kind, std::string detail, int64_t mismatched) {
    ++problem_count_;
    if (static_cast<size_t>(report_.problems_size()) >= kListedProblems) return;
    v1::VerifyProblem& line = *report_.add_problems();
    if (!tensor.empty()) line.set_tensor(tensor);
    line.set_kind(std::string(kind));
    line.set_detail(std::move(detail));
    if (mismatched > 0) line.set_mismatched(mismatched);
  }

  Status compare_quantized() {
    for (const Finding& finding : result_->findings()) problem("", "index", finding.message, 0);
    return verify_quantized(
        config_, *source_, *layout_, *result_, context_,
        [this](const std::string& tensor, std::string_view kind, std::string detail, int64_t mismatched) {
          problem(tensor, kind, std::move(detail), mismatched);
        },
        &report_);
  }

  Status compare() {
    INVAR_TRY(compare_configs());
    for (const Finding& finding : result_->findings()) problem("", "index", finding.message, 0);
    return compare_tensors(/*all=*/true);
  }

  // All of the source, or those that the result holds.
  Status compare_tensors(bool all) {
    std::map<std::string_view, const TensorPlan*> expected;
    for (const TensorPlan& plan : layout_->tensors) expected[plan.name] = &plan;
    for (const TensorInfo& tensor : result_->tensors()) {
      if (expected.count(tensor.name) != 0) continue;
      problem(tensor.name, "extra", cat(where(tensor), " is not in the source"), 0);
    }
    target_ = DType::kUnspecified;
    for (const TensorPlan& plan : layout_->tensors) {
      const TensorInfo* result = result_->find(plan.name);
      if (plan.quantized() && result != nullptr && target_ == DType::kUnspecified) target_ = result->dtype;
    }
    if (target_ != DType::kF16 && target_ != DType::kF32) target_ = DType::kBF16;
    std::vector<Piece> pieces;
    for (const TensorPlan& plan : layout_->tensors) {
      if (all || result_->find(plan.name) != nullptr) add_pieces(plan, &pieces);
    }
    INVAR_TRY(compare_values(pieces));
    report_.set_elements(elements_);
    report_.set_reencode_checked(reencode_checked_);
    report_.set_reencode_mismatched(reencode_mismatched_);
    return {};
  }

  Status compare_configs() {
    if (source_->has_side_file("config.json") && !result_->has_side_file("config.json")) {
      problem("", "config", cat(result_->path(), ": config.json is missing"), 0);
      return {};
    }
    INVAR_ASSIGN(const Declared declared, read_declared(*result_));
    if (!converted_.empty()) {
      INVAR_ASSIGN(const Declared before, read_declared(*source_));
      if (declared.quantized == before.quantized) return {};
      problem("", "config", cat(result_->path(), ": does not declare what is still quantised, as the source does"), 0);
    } else if (declared.quantized) {
      problem("", "config",
              cat(join_path(result_->path(), declared.file), ": still declares quantisation (quant_method \"",
                  declared.method, "\")"),
              0);
    }
    return {};
  }

  std::string where(const TensorInfo& tensor) const {
    return cat(join_path(result_->path(), result_->file_name(tensor)), ": tensor ", in_quotes(tensor.name));
  }

  void add_pieces(const TensorPlan& plan, std::vector<Piece>* pieces) {
    const TensorInfo* result = result_->find(plan.name);
    if (result == nullptr) {
      problem(plan.name, "missing", cat(result_->path(), ": holds no tensor ", in_quotes(plan.name)), 0);
      return;
    }
    const DType from = plan.source->dtype;
    const bool may_cast = target_ != DType::kBF16 && (from == DType::kBF16 || from == DType::kF16);
    const bool right =
        plan.quantized() ? result->dtype == target_ : result->dtype == from || (may_cast && result->dtype == target_);
    if (!right) {
      problem(plan.name, "dtype",
              cat(where(*result), " is ", name_of(result->dtype), "; expected ",
                  name_of(plan.quantized() ? target_ : from)),
              0);
      return;
    }
    if (result->shape != plan.shape) {
      problem(plan.name, "shape",
              cat(where(*result), " has shape ", shape_text(result->shape), "; expected ", shape_text(plan.shape)), 0);
      return;
    }
    const bool by_value = plan.quantized() || result->dtype != from;
    const int64_t units = by_value ? element_count(plan.shape) : result->byte_size();
    elements_ += element_count(plan.shape);
    for (int64_t first = 0; first < units; first += kTileElements) {
      pieces->push_back({&plan, result, first, std::min(kTileElements, units - first)});
    }
    if (plan.quantized() && !plan.decodes()) reencode_checked_ += units;
  }

  Status compare_values(const std::vector<Piece>& pieces) {
    int workers = context_.pool.threads();
    if (config_.threads() > 0) workers = static_cast<int>(std::min<int64_t>(workers, config_.threads()));
    workers = static_cast<int>(std::clamp<int64_t>(config_.memory_bytes() / (kTileElements * 12), 1, workers));
    std::vector<Buffers> buffers(static_cast<size_t>(workers));
    std::map<const TensorPlan*, Difference> differences;
    std::mutex mutex;
    int64_t done = 0, total = 0;
    for (const Piece& piece : pieces) total += piece_bytes(piece);
    INVAR_TRY(run_pieces(context_.pool, workers, static_cast<int64_t>(pieces.size()), context_.cancel,
                         [&](int64_t index, int worker) -> Status {
                           const Piece& piece = pieces[static_cast<size_t>(index)];
                           Difference own;
                           int64_t mismatched = 0;
                           INVAR_TRY(compare_piece(piece, buffers[static_cast<size_t>(worker)], &own, &mismatched));
                           std::lock_guard lock(mutex);
                           reencode_mismatched_ += mismatched;
                           if (own.count > 0) {
                             Difference& all = differences[piece.plan];
                             const int64_t before = all.count;
                             if (all.first < 0 || own.first < all.first) all = own;
                             all.count = before + own.count;
                           }
                           if (context_.progress) {
                             context_.progress(done += piece_bytes(piece), total);
                           }
                           return {};
                         }));
    for (const TensorPlan& plan : layout_->tensors) {
      const auto it = differences.find(&plan);
      if (it != differences.end()) problem(plan.name, "value", it->second.detail, it->second.count);
    }
    return {};
  }

  // Of the source.
  static int64_t piece_bytes(const Piece& piece) {
    const bool by_value = piece.plan->quantized() || piece.result->dtype != piece.plan->source->dtype;
    return by_value ? piece.plan->stored_bytes(piece.count) : piece.count;
  }

  Status compare_piece(const Piece& piece, Buffers& buffers, Difference* difference, int64_t* mismatched) {
    const TensorPlan& plan = *piece.plan;
    const DType from = plan.source->dtype, to = piece.result->dtype;
    if (!plan.quantized() && from == to) {
      buffers.source.resize(static_cast<size_t>(piece.count));
      buffers.result.resize(static_cast<size_t>(piece.count));
      INVAR_TRY(source_->read(*plan.source, piece.first, buffers.source));
      INVAR_TRY(result_->read(*piece.result, piece.first, buffers.result));
      if (std::memcmp(buffers.source.data(), buffers.result.data(), buffers.source.size()) == 0) return {};
      for (size_t i = 0; i < buffers.source.size(); ++i) {
        if (buffers.source[i] == buffers.result[i]) continue;
        const int64_t byte = piece.first + static_cast<int64_t>(i);
        difference->note(byte,
                         cat(where(*piece.result), " differs from the source at byte ", byte, ", the first of all"));
      }
      return {};
    }
    const int64_t width = bits_of(to) / 8;
    if (plan.decodes()) return compare_decoded(piece, buffers, difference);
    buffers.source.resize(static_cast<size_t>(plan.stored_bytes(piece.count)));
    buffers.result.resize(static_cast<size_t>(piece.count * width));
    INVAR_TRY(source_->read(*plan.source, plan.stored_bytes(piece.first), buffers.source));
    INVAR_TRY(result_->read(*piece.result, piece.first * width, buffers.result));
    const FpModeScope mode;
    if (!plan.quantized()) {
      for (int64_t i = 0; i < piece.count; ++i) {
        const float value = result_value(from, buffers.source.data(), i);
        const uint32_t bits = to == DType::kF32 ? std::bit_cast<uint32_t>(value) : f16_from_f32(value);
        check(piece, buffers, i, {bits, std::isnan(value), true}, difference);
      }
      return {};
    }
    return compare_codes(piece, buffers, difference, mismatched);
  }

  Status compare_decoded(const Piece& piece, Buffers& buffers, Difference* difference) {
    const TensorPlan& plan = *piece.plan;
    const DType to = piece.result->dtype;
    const int64_t width = bits_of(to) / 8;
    buffers.result.resize(static_cast<size_t>(piece.count * width));
    buffers.values.resize(static_cast<size_t>(piece.count));
    INVAR_TRY(result_->read(*piece.result, piece.first * width, buffers.result));
    const FpModeScope mode;
    INVAR_TRY(plan.decoder->decode(*source_, piece.first, buffers.values, buffers.scratch));
    for (int64_t i = 0; i < piece.count; ++i) {
      const float value = buffers.values[static_cast<size_t>(i)];
      const uint32_t bits = to == DType::kF32    ? std::bit_cast<uint32_t>(value)
                            : to == DType::kBF16 ? bf16_from_f32(value)
                                                 : f16_from_f32(value);
      check(piece, buffers, i, {bits, std::isnan(value), true}, difference);
    }
    return {};
  }

  Status compare_codes(const Piece& piece, Buffers& buffers, Difference* difference, int64_t* mismatched) {
    const TensorPlan& plan = *piece.plan;
    INVAR_TRY(buffers.scales.load(*source_, plan, piece.first, piece.count));
    Rule rule;
    rule.code = plan.code_dtype;
    rule.target = target_;
    rule.round_once = config_.rounding() == v1::ROUNDING_FP64;
    rule.divides = buffers.scales.divides();
    const bool tabulated = buffers.scales.count() <= kTabulatedScales;
    buffers.tabulated.assign(static_cast<size_t>(std::max<int64_t>(1, buffers.scales.count())), 0);
    if (tabulated) buffers.table.resize(buffers.tabulated.size() * 256);
    const bool keep_nan = config_.nan_policy() == v1::NAN_POLICY_KEEP;
    for (int64_t i = 0; i < piece.count;) {
      const int64_t element = piece.first + i;
      const int64_t run = buffers.scales.run(element, piece.count - i);
      const float scale = buffers.scales.at(element);
      const int64_t slot = buffers.scales.slot_of(element);
      Expected* table = tabulated ? &buffers.table[static_cast<size_t>(slot * 256)] : nullptr;
      if (tabulated && !buffers.tabulated[static_cast<size_t>(slot)]) {
        for (int code = 0; code < 256; ++code) table[code] = rule.of(static_cast<uint8_t>(code), scale);
        buffers.tabulated[static_cast<size_t>(slot)] = 1;
      }
      for (int64_t k = i; k < i + run; ++k) {
        const uint8_t code = stored_code(plan, buffers.source, k);
        const Expected expected = table != nullptr ? table[code] : rule.of(code, scale);
        *mismatched += !expected.encodes_back;
        if (expected.is_nan && !keep_nan) {
          difference->note(piece.first + k, cat(where(*piece.result), ": the source holds a NaN code at ",
                                                position_text(plan.shape, piece.first + k)));
          continue;
        }
        check(piece, buffers, k, expected, difference);
      }
      i += run;
    }
    return {};
  }

  void check(const Piece& piece, const Buffers& buffers, int64_t i, const Expected& expected, Difference* difference) {
    const uint32_t bits = stored_bits(piece.result->dtype, buffers.result.data(), i);
    if (bits == expected.bits) return;
    const float value = result_value(piece.result->dtype, buffers.result.data(), i);
    if (expected.is_nan && std::isnan(value)) return;
    std::byte wanted[4];
    std::memcpy(wanted, &expected.bits, 4);
    difference->note(piece.first + i, difference->first >= 0
                                          ? std::string()
                                          : cat(where(*piece.result), " is ", value, " at ",
                                                position_text(piece.plan->shape, piece.first + i), "; expected ",
                                                result_value(piece.result->dtype, wanted, 0)));
  }

  v1::VerifyConfig config_;
  const WorkContext& context_;
  std::unique_ptr<CheckpointFolder> opened_, result_;
  Layout classified_;  // points into opened_
  const CheckpointFolder* source_ = nullptr;
  const Layout* layout_ = nullptr;
  std::vector<std::string> converted_;  // modules, of a partial conversion
  DType target_ = DType::kBF16;
  int64_t elements_ = 0, reencode_checked_ = 0, reencode_mismatched_ = 0, problem_count_ = 0;
  v1::VerifyReport report_;
};

}  // namespace

Result<v1::VerifyReport> verify(const v1::VerifyConfig& config, const WorkContext& context) {
  INVAR_TRY(config::check(config));
  return Verification(config::with_defaults(config), context).run();
}

namespace {

v1::VerifyConfig request_of(const v1::ConvertConfig& config, const std::string& destination) {
  v1::VerifyConfig request;
  request.set_source(config.source());
  request.set_destination(destination);
  request.set_rounding(config.rounding());
  request.set_nan_policy(config.nan_policy());
  request.set_memory_bytes(config.memory_bytes());
  request.set_threads(config.threads());
  *request.mutable_assume() = config.assume();
  *request.mutable_only() = config.only();
  return request;
}

Status check_passed(const v1::VerifyReport& found, const std::string& destination, std::string_view consequence) {
  if (found.passed()) return {};
  const v1::VerifyProblem& problem = found.problems(0);
  return Error(Code::kInternal, "checkpoint.verify_failed",
               cat(destination, ": the written result differs from the source, first at tensor ",
                   in_quotes(problem.tensor()), " (", problem.kind(), ": ", problem.detail(), "); ", consequence));
}

}  // namespace

Status verify_staged(const v1::ConvertConfig& config, const std::string& staged, const WorkContext& context,
                     v1::ConvertReport* report) {
  v1::VerifyReport& found = *report->mutable_verification();
  INVAR_ASSIGN(found, verify(request_of(config, staged), {context.files, context.pool, context.cancel}));
  found.set_destination(config.destination());
  return check_passed(found, config.destination(), "nothing was kept");
}

Status verify_written(const v1::ConvertConfig& config, const CheckpointFolder& source, const Layout& layout,
                      const std::string& file, const WorkContext& context, v1::VerifyReport* report) {
  const WorkContext quiet = {context.files, context.pool, context.cancel};
  INVAR_ASSIGN(const v1::VerifyReport found, Verification(request_of(config, file), quiet).run_file(source, layout));
  report->set_source(config.source());
  report->set_destination(config.destination());
  report->set_tensors(report->tensors() + found.tensors());
  report->set_elements(report->elements() + found.elements());
  report->set_reencode_checked(report->reencode_checked() + found.reencode_checked());
  report->set_reencode_mismatched(report->reencode_mismatched() + found.reencode_mismatched());
  report->set_seconds(report->seconds() + found.seconds());
  report->set_passed(found.passed());
  return check_passed(found, config.destination(), "the files of the source that it was made from are still there");
}

}  // namespace invar
