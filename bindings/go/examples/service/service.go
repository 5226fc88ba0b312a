// A fine-tuning service over HTTP: upload text or JSON lines, train, watch, cancel, export, convert, download.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// service is the handler. Everything it writes lies below root.
type service struct {
	runtime   *invar.Runtime
	root      string
	maxUpload int64
	ctx       context.Context // ends with the service; every job's is below it
	stop      context.CancelFunc
	mux       *http.ServeMux

	requests, tokens atomic.Int64
	mutex            sync.Mutex
	jobs             map[string]*job
	order            []string
}

func newService(runtime *invar.Runtime, root string, maxUpload int64) *service {
	s := &service{runtime: runtime, root: root, maxUpload: maxUpload, jobs: make(map[string]*job), mux: http.NewServeMux()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.mux.HandleFunc("POST /files/{name}", s.upload)
	s.mux.HandleFunc("POST /jobs", s.start)
	s.mux.HandleFunc("GET /jobs", s.list)
	s.mux.HandleFunc("GET /jobs/{id}", s.on(func(w http.ResponseWriter, _ *http.Request, j *job) {
		last, _ := j.now()
		reply(w, http.StatusOK, last)
	}))
	s.mux.HandleFunc("GET /jobs/{id}/events", s.on(s.events))
	s.mux.HandleFunc("POST /jobs/{id}/cancel", s.on(func(w http.ResponseWriter, _ *http.Request, j *job) {
		j.cancel()
		<-j.done
		last, _ := j.now()
		reply(w, http.StatusOK, last)
	}))
	s.mux.HandleFunc("GET /jobs/{id}/checkpoints", s.on(func(w http.ResponseWriter, _ *http.Request, j *job) {
		names, err := j.checkpoints()
		answer(w, names, err)
	}))
	s.mux.HandleFunc("POST /jobs/{id}/export", s.on(s.export))
	s.mux.HandleFunc("POST /jobs/{id}/convert", s.on(s.convert))
	s.mux.HandleFunc("GET /jobs/{id}/files/{path...}", s.on(func(w http.ResponseWriter, r *http.Request, j *job) {
		http.ServeFileFS(w, r, os.DirFS(j.folder), r.PathValue("path"))
	}))
	s.mux.HandleFunc("GET /metrics", s.metrics)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	s.mux.ServeHTTP(w, r)
}

// shutdown ends every job with a checkpoint, and with them their event streams.
func (s *service) shutdown() {
	s.stop()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, j := range s.jobs {
		<-j.done
	}
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// answer is value, or what went wrong with a status that fits.
func answer(w http.ResponseWriter, value any, err error) {
	if err == nil {
		reply(w, http.StatusOK, value)
		return
	}
	status := http.StatusInternalServerError
	for code, fitting := range map[invar.Code]int{
		invar.InvalidArgument:    http.StatusBadRequest,
		invar.NotFound:           http.StatusNotFound,
		invar.FailedPrecondition: http.StatusConflict,
		invar.AlreadyExists:      http.StatusConflict,
	} {
		if errors.Is(err, code) {
			status = fitting
		}
	}
	reply(w, status, map[string]string{"error": err.Error()})
}

func refuse(w http.ResponseWriter, status int, format string, arguments ...any) {
	reply(w, status, map[string]string{"error": fmt.Sprintf(format, arguments...)})
}

func (s *service) on(handle func(http.ResponseWriter, *http.Request, *job)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mutex.Lock()
		j := s.jobs[r.PathValue("id")]
		s.mutex.Unlock()
		if j == nil {
			refuse(w, http.StatusNotFound, "no job %q", r.PathValue("id"))
			return
		}
		handle(w, r, j)
	}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$`)

func (s *service) upload(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if !plainName.MatchString(name) {
		refuse(w, http.StatusBadRequest, "%q is not a plain file name", name)
		return
	}
	folder := filepath.Join(s.root, "files")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		answer(w, nil, err)
		return
	}
	// Under another name until it is whole.
	file, err := os.CreateTemp(folder, ".upload-")
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer os.Remove(file.Name())
	size, err := io.Copy(file, http.MaxBytesReader(w, r.Body, s.maxUpload))
	if closed := file.Close(); err == nil {
		err = closed
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		refuse(w, http.StatusRequestEntityTooLarge, "at most %d bytes are taken", s.maxUpload)
		return
	}
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(folder, name))
	}
	answer(w, map[string]any{"name": name, "bytes": size}, err)
}

func (s *service) start(w http.ResponseWriter, r *http.Request) {
	var request struct {
		File string   `json:"file"`
		Set  []string `json:"set"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	file := filepath.Join(s.root, "files", request.File)
	if _, err := os.Stat(file); err != nil || !plainName.MatchString(request.File) {
		refuse(w, http.StatusNotFound, "no file %q was uploaded", request.File)
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ctx.Err() != nil {
		refuse(w, http.StatusServiceUnavailable, "the service is stopping")
		return
	}
	id := strconv.Itoa(len(s.order) + 1)
	folder := filepath.Join(s.root, "jobs", id)
	made, err := config(s.runtime, file, folder, request.Set)
	if err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	j := &job{id: id, folder: folder, cancel: cancel, done: make(chan struct{}), change: make(chan struct{}), last: event{State: "running"}}
	s.jobs[id] = j
	s.order = append(s.order, id)
	go func() {
		defer cancel()
		j.train(ctx, s.runtime, made, func(tokens int64) { s.tokens.Add(tokens) })
	}()
	reply(w, http.StatusAccepted, map[string]string{"id": id})
}

func (s *service) list(w http.ResponseWriter, _ *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := make(map[string]event, len(s.jobs))
	for id, j := range s.jobs {
		all[id], _ = j.now()
	}
	reply(w, http.StatusOK, all)
}

// events streams a job's progress until it ends or the client goes.
func (s *service) events(w http.ResponseWriter, r *http.Request, j *job) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	control := http.NewResponseController(w)
	for {
		last, changed := j.now()
		encoded, err := json.Marshal(last)
		if err != nil { // a loss that is no number
			encoded = []byte(`{"state":"running"}`)
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", encoded); err != nil || control.Flush() != nil {
			return
		}
		if last.ended() {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *service) export(w http.ResponseWriter, r *http.Request, j *job) {
	report, err := s.runtime.Export(r.Context(), &invarv1.ExportConfig{
		Source:      proto.String(j.folder),
		Destination: proto.String(filepath.Join(j.folder, "export")),
		Target:      invarv1.TargetFormat_TARGET_FORMAT_FP8_BLOCK.Enum(),
	})
	s.report(w, report, err)
}

// convert makes BF16 of the FP8 export.
func (s *service) convert(w http.ResponseWriter, r *http.Request, j *job) {
	report, err := s.runtime.Convert(r.Context(), &invarv1.ConvertConfig{
		Source:      proto.String(filepath.Join(j.folder, "export")),
		Destination: proto.String(filepath.Join(j.folder, "converted")),
		Verify:      proto.Bool(true),
	})
	s.report(w, report, err)
}

func (s *service) report(w http.ResponseWriter, report proto.Message, err error) {
	if err != nil {
		answer(w, nil, err)
		return
	}
	text, err := s.runtime.ToJSON(report, false)
	answer(w, json.RawMessage(text), err)
}

func (s *service) metrics(w http.ResponseWriter, _ *http.Request) {
	states := map[string]int{"running": 0, "done": 0, "cancelled": 0, "failed": 0}
	s.mutex.Lock()
	for _, j := range s.jobs {
		last, _ := j.now()
		states[last.State]++
	}
	s.mutex.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# TYPE invar_requests_total counter\ninvar_requests_total %d\n", s.requests.Load())
	fmt.Fprintf(w, "# TYPE invar_tokens_total counter\ninvar_tokens_total %d\n", s.tokens.Load())
	fmt.Fprintln(w, "# TYPE invar_jobs gauge")
	for _, state := range []string{"running", "done", "cancelled", "failed"} {
		fmt.Fprintf(w, "invar_jobs{state=%q} %d\n", state, states[state])
	}
}
