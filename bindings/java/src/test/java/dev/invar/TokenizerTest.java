package dev.invar;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.invar.v1.ChatConfig;
import dev.invar.v1.DataConfig;
import dev.invar.v1.PreviewConfig;
import dev.invar.v1.PreviewReport;
import dev.invar.v1.PreviewToken;
import dev.invar.v1.TokenizerConfig;
import dev.invar.v1.TokenizerInfo;
import dev.invar.v1.TokenizerTrainConfig;
import dev.invar.v1.TokenizerTrainReport;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;

/** Tokenizers, chat templates and data as training sees it. */
class TokenizerTest extends Fixture {
  private static final Path LLAMA3 = testCase("tokenizers/small-llama3");

  private Tokenizer load() {
    return runtime.loadTokenizer(LLAMA3.toString());
  }

  private static int[] ids(JsonObject recorded, String key) {
    JsonArray ids = recorded.getAsJsonArray(key);
    return StreamSupport.stream(ids.spliterator(), false).mapToInt(JsonElement::getAsInt).toArray();
  }

  @Test
  void givesTheRecordedIds() throws IOException {
    JsonArray cases =
        JsonParser.parseString(Files.readString(LLAMA3.resolve("cases.json"))).getAsJsonObject().getAsJsonArray("cases");
    assertTrue(cases.size() > 100);
    try (Tokenizer tokenizer = load()) {
      for (JsonElement element : cases) {
        JsonObject recorded = element.getAsJsonObject();
        String text = recorded.get("text").getAsString();
        int[] ids = ids(recorded, "ids");
        assertArrayEquals(
            ids,
            tokenizer.encode(text, Tokenizer.EncodeOption.ADD_SPECIAL, Tokenizer.EncodeOption.PARSE_SPECIAL),
            text);
        assertArrayEquals(
            ids(recorded, "ids_no_special"), tokenizer.encode(text, Tokenizer.EncodeOption.PARSE_SPECIAL), text);
        assertEquals(recorded.get("decoded").getAsString(), tokenizer.decode(ids, true));
        assertEquals(recorded.get("decoded_keep_special").getAsString(), tokenizer.decode(ids, false));
      }
      TokenizerInfo info = tokenizer.info();
      assertEquals(700, info.getVocabSize());
      assertFalse(info.getChatTemplate());
    }
  }

  @Test
  void halfACharacterIsReplacedOrKeptAsBytes() {
    try (Tokenizer tokenizer = load()) {
      int[] snowman = tokenizer.encode("\u2603");
      int[] half = List.of(snowman[0], snowman[1]).stream().mapToInt(Integer::intValue).toArray();
      assertEquals(3, snowman.length);
      assertEquals("\uFFFD", tokenizer.decode(half, false));
      assertArrayEquals(new byte[] {(byte) 0xE2, (byte) 0x98}, tokenizer.decodeBytes(half, true));
      assertEquals(0, tokenizer.encode("").length);
      assertEquals("", tokenizer.decode(new int[0], false));
      assertEquals("\uD83D\uDE80 \u0000.", tokenizer.decode(tokenizer.encode("\uD83D\uDE80 \u0000."), false));
    }
  }

  @Test
  void wrongUseIsNamed() {
    InvarException absent = failure(() -> runtime.loadTokenizer("/absent"));
    assertEquals(Code.NOT_FOUND, absent.code());
    assertTrue(absent.getMessage().contains("/absent"), absent.getMessage());
    assertEquals(Code.INVALID_ARGUMENT, failure(() -> runtime.loadTokenizer("")).code());
    assertThrows(NullPointerException.class, () -> runtime.loadTokenizer(null));
    Tokenizer tokenizer = load();
    assertEquals("text.bad_utf8", failure(() -> tokenizer.encode("a\uD83D")).reason());
    InvarException unknown = failure(() -> tokenizer.decode(new int[] {5, 1 << 20}, false));
    assertEquals("tokenizer.id_out_of_range", unknown.reason());
    assertTrue(unknown.getMessage().contains("1048576"), unknown.getMessage());
    assertEquals("tokenizer.id_out_of_range", failure(() -> tokenizer.decode(new int[] {-1}, false)).reason());
    assertThrows(NullPointerException.class, () -> tokenizer.encode(null));
    assertThrows(NullPointerException.class, () -> tokenizer.decode(null, false));
    assertThrows(NullPointerException.class, () -> tokenizer.chat(null));
    tokenizer.close();
    tokenizer.close();
    assertThrows(IllegalStateException.class, () -> tokenizer.encode("a"));
    assertThrows(IllegalStateException.class, () -> tokenizer.decode(new int[] {1}, false));
    assertThrows(IllegalStateException.class, tokenizer::info);
    assertThrows(IllegalStateException.class, () -> tokenizer.chat(ChatConfig.getDefaultInstance()));
  }

  @Test
  void servesSeveralThreadsAndOutlivesItsRuntime() throws Exception {
    String text = "The quick brown fox 123";
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try (Tokenizer tokenizer = load()) {
      runtime.close();
      int[] expected = tokenizer.encode(text);
      Callable<Void> work =
          () -> {
            for (int i = 0; i < 50; ++i) {
              assertArrayEquals(expected, tokenizer.encode(text));
              assertEquals(text, tokenizer.decode(expected, false));
            }
            return null;
          };
      for (Future<Void> done : threads.invokeAll(List.of(work, work, work, work))) done.get();
    } finally {
      threads.shutdown();
    }
  }

  @Test
  void writesConversationsByATemplate() throws IOException {
    Path template = folder.resolve("t.jinja");
    Files.writeString(
        template,
        "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
            + "{% if add_generation_prompt %}{{ name }}:{% endif %}"
            + "{% if refused %}{{ raise_exception('no ' + refused) }}{% endif %}");
    ChatConfig config =
        ChatConfig.newBuilder()
            .setMessagesJson("[{\"role\": \"user\", \"content\": \"hi \u2603\"}]")
            .setVariablesJson("{\"name\": \"bot\"}")
            .setAddGenerationPrompt(true)
            .setTemplatePath(template.toString())
            .build();
    try (Tokenizer tokenizer = load()) {
      assertEquals("user:hi \u2603;bot:", tokenizer.chat(config));
      InvarException raised =
          failure(() -> tokenizer.chat(config.toBuilder().setVariablesJson("{\"refused\": \"tools\"}").build()));
      assertEquals("template.raised", raised.reason());
      assertTrue(raised.getMessage().contains("no tools"), raised.getMessage());
      assertEquals(
          "template.bad_json", failure(() -> tokenizer.chat(config.toBuilder().setMessagesJson("{").build())).reason());
      InvarException none = failure(() -> tokenizer.chat(ChatConfig.newBuilder().setMessagesJson("[]").build()));
      assertEquals("template.none", none.reason());
      assertEquals(Code.FAILED_PRECONDITION, none.code());
    }
  }

  private static String joined(PreviewReport report, boolean trained) {
    return report.getSamples(0).getShownList().stream()
        .filter(token -> token.getTrained() == trained)
        .map(PreviewToken::getText)
        .collect(Collectors.joining());
  }

  @Test
  void learnsAVocabularyAndPreviewsData() throws IOException {
    Path corpus = folder.resolve("corpus.txt");
    Files.writeString(corpus, "line 1 says that the sum is 2\nline 2 says that the sum is 3\n".repeat(50));
    Path learned = folder.resolve("learned.json");
    TokenizerTrainConfig config =
        TokenizerTrainConfig.newBuilder()
            .addPaths(corpus.toString())
            .setVocabSize(270)
            .setOutput(learned.toString())
            .build();
    TokenizerTrainReport report = runtime.trainTokenizer(config);
    assertEquals(270, report.getVocabSize());
    assertEquals(270 - 256 - 1, report.getMerges());
    try (Tokenizer tokenizer = runtime.loadTokenizer(learned.toString())) {
      assertTrue(tokenizer.encode("line says that").length < 10);
    }

    Path data = folder.resolve("d.jsonl");
    Files.writeString(data, "{\"prompt\": \"line\", \"completion\": \" says\"}\n");
    PreviewConfig asked =
        PreviewConfig.newBuilder()
            .setData(
                DataConfig.newBuilder()
                    .addPaths(data.toString())
                    .setTokenizer(TokenizerConfig.newBuilder().setPath(learned.toString())))
            .build();
    PreviewReport preview = runtime.previewData(asked);
    assertEquals(1, preview.getDocuments());
    assertEquals("line", joined(preview, false));
    assertTrue(joined(preview, true).startsWith(" says"), joined(preview, true));

    assertEquals(
        "config.missing_field", failure(() -> runtime.trainTokenizer(config.toBuilder().clearPaths().build())).reason());
    try (CancelToken cancel = runtime.createCancelToken()) {
      cancel.cancel();
      assertEquals(Code.CANCELLED, failure(() -> runtime.trainTokenizer(config, cancel, null)).code());
      assertEquals(Code.CANCELLED, failure(() -> runtime.previewData(asked, cancel, null)).code());
    }
    assertThrows(NullPointerException.class, () -> runtime.previewData(null));
  }
}
