package invar

import (
	"context"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar/internal/raw"
)

// reporter is a raw method of H that takes a config and gives back a report.
type reporter[H any] func(h H, config []byte, cancel raw.Cancel, progress uintptr, word *uintptr) uintptr

func onRuntime[R proto.Message](ctx context.Context, runtime *Runtime, config proto.Message, report R, options []Option,
	method reporter[raw.Runtime]) (R, error) {
	return on(ctx, runtime.self(), runtime, func() raw.Runtime { return runtime.raw }, config, report, options, method)
}

// on runs method on the object behind h; object is asked for only once h has begun.
func on[H any, R proto.Message](ctx context.Context, h *handle, runtime *Runtime, object func() H, config proto.Message,
	report R, options []Option, method reporter[H]) (R, error) {
	var none R
	end, err := begin(h)
	if err != nil {
		return none, err
	}
	defer end()
	err = work(ctx, runtime, config, report, options,
		func(config []byte, cancel raw.Cancel, progress uintptr, word *uintptr) uintptr {
			return method(object(), config, cancel, progress, word)
		})
	if err != nil {
		return none, err
	}
	return report, nil
}

// create makes an object from a config; on success a call on the runtime has begun, which the object's handle ends.
func create[H any, C proto.Message](ctx context.Context, runtime *Runtime, config C, options []Option,
	native func(runtime raw.Runtime, config []byte, cancel raw.Cancel, progress uintptr, word *uintptr) H) (H, error) {
	var made, none H
	if err := runtime.self().begin(); err != nil {
		return none, err
	}
	err := work(ctx, runtime, config, nil, options,
		func(config []byte, cancel raw.Cancel, progress uintptr, word *uintptr) uintptr {
			made = native(runtime.raw, config, cancel, progress, word)
			return 0
		})
	if err != nil {
		runtime.self().end()
		return none, err
	}
	return made, nil
}

// brief runs a short method that gives back a message.
func brief[H any, R proto.Message](h *handle, object func() H, report R, method func(h H, word *uintptr) uintptr) (R, error) {
	var none R
	if err := h.begin(); err != nil {
		return none, err
	}
	defer h.end()
	var word uintptr
	result := method(object(), &word)
	if err := failure(word); err != nil {
		return none, err
	}
	return report, decode(result, report)
}
