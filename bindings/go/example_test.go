package invar_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// The examples of go doc. What they read: a small FP8 checkpoint, a tokenizer, and a text of numbered lines.

func fp8Checkpoint() string {
	return sample("autofp8-static-llama/input")
}

func tokenizerFolder() string {
	return sample(smallLlama3)
}

// sample is a copy of a case in a folder that lives as long as the tests.
func sample(name string) string {
	target := scratch()
	if err := copyFolder(filepath.Join(root(), "tests", "cases", filepath.FromSlash(name)), target); err != nil {
		log.Fatal(err)
	}
	return target
}

func scratch() string {
	folder, err := os.MkdirTemp(exampleFolder, "")
	if err != nil {
		log.Fatal(err)
	}
	return folder
}

var exampleFolder string

// textFile holds lines such as "line 7 says that the sum of 7 and 1 is 8".
func textFile() string {
	path := filepath.Join(scratch(), "text.txt")
	if err := os.WriteFile(path, []byte(numberedLines(200)), 0o644); err != nil {
		log.Fatal(err)
	}
	return path
}

// smallModel is a shape that trains in a moment.
func smallModel() *invarv1.ModelConfig {
	return &invarv1.ModelConfig{
		HiddenSize:        proto.Int64(32),
		NumHiddenLayers:   proto.Int64(1),
		NumAttentionHeads: proto.Int64(2),
		IntermediateSize:  proto.Int64(64),
	}
}

// trainedModel is a folder with a small trained model.
func trainedModel() string {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	folder := scratch()
	session, err := invar.NewSession(context.Background(), runtime, &invarv1.TrainConfig{
		Model:  smallModel(),
		Data:   &invarv1.DataConfig{Paths: []string{textFile()}, SequenceLength: proto.Int64(16)},
		Output: proto.String(filepath.Join(folder, "run")),
		Steps:  proto.Int64(2),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	exported := filepath.Join(folder, "model")
	if _, err := session.Export(context.Background(), &invarv1.ExportConfig{Destination: proto.String(exported)}); err != nil {
		log.Fatal(err)
	}
	return exported
}

// From a text file to a model that writes.
func Example() {
	ctx := context.Background()
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()

	session, err := invar.NewSession(ctx, runtime, &invarv1.TrainConfig{
		Model:  smallModel(), // or Path: a model folder to fine-tune
		Data:   &invarv1.DataConfig{Paths: []string{textFile()}, SequenceLength: proto.Int64(16)},
		Output: proto.String(filepath.Join(scratch(), "run")),
		Steps:  proto.Int64(10),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	report, err := session.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.GetSteps(), "steps, loss fell:", report.GetLastLoss() < report.GetFirstLoss())

	written, err := session.Generate(ctx, &invarv1.GenerateConfig{
		Prompt:    proto.String("line 7 says "),
		MaxTokens: proto.Int64(8),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(written.GetIds()), "tokens written")
	// Output:
	// 10 steps, loss fell: true
	// 8 tokens written
}

// An FP8 checkpoint to BF16, with proof.
func ExampleRuntime_Convert() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	report, err := runtime.Convert(context.Background(), &invarv1.ConvertConfig{
		Source:      proto.String(fp8Checkpoint()),
		Destination: proto.String(filepath.Join(scratch(), "bf16")),
		Verify:      proto.Bool(true), // reads everything again
	}, invar.OnProgress(func(progress invar.Progress) error {
		// progress.Done of progress.Total bytes; an error stops the work.
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.GetTensorsWritten(), "tensors written,", report.GetScalesUsed(), "scales used, passed:", report.GetPassed())
	// Output: 20 tensors written, 14 scales used, passed: true
}

// One tensor of an FP8 file, decoded into memory of one's own.
func ExampleCheckpoint_ReadRows() {
	ctx := context.Background()
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	checkpoint, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(fp8Checkpoint())})
	if err != nil {
		log.Fatal(err)
	}
	defer checkpoint.Close()

	tensor, err := checkpoint.Find("model.layers.0.self_attn.k_proj.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tensor.DType, tensor.Shape, tensor.Rule)
	rows := make([]float32, 2*tensor.Shape[1])
	if err := checkpoint.ReadRows(ctx, tensor.Index, 0, 2, invar.FP32, invar.Bytes(rows)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(rows), "values of the first two rows")
	// Output:
	// DTYPE_FP8_E4M3 [32 64] tensor_scale
	// 128 values of the first two rows
}

// Every tensor of a checkpoint, in a loop.
func ExampleCheckpoint_Tensors() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	checkpoint, err := invar.OpenCheckpoint(runtime, &invarv1.OpenConfig{Path: proto.String(fp8Checkpoint())})
	if err != nil {
		log.Fatal(err)
	}
	defer checkpoint.Close()
	rules := map[string]int{}
	for tensor, err := range checkpoint.Tensors() {
		if err != nil {
			log.Fatal(err)
		}
		rules[tensor.Rule]++
	}
	fmt.Println(rules)
	// Output: map[copy:6 tensor_scale:14]
}

// A training run as a loop over its steps; leaving the loop stops the run.
func ExampleSession_Steps() {
	ctx := context.Background()
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	session, err := invar.NewSession(ctx, runtime, &invarv1.TrainConfig{
		Model:  smallModel(),
		Data:   &invarv1.DataConfig{Paths: []string{textFile()}, SequenceLength: proto.Int64(16)},
		Output: proto.String(filepath.Join(scratch(), "run")),
		Steps:  proto.Int64(1000),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for metrics, err := range session.Steps(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if metrics.Step == 3 {
			fmt.Println("stopped after step", metrics.Step)
			break
		}
	}
	// Output: stopped after step 3
}

// A run that ends by its context has written a training checkpoint, and may go on.
func ExampleSession_Run() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	session, err := invar.NewSession(context.Background(), runtime, &invarv1.TrainConfig{
		Model:  smallModel(),
		Data:   &invarv1.DataConfig{Paths: []string{textFile()}, SequenceLength: proto.Int64(16)},
		Output: proto.String(filepath.Join(scratch(), "run")),
		Steps:  proto.Int64(1_000_000),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = session.Run(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), invar.IsCancelled(err))
	report, err := session.Report()
	if err != nil {
		log.Fatal(err)
	}
	_, err = os.Stat(report.GetCheckpoint())
	fmt.Println("checkpoint written:", err == nil)
	// Output:
	// true true
	// checkpoint written: true
}

// The host's own loop: own data, own learning rate.
func ExampleSession_ForwardBackward() {
	ctx := context.Background()
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	session, err := invar.NewSession(ctx, runtime, &invarv1.TrainConfig{
		Model: smallModel(),
		Data: &invarv1.DataConfig{
			SequenceLength: proto.Int64(16),
			Tokenizer:      &invarv1.TokenizerConfig{Kind: invarv1.TokenizerKind_TOKENIZER_KIND_BYTE.Enum()},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	const microBatches = 2
	for step := range 3 {
		if err := session.Begin(microBatches); err != nil {
			log.Fatal(err)
		}
		for range microBatches {
			batch := invar.Batch{Sequences: 2, SequenceLength: 16, IDs: ids(32)}
			if _, err := session.ForwardBackward(batch); err != nil {
				log.Fatal(err)
			}
		}
		metrics, err := session.StepWithLR(0.02 / float64(1+step))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("step", metrics.Step, "of", metrics.Tokens, "tokens")
	}
	// Output:
	// step 1 of 60 tokens
	// step 2 of 60 tokens
	// step 3 of 60 tokens
}

// Text as it is made, token by token.
func ExampleModel_Tokens() {
	ctx := context.Background()
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	model, err := invar.LoadModel(ctx, runtime, &invarv1.LoadConfig{Path: proto.String(trainedModel())})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	count := 0
	for token, err := range model.Tokens(ctx, &invarv1.GenerateConfig{
		Prompt:    proto.String("line 7"),
		MaxTokens: proto.Int64(12),
	}) {
		if err != nil {
			log.Fatal(err)
		}
		_ = token.Text // whole characters, ready to be shown
		count++
	}
	fmt.Println(count, "tokens")
	// Output: 12 tokens
}

func ExampleTokenizer() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	tokenizer, err := invar.LoadTokenizer(runtime, tokenizerFolder())
	if err != nil {
		log.Fatal(err)
	}
	defer tokenizer.Close()
	encoded, err := tokenizer.Encode("   a", invar.EncodeAddSpecial)
	if err != nil {
		log.Fatal(err)
	}
	text, err := tokenizer.Decode(encoded, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v %q\n", encoded, text)
	// Output: [0 400 262] "<|begin_of_text|>   a"
}

// A tensor over a slice: nothing is copied.
func ExampleViewTensor() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	values := []float32{1, 2, 3, 4}
	tensor, err := invar.ViewTensor(runtime, invar.FP32, values, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer tensor.Close()
	product, err := invar.MatMul(tensor, false, tensor, true, invar.FP32)
	if err != nil {
		log.Fatal(err)
	}
	defer product.Close()
	elements, err := invar.Elements[float32](product)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(elements)
	// Output: [5 11 11 25]
}

// FP8 codes with a scale for each row, and back.
func ExampleTensor_Quantize() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	tensor, err := invar.ViewTensor(runtime, invar.FP32, []float32{448, -224, 7, 3.5}, 2, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer tensor.Close()
	codes, err := tensor.Quantize(invar.QuantizeOptions{DType: invar.FP8E4M3, Granularity: invar.PerRow})
	if err != nil {
		log.Fatal(err)
	}
	defer codes.Close()
	info, err := codes.Info()
	if err != nil {
		log.Fatal(err)
	}
	back, err := codes.Dequantize(invar.FP32)
	if err != nil {
		log.Fatal(err)
	}
	defer back.Close()
	values, err := invar.Elements[float32](back)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.ScaleInv, values)
	// Output: [1 0.015625] [448 -224 7 3.5]
}

// AdamW on tensors of one's own, with gradients summed over micro-batches.
func ExampleOptimizer() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	weights, gradients := []float32{1, 2}, []float32{0.5, -0.5}
	parameter, err := invar.ViewTensor(runtime, invar.FP32, weights, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer parameter.Close()
	gradient, err := invar.ViewTensor(runtime, invar.FP32, gradients, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer gradient.Close()

	sums, err := invar.NewAccumulator(runtime, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer sums.Close()
	for range 2 {
		if err := errors.Join(sums.Add(0, gradient), sums.AddTokens(4)); err != nil {
			log.Fatal(err)
		}
	}
	summary, err := sums.Summary()
	if err != nil {
		log.Fatal(err)
	}
	total, err := sums.Gradient(0)
	if err != nil {
		log.Fatal(err)
	}
	defer total.Close()

	optimizer, err := invar.NewOptimizer(runtime, &invarv1.OptimizerConfig{WeightDecay: proto.Float64(0)})
	if err != nil {
		log.Fatal(err)
	}
	defer optimizer.Close()
	if _, err := optimizer.Add(parameter, true); err != nil {
		log.Fatal(err)
	}
	if _, err := optimizer.Step([]*invar.Tensor{total}, 0.1, 1/float64(summary.Tokens)); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.2f\n", weights)
	// Output: [0.90 2.10]
}

// Errors are asked for by code or by reason.
func ExampleError() {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	_, err = runtime.Inspect(context.Background(), &invarv1.InspectConfig{Path: proto.String("/nowhere")})
	fmt.Println(errors.Is(err, invar.NotFound))

	err = runtime.FromJSON(`{"stepz": 5}`, new(invarv1.TrainConfig))
	fmt.Println(errors.Is(err, invar.InvalidArgument), errors.Is(err, invar.Reason("config.unknown_field")))
	var failed *invar.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Code, failed.Reason)
	}
	// Output:
	// true
	// true true
	// INVALID_ARGUMENT config.unknown_field
}

// Log lines go to slog, and files come from an fs.FS.
func ExampleNewRuntime() {
	runtime, err := invar.NewRuntime(invar.Options{
		Threads:    2,
		Logger:     slog.Default(),
		Files:      os.DirFS(fp8Checkpoint()), // its files implement io.ReaderAt
		FilePrefix: "store://",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer runtime.Close()
	report, err := runtime.Inspect(context.Background(), &invarv1.InspectConfig{Path: proto.String("store://.")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.GetTensors(), "tensors")
	// Output: 50 tensors
}
