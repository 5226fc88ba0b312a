package invar

import (
	"context"

	"invar.dev/invar/internal/raw"
	"invar.dev/invar/invarv1"
)

// EncodeFlags are bits that change what Encode does; 0: the text alone, as it is.
type EncodeFlags uint32

// The bits.
const (
	EncodeAddSpecial   = EncodeFlags(raw.EncodeAddSpecial)   // what the tokenizer puts around a text, such as a begin token
	EncodeParseSpecial = EncodeFlags(raw.EncodeParseSpecial) // special tokens written in the text become their ids
	EncodeTruncate     = EncodeFlags(raw.EncodeTruncate)     // as the tokenizer's file says, if it does
)

// DecodeFlags are bits that change what Decode does; 0: every token, and U+FFFD for an unfinished character.
type DecodeFlags uint32

// The bits.
const (
	DecodeSkipSpecial = DecodeFlags(raw.DecodeSkipSpecial) // special tokens are left out
	DecodeBytes       = DecodeFlags(raw.DecodeBytes)       // an unfinished character stays: the text may be no valid UTF-8
)

// Tokenizer is a vocabulary, with its chat template where it has one. Any number of goroutines may use it at once.
type Tokenizer struct {
	handle
	raw raw.Tokenizer
}

// LoadTokenizer reads a tokenizer.json, a SentencePiece model (*.model), or the folder that holds one of them. Reason
// "tokenizer.unsupported" names what is not supported in the file.
func LoadTokenizer(runtime *Runtime, path string) (*Tokenizer, error) {
	if err := runtime.self().begin(); err != nil {
		return nil, err
	}
	var word uintptr
	made := raw.NewTokenizer(runtime.raw, path, &word)
	if err := failure(word); err != nil {
		runtime.self().end()
		return nil, err
	}
	tokenizer := &Tokenizer{raw: made}
	tokenizer.adopt("tokenizer", runtime.self(), func() { raw.DeleteTokenizer(made) })
	return net(tokenizer), nil
}

// Close gives the tokenizer up. It may be called at any time and more than once; calls at work end first.
func (t *Tokenizer) Close() error {
	if t == nil {
		return nil
	}
	return t.close()
}

func (t *Tokenizer) self() *handle {
	if t == nil {
		return nil
	}
	return &t.handle
}

func (t *Tokenizer) native() raw.Tokenizer { return t.raw }

// Info is the vocabulary's size, special ids, and whether a chat template came with it.
func (t *Tokenizer) Info() (*invarv1.TokenizerInfo, error) {
	return brief(t.self(), t.native, new(invarv1.TokenizerInfo), raw.Tokenizer.Info)
}

// Encode is the text's token ids. The text must be UTF-8 ("text.bad_utf8").
func (t *Tokenizer) Encode(text string, flags EncodeFlags) ([]int32, error) {
	if err := t.self().begin(); err != nil {
		return nil, err
	}
	defer t.end()
	var word uintptr
	result := t.raw.Encode(text, int32(flags), &word)
	if err := failure(word); err != nil {
		return nil, err
	}
	return raw.TakeIDs(result), nil
}

// Decode is the text that the ids stand for; they are read in place. Reason "tokenizer.id_out_of_range" names an id that
// the vocabulary does not have, and its place.
func (t *Tokenizer) Decode(ids []int32, flags DecodeFlags) (string, error) {
	return textOf(t.self(), func(word *uintptr) uintptr { return t.raw.Decode(ids, int32(flags), word) })
}

// Chat writes a conversation as the tokenizer's chat template does; encode it with EncodeParseSpecial. Reasons:
// "template.none", neither the tokenizer nor the config has a template; "template.raised", what the template refuses.
func (t *Tokenizer) Chat(config *invarv1.ChatConfig) (string, error) {
	encoded, err := encode(config)
	if err != nil {
		return "", err
	}
	return textOf(t.self(), func(word *uintptr) uintptr { return t.raw.Chat(encoded, word) })
}

// TrainTokenizer learns a byte-level vocabulary from text and writes it where the config says.
func (r *Runtime) TrainTokenizer(ctx context.Context, config *invarv1.TokenizerTrainConfig, options ...Option) (*invarv1.TokenizerTrainReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.TokenizerTrainReport), options, raw.Runtime.TrainTokenizer)
}

// PreviewData shows data files as training sees them, token by token: what is in a document, and where its loss counts.
func (r *Runtime) PreviewData(ctx context.Context, config *invarv1.PreviewConfig, options ...Option) (*invarv1.PreviewReport, error) {
	return onRuntime(ctx, r, config, new(invarv1.PreviewReport), options, raw.Runtime.PreviewData)
}
