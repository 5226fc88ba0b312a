// How far values are from a reference: mergeable sums in FP64, so that blocks of a tensor, tensors of a
// model and rows of logits can be measured in any partition.
//
//   ErrorStats stats;
//   stats.add(reference, values, count);
//   stats.sqnr_db();
//
// Merging in a fixed order gives the same bits at any thread count. Thread rule: one thread each; merge.
#pragma once

#include <cstdint>

namespace invar {

class ErrorStats {
 public:
  // value[i] against reference[i]. Pairs in which either is Inf or NaN are only counted (non_finite).
  void add(const float* reference, const float* value, int64_t count);
  void merge(const ErrorStats& other);

  int64_t count() const { return count_; }            // pairs measured
  int64_t non_finite() const { return non_finite_; }  // pairs left out
  int64_t different() const { return different_; }    // measured pairs that are not equal
  double max_abs_error() const { return max_abs_error_; }
  // sqrt(sum (value - reference)^2 / sum reference^2); 0 when all are equal, Inf against an all-zero reference.
  double relative_frobenius() const;
  // 10 log10(sum reference^2 / sum (value - reference)^2); Inf when all are equal.
  double sqnr_db() const;

 private:
  int64_t count_ = 0, non_finite_ = 0, different_ = 0;
  double reference_squares_ = 0, error_squares_ = 0, max_abs_error_ = 0;
};

// KL(P || Q) in nats of softmax(p_logits) against softmax(q_logits), FP64 inside. -inf logits have probability 0;
// Inf where Q excludes what P allows; NaN when a row holds NaN, +Inf or nothing but -inf.
double kl_divergence(const float* p_logits, const float* q_logits, int64_t count);
// The largest entry; the first of equals.
int64_t arg_max(const float* logits, int64_t count);

// KL and top-1 agreement over many rows.
class KlStats {
 public:
  void add_row(const float* p_logits, const float* q_logits, int64_t count);
  void merge(const KlStats& other);

  int64_t rows() const { return rows_; }
  double mean() const { return rows_ == 0 ? 0 : sum_ / static_cast<double>(rows_); }
  double max() const { return max_; }
  double top1_agreement() const { return rows_ == 0 ? 1 : static_cast<double>(agreed_) / static_cast<double>(rows_); }

 private:
  int64_t rows_ = 0, agreed_ = 0;
  double sum_ = 0, max_ = 0;
};

}  // namespace invar
