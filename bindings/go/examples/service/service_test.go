package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The service as a client sees it: a process of its own, a real HTTP client.

// TestMain is the service itself where a test has started it.
func TestMain(m *testing.M) {
	if arguments := os.Getenv("INVAR_SERVICE"); arguments != "" {
		os.Args = append(os.Args[:1], strings.Fields(arguments)...)
		main()
		return
	}
	os.Exit(m.Run())
}

type client struct {
	t       *testing.T
	root    string
	base    string
	process *exec.Cmd
	log     *bufio.Scanner
}

func startService(t *testing.T, more ...string) *client {
	t.Helper()
	root := t.TempDir()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), "INVAR_SERVICE="+
		strings.Join(append(more, "-listen 127.0.0.1:0 -threads 1 -max-upload 20000 -root "+root), " "))
	output, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill() })
	c := &client{t: t, root: root, process: process, log: bufio.NewScanner(output)}
	for c.log.Scan() {
		if _, address, found := strings.Cut(c.log.Text(), "listening address="); found {
			c.base = "http://" + address
			return c
		}
	}
	t.Fatalf("the service does not listen: %v", process.Wait())
	return nil
}

func (c *client) do(method, path string, body io.Reader, want int) []byte {
	c.t.Helper()
	request, err := http.NewRequest(method, c.base+path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != want {
		c.t.Fatalf("%s %s: %s, expected %d: %v %s", method, path, response.Status, want, err, content)
	}
	return content
}

func (c *client) get(path string, want int) []byte {
	c.t.Helper()
	return c.do("GET", path, nil, want)
}

func (c *client) post(path, body string, want int) []byte {
	c.t.Helper()
	return c.do("POST", path, strings.NewReader(body), want)
}

func parse[T any](c *client, content []byte) (value T) {
	c.t.Helper()
	if err := json.Unmarshal(content, &value); err != nil {
		c.t.Fatalf("%v: %s", err, content)
	}
	return value
}

const model = `"model.hidden_size=32", "model.num_hidden_layers=1", "model.num_attention_heads=2",
  "model.intermediate_size=64", "data.sequence_length=16", "micro_batch=2"`

// job starts a job on uploaded JSON lines; its address.
func (c *client) job(steps int) string {
	c.t.Helper()
	var lines strings.Builder
	for i := range 150 {
		fmt.Fprintf(&lines, "{\"text\": \"line %d says that the sum of %d and 1 is %d\"}\n", i, i, i+1)
	}
	c.post("/files/lines.jsonl", lines.String(), http.StatusCreated)
	body := fmt.Sprintf(`{"file": "lines.jsonl", "set": ["steps=%d", %s]}`, steps, model)
	return "/jobs/" + parse[status](c, c.post("/jobs", body, http.StatusAccepted)).ID
}

type seen struct {
	id, kind string
	status   status
}

// events reads until one is enough, or the stream ends.
func (c *client) events(job, after string, enough func(seen) bool) (all []seen) {
	c.t.Helper()
	request, err := http.NewRequest("GET", c.base+job+"/events", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if after != "" {
		request.Header.Set("Last-Event-ID", after)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		c.t.Errorf("Content-Type %s", kind)
	}
	var one seen
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			one.id = value
		case "event":
			one.kind = value
		case "data":
			one.status = parse[status](c, []byte(value))
			if all = append(all, one); enough(one) {
				return all
			}
		}
	}
	return all
}

func never(seen) bool { return false }

func aStep(one seen) bool { return one.kind == "step" }

func TestAModelIsTrainedWatchedExportedConvertedAndDownloaded(t *testing.T) {
	c := startService(t)
	job := c.job(8)
	events := c.events(job, "", never)
	steps := slices.DeleteFunc(slices.Clone(events), func(one seen) bool { return one.kind != "step" })
	if len(steps) != 8 || steps[7].status.Step != 8 || *steps[7].status.Loss >= *steps[0].status.Loss {
		t.Errorf("%+v", steps)
	}
	if last := events[len(events)-1]; last.kind != "state" || last.status.State != done {
		t.Fatalf("%+v", last)
	}
	// A client that comes back gets what it has not seen.
	if rest := c.events(job, events[len(events)-3].id, never); len(rest) != 2 || rest[0].id != events[len(events)-2].id {
		t.Errorf("%+v", rest)
	}

	if names := parse[[]string](c, c.get(job+"/checkpoints", http.StatusOK)); !slices.Equal(names, []string{"step-00000008"}) {
		t.Errorf("checkpoints %v", names)
	}
	exported := parse[struct{ Step int }](c, c.post(job+"/export", `{"name": "fp8", "target": "fp8_block"}`, http.StatusCreated))
	if exported.Step != 8 {
		t.Errorf("%+v", exported)
	}
	converted := parse[struct{ Passed bool }](c, c.post(job+"/convert", `{"source": "fp8", "name": "bf16"}`, http.StatusCreated))
	if !converted.Passed {
		t.Errorf("%+v", converted)
	}
	c.post(job+"/convert", `{"source": "fp8", "name": "bf16"}`, http.StatusConflict)

	written, err := os.ReadFile(filepath.Join(c.root, job, "bf16", "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.get(job+"/files/bf16/model.safetensors", http.StatusOK); !bytes.Equal(got, written) {
		t.Errorf("%d bytes, expected %d", len(got), len(written))
	}

	metrics := string(c.get("/metrics", http.StatusOK))
	for _, line := range []string{"invar_train_steps_total 8", `invar_jobs{state="done"} 1`, "# TYPE invar_train_loss gauge", "invar_http_refusals_total 1"} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("%s is not in\n%s", line, metrics)
		}
	}
}

func TestJobsWaitInLineAndAreCancelledWithACheckpoint(t *testing.T) {
	c := startService(t)
	first := c.job(1_000_000)
	c.events(first, "", aStep)
	second := c.job(1_000_000)
	if now := parse[status](c, c.get(second, http.StatusOK)); now.State != waiting {
		t.Errorf("%+v", now)
	}
	c.post(first+"/export", `{"name": "early"}`, http.StatusConflict)
	c.post(first+"/cancel", "", http.StatusAccepted)
	events := c.events(first, "", never)
	if last := events[len(events)-1]; last.status.State != cancelled {
		t.Errorf("%+v", last)
	}
	if names := parse[[]string](c, c.get(first+"/checkpoints", http.StatusOK)); len(names) != 1 {
		t.Errorf("checkpoints %v", names)
	}
	c.events(second, "", aStep)

	// The line has an end.
	for range maxWaiting {
		c.job(1)
	}
	c.post("/jobs", `{"file": "lines.jsonl"}`, http.StatusTooManyRequests)
	c.post(second+"/cancel", "", http.StatusAccepted)
	all := parse[map[string]status](c, c.get("/jobs", http.StatusOK))
	if len(all) != maxWaiting+2 || all["1"].State != cancelled {
		t.Errorf("%+v", all)
	}
}

func TestStoppingTheServiceCheckpointsFirst(t *testing.T) {
	c := startService(t)
	job := c.job(1_000_000)
	queued := c.job(1_000_000)
	c.events(job, "", aStep)
	if err := c.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for c.log.Scan() {
		t.Log(c.log.Text())
	}
	if err := c.process.Wait(); err != nil {
		t.Errorf("%v", err)
	}
	found, err := os.ReadDir(filepath.Join(c.root, job, "run", "checkpoints"))
	if err != nil || len(found) != 1 {
		t.Errorf("%v: %v", err, found)
	}
	if _, err := os.Stat(filepath.Join(c.root, queued, "run")); !os.IsNotExist(err) {
		t.Errorf("the job in line has begun: %v", err)
	}
}

func TestWrongRequestsAreRefused(t *testing.T) {
	c := startService(t)
	c.post("/files/big", strings.Repeat("x", 20001), http.StatusRequestEntityTooLarge)
	// Chunked: the length is not known before it is too much.
	c.do("POST", "/files/big", io.MultiReader(strings.NewReader(strings.Repeat("x", 30000))), http.StatusRequestEntityTooLarge)
	if left, err := os.ReadDir(filepath.Join(c.root, "files")); err != nil || len(left) != 0 {
		t.Errorf("%v: %v", err, left)
	}
	job := c.job(1)
	c.events(job, "", never)
	for _, one := range []struct {
		path, body string
		want       int
		says       string
	}{
		{"/files/.hidden", "x", 400, "plain file name"},
		{"/files/a%2Fb", "x", 400, "plain file name"},
		{"/jobs", "{", 400, "JSON"},
		{"/jobs", `{"fil": "lines.jsonl"}`, 400, "fil"},
		{"/jobs", `{}`, 404, "no file"},
		{"/jobs", `{"file": "../lines.jsonl"}`, 404, "no file"},
		{"/jobs", `{"file": "lines.jsonl", "set": ["stepps=1"]}`, 400, "steps"},
		{"/jobs", `{"file": "lines.jsonl", "set": ["steps=-1"]}`, 400, "steps"},
		{"/jobs", `{"file": "lines.jsonl", "set": ["output=/etc"]}`, 400, "set by the service"},
		{"/jobs", `{"file": "lines.jsonl", "set": ["model.path=/etc"]}`, 400, "set by the service"},
		{"/jobs", `{"file": "lines.jsonl", "set": ["data.paths=[\"/etc/passwd\"]"]}`, 400, "set by the service"},
		{"/jobs", `{"file": "lines.jsonl", "set": ["data.chat_template=/etc/passwd"]}`, 400, "set by the service"},
		{"/jobs", `{"file": "lines.jsonl", "set": ["data.tokenizer.path=/etc"]}`, 400, "set by the service"},
		{"/jobs", strings.Repeat(" ", maxRequest+1), 400, "too large"},
		{"/jobs/7/cancel", "", 404, "no job"},
		{job + "/export", `{"name": "../out"}`, 400, "plain name"},
		{job + "/export", `{"name": "run"}`, 409, "taken"},
		{job + "/export", `{"name": "out", "target": "fp7"}`, 400, "fp7"},
		{job + "/convert", `{"name": "out", "source": ".."}`, 400, "plain name"},
		{job + "/convert", `{"name": "out", "source": "absent"}`, 404, "absent"},
	} {
		if content := c.post(one.path, one.body, one.want); !strings.Contains(string(content), one.says) {
			t.Errorf("%s %s: %s", one.path, one.body, content)
		}
	}
	c.get("/nowhere", http.StatusNotFound)
	c.get("/jobs/9", http.StatusNotFound)
	c.get(job+"/files/absent", http.StatusNotFound)
	c.get(job+"/files/..%2f..%2ffiles/lines.jsonl", http.StatusBadRequest)
	if _, err := os.Stat(filepath.Join(c.root, "jobs", "2")); !os.IsNotExist(err) {
		t.Errorf("a refused job has left something: %v", err)
	}
}
