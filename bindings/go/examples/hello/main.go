// Trains a small model on a text file and prints what it writes: hello FILE.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string) error {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	session, err := invar.NewSession(ctx, runtime, &invarv1.TrainConfig{
		Model:     &invarv1.ModelConfig{HiddenSize: proto.Int64(64), NumHiddenLayers: proto.Int64(2), IntermediateSize: proto.Int64(176)},
		Data:      &invarv1.DataConfig{Paths: []string{file}, SequenceLength: proto.Int64(64)},
		Optimizer: &invarv1.OptimizerConfig{Lr: proto.Float64(0.01)},
		Output:    proto.String("run"),
		Steps:     proto.Int64(200),
	})
	if err != nil {
		return err
	}
	defer session.Close()
	for step, err := range session.Steps(ctx) {
		if err != nil {
			return err
		}
		fmt.Printf("step %d loss %.3f\n", step.Step, step.Loss)
	}
	for token, err := range session.Tokens(ctx, &invarv1.GenerateConfig{Prompt: proto.String("line 7 says")}) {
		if err != nil {
			return err
		}
		fmt.Print(token.Text)
	}
	fmt.Println()
	return nil
}
