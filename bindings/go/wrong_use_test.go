package invar_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// objects is one of each kind of object, made from a runtime.
func objects(t *testing.T, runtime *invar.Runtime) map[string]any {
	t.Helper()
	checkpoint, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(fp8Checkpoint())})
	if err != nil {
		t.Fatal(err)
	}
	model, err := invar.LoadModel(context.Background(), runtime, &invarv1.LoadConfig{Path: proto.String(trainedModel())})
	if err != nil {
		t.Fatal(err)
	}
	tensor, err := invar.NewTensor(runtime, invar.FP32, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	optimizer, err := invar.NewOptimizer(runtime, nil)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := invar.NewAccumulator(runtime, 4)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"runtime":     runtime,
		"checkpoint":  checkpoint,
		"model":       model,
		"session":     hostDriven(t, runtime),
		"tokenizer":   loadTokenizer(t, runtime, tokenizerFolder()),
		"tensor":      tensor,
		"optimizer":   optimizer,
		"accumulator": sums,
	}
}

// callEveryMethod calls the methods of object, but for Close, with arguments that are right, and gives their errors.
func callEveryMethod(t *testing.T, ctx context.Context, object any, arguments ...any) map[string]error {
	t.Helper()
	failures := map[string]error{}
	value := reflect.ValueOf(object)
	for i := range value.NumMethod() {
		method, name := value.Method(i), value.Type().Method(i).Name
		if name == "Close" || name == "String" {
			continue
		}
		in := make([]reflect.Value, method.Type().NumIn())
		for j := range in {
			in[j] = reflect.Zero(method.Type().In(j))
			for _, argument := range append(arguments, ctx) {
				if given := reflect.ValueOf(argument); given.Type().AssignableTo(method.Type().In(j)) {
					in[j] = given
				}
			}
		}
		call := method.Call
		if method.Type().IsVariadic() {
			call = method.CallSlice
		}
		out := call(in)
		last := out[len(out)-1]
		if last.Kind() == reflect.Func { // an iterator: its error is the first thing it yields
			yielded := 0
			last.Call([]reflect.Value{reflect.MakeFunc(last.Type().In(0), func(values []reflect.Value) []reflect.Value {
				yielded++
				last = values[1]
				return []reflect.Value{reflect.ValueOf(false)}
			})})
			if yielded != 1 {
				t.Errorf("%s yields %d times", name, yielded)
			}
		}
		err, _ := last.Interface().(error)
		failures[name] = err
	}
	return failures
}

func TestEveryMethodOfAClosedObjectFails(t *testing.T) {
	runtime := testRuntime(t)
	batch := invar.Batch{Sequences: 2, SequenceLength: 16, IDs: ids(32)}
	kept, err := invar.NewTensor(runtime, invar.FP32, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	calls := 0
	for kind, object := range objects(t, runtime) {
		for range 2 {
			if err := object.(interface{ Close() error }).Close(); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		for name, err := range callEveryMethod(t, context.Background(), object, batch, kept, new(invarv1.TrainConfig)) {
			calls++
			if !errors.Is(err, invar.ErrClosed) || !errors.Is(err, invar.FailedPrecondition) || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s.%s: %v", kind, name, err)
			}
		}
	}
	if calls < 60 {
		t.Errorf("only %d methods", calls)
	}
}

func TestEveryMethodOfNilFails(t *testing.T) {
	batch := invar.Batch{Sequences: 2, SequenceLength: 16, IDs: ids(32)}
	for _, object := range []any{
		(*invar.Runtime)(nil), (*invar.Checkpoint)(nil), (*invar.Model)(nil), (*invar.Session)(nil), (*invar.Tokenizer)(nil),
		(*invar.Tensor)(nil), (*invar.Optimizer)(nil), (*invar.Accumulator)(nil),
	} {
		if err := object.(interface{ Close() error }).Close(); err != nil {
			t.Errorf("%T: %v", object, err)
		}
		for name, err := range callEveryMethod(t, context.Background(), object, batch, new(invarv1.TrainConfig)) {
			if !errors.Is(err, invar.InvalidArgument) || !errors.Is(err, invar.Reason("argument.null")) {
				t.Errorf("%T.%s: %v", object, name, err)
			}
		}
	}
}

func TestNilArgumentsAreErrors(t *testing.T) {
	runtime := testRuntime(t)
	ctx := context.Background()
	calls := map[string]error{}
	_, calls["session"] = invar.NewSession(ctx, nil, nil)
	_, calls["model"] = invar.LoadModel(ctx, nil, nil)
	_, calls["checkpoint"] = invar.OpenCheckpoint(nil, nil)
	_, calls["tokenizer"] = invar.LoadTokenizer(nil, "x")
	_, calls["tensor"] = invar.NewTensor(nil, invar.FP32, 1)
	_, calls["view"] = invar.ViewTensor(nil, invar.FP32, []float32{1}, 1)
	_, calls["dlpack"] = invar.TensorFromDLPack(runtime, 0)
	_, calls["optimizer"] = invar.NewOptimizer(nil, nil)
	_, calls["accumulator"] = invar.NewAccumulator(nil, 1)
	_, calls["elements"] = invar.Elements[float32](nil)
	_, calls["matmul"] = invar.MatMul(nil, false, nil, false, invar.FP32)
	_, calls["empty config"] = invar.OpenCheckpoint(runtime, nil)
	_, calls["not made here"] = new(invar.Runtime).Info()
	// A nil context never ends.
	_, calls["nil context"] = runtime.Inspect(nil, nil) //lint:ignore SA1012 that is what is tested
	calls["nil message"] = runtime.Check(nil)
	calls["nil message to fill"] = runtime.FromJSON("{}", nil)
	for name, err := range calls {
		if !errors.Is(err, invar.InvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAContextThatHasEndedIsSeenByEveryLongCall(t *testing.T) {
	runtime := testRuntime(t)
	ended, cancel := context.WithCancelCause(context.Background())
	own := errors.New("own")
	cancel(own)
	calls := 0
	for kind, object := range objects(t, runtime) {
		value := reflect.TypeOf(object)
		failures := callEveryMethod(t, ended, object, new(invarv1.TrainConfig))
		for i := range value.NumMethod() {
			method := value.Method(i)
			if method.Type.NumIn() < 2 || method.Type.In(1) != reflect.TypeFor[context.Context]() || method.Name == "Decode" {
				continue
			}
			calls++
			err := failures[method.Name]
			if !errors.Is(err, invar.Cancelled) || !errors.Is(err, context.Canceled) || !errors.Is(err, own) || !invar.IsCancelled(err) {
				t.Errorf("%s.%s: %v", kind, method.Name, err)
			}
		}
		object.(interface{ Close() error }).Close()
	}
	if calls < 18 {
		t.Errorf("only %d methods", calls)
	}
}

func TestAnyGoroutineInTurn(t *testing.T) {
	session := hostDriven(t, testRuntime(t))
	for want := int64(1); want <= 3; want++ {
		done := make(chan invar.StepMetrics)
		go func() {
			defer close(done)
			if err := session.Begin(1); err != nil {
				t.Error(err)
			}
			if _, err := session.ForwardBackward(invar.Batch{Sequences: 2, SequenceLength: 16, IDs: ids(32)}); err != nil {
				t.Error(err)
			}
			metrics, err := session.Step()
			if err != nil {
				t.Error(err)
			}
			done <- metrics
		}()
		if metrics := <-done; metrics.Step != want {
			t.Errorf("step %d, expected %d", metrics.Step, want)
		}
	}
}

func TestGoroutinesMayCloseWhatOthersUse(t *testing.T) {
	runtime := testRuntime(t)
	tokenizer := loadTokenizer(t, runtime, tokenizerFolder())
	var wait sync.WaitGroup
	for range 4 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				if _, err := tokenizer.Encode("The quick brown fox", 0); err != nil {
					if !errors.Is(err, invar.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		}()
	}
	time.Sleep(5 * time.Millisecond)
	tokenizer.Close()
	runtime.Close()
	wait.Wait()
}

type panickingHandler struct{ slog.Handler }

func (panickingHandler) Handle(context.Context, slog.Record) error { panic("log") }

type panickingFiles struct{}

func (panickingFiles) Open(string) (fs.File, error) { panic("files") }

func TestPanicsOfALoggerAndOfFilesStayInside(t *testing.T) {
	runtime, err := invar.NewRuntime(invar.Options{
		Threads:    1,
		Logger:     slog.New(panickingHandler{slog.NewTextHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelDebug})}),
		Files:      panickingFiles{},
		FilePrefix: "store://",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.Close()
	_, err = runtime.Inspect(context.Background(), &invarv1.InspectConfig{Path: proto.String("store://a")})
	var failed *invar.Error
	if !errors.As(err, &failed) || !strings.Contains(failed.Message, "store://a") {
		t.Errorf("%v", err)
	}
	// A change of the recipe is worth a line.
	config := trainConfig(t, runtime, string(loadExamples(t).FineTune.Config))
	config.Data.Paths, config.Output, config.Steps = []string{textFile()}, proto.String(filepath.Join(t.TempDir(), "run")), proto.Int64(2)
	if err := runtime.Set(config, `precision={"recipe": "fp8_block", "ladder": {"warmup_steps": 1}}`); err != nil {
		t.Fatal(err)
	}
	session, err := invar.NewSession(context.Background(), runtime, config)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Run(context.Background()); err != nil {
		t.Error(err)
	}
}

// child runs this program again, as its user would start it, with libraries looked for in one folder alone.
func child(t *testing.T, libraries string) string {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries, "INVAR_TEST_CHILD=1")
	output, err := command.CombinedOutput()
	if err == nil {
		t.Errorf("the program ran: %s", output)
	}
	return string(output)
}

// TestChild is the program of the tests below: it starts a runtime.
func TestChild(t *testing.T) {
	if os.Getenv("INVAR_TEST_CHILD") == "" {
		t.Skip("started by other tests")
	}
	_, err := invar.NewRuntime(invar.Options{})
	if !errors.Is(err, invar.ReasonABI) {
		t.Errorf("expected %s", invar.ReasonABI)
	}
	t.Fatal(err)
}

// What the package's documentation says of a missing library is what the loader says.
func TestWithoutTheLibraryTheLoaderNamesIt(t *testing.T) {
	const says = "error while loading shared libraries: libinvar.so.0: cannot open shared object file: No such file or directory"
	if output := child(t, t.TempDir()); !strings.Contains(output, says) {
		t.Errorf("%s", output)
	}
	if source, err := os.ReadFile("doc.go"); err != nil || !strings.Contains(string(source), says) {
		t.Errorf("doc.go does not tell it: %v", err)
	}
}

func TestALibraryOfAnotherABIIsToldByBothNumbers(t *testing.T) {
	other := os.Getenv("INVAR_TEST_OTHER_ABI") // set by go_test.sh
	if other == "" {
		t.Skip("INVAR_TEST_OTHER_ABI names no library")
	}
	content, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "libinvar.so.0"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	output := child(t, folder)
	if !strings.Contains(output, "libinvar 7.8.9 has ABI 7, this package was built for ABI 0") || strings.Contains(output, "expected library.abi") {
		t.Errorf("%s", output)
	}
}
