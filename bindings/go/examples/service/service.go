// A fine-tuning service over HTTP.
//
//	POST /files/{name}            stores text or JSON lines, bounded
//	POST /jobs                    starts fine-tuning: {"file": "a.jsonl", "set": ["steps=100", "optimizer.lr=1e-4"]}
//	GET  /jobs, /jobs/{id}        states
//	GET  /jobs/{id}/events        progress as server-sent events; Last-Event-ID continues
//	POST /jobs/{id}/cancel        ends it at the next micro-batch; a checkpoint is written
//	GET  /jobs/{id}/checkpoints   training checkpoints
//	POST /jobs/{id}/export        newest checkpoint to a serving folder: {"name": "fp8", "target": "fp8_block"}
//	POST /jobs/{id}/convert       one serving folder to another, verified: {"source": "fp8", "name": "bf16"}
//	GET  /jobs/{id}/files/{path}  download
//	GET  /metrics                 Prometheus text
//
// One job runs at a time, the others wait in line. SIGTERM lets the running job write its checkpoint first. It has no
// authentication: run it behind a proxy.
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

	"google.golang.org/protobuf/proto"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

const (
	maxWaiting = 16
	maxRequest = 1 << 20 // bytes of a request that is no upload
)

type options struct {
	root      string // everything that is written lies below it
	model     string // what jobs start from
	maxUpload int64
}

// service is the handler.
type service struct {
	options
	runtime *invar.Runtime
	mux     *http.ServeMux
	metrics metrics
	ctx     context.Context // ends with the service; every job's is below it
	stop    context.CancelFunc
	idle    chan struct{} // closed when the last job has ended

	mutex sync.Mutex
	line  chan *job // nil once the service stops
	jobs  map[string]*job
}

func newService(runtime *invar.Runtime, o options) (*service, error) {
	for _, folder := range []string{"files", "jobs"} {
		if err := os.MkdirAll(filepath.Join(o.root, folder), 0o755); err != nil {
			return nil, err
		}
	}
	s := &service{
		options: o,
		runtime: runtime,
		mux:     http.NewServeMux(),
		idle:    make(chan struct{}),
		line:    make(chan *job, maxWaiting),
		jobs:    make(map[string]*job),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.mux.HandleFunc("POST /files/{name}", s.upload)
	s.mux.HandleFunc("POST /jobs", s.start)
	s.mux.HandleFunc("GET /jobs", s.list)
	s.mux.HandleFunc("GET /jobs/{id}", s.on(func(w http.ResponseWriter, _ *http.Request, j *job) { reply(w, http.StatusOK, j.status()) }))
	s.mux.HandleFunc("GET /jobs/{id}/events", s.on(events))
	s.mux.HandleFunc("POST /jobs/{id}/cancel", s.on(func(w http.ResponseWriter, _ *http.Request, j *job) {
		j.cancel()
		reply(w, http.StatusAccepted, j.status())
	}))
	s.mux.HandleFunc("GET /jobs/{id}/checkpoints", s.on(func(w http.ResponseWriter, _ *http.Request, j *job) {
		names, err := j.checkpoints()
		s.answer(w, http.StatusOK, names, err)
	}))
	s.mux.HandleFunc("POST /jobs/{id}/export", s.on(s.export))
	s.mux.HandleFunc("POST /jobs/{id}/convert", s.on(s.convert))
	s.mux.HandleFunc("GET /jobs/{id}/files/{path...}", s.on(func(w http.ResponseWriter, r *http.Request, j *job) {
		http.ServeFileFS(w, r, os.DirFS(j.folder), r.PathValue("path"))
	}))
	s.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		s.metrics.write(w, s.count())
	})
	go func() {
		defer close(s.idle)
		for j := range s.line {
			j.train(runtime, &s.metrics)
		}
	}()
	return s, nil
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.metrics.requests.Add(1)
	s.mux.ServeHTTP(w, r)
}

// shutdown ends every job, the running one with a checkpoint, and with them their event streams.
func (s *service) shutdown() {
	s.stop()
	s.mutex.Lock()
	if s.line != nil {
		close(s.line)
		s.line = nil
	}
	s.mutex.Unlock()
	<-s.idle
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// answer is value, or what went wrong with a status that fits.
func (s *service) answer(w http.ResponseWriter, status int, value any, err error) {
	if err == nil {
		reply(w, status, value)
		return
	}
	var large *http.MaxBytesError
	code := http.StatusInternalServerError
	switch {
	case errors.As(err, &large):
		code = http.StatusRequestEntityTooLarge
	case errors.Is(err, invar.InvalidArgument), errors.Is(err, invar.OutOfRange), errors.Is(err, invar.DataLoss):
		code = http.StatusBadRequest
	case errors.Is(err, invar.NotFound):
		code = http.StatusNotFound
	case errors.Is(err, invar.FailedPrecondition), errors.Is(err, invar.AlreadyExists):
		code = http.StatusConflict
	case errors.Is(err, invar.ResourceExhausted):
		code = http.StatusInsufficientStorage
	}
	s.refuse(w, code, "%v", err)
}

func (s *service) refuse(w http.ResponseWriter, status int, format string, arguments ...any) {
	s.metrics.refusals.Add(1)
	reply(w, status, map[string]string{"error": fmt.Sprintf(format, arguments...)})
}

func (s *service) on(handle func(http.ResponseWriter, *http.Request, *job)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mutex.Lock()
		j := s.jobs[r.PathValue("id")]
		s.mutex.Unlock()
		if j == nil {
			s.refuse(w, http.StatusNotFound, "no job %q", r.PathValue("id"))
			return
		}
		handle(w, r, j)
	}
}

// A name without folders, and none that is hidden.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

func (s *service) upload(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if !plainName.MatchString(name) {
		s.refuse(w, http.StatusBadRequest, "%q is not a plain file name", name)
		return
	}
	size, err := s.store(name, http.MaxBytesReader(w, r.Body, s.maxUpload))
	s.metrics.uploaded.Add(size)
	s.answer(w, http.StatusCreated, map[string]any{"file": name, "bytes": size}, err)
}

// store writes an upload under another name until it is whole.
func (s *service) store(name string, body io.Reader) (int64, error) {
	file, err := os.CreateTemp(filepath.Join(s.root, "files"), ".upload-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(file.Name())
	size, err := io.Copy(file, body)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(s.root, "files", name))
	}
	return size, err
}

// request reads a JSON body; false when it was refused.
func (s *service) request(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		s.refuse(w, http.StatusBadRequest, "the body is not the expected JSON: %v", err)
		return false
	}
	return true
}

func (s *service) start(w http.ResponseWriter, r *http.Request) {
	var request struct {
		File string   `json:"file"`
		Set  []string `json:"set"`
	}
	if !s.request(w, r, &request) {
		return
	}
	file := filepath.Join(s.root, "files", request.File)
	if _, err := os.Stat(file); err != nil || !plainName.MatchString(request.File) {
		s.refuse(w, http.StatusNotFound, "no file %q was uploaded", request.File)
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.line == nil {
		s.refuse(w, http.StatusServiceUnavailable, "the service is stopping")
		return
	}
	id, folder := s.free()
	config, err := configure(s.runtime, file, s.model, filepath.Join(folder, "run"), request.Set)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	j := newJob(s.ctx, id, folder, config)
	select {
	case s.line <- j:
	default:
		j.cancel()
		s.refuse(w, http.StatusTooManyRequests, "%d jobs wait already", maxWaiting)
		return
	}
	s.jobs[id] = j
	reply(w, http.StatusAccepted, j.status())
}

// free is the first number that no job has, of this start of the service or an earlier one, and its folder.
func (s *service) free() (id, folder string) {
	for number := len(s.jobs) + 1; ; number++ {
		id = strconv.Itoa(number)
		folder = filepath.Join(s.root, "jobs", id)
		if _, err := os.Stat(folder); err != nil && s.jobs[id] == nil {
			return id, folder
		}
	}
}

func (s *service) list(w http.ResponseWriter, _ *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := make(map[string]status, len(s.jobs))
	for id, j := range s.jobs {
		all[id] = j.status()
	}
	reply(w, http.StatusOK, all)
}

func (s *service) count() map[string]int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	counts := make(map[string]int, len(states))
	for _, j := range s.jobs {
		counts[j.status().State]++
	}
	return counts
}

// events streams a job's progress until it ends or the client goes.
func events(w http.ResponseWriter, r *http.Request, j *job) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	next := int64(0)
	if last, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 62); err == nil {
		next = last + 1
	}
	for {
		fresh, last, change := j.since(next)
		for _, e := range fresh {
			if _, err := fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", e.number, e.kind, e.data); err != nil {
				return
			}
			next = e.number + 1
		}
		if control.Flush() != nil || last {
			return
		}
		select {
		case <-change:
		case <-r.Context().Done():
			return
		}
	}
}

// destination is where an export or a conversion of an ended job goes; false when it was refused.
func (s *service) destination(w http.ResponseWriter, j *job, name string) (string, bool) {
	switch {
	case !plainName.MatchString(name):
		s.refuse(w, http.StatusBadRequest, "name: %q is not a plain name", name)
	case name == "run":
		s.refuse(w, http.StatusConflict, "name: %q is taken by the job's own folder", name)
	case !j.status().ended():
		s.refuse(w, http.StatusConflict, "job %s has not ended", j.status().ID)
	default:
		return filepath.Join(j.folder, name), true
	}
	return "", false
}

type folderRequest struct {
	Source string `json:"source"`
	Name   string `json:"name"`
	Target string `json:"target"`
}

func (s *service) export(w http.ResponseWriter, r *http.Request, j *job) {
	request := folderRequest{Target: "bf16"}
	if !s.request(w, r, &request) {
		return
	}
	destination, good := s.destination(w, j, request.Name)
	if !good {
		return
	}
	config := &invarv1.ExportConfig{Source: proto.String(j.run()), Destination: proto.String(destination)}
	err := s.runtime.Set(config, "target="+request.Target)
	var report *invarv1.ExportReport
	if err == nil {
		report, err = s.runtime.Export(r.Context(), config)
	}
	s.report(w, report, err)
}

func (s *service) convert(w http.ResponseWriter, r *http.Request, j *job) {
	request := folderRequest{Target: "bf16"}
	if !s.request(w, r, &request) {
		return
	}
	destination, good := s.destination(w, j, request.Name)
	if !good {
		return
	}
	if !plainName.MatchString(request.Source) {
		s.refuse(w, http.StatusBadRequest, "source: %q is not a plain name", request.Source)
		return
	}
	config := &invarv1.ConvertConfig{
		Source:      proto.String(filepath.Join(j.folder, request.Source)),
		Destination: proto.String(destination),
		Verify:      proto.Bool(true),
	}
	err := s.runtime.Set(config, "target="+request.Target)
	var report *invarv1.ConvertReport
	if err == nil {
		report, err = s.runtime.Convert(r.Context(), config)
	}
	s.report(w, report, err)
}

func (s *service) report(w http.ResponseWriter, report proto.Message, err error) {
	var text string
	if err == nil {
		text, err = s.runtime.ToJSON(report, false)
	}
	s.answer(w, http.StatusCreated, json.RawMessage(text), err)
}
