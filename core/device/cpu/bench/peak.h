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
// In this thread's own time or in that of the clock.
double fma_now(double seconds, double (*clock)());

// The fastest way this processor has to multiply and add in FP32, or on BF16 operands: tiles, pairs, or FMA on widened
// operands. 0 where none is known.
double products_now(bool bf16, double seconds, double (*clock)());

double seconds_now();
// This thread's own time on a processor: what waits for its turn is not counted.
double thread_seconds();

}  // namespace invar::cpu
