//! Counters in Prometheus' text form.
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct Metrics {
    pub requests: AtomicU64,
    pub refusals: AtomicU64,
    pub upload_bytes: AtomicU64,
    pub steps: AtomicU64,
    pub tokens: AtomicU64,
    pub skipped: AtomicU64,
    /// The bits of the newest loss.
    pub loss: AtomicU64,
}

impl Metrics {
    pub fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }

    /// `jobs`: how many are in each state.
    pub fn text(&self, jobs: &[(&str, usize)]) -> String {
        let mut out = String::new();
        for (name, help, counter) in [
            ("invar_http_requests_total", "Requests", &self.requests),
            ("invar_http_refusals_total", "Requests answered with an error", &self.refusals),
            ("invar_upload_bytes_total", "Bytes uploaded", &self.upload_bytes),
            ("invar_train_steps_total", "Optimizer steps", &self.steps),
            ("invar_train_tokens_total", "Tokens that carried loss", &self.tokens),
            ("invar_train_skipped_steps_total", "Steps skipped for gradients that are not finite", &self.skipped),
        ] {
            let value = counter.load(Ordering::Relaxed);
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n");
        }
        let loss = f64::from_bits(self.loss.load(Ordering::Relaxed));
        let _ = write!(out, "# HELP invar_train_loss Newest loss, nats\n# TYPE invar_train_loss gauge\n");
        let _ = writeln!(out, "invar_train_loss {loss}");
        let _ = write!(out, "# HELP invar_jobs Jobs by state\n# TYPE invar_jobs gauge\n");
        for (state, count) in jobs {
            let _ = writeln!(out, "invar_jobs{{state=\"{state}\"}} {count}");
        }
        out
    }
}
