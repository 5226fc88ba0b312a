package dev.invar;

import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.MessageLite;
import com.google.protobuf.Parser;
import dev.invar.raw.Runtime;
import java.nio.charset.StandardCharsets;

/**
 * Configs and reports in the forms that the command line tool reads and writes: JSON with short enum names, text, single
 * assignments, defaults. Unknown fields are an error that offers the nearest name ("config.unknown_field").
 */
public final class Messages {
  private final Handle<Runtime> runtime;

  Messages(Handle<Runtime> runtime) {
    this.runtime = runtime;
  }

  /**
   * JSON to a message; comments are allowed. Names and types are checked, values are not.
   *
   * @param <M> the message's class
   * @param type an instance of the class, {@code TrainConfig.getDefaultInstance()}
   * @param json the text
   * @return the message
   */
  public <M extends Message> M fromJson(M type, String json) {
    return like(type, runtime.call(raw -> raw.messageFromJson(name(type), utf8(json))));
  }

  /**
   * Protobuf text form to a message.
   *
   * @param <M> the message's class
   * @param type an instance of the class
   * @param text the text
   * @return the message
   */
  public <M extends Message> M fromText(M type, String text) {
    return like(type, runtime.call(raw -> raw.messageFromText(name(type), utf8(text))));
  }

  /**
   * A message as JSON, keys in the order of declaration.
   *
   * @param message the message
   * @param pretty one field a line
   * @return the text
   */
  public String toJson(Message message, boolean pretty) {
    return text(runtime.call(raw -> raw.messageToJson(name(message), message.toByteArray(), pretty)));
  }

  /**
   * A message in protobuf text form.
   *
   * @param message the message
   * @return the text
   */
  public String toText(Message message) {
    return text(runtime.call(raw -> raw.messageToText(name(message), message.toByteArray())));
  }

  /**
   * The message after one assignment.
   *
   * @param <M> the message's class
   * @param message the message
   * @param assignment "optimizer.lr=3e-4"; lists and objects as JSON, "null" clears a field, "+=" appends
   * @return the changed message
   */
  public <M extends Message> M set(M message, String assignment) {
    return like(message, runtime.call(raw -> raw.messageSet(name(message), message.toByteArray(), utf8(assignment))));
  }

  /**
   * The message with every absent scalar at its default.
   *
   * @param <M> the message's class
   * @param message the message
   * @return the completed message
   */
  public <M extends Message> M withDefaults(M message) {
    return like(message, runtime.call(raw -> raw.messageWithDefaults(name(message), message.toByteArray())));
  }

  /**
   * Checks ranges, enum values and required fields.
   *
   * @param message the message
   * @throws InvarException names the field, its value and what is allowed
   */
  public void check(Message message) {
    runtime.run(raw -> raw.messageCheck(name(message), message.toByteArray()));
  }

  /**
   * About a field or message, for people.
   *
   * @param path "train.optimizer.lr", "convert"
   * @return a few lines
   */
  public String explain(String path) {
    return text(runtime.call(raw -> raw.messageExplain(utf8(path))));
  }

  /**
   * All fields below a message as JSON: name, type, default, unit, range, values, documentation.
   *
   * @param type an instance of the class
   * @return the JSON text
   */
  public String describe(Message type) {
    return text(runtime.call(raw -> raw.messageDescribe(name(type))));
  }

  /** A report of the library. */
  static <M extends MessageLite> M parse(Parser<M> parser, byte[] bytes) {
    try {
      return parser.parseFrom(bytes);
    } catch (InvalidProtocolBufferException problem) {
      throw new InvarException(Code.INTERNAL, "message.malformed", "the library's message cannot be parsed", problem);
    }
  }

  @SuppressWarnings("unchecked")
  private static <M extends Message> M like(M type, byte[] bytes) {
    return (M) parse(type.getParserForType(), bytes);
  }

  private static byte[] name(Message message) {
    return utf8(message.getDescriptorForType().getFullName());
  }

  static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
