//! The service as a client sees it: a real process, a real HTTP client.
use serde_json::{json, Value};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{env, fs, process};

struct Service {
    process: Child,
    output: BufReader<ChildStdout>,
    url: String,
    data: PathBuf,
}

impl Service {
    fn start(name: &str) -> Service {
        let data = env::temp_dir().join(format!("invar-service-{}-{name}", process::id()));
        let _ = fs::remove_dir_all(&data);
        let mut process = Command::new(env!("CARGO_BIN_EXE_invar-service"))
            .args(["--listen", "127.0.0.1:0", "--threads", "1", "--max-upload", "20000", "--data"])
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Service { process, output, url, data }
    }

    fn send(&self, request: minreq::Request) -> (i32, Value) {
        let response = request.with_timeout(60).send().unwrap();
        let text = response.as_str().unwrap();
        (response.status_code, serde_json::from_str(text).unwrap_or_else(|_| json!(text)))
    }

    fn get(&self, path: &str) -> (i32, Value) {
        self.send(minreq::get(format!("{}{path}", self.url)))
    }

    fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> (i32, Value) {
        self.send(minreq::post(format!("{}{path}", self.url)).with_body(body))
    }

    /// Starts a job on uploaded text; its number.
    fn job(&self, steps: u64) -> u64 {
        let text: String = (0..150).map(|i| format!("{{\"text\": \"line {i} says {}\"}}\n", i + 1)).collect();
        let (status, file) = self.post("/files?name=lines.jsonl", text);
        assert_eq!((status, &file["file"]), (201, &json!("lines.jsonl")), "{file}");
        let config = json!({
            "steps": steps, "micro_batch": 2, "data": {"sequence_length": 16},
            "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64},
        });
        let (status, job) = self.post("/jobs", json!({"file": "lines.jsonl", "config": config}).to_string());
        assert_eq!(status, 202, "{job}");
        job["job"].as_u64().unwrap()
    }

    /// Events (kind and data) from the stream, until `enough` says so or the stream ends.
    fn events(
        &self,
        job: u64,
        from: Option<&str>,
        mut enough: impl FnMut(&str, &Value) -> bool,
    ) -> Vec<(String, Value)> {
        let mut request = minreq::get(format!("{}/jobs/{job}/events", self.url)).with_timeout(60);
        if let Some(id) = from {
            request = request.with_header("Last-Event-ID", id);
        }
        let response = request.send_lazy().unwrap();
        assert_eq!(response.status_code, 200);
        assert_eq!(response.headers["content-type"], "text/event-stream");
        let (mut events, mut kind) = (Vec::new(), String::new());
        for line in BufReader::new(response).lines() {
            let line = line.unwrap();
            if let Some(name) = line.strip_prefix("event: ") {
                kind = name.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                let stop = enough(&kind, &data);
                events.push((kind.clone(), data));
                if stop {
                    break;
                }
            }
        }
        events
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.data);
    }
}

#[test]
fn a_model_is_trained_watched_exported_converted_and_downloaded() {
    let service = Service::start("whole");
    let job = service.job(8);
    let events = service.events(job, None, |_, _| false);
    let steps: Vec<&Value> = events.iter().filter(|(kind, _)| kind == "step").map(|(_, event)| event).collect();
    assert_eq!(steps.len(), 8, "{events:?}");
    assert!(steps[7]["loss"].as_f64() < steps[0]["loss"].as_f64());
    assert_eq!(events.last().unwrap().1["state"], "done");
    // A reader that comes back gets what it has not seen.
    let rest = service.events(job, Some(&(events.len() - 3).to_string()), |_, _| false);
    assert_eq!(rest, events[events.len() - 2..]);

    let (status, checkpoints) = service.get(&format!("/jobs/{job}/checkpoints"));
    assert_eq!((status, checkpoints["checkpoints"].as_array().unwrap().len()), (200, 1));
    let (status, export) = service.post(&format!("/jobs/{job}/export"), r#"{"name": "fp8", "target": "fp8_block"}"#);
    assert_eq!((status, &export["step"]), (201, &json!(8)), "{export}");
    let body = r#"{"source": "fp8", "name": "bf16", "target": "bf16"}"#;
    let (status, converted) = service.post(&format!("/jobs/{job}/convert"), body);
    assert_eq!((status, &converted["passed"]), (201, &json!(true)), "{converted}");
    let (status, again) = service.post(&format!("/jobs/{job}/convert"), body);
    assert_eq!(status, 409, "{again}");

    let url = format!("{}/jobs/{job}/files/bf16/model.safetensors", service.url);
    let download = minreq::get(url).send().unwrap();
    let stored = fs::read(service.data.join(format!("jobs/{job}/bf16/model.safetensors"))).unwrap();
    assert_eq!((download.status_code, download.as_bytes()), (200, &stored[..]));

    let (status, text) = service.get("/metrics");
    let text = text.as_str().unwrap();
    assert_eq!(status, 200);
    for line in ["invar_train_steps_total 8", "invar_jobs{state=\"done\"} 1", "# TYPE invar_train_loss gauge"] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn a_job_is_cancelled_and_leaves_a_checkpoint() {
    let service = Service::start("cancel");
    let job = service.job(1_000_000);
    service.events(job, None, |kind, _| kind == "step");
    let (status, early) = service.post(&format!("/jobs/{job}/export"), r#"{"name": "early"}"#);
    assert_eq!((status, &early["reason"]), (409, &json!("service.running")));
    assert_eq!(service.post(&format!("/jobs/{job}/cancel"), "").0, 202);
    let events = service.events(job, None, |_, _| false);
    assert_eq!(events.last().unwrap().1["state"], "cancelled");
    assert_eq!(service.get(&format!("/jobs/{job}/checkpoints")).1["checkpoints"].as_array().unwrap().len(), 1);
    assert_eq!(service.get("/jobs").1[0]["state"], "cancelled");
}

#[test]
fn stopping_the_service_checkpoints_first() {
    let mut service = Service::start("stop");
    let job = service.job(1_000_000);
    service.events(job, None, |kind, _| kind == "step");
    let pid = service.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut rest = String::new();
    while service.output.read_line(&mut rest).unwrap() > 0 {}
    assert!(rest.ends_with("stopped\n"), "{rest}");
    assert!(service.process.wait().unwrap().success());
    let checkpoints = fs::read_dir(service.data.join(format!("jobs/{job}/run/checkpoints"))).unwrap();
    assert_eq!(checkpoints.count(), 1);
}

#[test]
fn wrong_requests_are_refused() {
    let service = Service::start("wrong");
    let (status, answer) = service.post("/files?name=big", vec![b'x'; 20_001]);
    assert_eq!((status, &answer["reason"]), (413, &json!("http.too_large")));
    // Chunked: the length is not known before it is too much.
    let script = format!(
        "head -c 30000 /dev/zero | curl -s -o /dev/null -w '%{{http_code}}' -T - {}/files?name=big",
        service.url
    );
    if Command::new("curl").arg("--version").output().is_ok() {
        let script = script.replace("-T -", "-X POST -T -");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "413");
    }
    assert!(fs::read_dir(service.data.join("files")).unwrap().next().is_none(), "nothing is left of a refused upload");
    service.job(1);
    for (path, body, status, reason) in [
        ("/files?name=..", "x", 400, "http.name"),
        ("/files?name=a%2Fb", "x", 400, "http.name"),
        ("/jobs", "{", 400, "http.json"),
        ("/jobs", "{}", 400, "http.field"),
        ("/jobs", r#"{"file": "absent"}"#, 404, "http.not_found"),
        ("/jobs", r#"{"file": "lines.jsonl", "config": {"stepps": 1}}"#, 400, "config.unknown_field"),
        ("/jobs", r#"{"file": "lines.jsonl", "config": {"steps": -1}}"#, 400, "config.out_of_range"),
        ("/jobs", r#"{"file": "lines.jsonl", "config": {"model": {"path": "/etc"}}}"#, 400, "service.path"),
        ("/jobs", r#"{"file": "lines.jsonl", "config": {"output": "/etc"}}"#, 400, "service.path"),
        ("/jobs/7/cancel", "", 404, "http.not_found"),
        ("/nowhere", "", 404, "http.not_found"),
    ] {
        let (found, answer) = service.post(path, body);
        assert_eq!((found, &answer["reason"]), (status, &json!(reason)), "{path} {body}: {answer}");
    }
    let outside = service.get("/jobs/1/files/../../files/lines.jsonl");
    assert!(matches!(outside.0, 400 | 404), "{outside:?}");
    assert!(!Path::new(&service.data.join("jobs/2")).exists());
}
