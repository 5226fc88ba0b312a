// Package invar trains, fine-tunes and converts language models in mixed precision, over libinvar's C interface.
//
//	runtime, err := invar.NewRuntime(invar.Options{})
//	...
//	defer runtime.Close()
//	report, err := runtime.Convert(ctx, &invarv1.ConvertConfig{
//		Source:      proto.String("DeepSeek-V3"),
//		Destination: proto.String("DeepSeek-V3-bf16"),
//	})
//
// Configs and reports are the messages of package invarv1. Long calls take a context, which cancels them at the next
// boundary, and options such as OnProgress. Failures are *Error, with a Code and a Reason that errors.Is finds.
// Close is idempotent and may come at any time: a call that is at work ends first.
//
// # The library
//
// Building needs the shared library, found by pkg-config under the name invar: set PKG_CONFIG_PATH to the folder of
// invar.pc. Where that is missing, go build says that pkg-config found no package invar.
//
// A program finds the library as every program on the system does: on the loader's path, or in a folder of
// LD_LIBRARY_PATH. Where it is missing the program does not start, and the loader says
//
//	error while loading shared libraries: libinvar.so.0: cannot open shared object file: No such file or directory
//
// NewRuntime refuses a library of another ABI ("library.abi"); its message has both numbers.
package invar
