//! An HTTP service that fine-tunes language models in its own process.
//!
//! ```text
//! invar-service [--listen 127.0.0.1:8080] [--data FOLDER] [--model FOLDER] [--threads N] [--max-upload BYTES]
//! ```
//!
//! | request | does |
//! |---|---|
//! | `POST /files?name=a.jsonl` | stores text or JSON lines, bounded by `--max-upload` |
//! | `POST /jobs` `{"file": "...", "config": {...}}` | starts fine-tuning; `config` holds fields of TrainConfig |
//! | `GET /jobs`, `GET /jobs/1` | states |
//! | `GET /jobs/1/events` | progress as server-sent events; `Last-Event-ID` continues |
//! | `POST /jobs/1/cancel` | ends it at the next micro-batch; a checkpoint is written |
//! | `GET /jobs/1/checkpoints` | training checkpoints |
//! | `POST /jobs/1/export` `{"name": "out", "target": "fp8_block"}` | newest checkpoint to a serving folder |
//! | `POST /jobs/1/convert` `{"source": "out", "name": "bf16", "target": "bf16"}` | one serving folder to another |
//! | `GET /jobs/1/files/out/model.safetensors` | download |
//! | `GET /metrics` | Prometheus text |
//!
//! SIGTERM and SIGINT stop it: the running job writes its checkpoint first. It has no authentication and no time-outs
//! of its own: run it behind a proxy.
mod http;
mod jobs;
mod metrics;
mod routes;

use jobs::Jobs;
use routes::Service;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs, process, thread};

const WORKERS: usize = 4;

struct Options {
    listen: String,
    data: PathBuf,
    model: Option<String>,
    threads: i32,
    max_upload: u64,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        listen: "127.0.0.1:8080".into(),
        data: "invar-service".into(),
        model: None,
        threads: 0,
        max_upload: 64 << 20,
    };
    let mut arguments = env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name}: a value is missing"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is not a number"));
        match name.as_str() {
            "--listen" => options.listen = value,
            "--data" => options.data = value.into(),
            "--model" => options.model = Some(value),
            "--threads" => {
                options.threads = number()?.try_into().map_err(|_| format!("{name}: {value} is too large"))?
            }
            "--max-upload" => options.max_upload = number()?,
            _ => return Err(format!("{name}: unknown option")),
        }
    }
    Ok(options)
}

fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(&options.data)?;
    let runtime = invar::RuntimeOptions::new()
        .threads(options.threads)
        .log(invar::LogLevel::Warning, |level, message| eprintln!("{level:?}: {message}"))
        .build()?;
    let server = Arc::new(tiny_http::Server::http(&options.listen).map_err(|error| error.to_string())?);
    let jobs = Jobs::start(runtime.clone(), options.data.canonicalize()?, options.model)?;
    let service = Arc::new(Service::new(runtime, jobs, options.max_upload));
    println!("listening on http://{}", server.server_addr());

    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let handle = signals.handle();
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (server, service) = (server.clone(), service.clone());
            thread::spawn(move || {
                // recv fails when the server is unblocked.
                while let Ok(request) = server.recv() {
                    service.handle(request);
                }
            })
        })
        .collect();
    signals.forever().next();
    handle.close();
    // New requests are refused, event streams end, the running job checkpoints.
    println!("stopping");
    service.jobs().stop();
    for _ in &workers {
        server.unblock();
    }
    for worker in workers {
        let _ = worker.join();
    }
    println!("stopped");
    Ok(())
}

fn main() {
    let options = options().unwrap_or_else(|message| {
        eprintln!("{message}");
        process::exit(2);
    });
    if let Err(error) = serve(options) {
        eprintln!("{error}");
        process::exit(1);
    }
}
