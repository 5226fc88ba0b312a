//! Fine-tuning jobs: one runs at a time, the others wait in line.
use crate::http::Refusal;
use crate::metrics::Metrics;
use invar::v1::{CheckpointConfig, DataConfig, ModelConfig, TrainConfig};
use invar::{CancelToken, Controls, ProgressKind, Runtime, Session};
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{sync_channel, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io, thread};

const WAITING: usize = 16;
const EVENTS_KEPT: usize = 10_000;
pub const STATES: [&str; 5] = ["waiting", "running", "done", "cancelled", "failed"];

/// One job. The folder holds `run` (checkpoints) and the serving folders made from it.
pub struct Job {
    pub id: usize,
    pub folder: PathBuf,
    config: TrainConfig,
    cancel: CancelToken,
    log: Mutex<Log>,
    changed: Condvar,
}

/// What happened, oldest first; `first` is the number of the oldest event that is kept.
struct Log {
    state: &'static str,
    events: VecDeque<(&'static str, Value)>,
    first: usize,
    last: Value,
    result: Value,
}

impl Job {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, kind: &'static str, event: Value) {
        let mut log = self.log();
        if kind == "step" {
            log.last = event.clone();
        }
        log.events.push_back((kind, event));
        if log.events.len() > EVENTS_KEPT {
            log.events.pop_front();
            log.first += 1;
        }
        self.changed.notify_all();
    }

    fn enter(&self, state: &'static str, result: Value) {
        let mut log = self.log();
        log.state = state;
        log.result = result;
        let event = json!({"state": log.state, "result": log.result});
        log.events.push_back(("state", event));
        self.changed.notify_all();
    }

    pub fn state(&self) -> &'static str {
        self.log().state
    }

    pub fn ended(&self) -> bool {
        !matches!(self.state(), "waiting" | "running")
    }

    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    pub fn describe(&self) -> Value {
        let log = self.log();
        json!({"job": self.id, "state": log.state, "last": log.last, "result": log.result})
    }

    /// The events from number `from` on, waiting up to `wait` for one; whether the job has ended and all is read.
    pub fn events(&self, from: usize, wait: Duration) -> (Vec<(usize, &'static str, Value)>, bool) {
        let mut log = self.log();
        let ended = |log: &Log| !matches!(log.state, "waiting" | "running");
        if from >= log.first + log.events.len() && !ended(&log) {
            log = self.changed.wait_timeout(log, wait).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        let skip = from.saturating_sub(log.first);
        let number = |index: usize| log.first + index;
        let new = log.events.iter().enumerate().skip(skip).map(|(i, (kind, event))| (number(i), *kind, event.clone()));
        let new: Vec<_> = new.collect();
        let over = ended(&log);
        (new, over)
    }

    pub fn checkpoints(&self) -> io::Result<Vec<String>> {
        let folder = self.folder.join("run/checkpoints");
        let mut names = Vec::new();
        if folder.is_dir() {
            for entry in fs::read_dir(folder)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

/// All jobs and the thread that runs them.
pub struct Jobs {
    runtime: Runtime,
    root: PathBuf,
    model: Option<String>,
    pub metrics: Arc<Metrics>,
    all: Mutex<Vec<Arc<Job>>>,
    line: Mutex<Option<SyncSender<Arc<Job>>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Jobs {
    pub fn start(runtime: Runtime, root: PathBuf, model: Option<String>) -> io::Result<Arc<Jobs>> {
        fs::create_dir_all(root.join("files"))?;
        fs::create_dir_all(root.join("jobs"))?;
        let (line, waiting) = sync_channel::<Arc<Job>>(WAITING);
        let metrics = Arc::new(Metrics::default());
        let worker = thread::spawn({
            let (runtime, metrics) = (runtime.clone(), metrics.clone());
            move || waiting.iter().for_each(|job| run(&runtime, &metrics, &job))
        });
        Ok(Arc::new(Jobs {
            runtime,
            root,
            model,
            metrics,
            all: Mutex::default(),
            line: Mutex::new(Some(line)),
            worker: Mutex::new(Some(worker)),
        }))
    }

    /// Where an uploaded file is stored.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join("files").join(name)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.all.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn list(&self) -> Vec<Arc<Job>> {
        self.all().clone()
    }

    pub fn get(&self, id: &str) -> Result<Arc<Job>, Refusal> {
        let found = self.all().iter().find(|job| job.id.to_string() == id).cloned();
        found.ok_or_else(|| Refusal::not_found(&format!("job {id}")))
    }

    /// Puts a job in line. `config` holds TrainConfig fields in JSON; those that name files are the service's own.
    pub fn add(&self, file: &str, config: &Value) -> Result<Arc<Job>, Refusal> {
        let text = self.file(file);
        if !text.is_file() {
            return Err(Refusal::not_found(&format!("file {file}")));
        }
        let mut config: TrainConfig = self.runtime.from_json(&config.to_string())?;
        refuse_paths(&config)?;
        let line = self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let line = line.as_ref().ok_or_else(|| Refusal::new(503, "service.stopping", "the service is stopping"))?;
        let mut all = self.all();
        let id = (1..).find(|id| !self.root.join(format!("jobs/{id}")).exists()).unwrap_or(usize::MAX);
        let folder = self.root.join(format!("jobs/{id}"));
        config.output = Some(path(&folder.join("run")));
        config.data.get_or_insert_with(DataConfig::default).paths = vec![path(&text)];
        config.checkpoint.get_or_insert_with(CheckpointConfig::default).save_final = Some(true);
        if let Some(model) = &self.model {
            config.model.get_or_insert_with(ModelConfig::default).path = Some(model.clone());
        }
        self.runtime.check(&config)?;
        fs::create_dir_all(&folder)?;
        let log = Log { state: "waiting", events: VecDeque::new(), first: 0, last: Value::Null, result: Value::Null };
        let cancel = CancelToken::new(&self.runtime)?;
        let job = Arc::new(Job { id, folder, config, cancel, log: Mutex::new(log), changed: Condvar::new() });
        match line.try_send(job.clone()) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                fs::remove_dir_all(&job.folder)?;
                return Err(Refusal::new(429, "service.full", format!("{WAITING} jobs wait already")));
            }
            Err(TrySendError::Disconnected(_)) => {
                return Err(Refusal::new(503, "service.stopping", "the service is stopping"));
            }
        }
        all.push(job.clone());
        Ok(job)
    }

    /// Cancels everything and waits until the running job has written its checkpoint.
    pub fn stop(&self) {
        *self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        for job in self.list() {
            job.cancel();
        }
        let worker = self.worker.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(worker) = worker {
            let _ = worker.join();
        }
    }
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A client names no file of this machine.
fn refuse_paths(config: &TrainConfig) -> Result<(), Refusal> {
    let data = config.data.as_ref();
    let model = config.model.as_ref();
    for (field, set) in [
        ("output", config.output.is_some()),
        ("metrics_file", config.metrics_file.is_some()),
        ("data.paths", data.is_some_and(|data| !data.paths.is_empty())),
        ("data.eval_paths", data.is_some_and(|data| !data.eval_paths.is_empty())),
        ("data.tokenizer.path", data.and_then(|data| data.tokenizer.as_ref()).is_some_and(|t| t.path.is_some())),
        ("model.path", model.is_some_and(|model| model.path.is_some())),
        ("model.config_path", model.is_some_and(|model| model.config_path.is_some())),
    ] {
        if set {
            return Err(Refusal::new(400, "service.path", format!("{field} is set by the service")));
        }
    }
    Ok(())
}

fn run(runtime: &Runtime, metrics: &Metrics, job: &Job) {
    job.enter("running", Value::Null);
    let trained = Session::create(runtime, &job.config, Controls::new().cancel(&job.cancel)).and_then(|mut session| {
        let controls = Controls::new().cancel(&job.cancel).progress(|event| {
            match event.kind {
                ProgressKind::Step(step) => {
                    Metrics::add(&metrics.steps, 1);
                    Metrics::add(&metrics.tokens, step.tokens.unsigned_abs());
                    Metrics::add(&metrics.skipped, step.skipped.into());
                    metrics.loss.store(step.loss.to_bits(), Ordering::Relaxed);
                    let (tokens_per_second, total) = (step.tokens_per_second, event.total);
                    job.push(
                        "step",
                        json!({"step": step.step, "of": total, "loss": step.loss, "lr": step.lr,
                               "tokens_per_second": tokens_per_second}),
                    );
                }
                ProgressKind::Eval(eval) => job.push("eval", json!({"step": eval.step, "loss": eval.loss})),
                ProgressKind::Note => job.push("note", json!({"stage": event.stage})),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let result = session.run(controls);
        let report = session.report()?;
        result.map(|_| report)
    });
    match trained {
        Ok(report) => {
            job.enter(
                "done",
                json!({"steps": report.steps(), "loss": report.last_loss(), "seconds": report.seconds()}),
            );
        }
        Err(error) if error.is_cancelled() => job.enter("cancelled", json!({"message": error.message()})),
        Err(error) => job.enter("failed", json!({"reason": error.reason(), "message": error.message()})),
    }
}
