package invar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"invar.dev/invar"
	"invar.dev/invar/invarv1"
)

// root is the project's folder, or a copy of the parts that tests read.
func root() string {
	if given := os.Getenv("INVAR_TEST_ROOT"); given != "" {
		return given
	}
	return filepath.Join("..", "..")
}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "examples-")
	if err != nil {
		log.Fatal(err)
	}
	exampleFolder = folder
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

func testRuntime(t testing.TB) *invar.Runtime {
	t.Helper()
	runtime, err := invar.NewRuntime(invar.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.Close() })
	return runtime
}

func casePath(t testing.TB, name string) string {
	t.Helper()
	// A copy: what a sandbox lays as links would be refused.
	source, target := filepath.Join(root(), "tests", "cases", name), t.TempDir()
	if err := copyFolder(source, target); err != nil {
		t.Fatal(err)
	}
	return target
}

func copyFolder(source, target string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		from, to := filepath.Join(source, entry.Name()), filepath.Join(target, entry.Name())
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err := os.Mkdir(to, 0o755); err != nil {
				return err
			}
			if err := copyFolder(from, to); err != nil {
				return err
			}
			continue
		}
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// examples is bindings/testdata/examples.json.
type examples struct {
	Text    struct{ Lines int }
	Convert struct {
		Case           string
		TensorsWritten int64 `json:"tensors_written"`
		ScalesUsed     int64 `json:"scales_used"`
		Rules          map[string]int64
	}
	Decode struct {
		Case, Tensor, Rule string
		Rows, Cols         int64
	}
	FineTune struct {
		Config    json.RawMessage
		Losses    []float64
		Tolerance float64
	} `json:"fine_tune"`
	HostDriven struct {
		Config         json.RawMessage
		Sequences      int
		SequenceLength int `json:"sequence_length"`
		MicroBatches   int `json:"micro_batches"`
		Steps          int
		LR             float64
		Losses         []float64
		Tolerance      float64
	} `json:"host_driven"`
	Generate struct {
		Prompt    string
		MaxTokens int64 `json:"max_tokens"`
	}
}

func loadExamples(t testing.TB) examples {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(), "bindings", "testdata", "examples.json"))
	if err != nil {
		t.Fatal(err)
	}
	var loaded examples
	if err := json.Unmarshal(content, &loaded); err != nil {
		t.Fatal(err)
	}
	return loaded
}

func numberedLines(lines int) string {
	var text strings.Builder
	for i := range lines {
		fmt.Fprintf(&text, "line %d says that the sum of %d and 1 is %d\n", i, i, i+1)
	}
	return text.String()
}

func writeText(t testing.TB, lines int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(numberedLines(lines)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func trainConfig(t testing.TB, runtime *invar.Runtime, text string) *invarv1.TrainConfig {
	t.Helper()
	config := new(invarv1.TrainConfig)
	if err := runtime.FromJSON(text, config); err != nil {
		t.Fatal(err)
	}
	return config
}

// hostDriven is a small session without data.
func hostDriven(t testing.TB, runtime *invar.Runtime) *invar.Session {
	t.Helper()
	config := trainConfig(t, runtime, string(loadExamples(t).HostDriven.Config))
	session, err := invar.NewSession(context.Background(), runtime, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

func ids(count int) []int32 {
	made := make([]int32, count)
	for i := range made {
		made[i] = int32(97 + i%7)
	}
	return made
}

// loadInto puts a folder's files into an fs.FS in memory.
func loadInto(files fstest.MapFS, folder, name string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		files[name+"/"+entry.Name()] = &fstest.MapFile{Data: content}
	}
	return nil
}
