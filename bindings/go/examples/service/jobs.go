package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// event is what a client sees of a job's progress.
type event struct {
	State string  `json:"state"`
	Step  int64   `json:"step"`
	Loss  float64 `json:"loss"`
	Error string  `json:"error,omitempty"`
}

// job is one fine-tuning run. Its fields below mutex belong to whoever holds it.
type job struct {
	id     string
	folder string // output of the run; "export" and "convert" stand in it
	cancel context.CancelFunc
	done   chan struct{}

	mutex  sync.Mutex
	last   event
	change chan struct{} // closed at the next event
}

func (j *job) tell(update func(*event)) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	update(&j.last)
	close(j.change)
	j.change = make(chan struct{})
}

func (j *job) now() (event, <-chan struct{}) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.last, j.change
}

func (e event) ended() bool { return e.State != "running" }

// train runs the job to its end. A run that ctx ends has written a training checkpoint.
func (j *job) train(ctx context.Context, runtime *invar.Runtime, config *invarv1.TrainConfig, counted func(tokens int64)) {
	defer close(j.done)
	err := func() error {
		session, err := invar.NewSession(ctx, runtime, config)
		if err != nil {
			return err
		}
		defer session.Close()
		_, err = session.Run(ctx, invar.OnProgress(func(progress invar.Progress) error {
			if step := progress.Step; step != nil {
				counted(step.Tokens)
				j.tell(func(e *event) { e.Step, e.Loss = step.Step, step.Loss })
			}
			return nil
		}))
		return err
	}()
	j.tell(func(e *event) {
		switch {
		case err == nil:
			e.State = "done"
		case invar.IsCancelled(err):
			e.State = "cancelled"
		default:
			e.State, e.Error = "failed", err.Error()
		}
	})
}

// config is a run over an uploaded file; overrides are assignments such as "steps=20".
func config(runtime *invar.Runtime, file, output string, overrides []string) (*invarv1.TrainConfig, error) {
	made := &invarv1.TrainConfig{
		Data:   &invarv1.DataConfig{Paths: []string{file}},
		Output: proto.String(output),
	}
	for _, assignment := range overrides {
		if err := runtime.Set(made, assignment); err != nil {
			return nil, err
		}
	}
	// What is read and written is the service's business.
	if len(made.Data.GetPaths()) != 1 || made.Data.GetPaths()[0] != file || made.GetOutput() != output ||
		made.GetModel().GetPath() != "" || made.GetMetricsFile() != "" || len(made.Data.GetEvalPaths()) > 0 ||
		made.Data.GetTokenizer().GetPath() != "" || made.GetModel().GetConfigPath() != "" {
		return nil, errors.New("overrides must not name paths")
	}
	return made, runtime.Check(made)
}

// checkpoints are the training checkpoints, oldest first.
func (j *job) checkpoints() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(j.folder, "checkpoints", "step-*"))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, folder := range found {
		names = append(names, filepath.Base(folder))
	}
	return names, nil
}
