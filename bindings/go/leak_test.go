package invar_test

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// resident is the process's resident memory in bytes.
func resident(t *testing.T) int {
	t.Helper()
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(content))[1])
	return pages * os.Getpagesize()
}

// Ten thousand calls of each kind leave resident memory as it was; runs with INVAR_LEAKS set.
func TestLeakOfEveryCall(t *testing.T) {
	if os.Getenv("INVAR_LEAKS") == "" {
		t.Skip("INVAR_LEAKS is not set")
	}
	runtime := testRuntime(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	folder := filepath.Join(casePath(t, "autofp8-static-llama"), "input")
	checkpoint, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(folder)})
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	session := hostDriven(t, runtime)
	vocabulary := casePath(t, smallLlama3)
	tokenizer := loadTokenizer(t, runtime, vocabulary)
	values := make([]float32, 64)
	rows := make([]byte, 128)
	batch := invar.Batch{Sequences: 1, SequenceLength: 4, IDs: ids(4)}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	calls := []struct {
		name string
		call func()
	}{
		{"runtime", func() {
			made, err := invar.NewRuntime(invar.Options{Threads: 1})
			must(err)
			made.Close()
		}},
		{"info", func() { _, err := runtime.Info(); must(err) }},
		{"error", func() {
			if runtime.FromJSON("{", new(invarv1.TrainConfig)) == nil {
				t.Fatal("no error")
			}
		}},
		{"message", func() { must(runtime.Set(&invarv1.TrainConfig{}, "steps=3")) }},
		{"inspect", func() {
			_, err := runtime.Inspect(ctx, &invarv1.InspectConfig{Path: proto.String(folder)}, invar.OnProgress(func(invar.Progress) error { return nil }))
			must(err)
		}},
		{"open", func() {
			made, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(folder)})
			must(err)
			made.Close()
		}},
		{"read rows", func() { must(checkpoint.ReadRows(ctx, 1, 0, 1, invar.BF16, rows)) }},
		{"describe", func() { _, err := checkpoint.Tensor(0); must(err) }},
		{"view", func() {
			made, err := invar.ViewTensor(runtime, invar.FP32, values, 8, 8)
			must(err)
			cast, err := made.Cast(invar.BF16)
			must(err)
			made.Close()
			cast.Close()
		}},
		{"quantize", func() {
			made, err := invar.NewTensor(runtime, invar.FP32, 8, 8)
			must(err)
			codes, err := made.Quantize(invar.QuantizeOptions{})
			must(err)
			_, err = codes.Info()
			must(err)
			made.Close()
			codes.Close()
		}},
		{"tokenizer", func() {
			encoded, err := tokenizer.Encode("The quick brown fox", invar.EncodeAddSpecial)
			must(err)
			_, err = tokenizer.Decode(encoded, 0)
			must(err)
		}},
		{"load tokenizer", func() {
			made, err := invar.LoadTokenizer(runtime, vocabulary)
			must(err)
			made.Close()
		}},
		{"optimizer", func() {
			made, err := invar.NewOptimizer(runtime, nil)
			must(err)
			made.Close()
		}},
		{"accumulator", func() {
			made, err := invar.NewAccumulator(runtime, 8)
			must(err)
			made.Close()
		}},
		{"step", func() {
			must(session.Begin(1))
			_, err := session.ForwardBackward(batch)
			must(err)
			_, err = session.Step()
			must(err)
		}},
		{"session report", func() { _, err := session.Report(); must(err) }},
		{"loop", func() {
			for range session.Steps(ctx) {
				break
			}
		}},
	}
	for _, one := range calls {
		for range 2000 {
			one.call()
		}
		goruntime.GC()
		before := resident(t)
		for range 10_000 {
			one.call()
		}
		goruntime.GC()
		grown := resident(t) - before
		t.Logf("%-16s %+8d KiB", one.name, grown/1024)
		// A lost object of 100 bytes a call would be 1 MB; Go's own heap moves by less than eight.
		if grown > 8<<20 {
			t.Errorf("%s: resident memory grew by %d bytes in 10000 calls", one.name, grown)
		}
	}
}

// What the layers cost: a call that does nothing else.
func TestOverheadOfACall(t *testing.T) {
	if os.Getenv("INVAR_LEAKS") == "" {
		t.Skip("INVAR_LEAKS is not set")
	}
	tensor, err := invar.NewTensor(testRuntime(t), invar.FP32, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer tensor.Close()
	memory := make([]byte, 16)
	best := time.Hour
	for range 20 {
		start := time.Now()
		for range 10_000 {
			if tensor.Read(memory) != nil {
				t.Fatal("read")
			}
		}
		best = min(best, time.Since(start)/10_000)
	}
	t.Logf("one call: %v", best)
	if best > time.Microsecond {
		t.Errorf("a call takes %v, expected at most 1us", best)
	}
}
