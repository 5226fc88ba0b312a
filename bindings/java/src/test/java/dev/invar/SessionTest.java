package dev.invar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.invar.v1.EvalReport;
import dev.invar.v1.ExportConfig;
import dev.invar.v1.FinishReason;
import dev.invar.v1.GenerateConfig;
import dev.invar.v1.GenerateReport;
import dev.invar.v1.LoadConfig;
import dev.invar.v1.StepMetrics;
import dev.invar.v1.TrainReport;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Training, evaluation and generation; and what happens when they are used wrongly. */
class SessionTest extends Fixture {
  private static StepMetrics step(Session session) {
    session.begin(2);
    for (int i = 0; i < 2; ++i) assertEquals(30, session.forwardBackward(batch()).tokens());
    return session.step();
  }

  @Test
  void hostDrivenLossFalls() {
    try (Session session = runtime.createSession(hostDriven())) {
      StepMetrics first = step(session);
      assertEquals(1, first.getStep());
      assertEquals(60, first.getTokens());
      assertEquals(Math.log(259), first.getLoss(), 0.5);
      StepMetrics last = first;
      for (int i = 0; i < 20; ++i) last = step(session);
      assertTrue(last.getLoss() < first.getLoss() - 1, first.getLoss() + " to " + last.getLoss());
      assertEquals("llama", session.info().getFamily());
      assertEquals(21, session.report().getSteps());
    }
  }

  @Test
  void masksAndTargetsCount() {
    try (Session session = runtime.createSession(hostDriven())) {
      ByteBuffer mask = direct(32);
      IntBuffer targets = direct(128).asIntBuffer();
      for (int i = 0; i < 32; ++i) targets.put(i, i % 2 == 0 ? 5 : -1);
      mask.put(0, (byte) 1).put(1, (byte) 1).put(2, (byte) 1);
      session.begin(3);
      assertEquals(16, session.forwardBackward(batch().withTargets(targets)).tokens());
      assertEquals(2, session.forwardBackward(batch().withTargets(targets).withMask(mask)).tokens());
      Loss none = session.forwardBackward(batch().withMask(direct(32)));
      assertEquals(0, none.tokens());
      assertTrue(Double.isNaN(none.mean()));
    }
  }

  @Test
  void ownLearningRateOfZeroChangesNothing() {
    try (Session session = runtime.createSession(hostDriven())) {
      session.begin(1);
      Loss before = session.forwardBackward(batch());
      assertEquals(0, session.step(0).getLr());
      session.begin(1);
      assertEquals(before, session.forwardBackward(batch()));
      assertEquals("argument.lr", failure(() -> session.step(-1)).reason());
    }
  }

  @Test
  void runsEvaluatesSavesResumesExportsAndGenerates() throws IOException {
    List<Progress> events = new ArrayList<>();
    try (Session session = runtime.createSession(libraryDriven("run", 6).build(), null, events::add)) {
      TrainReport report = session.run(null, events::add);
      assertEquals(6, report.getSteps());
      List<Progress> steps = events.stream().filter(event -> event.kind() == Progress.Kind.STEP).toList();
      assertEquals(6, steps.size());
      assertEquals(report.getLastLoss(), steps.get(5).step().getLoss());
      assertNotNull(events.stream().filter(event -> event.eval() != null).findFirst().orElse(null));

      EvalReport now = session.evaluate();
      assertTrue(now.getTokens() > 0);
      session.save(folder.resolve("saved"));
      session.export(ExportConfig.newBuilder().setDestination(folder.resolve("out").toString()).build());
      try (Session other = runtime.createSession(libraryDriven("other", 6).build())) {
        other.resume(folder.resolve("saved"));
        assertEquals(now.getLoss(), other.evaluate().getLoss());
      }
      var asked = GenerateConfig.newBuilder().setPrompt("line 1").setMaxTokens(12).build();
      GenerateReport generated = session.generate(asked);
      try (Model model = runtime.loadModel(LoadConfig.newBuilder().setPath(folder.resolve("out").toString()).build())) {
        StringBuilder text = new StringBuilder();
        List<Token> tokens = new ArrayList<>();
        GenerateReport again =
            model.generate(
                asked,
                null,
                token -> {
                  text.append(token.text());
                  return tokens.add(token);
                });
        assertEquals(generated.getIdsList(), again.getIdsList());
        assertEquals(again.getIdsList(), tokens.stream().map(Token::id).toList());
        assertEquals(again.getText(), text.toString());
        assertEquals(again.getIdsCount() - 1, tokens.get(tokens.size() - 1).index());
        assertEquals(session.info().getParameters(), model.info().getParameters());
      }
    }
  }

  @Test
  void tokensMayBeStopped() {
    try (Session session = runtime.createSession(hostDriven())) {
      var asked = GenerateConfig.newBuilder().setPrompt("a").setMaxTokens(20).setStopAtEnd(false).build();
      GenerateReport report = session.generate(asked, null, token -> token.index() < 2);
      assertEquals(FinishReason.FINISH_REASON_CALLBACK, report.getFinishReason());
      assertEquals(3, report.getIdsCount());
      var thrown = new IllegalArgumentException("mine");
      assertSame(
          thrown,
          assertThrows(
              IllegalArgumentException.class,
              () ->
                  session.generate(
                      asked,
                      null,
                      token -> {
                        throw thrown;
                      })));
      try (CancelToken cancel = runtime.createCancelToken()) {
        cancel.cancel();
        assertEquals(Code.CANCELLED, failure(() -> session.generate(asked, cancel, null)).code());
      }
    }
  }

  @Test
  void cancelledFromAnotherThreadItWritesACheckpointAndGoesOn() throws Exception {
    try (CancelToken cancel = runtime.createCancelToken();
        Session session = runtime.createSession(libraryDriven("run", 40).build())) {
      CountDownLatch started = new CountDownLatch(3);
      Thread canceller =
          new Thread(
              () -> {
                try {
                  started.await();
                } catch (InterruptedException ignored) {
                  return;
                }
                cancel.cancel();
              });
      canceller.start();
      InvarException failure =
          failure(
              () ->
                  session.run(
                      cancel,
                      event -> {
                        started.countDown();
                        return true;
                      }));
      canceller.join();
      assertEquals(Code.CANCELLED, failure.code());
      assertTrue(session.report().getCancelled());
      assertTrue(Files.exists(java.nio.file.Path.of(session.report().getCheckpoint())));
      assertEquals(40, session.run().getSteps());
    }
  }

  @Test
  void aSecondCallMeanwhileIsRefused() {
    try (Session session = runtime.createSession(hostDriven())) {
      var asked = GenerateConfig.newBuilder().setPrompt("a").setMaxTokens(2).build();
      List<InvarException> failures = new ArrayList<>();
      session.generate(
          asked,
          null,
          token -> {
            failures.add(failure(() -> session.info()));
            return true;
          });
      assertEquals(Code.FAILED_PRECONDITION, failures.get(0).code());
      assertEquals("handle.busy", failures.get(0).reason());
    }
  }

  @Test
  void anyThreadInTurn() throws Exception {
    try (Session session = runtime.createSession(hostDriven())) {
      for (int i = 1; i <= 3; ++i) {
        AtomicReference<StepMetrics> metrics = new AtomicReference<>();
        Thread thread = new Thread(() -> metrics.set(step(session)));
        thread.start();
        thread.join();
        assertEquals(i, metrics.get().getStep());
      }
    }
  }

  @Test
  void closingDuringACallIsSafe() {
    Session session = runtime.createSession(hostDriven());
    var asked = GenerateConfig.newBuilder().setPrompt("a").setMaxTokens(30).setStopAtEnd(false).build();
    GenerateReport report =
        session.generate(
            asked,
            null,
            token -> {
              if (token.index() == 1) {
                session.close();
                runtime.close();
              }
              return true;
            });
    assertEquals(30, report.getIdsCount());
    assertEquals("session is closed", assertThrows(IllegalStateException.class, session::info).getMessage());
  }

  @Test
  void wrongStatesAndBatchesAreNamed() {
    try (Session session = runtime.createSession(hostDriven())) {
      assertEquals(Code.FAILED_PRECONDITION, failure(() -> session.forwardBackward(batch())).code());
      assertEquals(Code.FAILED_PRECONDITION, failure(session::step).code());
      assertEquals(Code.INVALID_ARGUMENT, failure(() -> session.begin(-1)).code());
      assertEquals(Code.FAILED_PRECONDITION, failure(session::run).code());
      session.begin(1);
      assertEquals(
          "batch.id_out_of_range", failure(() -> session.forwardBackward(Batch.of(new int[][] {{1, 259}}))).reason());
      assertThrows(NullPointerException.class, () -> session.forwardBackward(null));
      assertThrows(NullPointerException.class, () -> session.save(null));
      assertEquals(
          Code.NOT_FOUND, failure(() -> session.resume(java.nio.file.Path.of("/absent"))).code());
    }
    IntBuffer heap = IntBuffer.allocate(32);
    var refused = assertThrows(IllegalArgumentException.class, () -> Batch.of(2, 16, heap));
    assertTrue(refused.getMessage().contains("allocateDirect"), refused.getMessage());
    ByteOrder wrong =
        ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
    assertThrows(
        IllegalArgumentException.class, () -> Batch.of(2, 16, direct(128).order(wrong).asIntBuffer()));
    assertThrows(IllegalArgumentException.class, () -> Batch.of(3, 16, direct(128).asIntBuffer()));
    assertThrows(
        IllegalArgumentException.class, () -> Batch.of(Long.MAX_VALUE, Long.MAX_VALUE, direct(128).asIntBuffer()));
    assertThrows(IllegalArgumentException.class, () -> batch().withMask(direct(31)));
    assertThrows(IllegalArgumentException.class, () -> batch().withTargets(heap));
    assertThrows(IllegalArgumentException.class, () -> Batch.of(new int[][] {{1, 2}, {1}}));
  }
}
