package dev.invar;

import dev.invar.raw.NativeConstants;
import dev.invar.v1.ChatConfig;
import dev.invar.v1.TokenizerInfo;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * A vocabulary, with its chat template where it has one. Any thread, several at once. Made by
 * {@link InvarRuntime#loadTokenizer}.
 *
 * <pre>{@code
 * try (Tokenizer tokenizer = runtime.loadTokenizer("model")) {
 *   int[] ids = tokenizer.encode("Once upon a time", Tokenizer.EncodeOption.ADD_SPECIAL);
 *   String text = tokenizer.decode(ids, true);
 * }
 * }</pre>
 */
public final class Tokenizer implements AutoCloseable {
  /** What {@link #encode} does beyond the text alone. */
  public enum EncodeOption {
    /** Adds what the tokenizer puts around a text, such as a begin token. */
    ADD_SPECIAL(NativeConstants.INVAR_ENCODE_ADD_SPECIAL),
    /** Special tokens written in the text become their ids; do not use it on text of strangers. */
    PARSE_SPECIAL(NativeConstants.INVAR_ENCODE_PARSE_SPECIAL),
    /** Cuts off as the tokenizer's file says, if it does. */
    TRUNCATE(NativeConstants.INVAR_ENCODE_TRUNCATE);

    private final int flag;

    EncodeOption(int flag) {
      this.flag = flag;
    }
  }

  private final Handle<dev.invar.raw.Tokenizer> handle;

  Tokenizer(dev.invar.raw.Tokenizer raw) {
    handle = new Handle<>(this, "tokenizer", raw, dev.invar.raw.Tokenizer::delete);
  }

  /**
   * Size, special ids, and whether a chat template came with it.
   *
   * @return the description
   */
  public TokenizerInfo info() {
    return Messages.parse(TokenizerInfo.parser(), handle.call(dev.invar.raw.Tokenizer::info));
  }

  /**
   * Token ids of a text.
   *
   * @param text any text
   * @param options none: the text alone, as it is
   * @return the ids
   * @throws InvarException "text.bad_utf8" for half of a surrogate pair
   */
  public int[] encode(String text, EncodeOption... options) {
    int flags = 0;
    for (EncodeOption option : options) flags |= option.flag;
    byte[] bytes = strictUtf8(text);
    int chosen = flags;
    return handle.call(raw -> raw.encode(bytes, chosen));
  }

  /**
   * The text that ids stand for; U+FFFD stands for an unfinished character.
   *
   * @param ids of this vocabulary
   * @param skipSpecial leaves special tokens out
   * @return the text
   * @throws InvarException "tokenizer.id_out_of_range" names the id and its place
   */
  public String decode(int[] ids, boolean skipSpecial) {
    return new String(decode(ids, flag(skipSpecial)), StandardCharsets.UTF_8);
  }

  /**
   * The bytes that ids stand for, UTF-8 as far as the ids make whole characters: for text that arrives in parts.
   *
   * @param ids of this vocabulary
   * @param skipSpecial leaves special tokens out
   * @return the bytes
   * @throws InvarException "tokenizer.id_out_of_range" names the id and its place
   */
  public byte[] decodeBytes(int[] ids, boolean skipSpecial) {
    return decode(ids, NativeConstants.INVAR_DECODE_BYTES | flag(skipSpecial));
  }

  private static int flag(boolean skipSpecial) {
    return skipSpecial ? NativeConstants.INVAR_DECODE_SKIP_SPECIAL : 0;
  }

  private byte[] decode(int[] ids, int flags) {
    Objects.requireNonNull(ids, "ids");
    return handle.call(raw -> raw.decode(ids, flags));
  }

  /**
   * A conversation as the chat template writes it; encode it with {@link EncodeOption#PARSE_SPECIAL}.
   *
   * @param config the conversation
   * @return the text
   * @throws InvarException "template.none" when neither the tokenizer nor the config has a template; "template.raised"
   *     with what the template itself refuses
   */
  public String chat(ChatConfig config) {
    byte[] bytes = config.toByteArray();
    return new String(handle.call(raw -> raw.chat(bytes)), StandardCharsets.UTF_8);
  }

  /** Java would write '?' for half of a surrogate pair, and the ids would be those of another text. */
  private static byte[] strictUtf8(String text) {
    try {
      ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      byte[] bytes = new byte[encoded.remaining()];
      encoded.get(bytes);
      return bytes;
    } catch (CharacterCodingException problem) {
      throw new InvarException(
          Code.INVALID_ARGUMENT, "text.bad_utf8", "text: holds half of a surrogate pair", problem);
    }
  }

  /** Releases the tokenizer, when the last call has returned. */
  @Override
  public void close() {
    handle.close();
  }
}
