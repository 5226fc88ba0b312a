package dev.invar.examples.service;

/** Flat JSON objects, as this service writes them. */
final class Json {
  private final StringBuilder text = new StringBuilder("{");

  /** null for what is no number: JSON has no NaN. */
  Json add(String name, Number value) {
    return raw(name, Double.isFinite(value.doubleValue()) ? value.toString() : "null");
  }

  Json add(String name, String value) {
    return raw(name, quoted(value));
  }

  /** value: JSON text. */
  Json raw(String name, String value) {
    text.append(text.length() > 1 ? ", " : "").append(quoted(name)).append(": ").append(value);
    return this;
  }

  @Override
  public String toString() {
    return text + "}";
  }

  static String quoted(String value) {
    StringBuilder out = new StringBuilder("\"");
    for (int i = 0; i < value.length(); ++i) {
      char c = value.charAt(i);
      switch (c) {
        case '"', '\\' -> out.append('\\').append(c);
        case '\n' -> out.append("\\n");
        default -> {
          if (c < 0x20) out.append(String.format("\\u%04x", (int) c));
          else out.append(c);
        }
      }
    }
    return out.append('"').toString();
  }
}
