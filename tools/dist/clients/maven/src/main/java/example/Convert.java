package example;

import dev.invar.InvarRuntime;
import dev.invar.v1.ConvertConfig;

/** Converts an FP8 checkpoint to BF16 and prints how many tensors were written: Convert SOURCE DESTINATION. */
public final class Convert {
  private Convert() {}

  public static void main(String[] arguments) {
    try (InvarRuntime runtime = InvarRuntime.create()) {
      var config = ConvertConfig.newBuilder().setSource(arguments[0]).setDestination(arguments[1]).build();
      System.out.println("tensors_written: " + runtime.convert(config).getTensorsWritten());
    }
  }
}
