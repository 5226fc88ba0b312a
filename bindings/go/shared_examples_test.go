package invar_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// The five examples; inputs and outputs are those of bindings/testdata, the same in every language.

type digest struct {
	DType  string
	Shape  []int64
	SHA256 string
}

func digestsOf(t *testing.T, folder string) map[string]digest {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	var judged struct {
		Digests map[string]digest `json:"expected_digests"`
	}
	if err := json.Unmarshal(content, &judged); err != nil {
		t.Fatal(err)
	}
	return judged.Digests
}

func sum(memory []byte) string {
	hash := sha256.Sum256(memory)
	return hex.EncodeToString(hash[:])
}

func TestExampleConvertWithReport(t *testing.T) {
	want := loadExamples(t).Convert
	// One thread: events come from the calling one, which otherwise may find no work left.
	runtime, err := invar.NewRuntime(invar.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.Close()
	folder := casePath(t, want.Case)
	destination := filepath.Join(t.TempDir(), "bf16")
	events := 0
	report, err := runtime.Convert(context.Background(), &invarv1.ConvertConfig{
		Source:      proto.String(filepath.Join(folder, "input")),
		Destination: proto.String(destination),
		Verify:      proto.Bool(true),
	}, invar.OnProgress(func(invar.Progress) error {
		events++
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !report.GetPassed() || !report.GetVerification().GetPassed() || events == 0 {
		t.Errorf("passed %v, verified %v, %d events", report.GetPassed(), report.GetVerification().GetPassed(), events)
	}
	if report.GetTensorsWritten() != want.TensorsWritten || report.GetScalesUsed() != want.ScalesUsed {
		t.Errorf("%d tensors written, %d scales used", report.GetTensorsWritten(), report.GetScalesUsed())
	}
	tensors := map[string]int64{}
	for _, rule := range report.GetRules() {
		tensors[rule.GetRule()] = rule.GetTensors()
	}
	for rule, count := range want.Rules {
		if tensors[rule] != count {
			t.Errorf("rule %s: %d tensors, expected %d", rule, tensors[rule], count)
		}
	}
	// What was written is what the case expects.
	checkpoint, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(destination)})
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	for name, expected := range digestsOf(t, folder) {
		tensor, err := checkpoint.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, 2*tensor.Elements)
		if err := checkpoint.ReadRows(context.Background(), tensor.Index, 0, tensor.Rows, invar.BF16, memory); err != nil {
			t.Fatal(err)
		}
		if sum(memory) != expected.SHA256 {
			t.Errorf("%s differs", name)
		}
	}
}

func TestExampleDecodeIntoOwnMemory(t *testing.T) {
	runtime, want := testRuntime(t), loadExamples(t).Decode
	folder := casePath(t, want.Case)
	checkpoint, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(filepath.Join(folder, "input"))})
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	tensor, err := checkpoint.Find(want.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	if tensor.Rule != want.Rule || tensor.Rows != want.Rows || tensor.Shape[1] != want.Cols || !tensor.Quantized {
		t.Errorf("%+v", tensor)
	}
	own := make([]uint16, tensor.Elements)
	if err := checkpoint.ReadRows(context.Background(), tensor.Index, 0, tensor.Rows, invar.BF16, invar.Bytes(own)); err != nil {
		t.Fatal(err)
	}
	if sum(invar.Bytes(own)) != digestsOf(t, folder)[want.Tensor].SHA256 {
		t.Error("the decoded tensor differs")
	}
	row := make([]uint16, want.Cols)
	for i := range want.Rows {
		if err := checkpoint.ReadRows(context.Background(), tensor.Index, i, 1, invar.BF16, invar.Bytes(row)); err != nil {
			t.Fatal(err)
		}
		if string(invar.Bytes(row)) != string(invar.Bytes(own[i*want.Cols:(i+1)*want.Cols])) {
			t.Fatalf("row %d differs", i)
		}
	}
	wide := make([]float32, tensor.Elements)
	if err := checkpoint.Decode(context.Background(), want.Tensor, wide); err != nil {
		t.Fatal(err)
	}
	if math.Abs(float64(wide[5])) > 100 || wide[5] == 0 {
		t.Errorf("value %v", wide[5])
	}
}

func judge(t *testing.T, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("losses %v", got)
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > tolerance {
			t.Errorf("loss of step %d: %.6f, expected %.6f", i+1, got[i], want[i])
		}
	}
}

func TestExampleFineTuneExportAndGenerate(t *testing.T) {
	runtime, all := testRuntime(t), loadExamples(t)
	config := trainConfig(t, runtime, string(all.FineTune.Config))
	config.Data.Paths = []string{writeText(t, all.Text.Lines)}
	config.Output = proto.String(filepath.Join(t.TempDir(), "run"))
	session, err := invar.NewSession(context.Background(), runtime, config)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var losses []float64
	for metrics, err := range session.Steps(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, metrics.Loss)
	}
	judge(t, losses, all.FineTune.Losses, all.FineTune.Tolerance)
	exported := filepath.Join(t.TempDir(), "serving")
	if _, err := session.Export(context.Background(), &invarv1.ExportConfig{
		Destination: proto.String(exported),
		Target:      invarv1.TargetFormat_TARGET_FORMAT_BF16.Enum(),
	}); err != nil {
		t.Fatal(err)
	}

	model, err := invar.LoadModel(context.Background(), runtime, &invarv1.LoadConfig{Path: proto.String(exported)})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	request := &invarv1.GenerateConfig{Prompt: proto.String(all.Generate.Prompt), MaxTokens: proto.Int64(all.Generate.MaxTokens)}
	report, err := model.Generate(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	var streamed strings.Builder
	tokens := int64(0)
	for token, err := range model.Tokens(context.Background(), request) {
		if err != nil {
			t.Fatal(err)
		}
		if token.Index != tokens {
			t.Errorf("token %d came as %d", token.Index, tokens)
		}
		tokens++
		streamed.WriteString(token.Text)
	}
	if streamed.String() != report.GetText() || tokens != int64(len(report.GetIds())) {
		t.Errorf("streamed %d tokens %q, reported %d %q", tokens, streamed.String(), int64(len(report.GetIds())), report.GetText())
	}
}

func TestExampleHostDrivenLoop(t *testing.T) {
	runtime, want := testRuntime(t), loadExamples(t).HostDriven
	session := hostDriven(t, runtime)
	batch := invar.Batch{
		Sequences:      want.Sequences,
		SequenceLength: want.SequenceLength,
		IDs:            ids(want.Sequences * want.SequenceLength),
	}
	var losses []float64
	for range want.Steps {
		if err := session.Begin(want.MicroBatches); err != nil {
			t.Fatal(err)
		}
		for range want.MicroBatches {
			if _, err := session.ForwardBackward(batch); err != nil {
				t.Fatal(err)
			}
		}
		metrics, err := session.StepWithLR(want.LR)
		if err != nil {
			t.Fatal(err)
		}
		if metrics.LR != want.LR || metrics.Skipped {
			t.Errorf("%+v", metrics)
		}
		losses = append(losses, metrics.Loss)
	}
	judge(t, losses, want.Losses, want.Tolerance)
}
