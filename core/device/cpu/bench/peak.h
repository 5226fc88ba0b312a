// Arithmetic limits of one core, measured with independent accumulators in registers: what kernels are compared to.
#pragma once

namespace invar::cpu {

struct Peak {
  double fma_f32 = 0;   // widest FP32 FMA the processor has, GFLOP/s
  double dot_bf16 = 0;  // vdpbf16ps, 0 where there is none
};

// Best of several runs of about `seconds` each.
Peak measure_peak(double seconds);

// FP32 FMA peak from one run of about `seconds`. Machines whose cores share units with other work change their
// speed from one millisecond to the next: take it beside every measurement and compare medians of the quotient.
double fma_now(double seconds);

double seconds_now();

}  // namespace invar::cpu
