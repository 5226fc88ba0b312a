package dev.invar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.invar.v1.DType;
import dev.invar.v1.OptimizerConfig;
import java.nio.ByteBuffer;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The optimizer and the accumulator on the host's own tensors. */
class OptimizerTest extends Fixture {
  @Test
  void descendsAParabola() {
    ByteBuffer weight = floats(3, -2);
    ByteBuffer slope = floats(0, 0);
    try (Optimizer optimizer = runtime.createOptimizer(OptimizerConfig.newBuilder().setWeightDecay(0).build());
        Tensor parameter = runtime.viewTensor(DType.DTYPE_FP32, weight, 2);
        Tensor gradient = runtime.viewTensor(DType.DTYPE_FP32, slope, 2)) {
      assertEquals(0, optimizer.add(parameter, false));
      for (int i = 0; i < 300; ++i) {
        for (int k = 0; k < 8; k += 4) slope.putFloat(k, 2 * weight.getFloat(k));
        var result = optimizer.step(List.of(gradient), 0.05, 1);
        assertFalse(result.skipped());
        assertEquals(i + 1, result.step());
      }
      assertEquals(0, weight.getFloat(0), 0.05);
      assertEquals(0, weight.getFloat(4), 0.05);
      try (Tensor moment = optimizer.state(0, Optimizer.State.FIRST_MOMENT)) {
        assertEquals(2, moment.toFloats().length);
      }
      slope.putFloat(0, Float.NaN);
      assertTrue(optimizer.step(List.of(gradient), 0.05, 1).skipped());
      optimizer.setStep(5);
      slope.putFloat(0, 0);
      assertEquals(6, optimizer.step(List.of(gradient), 0.05, 1).step());
    }
  }

  @Test
  void wrongUseIsNamed() {
    Optimizer optimizer = runtime.createOptimizer(OptimizerConfig.getDefaultInstance());
    Tensor parameter = runtime.createTensor(DType.DTYPE_FP32, 2);
    optimizer.add(parameter, true);
    assertEquals(Code.INVALID_ARGUMENT, failure(() -> optimizer.step(List.of(), 0.1, 1)).code());
    Tensor closed = runtime.createTensor(DType.DTYPE_FP32, 2);
    closed.close();
    assertThrows(IllegalStateException.class, () -> optimizer.step(List.of(closed), 0.1, 1));
    // The parameter is kept alive by the optimizer.
    parameter.close();
    try (Tensor gradient = runtime.createTensor(DType.DTYPE_FP32, 2)) {
      optimizer.step(List.of(gradient), 0.1, 1);
    }
    optimizer.close();
    assertThrows(IllegalStateException.class, () -> optimizer.setStep(1));
  }

  @Test
  void accumulates() {
    try (Accumulator accumulator = runtime.createAccumulator(2, 1);
        Tensor part = runtime.viewTensor(DType.DTYPE_FP32, floats(3, 4), 2)) {
      accumulator.add(0, part);
      accumulator.add(0, part);
      accumulator.addTokens(7);
      var summary = accumulator.summary();
      assertTrue(summary.finite());
      assertEquals(7, summary.tokens());
      assertEquals(10, summary.norm(), 1e-6);
      try (Tensor sum = accumulator.gradient(0)) {
        assertArrayEquals(new float[] {6, 8}, sum.toFloats());
      }
      accumulator.reset();
      assertEquals(0, accumulator.summary().tokens());
      assertEquals(Code.OUT_OF_RANGE, failure(() -> accumulator.gradient(2)).code());
    }
    assertEquals(Code.INVALID_ARGUMENT, failure(() -> runtime.createAccumulator()).code());
  }
}
