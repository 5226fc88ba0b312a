package invar

import (
	"google.golang.org/protobuf/proto"

	"invar.dev/invar/internal/raw"
)

// The library's own view of configs and reports: JSON with comments, defaults, ranges, and errors that offer the nearest
// name. The generated messages of package invarv1 need none of it; protojson works on them too.

// typeOf is the message's full name; "" for nil, which the library refuses by its own words.
func typeOf(message proto.Message) string {
	if message == nil {
		return ""
	}
	return string(message.ProtoReflect().Descriptor().FullName())
}

// FromJSON fills message from the library's JSON, which allows comments.
func (r *Runtime) FromJSON(text string, message proto.Message) error {
	return r.into(message, func(word *uintptr) uintptr { return r.raw.MessageFromJson(typeOf(message), text, word) })
}

// FromText fills message from protobuf text form.
func (r *Runtime) FromText(text string, message proto.Message) error {
	return r.into(message, func(word *uintptr) uintptr { return r.raw.MessageFromText(typeOf(message), text, word) })
}

// Set applies one assignment, "optimizer.lr=3e-4"; "null" clears a field, "+=" appends to a list.
func (r *Runtime) Set(message proto.Message, assignment string) error {
	encoded, err := encode(message)
	if err != nil {
		return err
	}
	return r.into(message, func(word *uintptr) uintptr {
		return r.raw.MessageSet(typeOf(message), encoded, assignment, word)
	})
}

// FillDefaults sets every absent scalar to the default it stands for.
func (r *Runtime) FillDefaults(message proto.Message) error {
	encoded, err := encode(message)
	if err != nil {
		return err
	}
	return r.into(message, func(word *uintptr) uintptr {
		return r.raw.MessageWithDefaults(typeOf(message), encoded, word)
	})
}

func (r *Runtime) into(message proto.Message, call func(word *uintptr) uintptr) error {
	if message == nil || !message.ProtoReflect().IsValid() {
		return invalid("argument.null", "the message to fill is nil")
	}
	end, err := begin(r.self())
	if err != nil {
		return err
	}
	defer end()
	var word uintptr
	result := call(&word)
	if err := failure(word); err != nil {
		return err
	}
	return decode(result, message)
}

// Check looks at ranges, enum values and required fields, as every call does before it starts.
func (r *Runtime) Check(message proto.Message) error {
	end, err := begin(r.self())
	if err != nil {
		return err
	}
	defer end()
	encoded, err := encode(message)
	if err != nil {
		return err
	}
	var word uintptr
	r.raw.MessageCheck(typeOf(message), encoded, &word)
	return failure(word)
}

// ToJSON is a message with its keys in the order of declaration and enums by short name; pretty: one field a line.
func (r *Runtime) ToJSON(message proto.Message, pretty bool) (string, error) {
	return r.toText(message, func(encoded []byte, word *uintptr) uintptr {
		return r.raw.MessageToJson(typeOf(message), encoded, pretty, word)
	})
}

// ToText is a message in protobuf text form.
func (r *Runtime) ToText(message proto.Message) (string, error) {
	return r.toText(message, func(encoded []byte, word *uintptr) uintptr {
		return r.raw.MessageToText(typeOf(message), encoded, word)
	})
}

// Explain is about a field or message, for people: "train.optimizer.lr", "convert".
func (r *Runtime) Explain(path string) (string, error) {
	return r.toText(nil, func(_ []byte, word *uintptr) uintptr { return r.raw.MessageExplain(path, word) })
}

// Describe is all fields below a message ("train") as JSON: name, type, default, unit, range, doc.
func (r *Runtime) Describe(message string) (string, error) {
	return r.toText(nil, func(_ []byte, word *uintptr) uintptr { return r.raw.MessageDescribe(message, word) })
}

func (r *Runtime) toText(message proto.Message, call func(encoded []byte, word *uintptr) uintptr) (string, error) {
	encoded, err := encode(message)
	if err != nil {
		return "", err
	}
	return textOf(r.self(), func(word *uintptr) uintptr { return call(encoded, word) })
}

// textOf runs a short call that gives back text.
func textOf(h *handle, call func(word *uintptr) uintptr) (string, error) {
	if err := h.begin(); err != nil {
		return "", err
	}
	defer h.end()
	var word uintptr
	result := call(&word)
	if err := failure(word); err != nil {
		return "", err
	}
	var taken string
	raw.TakeBytes(result, func(bytes []byte) { taken = string(bytes) })
	return taken, nil
}
