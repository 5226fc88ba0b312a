package dev.invar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Message;
import dev.invar.v1.DType;
import dev.invar.v1.ExportConfig;
import dev.invar.v1.GenerateConfig;
import dev.invar.v1.InspectConfig;
import dev.invar.v1.LoadConfig;
import dev.invar.v1.OpenConfig;
import dev.invar.v1.OptimizerConfig;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

/** Every public method of every class, used wrongly: after close, with null, with a token that is set; and from threads. */
class WrongUseTest extends Fixture {
  private Tensor tensor;
  private CancelToken token;
  private Checkpoint.Entry entry;

  /** One of each kind, in an order in which they may be closed. */
  private Map<String, AutoCloseable> objects() throws IOException {
    tensor = runtime.createTensor(DType.DTYPE_FP32, 2, 2);
    token = runtime.createCancelToken();
    Checkpoint checkpoint =
        runtime.openCheckpoint(OpenConfig.newBuilder().setPath(testCase("fg-llama-b32/input").toString()).build());
    entry = checkpoint.entries().get(0);
    String exported = folder.resolve("exported").toString();
    try (Session trained = runtime.createSession(libraryDriven("run", 1).build())) {
      trained.run();
      trained.export(ExportConfig.newBuilder().setDestination(exported).build());
    }
    return Map.of(
        "checkpoint", checkpoint,
        "model", runtime.loadModel(LoadConfig.newBuilder().setPath(exported).build()),
        "session", runtime.createSession(hostDriven()),
        "tokenizer", runtime.loadTokenizer(testCase("tokenizers/small-llama3").toString()),
        "tensor", runtime.createTensor(DType.DTYPE_FP32, 2, 2),
        "optimizer", runtime.createOptimizer(OptimizerConfig.getDefaultInstance()),
        "accumulator", runtime.createAccumulator(4),
        "cancel token", runtime.createCancelToken(),
        "runtime", runtime);
  }

  /** An argument that is right; null for what may be null. */
  private Object argument(Class<?> type) throws ReflectiveOperationException {
    if (type == long.class) return 1L;
    if (type == int.class) return 1;
    if (type == double.class) return 0.0;
    if (type == boolean.class) return false;
    if (type == String.class) return "a";
    if (type == long[].class) return new long[] {1};
    if (type == int[].class) return new int[] {1};
    if (type == ByteBuffer.class) return direct(1 << 20);
    if (type == Batch.class) return batch();
    if (type == Tensor.class) return tensor;
    if (type == List.class) return List.of(tensor);
    if (type == Checkpoint.Entry.class) return entry;
    if (type == java.nio.file.Path.class) return folder.resolve("out");
    if (type == Tokenizer.EncodeOption[].class) return new Tokenizer.EncodeOption[0];
    if (type.isEnum()) return type.getEnumConstants()[1];
    if (Message.class.isAssignableFrom(type)) return type.getMethod("getDefaultInstance").invoke(null);
    if (type == CancelToken.class || type == ProgressListener.class || type == TokenListener.class) return null;
    throw new AssertionError("no argument of " + type);
  }

  private Object[] arguments(Method method) throws ReflectiveOperationException {
    Object[] arguments = new Object[method.getParameterCount()];
    for (int i = 0; i < arguments.length; ++i) arguments[i] = argument(method.getParameterTypes()[i]);
    return arguments;
  }

  /** What the call throws; null for nothing. */
  private static Throwable thrown(Object object, Method method, Object[] arguments) throws IllegalAccessException {
    try {
      Object made = method.invoke(object, arguments);
      if (made instanceof AutoCloseable closeable) closeable.close();
      return null;
    } catch (InvocationTargetException problem) {
      return problem.getCause();
    } catch (Exception problem) {
      throw new AssertionError(problem);
    }
  }

  private static List<Method> methods(Object object) {
    return Arrays.stream(object.getClass().getDeclaredMethods())
        .filter(method -> Modifier.isPublic(method.getModifiers()) && !Modifier.isStatic(method.getModifiers()))
        .filter(method -> !method.isSynthetic())
        .toList();
  }

  @Test
  void afterCloseEveryMethodIsRefusedByName() throws Exception {
    int calls = 0;
    Messages messages = runtime.messages();
    var objects = new ArrayList<>(objects().entrySet());
    objects.sort(Map.Entry.comparingByKey((a, b) -> Boolean.compare(a.equals("runtime"), b.equals("runtime"))));
    for (var object : objects) {
      object.getValue().close();
      object.getValue().close();
      for (Method method : methods(object.getValue())) {
        if (List.of("close", "messages").contains(method.getName())) continue;
        Throwable refused = thrown(object.getValue(), method, arguments(method));
        assertInstanceOf(IllegalStateException.class, refused, method.toString());
        assertEquals(object.getKey() + " is closed", refused.getMessage(), method.toString());
        ++calls;
      }
    }
    assertThrows(IllegalStateException.class, () -> messages.explain("train"));
    assertTrue(calls > 80, calls + " methods");
  }

  /** All but cancel tokens, listeners and the config of a session's evaluation, where null means none. */
  @Test
  void nullIsRefused() throws Exception {
    int calls = 0;
    for (AutoCloseable object : objects().values()) {
      for (Method method : methods(object)) {
        for (int i = 0; i < method.getParameterCount(); ++i) {
          Class<?> type = method.getParameterTypes()[i];
          boolean none = object instanceof Session && method.getName().equals("evaluate");
          if (type.isPrimitive() || argument(type) == null || none) continue;
          Object[] arguments = arguments(method);
          arguments[i] = null;
          assertInstanceOf(NullPointerException.class, thrown(object, method, arguments), method + ", argument " + i);
          ++calls;
        }
      }
    }
    assertTrue(calls > 50, calls + " arguments");
  }

  @Test
  void aTokenThatIsSetEndsEveryLongCallBeforeItBegins() throws Exception {
    int calls = 0;
    int cancelled = 0;
    for (AutoCloseable object : objects().values()) {
      token.cancel();
      for (Method method : methods(object)) {
        List<Class<?>> types = List.of(method.getParameterTypes());
        if (!types.contains(CancelToken.class)) continue;
        Object[] arguments = arguments(method);
        arguments[types.indexOf(CancelToken.class)] = token;
        InvarException ended = assertInstanceOf(InvarException.class, thrown(object, method, arguments), method.toString());
        // Configs and state are checked first, and a default instance lacks what some calls need.
        if (ended.code() == Code.CANCELLED) ++cancelled;
        else assertTrue(List.of(Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION).contains(ended.code()), method + ": " + ended);
        ++calls;
      }
    }
    assertTrue(calls >= 15 && cancelled >= 3, cancelled + " of " + calls + " methods");
    token.close();
    assertEquals(
        "cancel token is closed",
        assertThrows(
                IllegalStateException.class, () -> runtime.inspect(InspectConfig.getDefaultInstance(), token, null))
            .getMessage());
  }

  @Test
  void threadsMayCloseWhatOthersUse() throws Exception {
    Tokenizer tokenizer = runtime.loadTokenizer(testCase("tokenizers/small-llama3").toString());
    ExecutorService threads = Executors.newFixedThreadPool(4);
    CountDownLatch started = new CountDownLatch(4);
    List<Future<String>> ends = new ArrayList<>();
    for (int i = 0; i < 4; ++i) {
      ends.add(
          threads.submit(
              () -> {
                tokenizer.encode("once");
                started.countDown();
                while (true) {
                  try {
                    tokenizer.encode("The quick brown fox");
                  } catch (IllegalStateException closed) {
                    return closed.getMessage();
                  }
                }
              }));
    }
    started.await();
    tokenizer.close();
    runtime.close();
    for (Future<String> end : ends) assertEquals("tokenizer is closed", end.get());
    threads.shutdown();
  }

  /** A source that fails in every way that Java has. */
  @Test
  void whatAFileSourceThrowsBecomesACode() {
    record Failing(Throwable thrown) implements FileSource {
      @SuppressWarnings("unchecked")
      private static <E extends Throwable> void raise(Throwable thrown) throws E {
        throw (E) thrown;
      }

      @Override
      public long size(String path) throws IOException {
        Failing.<IOException>raise(thrown);
        return 0;
      }

      @Override
      public void readAt(String path, long offset, ByteBuffer into) throws IOException {
        Failing.<IOException>raise(thrown);
      }

      @Override
      public List<String> list(String directory) {
        return List.of("model.safetensors");
      }
    }
    var codes =
        Map.of(
            new IOException("down"), Code.UNAVAILABLE,
            new IllegalStateException("fault"), Code.INTERNAL,
            new StackOverflowError(), Code.INTERNAL);
    codes.forEach(
        (thrown, code) -> {
          try (var stored = InvarRuntime.builder().files("store://", new Failing(thrown)).build()) {
            InvarException failure =
                failure(() -> stored.inspect(InspectConfig.newBuilder().setPath("store://a").build()));
            assertEquals(code, failure.code(), thrown + ": " + failure.getMessage());
            assertTrue(failure.getMessage().contains("store://a"), failure.getMessage());
          }
        });
  }

  @Test
  void anErrorOfAListenerArrivesAsItself() throws Exception {
    try (Session session = runtime.createSession(libraryDriven("run", 1000).build())) {
      AssertionError thrown = new AssertionError("mine");
      Error caught =
          assertThrows(
              AssertionError.class,
              () ->
                  session.run(
                      null,
                      event -> {
                        throw thrown;
                      }));
      assertEquals(thrown, caught);
      // Also from a listener on another thread's call; the session is free again.
      Throwable[] other = new Throwable[1];
      Thread thread =
          new Thread(
              () -> {
                try {
                  session.generate(
                      GenerateConfig.newBuilder().setPrompt("a").setMaxTokens(4).build(),
                      null,
                      produced -> {
                        throw thrown;
                      });
                } catch (Throwable problem) {
                  other[0] = problem;
                }
              });
      thread.start();
      thread.join();
      assertEquals(thrown, other[0]);
      assertNotNull(session.info());
    }
  }
}
