import dev.invar.InvarRuntime;
import dev.invar.Progress;
import dev.invar.Session;
import dev.invar.v1.GenerateConfig;
import dev.invar.v1.TrainConfig;

/** Trains a small model on a text file and prints what it writes: Hello FILE. */
public final class Hello {
  private Hello() {}

  public static void main(String[] arguments) {
    try (InvarRuntime runtime = InvarRuntime.create()) {
      TrainConfig.Builder config = TrainConfig.newBuilder().setOutput("run").setSteps(200);
      config.getOptimizerBuilder().setLr(0.01);
      config.getDataBuilder().addPaths(arguments[0]).setSequenceLength(64);
      config.getModelBuilder().setHiddenSize(64).setNumHiddenLayers(2).setIntermediateSize(176);
      try (Session session = runtime.createSession(config.build())) {
        session.run(null, event -> {
          if (event.kind() == Progress.Kind.STEP) System.out.printf("step %d loss %.3f%n", event.done(), event.step().getLoss());
          return true;
        });
        session.generate(GenerateConfig.newBuilder().setPrompt("line 7 says").build(), null, token -> {
          System.out.print(token.text());
          return true;
        });
        System.out.println();
      }
    }
  }
}
