package main

import (
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"invar.dev/invar"
)

// metrics are counters in Prometheus' text form.
type metrics struct {
	requests, refusals, uploaded, steps, tokens atomic.Int64
	loss                                        atomic.Uint64 // bits of the newest
}

func (m *metrics) step(step *invar.StepMetrics) {
	m.steps.Add(1)
	m.tokens.Add(step.Tokens)
	m.loss.Store(math.Float64bits(step.Loss))
}

// write puts everything out; jobs: how many are in each state.
func (m *metrics) write(w io.Writer, jobs map[string]int) {
	for _, counter := range []struct {
		name, help string
		value      *atomic.Int64
	}{
		{"invar_http_requests_total", "Requests", &m.requests},
		{"invar_http_refusals_total", "Requests answered with an error", &m.refusals},
		{"invar_upload_bytes_total", "Bytes uploaded", &m.uploaded},
		{"invar_train_steps_total", "Optimizer steps", &m.steps},
		{"invar_train_tokens_total", "Tokens that carried loss", &m.tokens},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s counter\n%s %d\n", counter.name, counter.help, counter.name, counter.name, counter.value.Load())
	}
	fmt.Fprintf(w, "# HELP invar_train_loss Newest loss, nats\n# TYPE invar_train_loss gauge\ninvar_train_loss %g\n",
		math.Float64frombits(m.loss.Load()))
	fmt.Fprint(w, "# HELP invar_jobs Jobs by state\n# TYPE invar_jobs gauge\n")
	for _, state := range states {
		fmt.Fprintf(w, "invar_jobs{state=%q} %d\n", state, jobs[state])
	}
}
