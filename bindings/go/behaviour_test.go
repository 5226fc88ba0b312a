package invar_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

func TestErrorsSayCodeReasonAndNearestName(t *testing.T) {
	runtime := testRuntime(t)
	err := runtime.FromJSON(`{"step": 5}`, new(invarv1.TrainConfig))
	if !errors.Is(err, invar.InvalidArgument) || !errors.Is(err, invar.Reason("config.unknown_field")) || errors.Is(err, invar.NotFound) {
		t.Errorf("%v", err)
	}
	var failed *invar.Error
	if !errors.As(err, &failed) || !strings.Contains(failed.Message, "steps") {
		t.Errorf("%v does not offer steps", err)
	}
	_, err = runtime.Inspect(context.Background(), &invarv1.InspectConfig{Path: proto.String("/nowhere")})
	if !errors.Is(err, invar.NotFound) {
		t.Errorf("%v", err)
	}
}

func TestMessagesGoBothWays(t *testing.T) {
	runtime := testRuntime(t)
	config := new(invarv1.TrainConfig)
	if err := runtime.FromJSON("{\"steps\": 5 /* a comment */}", config); err != nil {
		t.Fatal(err)
	}
	if err := runtime.Set(config, "optimizer.lr=0.25"); err != nil {
		t.Fatal(err)
	}
	if config.GetSteps() != 5 || config.GetOptimizer().GetLr() != 0.25 {
		t.Errorf("%v", config)
	}
	text, err := runtime.ToText(config)
	if err != nil {
		t.Fatal(err)
	}
	again := new(invarv1.TrainConfig)
	if err := runtime.FromText(text, again); err != nil || !proto.Equal(config, again) {
		t.Errorf("%v: %v", err, again)
	}
	if err := runtime.FillDefaults(again); err != nil || again.GetMicroBatch() != 8 {
		t.Errorf("%v: %v", err, again.GetMicroBatch())
	}
	again.Steps = proto.Int64(-1)
	if err := runtime.Check(again); !errors.Is(err, invar.Reason("config.out_of_range")) {
		t.Errorf("%v", err)
	}
	if shown, err := runtime.ToJSON(config, false); err != nil || !strings.Contains(shown, `"steps":`) {
		t.Errorf("%v: %s", err, shown)
	}
	if about, err := runtime.Explain("train.optimizer.lr"); err != nil || about == "" {
		t.Errorf("%v: %s", err, about)
	}
	if about, err := runtime.Describe("train"); err != nil || !strings.Contains(about, "micro_batch") {
		t.Errorf("%v: %s", err, about)
	}
}

func TestAfterCloseEveryCallFails(t *testing.T) {
	runtime, err := invar.NewRuntime(invar.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	tensor, err := invar.NewTensor(runtime, invar.FP32, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	session := hostDriven(t, runtime)
	for range 3 {
		if runtime.Close() != nil {
			t.Error("Close fails")
		}
	}
	if _, err := runtime.Info(); !errors.Is(err, invar.ErrClosed) || !errors.Is(err, invar.FailedPrecondition) {
		t.Errorf("%v", err)
	}
	// Children go on.
	if info, err := tensor.Info(); err != nil || info.Elements != 6 {
		t.Errorf("%v: %+v", err, info)
	}
	if _, err := session.Evaluate(context.Background(), nil); err == nil || errors.Is(err, invar.ErrClosed) {
		t.Errorf("%v", err)
	}
	session.Close()
	tensor.Close()
	tensor.Close()
	if _, err := tensor.Info(); !errors.Is(err, invar.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := session.Run(context.Background()); !errors.Is(err, invar.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func longRun(t *testing.T, runtime *invar.Runtime) *invar.Session {
	t.Helper()
	all := loadExamples(t)
	config := trainConfig(t, runtime, string(all.FineTune.Config))
	config.Data.Paths = []string{writeText(t, all.Text.Lines)}
	config.Output = proto.String(filepath.Join(t.TempDir(), "run"))
	config.Steps = proto.Int64(1_000_000)
	session, err := invar.NewSession(context.Background(), runtime, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

func TestContextCancelsARunThatMayGoOn(t *testing.T) {
	session := longRun(t, testRuntime(t))
	ctx, cancel := context.WithCancel(context.Background())
	_, err := session.Run(ctx, invar.OnProgress(func(progress invar.Progress) error {
		if progress.Step != nil && progress.Step.Step == 3 {
			cancel()
		}
		return nil
	}))
	if !errors.Is(err, invar.Cancelled) || !errors.Is(err, context.Canceled) || !invar.IsCancelled(err) {
		t.Fatalf("%v", err)
	}
	if _, err := session.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	short, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, err = session.Run(short)
	if !errors.Is(err, invar.DeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded) || !invar.IsCancelled(err) {
		t.Errorf("%v", err)
	}
	if report, err := session.Report(); err != nil || report == nil {
		t.Errorf("%v", err)
	}
}

func TestWhatACallbackReturnsOrPanicsComesBack(t *testing.T) {
	session := longRun(t, testRuntime(t))
	own := errors.New("own")
	_, err := session.Run(context.Background(), invar.OnProgress(func(progress invar.Progress) error {
		if progress.Step != nil {
			return own
		}
		return nil
	}))
	if !errors.Is(err, own) || !errors.Is(err, invar.Aborted) {
		t.Errorf("%v", err)
	}
	_, err = session.Run(context.Background(), invar.OnProgress(func(progress invar.Progress) error {
		if progress.Step != nil {
			panic("oh no")
		}
		return nil
	}))
	var panicked *invar.PanicError
	if !errors.As(err, &panicked) || panicked.Value != "oh no" || !errors.Is(err, invar.ReasonCallbackPanic) {
		t.Errorf("%v", err)
	}
}

func TestLoopsMayBeLeftInEveryWay(t *testing.T) {
	session := longRun(t, testRuntime(t))
	steps := 0
	for metrics, err := range session.Steps(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if steps++; metrics.Step >= 3 {
			break
		}
	}
	if steps != 3 {
		t.Errorf("%d steps", steps)
	}
	func() {
		defer func() {
			if recover() != "body" {
				t.Error("the body's panic is lost")
			}
		}()
		for range session.Steps(context.Background()) {
			panic("body")
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range session.Steps(context.Background()) {
			goruntime.Goexit()
		}
	}()
	<-done
	// The session is free again after each.
	if _, err := session.Info(); err != nil {
		t.Errorf("%v", err)
	}
}

func TestCloseDuringACallAndBusy(t *testing.T) {
	session := longRun(t, testRuntime(t))
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	var once sync.Once
	var wait sync.WaitGroup
	wait.Add(1)
	go func() {
		defer wait.Done()
		_, err := session.Run(ctx, invar.OnProgress(func(progress invar.Progress) error {
			if progress.Step != nil {
				once.Do(func() { close(started) })
			}
			return nil
		}))
		if !errors.Is(err, invar.Cancelled) {
			t.Errorf("%v", err)
		}
	}()
	<-started
	if _, err := session.Info(); !errors.Is(err, invar.ReasonBusy) {
		t.Errorf("%v", err)
	}
	session.Close()
	if _, err := session.Info(); !errors.Is(err, invar.ErrClosed) {
		t.Errorf("%v", err)
	}
	cancel()
	wait.Wait()
}

func TestTensorsShareGoMemory(t *testing.T) {
	runtime := testRuntime(t)
	values := []float32{1, 2, 3, 4, 5, 6}
	tensor, err := invar.ViewTensor(runtime, invar.FP32, values, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer tensor.Close()
	seen, err := invar.Elements[float32](tensor)
	if err != nil || &seen[0] != &values[0] {
		t.Fatalf("%v: not the same memory", err)
	}
	if _, err := invar.Elements[uint16](tensor); !errors.Is(err, invar.Reason("tensor.dtype")) {
		t.Errorf("%v", err)
	}
	product, err := invar.MatMul(tensor, false, tensor, true, invar.FP32)
	if err != nil {
		t.Fatal(err)
	}
	defer product.Close()
	got := make([]float32, 4)
	if err := product.Read(invar.Bytes(got)); err != nil || got[0] != 14 || got[1] != 32 || got[3] != 77 {
		t.Errorf("%v: %v", err, got)
	}
	codes, err := tensor.Quantize(invar.QuantizeOptions{Granularity: invar.PerRow})
	if err != nil {
		t.Fatal(err)
	}
	defer codes.Close()
	info, err := codes.Info()
	if err != nil || !info.Quantized || len(info.ScaleInv) != 2 || info.ScaleInv[1] != 6.0/448 {
		t.Errorf("%v: %+v", err, info)
	}
	back, err := codes.Dequantize(invar.FP32)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if err := back.Read(invar.Bytes(values)); err != nil || values[5] != 6 {
		t.Errorf("%v: %v", err, values)
	}
	if _, err := invar.ViewTensor(runtime, invar.FP32, values, 7); !errors.Is(err, invar.Reason("tensor.data_size")) {
		t.Errorf("%v", err)
	}
	managed, err := tensor.DLPack()
	if err != nil || managed == 0 {
		t.Fatalf("%v", err)
	}
	taken, err := invar.TensorFromDLPack(runtime, managed)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if again, err := invar.Elements[float32](taken); err != nil || &again[0] != &values[0] {
		t.Errorf("%v", err)
	}
}

func TestOptimizerOnOwnMemory(t *testing.T) {
	runtime := testRuntime(t)
	weights, gradients := []float32{1, 2}, []float32{0.5, -0.5}
	parameter, err := invar.ViewTensor(runtime, invar.FP32, weights, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer parameter.Close()
	gradient, err := invar.ViewTensor(runtime, invar.FP32, gradients, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer gradient.Close()
	sums, err := invar.NewAccumulator(runtime, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	for range 2 {
		if err := sums.Add(0, gradient); err != nil {
			t.Fatal(err)
		}
		if err := sums.AddTokens(4); err != nil {
			t.Fatal(err)
		}
	}
	summary, err := sums.Summary()
	if err != nil || !summary.Finite || summary.Tokens != 8 {
		t.Errorf("%v: %+v", err, summary)
	}
	total, err := sums.Gradient(0)
	if err != nil {
		t.Fatal(err)
	}
	defer total.Close()
	optimizer, err := invar.NewOptimizer(runtime, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer optimizer.Close()
	if index, err := optimizer.Add(parameter, false); err != nil || index != 0 {
		t.Fatalf("%v: %d", err, index)
	}
	result, err := optimizer.Step([]*invar.Tensor{total}, 0.1, 1.0/8)
	if err != nil || result.Step != 1 || result.Skipped {
		t.Fatalf("%v: %+v", err, result)
	}
	// The first step of Adam moves by the learning rate against the sign.
	if weights[0] > 0.91 || weights[0] < 0.89 || weights[1] < 2.09 || weights[1] > 2.11 {
		t.Errorf("%v", weights)
	}
	moment, err := optimizer.State(0, invar.FirstMoment)
	if err != nil {
		t.Fatal(err)
	}
	moment.Close()
	if _, err := optimizer.Step(nil, 0.1, 1); err == nil {
		t.Error("a step without gradients succeeds")
	}
	if err := optimizer.SetStep(10); err != nil {
		t.Error(err)
	}
	if err := sums.Reset(); err != nil {
		t.Error(err)
	}
}

func TestWrongBatchesAreRefused(t *testing.T) {
	session := hostDriven(t, testRuntime(t))
	for _, batch := range []invar.Batch{
		{},
		{Sequences: 2, SequenceLength: 16, IDs: ids(31)},
		{Sequences: 2, SequenceLength: 16, IDs: ids(32), Mask: make([]byte, 3)},
		{Sequences: 1 << 62, SequenceLength: 16, IDs: ids(32)},
	} {
		if _, err := session.ForwardBackward(batch); !errors.Is(err, invar.Reason("batch.shape")) {
			t.Errorf("%v", err)
		}
	}
	if _, err := session.Step(); !errors.Is(err, invar.FailedPrecondition) {
		t.Errorf("%v", err)
	}
}

func TestLogLinesReachSlogAndFilesComeFromAnFS(t *testing.T) {
	folder := casePath(t, "autofp8-static-llama")
	files := fstest.MapFS{}
	if err := loadInto(files, filepath.Join(folder, "input"), "models/a"); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	runtime, err := invar.NewRuntime(invar.Options{
		Threads:    1,
		Logger:     slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Files:      files,
		FilePrefix: "store://",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.Close()
	report, err := runtime.Inspect(context.Background(), &invarv1.InspectConfig{Path: proto.String("store://models/a")})
	if err != nil || report.GetTensors() < 20 {
		t.Errorf("%v: %v", err, report.GetTensors())
	}
	if _, err := runtime.Inspect(context.Background(), &invarv1.InspectConfig{Path: proto.String("store://models/b")}); err == nil {
		t.Error("a folder that is not there is read")
	}
	if _, err := invar.NewRuntime(invar.Options{Files: files}); !errors.Is(err, invar.Reason("argument.files")) {
		t.Errorf("%v", err)
	}
}

func TestManyGoroutinesShareARuntime(t *testing.T) {
	runtime := testRuntime(t)
	folder := casePath(t, "autofp8-static-llama")
	checkpoint, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(filepath.Join(folder, "input"))})
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for tensor, err := range checkpoint.Tensors() {
				if err != nil {
					t.Error(err)
					return
				}
				if err := checkpoint.Decode(context.Background(), tensor.Name, make([]float32, tensor.Elements)); err != nil {
					t.Error(err)
				}
			}
			session := hostDriven(t, runtime)
			if err := session.Begin(1); err != nil {
				t.Error(err)
			}
			if _, err := session.ForwardBackward(invar.Batch{Sequences: 2, SequenceLength: 16, IDs: ids(32)}); err != nil {
				t.Error(err)
			}
		}()
	}
	wait.Wait()
	checkpoint.Close()
	if _, err := checkpoint.Len(); !errors.Is(err, invar.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestLibraryAndPackageAreOfOneVersion(t *testing.T) {
	if invar.ABIVersion() != 0 || invar.Version() == "" || invar.VersionNumber() < 1000 || !strings.Contains(invar.BuildInfo(), invar.Version()) {
		t.Errorf("%d %s %d %s", invar.ABIVersion(), invar.Version(), invar.VersionNumber(), invar.BuildInfo())
	}
	if !invar.HasFeature("cpu") || invar.HasFeature("no such thing") {
		t.Error("features")
	}
	for code := invar.Code(-1); code < 20; code++ {
		if code.String() != raw.CodeName(int32(code)) {
			t.Errorf("code %d is %s here, %s in the library", int32(code), code, raw.CodeName(int32(code)))
		}
	}
}
