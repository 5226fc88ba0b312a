// Converts an FP8 checkpoint to BF16 and prints how many tensors were written: convert SOURCE DESTINATION.
package main

import (
	"context"
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

func run(source, destination string) error {
	runtime, err := invar.NewRuntime(invar.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	report, err := runtime.Convert(context.Background(), &invarv1.ConvertConfig{
		Source:      proto.String(source),
		Destination: proto.String(destination),
	})
	if err != nil {
		return err
	}
	fmt.Println("tensors_written:", report.GetTensorsWritten())
	return nil
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
