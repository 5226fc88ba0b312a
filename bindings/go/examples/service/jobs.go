package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// The states of a job, in the order in which it may pass them.
const (
	waiting   = "waiting"
	running   = "running"
	done      = "done"
	cancelled = "cancelled"
	failed    = "failed"
)

var states = []string{waiting, running, done, cancelled, failed}

// Events that a job keeps for clients that come late or come back.
const keptEvents = 10_000

// event is what a client sees of a job: "state" or "step", and its data as JSON.
type event struct {
	number int64
	kind   string
	data   []byte
}

// status is a job at a glance, and the data of a "state" event.
type status struct {
	ID    string   `json:"id"`
	State string   `json:"state"`
	Step  int64    `json:"step"`
	Loss  *float64 `json:"loss"` // null before the first step, and where it is no number
	Error string   `json:"error,omitempty"`
}

// job is one fine-tuning run. Its folder holds "run" (checkpoints) and the serving folders made from it. The fields below
// mutex belong to whoever holds it.
type job struct {
	folder string
	config *invarv1.TrainConfig
	ctx    context.Context
	cancel context.CancelFunc

	mutex  sync.Mutex
	now    status
	events []event
	next   int64         // number of the next event
	change chan struct{} // closed at the next event
}

func newJob(ctx context.Context, id, folder string, config *invarv1.TrainConfig) *job {
	j := &job{folder: folder, config: config, now: status{ID: id, State: waiting}, change: make(chan struct{})}
	j.ctx, j.cancel = context.WithCancel(ctx)
	return j
}

func (j *job) run() string { return filepath.Join(j.folder, "run") }

// tell changes what clients see, and wakes those who wait for it.
func (j *job) tell(kind string, update func(*status)) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	update(&j.now)
	data, err := json.Marshal(j.now)
	if err != nil {
		panic(err) // a status has nothing that JSON cannot hold
	}
	if len(j.events) == keptEvents {
		j.events = slices.Delete(j.events, 0, 1)
	}
	j.events = append(j.events, event{number: j.next, kind: kind, data: data})
	j.next++
	close(j.change)
	j.change = make(chan struct{})
}

func (j *job) status() status {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.now
}

func (s status) ended() bool { return s.State != waiting && s.State != running }

// since gives the events from a number on, whether they are the last, and what is closed when there are more.
func (j *job) since(number int64) (events []event, last bool, change <-chan struct{}) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for _, e := range j.events {
		if e.number >= number {
			events = append(events, e)
		}
	}
	return events, j.now.ended(), j.change
}

// train runs the job to its end. A run whose context ends has written a training checkpoint.
func (j *job) train(runtime *invar.Runtime, m *metrics) {
	defer j.cancel()
	j.tell("state", func(s *status) { s.State = running })
	err := func() error {
		session, err := invar.NewSession(j.ctx, runtime, j.config)
		if err != nil {
			return err
		}
		defer session.Close()
		_, err = session.Run(j.ctx, invar.OnProgress(func(progress invar.Progress) error {
			if step := progress.Step; step != nil {
				m.step(step)
				j.tell("step", func(s *status) { s.Step, s.Loss = step.Step, finite(step.Loss) })
			}
			return nil
		}))
		return err
	}()
	j.tell("state", func(s *status) {
		switch {
		case err == nil:
			s.State = done
		case invar.IsCancelled(err):
			s.State = cancelled
		default:
			s.State, s.Error = failed, err.Error()
		}
	})
}

func finite(loss float64) *float64 {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return nil
	}
	return &loss
}

// configure is a run over an uploaded file that starts from a model folder, or at random without one; assignments are
// the client's, such as "steps=20".
func configure(runtime *invar.Runtime, file, model, output string, assignments []string) (*invarv1.TrainConfig, error) {
	config := new(invarv1.TrainConfig)
	for _, assignment := range assignments {
		if err := runtime.Set(config, assignment); err != nil {
			return nil, err
		}
	}
	// Which files are read and written is the service's business.
	if name := text(config.ProtoReflect()); name != "" {
		return nil, fmt.Errorf("%s is set by the service", name)
	}
	if config.Data == nil {
		config.Data = new(invarv1.DataConfig)
	}
	if config.Model == nil {
		config.Model = new(invarv1.ModelConfig)
	}
	config.Data.Paths, config.Output = []string{file}, proto.String(output)
	if model != "" {
		config.Model.Path = proto.String(model)
	}
	return config, runtime.Check(config)
}

// Texts that name no file. Every other one could, also one that a later version adds.
var harmless = []protoreflect.Name{"family", "text_key", "device", "keep_bf16"}

// text is the name of a text in the message that may name a file; "" when there is none.
func text(message protoreflect.Message) (found string) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Kind() == protoreflect.StringKind && !slices.Contains(harmless, field.Name()):
			found = string(field.FullName())
		case field.Message() != nil && !field.IsList() && !field.IsMap():
			found = text(value.Message())
		case field.Message() != nil: // no config has a list of messages; one that gets it is refused
			found = string(field.FullName())
		}
		return found == ""
	})
	return found
}

// checkpoints are the training checkpoints, oldest first.
func (j *job) checkpoints() ([]string, error) {
	names := []string{}
	found, err := os.ReadDir(filepath.Join(j.run(), "checkpoints"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	return names, nil
}
