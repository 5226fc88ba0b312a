//! What each request does.
use crate::http::{copy_body, header, json, json_body, plain_name, refuse, text, Answer, Refusal};
use crate::jobs::{Job, Jobs, STATES};
use crate::metrics::Metrics;
use invar::v1::{ConvertConfig, ExportConfig, TargetFormat};
use invar::{Controls, Runtime};
use serde_json::{json, Value};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tiny_http::{Method, Request, Response};

const STREAMS: usize = 64;

pub struct Service {
    runtime: Runtime,
    jobs: Arc<Jobs>,
    max_upload: u64,
    streams: Arc<AtomicUsize>,
    uploads: AtomicUsize,
}

impl Service {
    pub fn new(runtime: Runtime, jobs: Arc<Jobs>, max_upload: u64) -> Service {
        Service { runtime, jobs, max_upload, streams: Arc::default(), uploads: AtomicUsize::new(0) }
    }

    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Answers one request; event streams go on on a thread of their own.
    pub fn handle(&self, mut request: Request) {
        Metrics::add(&self.jobs.metrics.requests, 1);
        let url = request.url().to_owned();
        let (path, query) = url.split_once('?').unwrap_or((&url, ""));
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let answer = match (request.method().clone(), parts.as_slice()) {
            (Method::Get, ["jobs", id, "events"]) => match self.stream(id) {
                Ok(job) => return self.send_events(request, job),
                Err(refusal) => Err(refusal),
            },
            (Method::Post, ["files"]) => self.upload(&mut request, query),
            (Method::Post, ["jobs"]) => self.start(&mut request),
            (Method::Get, ["jobs"]) => Ok(self.list()),
            (Method::Get, ["jobs", id]) => self.jobs.get(id).map(|job| json(200, &job.describe())),
            (Method::Post, ["jobs", id, "cancel"]) => self.jobs.get(id).map(|job| {
                job.cancel();
                json(202, &job.describe())
            }),
            (Method::Get, ["jobs", id, "checkpoints"]) => self.checkpoints(id),
            (Method::Post, ["jobs", id, "export"]) => self.export(id, &mut request),
            (Method::Post, ["jobs", id, "convert"]) => self.convert(id, &mut request),
            (Method::Get, ["jobs", id, "files", rest @ ..]) => self.download(id, rest),
            (Method::Get, ["metrics"]) => Ok(self.metrics()),
            _ => Err(Refusal::not_found(path)),
        };
        let answer = answer.unwrap_or_else(|refusal| {
            Metrics::add(&self.jobs.metrics.refusals, 1);
            refuse(&refusal)
        });
        // A client that went away is no fault of the service.
        let _ = request.respond(answer);
    }

    fn upload(&self, request: &mut Request, query: &str) -> Result<Answer, Refusal> {
        let name = query.split('&').find_map(|pair| pair.strip_prefix("name=")).unwrap_or("text.txt");
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        let (name, partial) = (plain_name(name)?, self.jobs.file(&format!(".partial-{number}")));
        let stored = File::create(&partial)
            .map_err(Refusal::from)
            .and_then(|mut file| copy_body(request, self.max_upload, &mut file))
            .and_then(|bytes| Ok(fs::rename(&partial, self.jobs.file(name)).map(|()| bytes)?));
        match stored {
            Ok(bytes) => {
                Metrics::add(&self.jobs.metrics.upload_bytes, bytes);
                Ok(json(201, &json!({"file": name, "bytes": bytes})))
            }
            Err(refusal) => {
                let _ = fs::remove_file(&partial);
                Err(refusal)
            }
        }
    }

    fn start(&self, request: &mut Request) -> Result<Answer, Refusal> {
        let body = json_body(request)?;
        let file = plain_name(string(&body, "file")?)?;
        let config = body.get("config").cloned().unwrap_or_else(|| json!({}));
        let job = self.jobs.add(file, &config)?;
        Ok(json(202, &job.describe()))
    }

    fn list(&self) -> Answer {
        json(200, &self.jobs.list().iter().map(|job| job.describe()).collect())
    }

    fn checkpoints(&self, id: &str) -> Result<Answer, Refusal> {
        Ok(json(200, &json!({"checkpoints": self.jobs.get(id)?.checkpoints()?})))
    }

    fn export(&self, id: &str, request: &mut Request) -> Result<Answer, Refusal> {
        let (job, body) = (self.jobs.get(id)?, json_body(request)?);
        let config = ExportConfig {
            source: Some(path(&job.folder.join("run"))),
            destination: Some(destination(&job, &body)?),
            target: Some(target(&body)?),
            ..Default::default()
        };
        let report = self.runtime.export(&config, Controls::new())?;
        Ok(json(201, &json!({"step": report.step(), "tensors": report.tensors(), "bytes": report.bytes_written()})))
    }

    fn convert(&self, id: &str, request: &mut Request) -> Result<Answer, Refusal> {
        let (job, body) = (self.jobs.get(id)?, json_body(request)?);
        let source = job.folder.join(plain_name(string(&body, "source")?)?);
        let config = ConvertConfig {
            source: Some(path(&source)),
            destination: Some(destination(&job, &body)?),
            target: Some(target(&body)?),
            verify: Some(true),
            ..Default::default()
        };
        let report = self.runtime.convert(&config, Controls::new())?;
        Ok(json(
            201,
            &json!({"layout": report.layout(), "tensors": report.tensors_written(), "passed": report.passed()}),
        ))
    }

    fn download(&self, id: &str, parts: &[&str]) -> Result<Answer, Refusal> {
        let job = self.jobs.get(id)?;
        let mut file = job.folder.clone();
        for part in parts {
            file.push(plain_name(part)?);
        }
        let missing = || Refusal::not_found(&parts.join("/"));
        let metadata = fs::metadata(&file).map_err(|_| missing())?;
        if !metadata.is_file() {
            return Err(missing());
        }
        let size = usize::try_from(metadata.len()).map_err(|_| missing())?;
        let reader: Box<dyn Read + Send> = Box::new(File::open(&file)?);
        let kind = header("Content-Type", "application/octet-stream");
        Ok(Response::new(200.into(), vec![kind], reader, Some(size), None))
    }

    fn metrics(&self) -> Answer {
        let jobs = self.jobs.list();
        let count = |state| jobs.iter().filter(|job| job.state() == state).count();
        let states: Vec<(&str, usize)> = STATES.into_iter().map(|state| (state, count(state))).collect();
        text(200, "text/plain; version=0.0.4", self.jobs.metrics.text(&states))
    }

    /// The job of an event stream, if there may be one more.
    fn stream(&self, id: &str) -> Result<Arc<Job>, Refusal> {
        let job = self.jobs.get(id)?;
        if self.streams.fetch_add(1, Ordering::Relaxed) >= STREAMS {
            self.streams.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::new(503, "service.streams", format!("{STREAMS} event streams are open already")));
        }
        Ok(job)
    }

    fn send_events(&self, request: Request, job: Arc<Job>) {
        let streams = self.streams.clone();
        let last = request.headers().iter().find(|header| header.field.equiv("Last-Event-ID"));
        let from = last.and_then(|header| header.value.as_str().parse::<usize>().ok()).map_or(0, |id| id + 1);
        thread::spawn(move || {
            // The reader may go away at any time.
            let _ = write_events(&mut request.into_writer(), &job, from);
            streams.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Server-sent events until the job has ended; a comment now and then shows whether the reader is still there. The
/// chunks are written here, so that each goes out at once.
fn write_events(out: &mut impl Write, job: &Job, mut from: usize) -> io::Result<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
          Transfer-Encoding: chunked\r\n\r\n",
    )?;
    loop {
        let (events, ended) = job.events(from, Duration::from_secs(1));
        let mut text = String::new();
        for (id, kind, event) in &events {
            text += &format!("id: {id}\nevent: {kind}\ndata: {event}\n\n");
            from = id + 1;
        }
        if events.is_empty() && !ended {
            text += ": waiting\n\n";
        }
        if !text.is_empty() {
            write!(out, "{:x}\r\n{text}\r\n", text.len())?;
        } else {
            out.write_all(b"0\r\n\r\n")?;
        }
        out.flush()?;
        if text.is_empty() {
            return Ok(());
        }
    }
}

fn string<'a>(body: &'a Value, field: &str) -> Result<&'a str, Refusal> {
    body.get(field)
        .and_then(Value::as_str)
        .ok_or_else(|| Refusal::new(400, "http.field", format!("{field}: expected a string")))
}

fn destination(job: &Job, body: &Value) -> Result<String, Refusal> {
    let name = plain_name(string(body, "name")?)?;
    if name == "run" {
        return Err(Refusal::new(409, "service.name", "run: the name is taken by the job's own folder"));
    }
    if !job.ended() {
        return Err(Refusal::new(409, "service.running", format!("job {} has not ended", job.id)));
    }
    Ok(path(&job.folder.join(name)))
}

fn target(body: &Value) -> Result<i32, Refusal> {
    let name = body.get("target").map_or(Ok("bf16"), |_| string(body, "target"))?;
    let full = format!("TARGET_FORMAT_{}", name.to_ascii_uppercase());
    TargetFormat::from_str_name(&full)
        .map(Into::into)
        .ok_or_else(|| Refusal::new(400, "service.target", format!("{name}: unknown target")))
}

fn path(path: &Path) -> String {
    PathBuf::from(path).to_string_lossy().into_owned()
}
