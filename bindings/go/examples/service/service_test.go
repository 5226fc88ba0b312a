package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"invar.dev/invar"
)

type client struct {
	t    *testing.T
	base string
}

func (c client) do(method, path, body string, want int) string {
	c.t.Helper()
	request, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
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
	return string(content)
}

// watch reads a job's events until `until` says so or the stream ends.
func (c client) watch(id string, until func(event) bool) event {
	c.t.Helper()
	response, err := http.Get(c.base + "/jobs/" + id + "/events")
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	var last event
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		if err := json.Unmarshal([]byte(data), &last); err != nil {
			c.t.Fatal(err)
		}
		if until(last) {
			break
		}
	}
	return last
}

const model = `"model.hidden_size=32", "model.num_hidden_layers=1", "model.num_attention_heads=2",
  "model.intermediate_size=64", "data.sequence_length=16", "micro_batch=2"`

func TestTheWholeWayOfAJob(t *testing.T) {
	runtime, err := invar.NewRuntime(invar.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.Close()
	root := t.TempDir()
	s := newService(runtime, root, 1<<16)
	server := httptest.NewServer(s)
	defer server.Close()
	c := client{t, server.URL}

	var lines strings.Builder
	for i := range 200 {
		fmt.Fprintf(&lines, "{\"text\": \"line %d says that the sum of %d and 1 is %d\"}\n", i, i, i+1)
	}
	c.do("POST", "/files/data.jsonl", lines.String(), http.StatusOK)
	c.do("POST", "/files/large.txt", strings.Repeat("x", 1<<16+1), http.StatusRequestEntityTooLarge)
	c.do("POST", "/files/.hidden", "x", http.StatusBadRequest)
	c.do("POST", "/jobs", `{"file": "absent.txt"}`, http.StatusNotFound)
	c.do("POST", "/jobs", `{"file": "data.jsonl", "set": ["step=3"]}`, http.StatusBadRequest)
	c.do("POST", "/jobs", `{"file": "data.jsonl", "set": ["output=/tmp/elsewhere"]}`, http.StatusBadRequest)
	if left, err := os.ReadDir(filepath.Join(root, "files")); err != nil || len(left) != 1 {
		t.Errorf("%v: %v", err, left)
	}

	// One runs to its end.
	c.do("POST", "/jobs", `{"file": "data.jsonl", "set": ["steps=8", `+model+`]}`, http.StatusAccepted)
	if last := c.watch("1", func(event) bool { return false }); last.State != "done" || last.Step != 8 || last.Loss <= 0 {
		t.Fatalf("%+v", last)
	}
	var names []string
	if err := json.Unmarshal([]byte(c.do("GET", "/jobs/1/checkpoints", "", http.StatusOK)), &names); err != nil || len(names) != 1 {
		t.Errorf("%v: checkpoints %v", err, names)
	}
	c.do("POST", "/jobs/1/export", "", http.StatusOK)
	if report := c.do("POST", "/jobs/1/convert", "", http.StatusOK); !strings.Contains(report, `"passed":true`) && !strings.Contains(report, `"passed": true`) {
		t.Error(report)
	}
	if weights := c.do("GET", "/jobs/1/files/converted/model.safetensors", "", http.StatusOK); len(weights) < 10_000 {
		t.Errorf("%d bytes of weights", len(weights))
	}
	c.do("GET", "/jobs/1/files/../../files/data.jsonl", "", http.StatusNotFound)
	c.do("GET", "/jobs/9", "", http.StatusNotFound)

	// One is cancelled, and has written a checkpoint.
	endless := `{"file": "data.jsonl", "set": ["steps=1000000", ` + model + `]}`
	c.do("POST", "/jobs", endless, http.StatusAccepted)
	c.watch("2", func(e event) bool { return e.Step >= 2 })
	if state := c.do("POST", "/jobs/2/cancel", "", http.StatusOK); !strings.Contains(state, "cancelled") {
		t.Error(state)
	}
	if names := c.do("GET", "/jobs/2/checkpoints", "", http.StatusOK); !strings.Contains(names, "step") {
		t.Error(names)
	}

	// One is at work when the service stops: it ends with a checkpoint, too.
	c.do("POST", "/jobs", endless, http.StatusAccepted)
	c.watch("3", func(e event) bool { return e.Step >= 2 })
	s.shutdown()
	if last := c.watch("3", func(event) bool { return false }); last.State != "cancelled" {
		t.Errorf("%+v", last)
	}
	if names := c.do("GET", "/jobs/3/checkpoints", "", http.StatusOK); !strings.Contains(names, "step") {
		t.Error(names)
	}
	c.do("POST", "/jobs", endless, http.StatusServiceUnavailable)
	metrics := c.do("GET", "/metrics", "", http.StatusOK)
	for _, line := range []string{`invar_jobs{state="done"} 1`, `invar_jobs{state="cancelled"} 2`, "invar_tokens_total"} {
		if !strings.Contains(metrics, line) {
			t.Errorf("%s is not in\n%s", line, metrics)
		}
	}
}
