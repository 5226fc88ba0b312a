#include "core/numerics/error_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace invar {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct LogSum {
  double top;  // the largest logit
  double log;  // log of the sum of exp(logit - top)
};

LogSum log_sum_exp(const float* logits, int64_t count) {
  double top = -kInf;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i])) return {std::numeric_limits<double>::quiet_NaN(), 0};
    top = std::max(top, static_cast<double>(logits[i]));
  }
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(logits[i]) - top);
  return {top, std::log(sum)};
}

}  // namespace

void ErrorStats::add(const float* reference, const float* value, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double expected = reference[i], error = static_cast<double>(value[i]) - expected;
    if (!std::isfinite(expected) || !std::isfinite(error)) {
      ++non_finite_;
      continue;
    }
    ++count_;
    different_ += error != 0;
    reference_squares_ += expected * expected;
    error_squares_ += error * error;
    max_abs_error_ = std::max(max_abs_error_, std::fabs(error));
  }
}

void ErrorStats::merge(const ErrorStats& other) {
  count_ += other.count_;
  non_finite_ += other.non_finite_;
  different_ += other.different_;
  reference_squares_ += other.reference_squares_;
  error_squares_ += other.error_squares_;
  max_abs_error_ = std::max(max_abs_error_, other.max_abs_error_);
}

double ErrorStats::relative_frobenius() const {
  if (error_squares_ == 0) return 0;
  return reference_squares_ == 0 ? kInf : std::sqrt(error_squares_ / reference_squares_);
}

double ErrorStats::sqnr_db() const {
  return error_squares_ == 0 ? kInf : 10 * std::log10(reference_squares_ / error_squares_);
}

double kl_divergence(const float* p_logits, const float* q_logits, int64_t count) {
  const LogSum p = log_sum_exp(p_logits, count), q = log_sum_exp(q_logits, count);
  if (!std::isfinite(p.top) || !std::isfinite(q.top)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p.top - p.log;
    const double probability = std::exp(log_p);
    if (probability == 0) continue;
    const double log_q = static_cast<double>(q_logits[i]) - q.top - q.log;
    sum += probability * (log_p - log_q);
  }
  // Equal rows may end a rounding unit below zero.
  return std::max(sum, 0.0);
}

int64_t arg_max(const float* logits, int64_t count) {
  return count == 0 ? 0 : std::max_element(logits, logits + count) - logits;
}

void KlStats::add_row(const float* p_logits, const float* q_logits, int64_t count) {
  const double divergence = kl_divergence(p_logits, q_logits, count);
  ++rows_;
  agreed_ += arg_max(p_logits, count) == arg_max(q_logits, count);
  sum_ += divergence;
  // A NaN row stays visible in the maximum as it does in the mean.
  if (!(divergence <= max_)) max_ = std::isnan(max_) ? max_ : divergence;
}

void KlStats::merge(const KlStats& other) {
  rows_ += other.rows_;
  agreed_ += other.agreed_;
  sum_ += other.sum_;
  if (!(other.max_ <= max_)) max_ = std::isnan(max_) ? max_ : other.max_;
}

}  // namespace invar
