package invar_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

const smallLlama3 = "tokenizers/small-llama3"

func loadTokenizer(t testing.TB, runtime *invar.Runtime, path string) *invar.Tokenizer {
	t.Helper()
	tokenizer, err := invar.LoadTokenizer(runtime, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tokenizer.Close() })
	return tokenizer
}

func TestTokenizerGivesTheRecordedIDs(t *testing.T) {
	folder := casePath(t, smallLlama3)
	content, err := os.ReadFile(filepath.Join(folder, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Cases []struct {
			Text               string
			IDs                []int32
			IDsNoSpecial       []int32 `json:"ids_no_special"`
			Decoded            string
			DecodedWithSpecial string `json:"decoded_keep_special"`
		}
	}
	if err := json.Unmarshal(content, &recorded); err != nil || len(recorded.Cases) < 100 {
		t.Fatalf("%v: %d cases", err, len(recorded.Cases))
	}
	tokenizer := loadTokenizer(t, testRuntime(t), folder)
	for _, one := range recorded.Cases {
		encoded, err := tokenizer.Encode(one.Text, invar.EncodeAddSpecial|invar.EncodeParseSpecial)
		if err != nil || !slices.Equal(encoded, one.IDs) {
			t.Errorf("%q: %v: %v, expected %v", one.Text, err, encoded, one.IDs)
		}
		bare, err := tokenizer.Encode(one.Text, invar.EncodeParseSpecial)
		if err != nil || !slices.Equal(bare, one.IDsNoSpecial) {
			t.Errorf("%q: %v: %v, expected %v", one.Text, err, bare, one.IDsNoSpecial)
		}
		decoded, err := tokenizer.Decode(one.IDs, invar.DecodeSkipSpecial)
		if err != nil || decoded != one.Decoded {
			t.Errorf("%v: %v: %q, expected %q", one.IDs, err, decoded, one.Decoded)
		}
		kept, err := tokenizer.Decode(one.IDs, 0)
		if err != nil || kept != one.DecodedWithSpecial {
			t.Errorf("%v: %v: %q, expected %q", one.IDs, err, kept, one.DecodedWithSpecial)
		}
	}
	info, err := tokenizer.Info()
	if err != nil || info.GetVocabSize() != 700 || info.GetChatTemplate() {
		t.Errorf("%v: %v", err, info)
	}
}

func TestTokenizerHalfACharacter(t *testing.T) {
	tokenizer := loadTokenizer(t, testRuntime(t), casePath(t, smallLlama3))
	encoded, err := tokenizer.Encode("\u2603", 0)
	if err != nil || len(encoded) < 2 {
		t.Fatalf("%v: %v", err, encoded)
	}
	half := encoded[:len(encoded)-1]
	if text, err := tokenizer.Decode(half, 0); err != nil || text != "\uFFFD" {
		t.Errorf("%v: %q", err, text)
	}
	if bytes, err := tokenizer.Decode(half, invar.DecodeBytes); err != nil || bytes != "\xE2\x98" {
		t.Errorf("%v: %q", err, bytes)
	}
	if none, err := tokenizer.Encode("", 0); err != nil || none == nil || len(none) != 0 {
		t.Errorf("%v: %v", err, none)
	}
	if none, err := tokenizer.Decode(nil, 0); err != nil || none != "" {
		t.Errorf("%v: %q", err, none)
	}
}

func TestTokenizerUsedWrongly(t *testing.T) {
	runtime := testRuntime(t)
	if _, err := invar.LoadTokenizer(runtime, "/nowhere"); !errors.Is(err, invar.NotFound) || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v", err)
	}
	if _, err := invar.LoadTokenizer(runtime, ""); !errors.Is(err, invar.InvalidArgument) {
		t.Errorf("%v", err)
	}
	if _, err := invar.LoadTokenizer(nil, "x"); !errors.Is(err, invar.Reason("argument.null")) {
		t.Errorf("%v", err)
	}
	tokenizer := loadTokenizer(t, runtime, casePath(t, smallLlama3))
	if _, err := tokenizer.Encode("a\xFF", 0); !errors.Is(err, invar.Reason("text.bad_utf8")) {
		t.Errorf("%v", err)
	}
	if _, err := tokenizer.Encode("a", 1<<31); !errors.Is(err, invar.Reason("argument.flags")) {
		t.Errorf("%v", err)
	}
	_, err := tokenizer.Decode([]int32{5, 1 << 20}, 0)
	if !errors.Is(err, invar.Reason("tokenizer.id_out_of_range")) || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("%v", err)
	}
	if _, err := tokenizer.Decode([]int32{-1}, 0); !errors.Is(err, invar.Reason("tokenizer.id_out_of_range")) {
		t.Errorf("%v", err)
	}
	if _, err := tokenizer.Chat(nil); !errors.Is(err, invar.InvalidArgument) {
		t.Errorf("%v", err)
	}
	for range 2 {
		if err := tokenizer.Close(); err != nil {
			t.Error(err)
		}
	}
	calls := map[string]error{}
	_, calls["info"] = tokenizer.Info()
	_, calls["encode"] = tokenizer.Encode("a", 0)
	_, calls["decode"] = tokenizer.Decode(nil, 0)
	_, calls["chat"] = tokenizer.Chat(&invarv1.ChatConfig{})
	for name, err := range calls {
		if !errors.Is(err, invar.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *invar.Tokenizer
	if _, err := none.Encode("a", 0); !errors.Is(err, invar.Reason("argument.null")) {
		t.Errorf("%v", err)
	}
	if none.Close() != nil {
		t.Error("closing nil fails")
	}
}

func TestTokenizerServesManyGoroutinesAndOutlivesItsRuntime(t *testing.T) {
	runtime := testRuntime(t)
	tokenizer := loadTokenizer(t, runtime, casePath(t, smallLlama3))
	runtime.Close()
	const text = "The quick brown fox 123"
	expected, err := tokenizer.Encode(text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range 50 {
				encoded, err := tokenizer.Encode(text, 0)
				if err != nil || !slices.Equal(encoded, expected) {
					t.Errorf("%v: %v", err, encoded)
				}
				if decoded, err := tokenizer.Decode(encoded, 0); err != nil || decoded != text {
					t.Errorf("%v: %q", err, decoded)
				}
			}
		}()
	}
	wait.Wait()
}

func TestTokenizerWritesConversations(t *testing.T) {
	tokenizer := loadTokenizer(t, testRuntime(t), casePath(t, smallLlama3))
	template := filepath.Join(t.TempDir(), "t.jinja")
	source := "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}" +
		"{% if add_generation_prompt %}{{ name }}:{% endif %}{% if refused %}{{ raise_exception('no ' + refused) }}{% endif %}"
	if err := os.WriteFile(template, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	config := &invarv1.ChatConfig{
		MessagesJson:        proto.String(`[{"role": "user", "content": "hi \u2603"}]`),
		VariablesJson:       proto.String(`{"name": "bot"}`),
		AddGenerationPrompt: proto.Bool(true),
		TemplatePath:        proto.String(template),
	}
	if text, err := tokenizer.Chat(config); err != nil || text != "user:hi \u2603;bot:" {
		t.Errorf("%v: %q", err, text)
	}
	config.VariablesJson = proto.String(`{"refused": "tools"}`)
	config.AddGenerationPrompt = nil
	if _, err := tokenizer.Chat(config); !errors.Is(err, invar.Reason("template.raised")) || !strings.Contains(err.Error(), "no tools") {
		t.Errorf("%v", err)
	}
	config.MessagesJson = proto.String("{")
	if _, err := tokenizer.Chat(config); !errors.Is(err, invar.Reason("template.bad_json")) {
		t.Errorf("%v", err)
	}
	_, err := tokenizer.Chat(&invarv1.ChatConfig{MessagesJson: proto.String("[]")})
	if !errors.Is(err, invar.Reason("template.none")) || !errors.Is(err, invar.FailedPrecondition) {
		t.Errorf("%v", err)
	}
}

func TestTokenizerIsLearnedAndDataPreviewed(t *testing.T) {
	runtime := testRuntime(t)
	folder := t.TempDir()
	learned := filepath.Join(folder, "learned.json")
	config := &invarv1.TokenizerTrainConfig{
		Paths:     []string{writeText(t, 200)},
		VocabSize: proto.Int64(300),
		Output:    proto.String(learned),
	}
	report, err := runtime.TrainTokenizer(context.Background(), config)
	if err != nil || report.GetVocabSize() != 300 || report.GetMerges() != 300-256-1 || report.GetDocuments() < 1 {
		t.Fatalf("%v: %v", err, report)
	}
	tokenizer := loadTokenizer(t, runtime, learned)
	if encoded, err := tokenizer.Encode("line says that", 0); err != nil || len(encoded) > 7 {
		t.Errorf("%v: %v", err, encoded)
	}

	data := filepath.Join(folder, "d.jsonl")
	if err := os.WriteFile(data, []byte(`{"prompt": "line", "completion": " says"}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	preview, err := runtime.PreviewData(context.Background(), &invarv1.PreviewConfig{Data: &invarv1.DataConfig{
		Paths:     []string{data},
		Tokenizer: &invarv1.TokenizerConfig{Path: proto.String(learned)},
	}})
	if err != nil || preview.GetDocuments() != 1 || len(preview.GetSamples()) != 1 {
		t.Fatalf("%v: %v", err, preview)
	}
	var prompt, completion strings.Builder
	for _, token := range preview.GetSamples()[0].GetShown() {
		if token.GetTrained() {
			completion.WriteString(token.GetText())
		} else {
			prompt.WriteString(token.GetText())
		}
	}
	if prompt.String() != "line" || !strings.HasPrefix(completion.String(), " says") {
		t.Errorf("%q, %q: %v", prompt.String(), completion.String(), preview)
	}

	config.Paths = nil
	if _, err := runtime.TrainTokenizer(context.Background(), config); !errors.Is(err, invar.Reason("config.missing_field")) {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := runtime.PreviewData(ended, &invarv1.PreviewConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := runtime.PreviewData(context.Background(), nil); !errors.Is(err, invar.InvalidArgument) {
		t.Errorf("%v", err)
	}
}
