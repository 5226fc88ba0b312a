//! What several tests share: folders, text, small configs.
#![allow(dead_code)]

use invar::{v1, Controls, Runtime, RuntimeOptions, Session};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// A folder that goes away with its owner.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("invar-rust-{}-{number}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file of `lines` short sentences.
    pub fn text(&self, lines: usize) -> String {
        let path = self.path("text.txt");
        let text: String = (0..lines).map(|i| format!("line {i} says that {i} and 1 is {}\n", i + 1)).collect();
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn runtime() -> Runtime {
    RuntimeOptions::new().threads(1).build().unwrap()
}

/// A stored checkpoint of the project's cases: INVAR_CASES, else the folder in this project.
pub fn case(name: &str) -> String {
    let cases = env::var_os("INVAR_CASES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/cases"), PathBuf::from);
    cases.join(name).join("input").to_str().unwrap().to_owned()
}

pub const SHAPE: &str = r#""model": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64}, "micro_batch": 2, "optimizer": {"lr": 0.01}, "schedule": {"warmup_steps": 1}"#;

/// A session that takes its batches from the test.
pub fn host_driven(runtime: &Runtime) -> Session {
    let json = format!(r#"{{{SHAPE}, "data": {{"sequence_length": 16, "tokenizer": {{"kind": "byte"}}}}}}"#);
    Session::create(runtime, &runtime.from_json(&json).unwrap(), Controls::new()).unwrap()
}

/// The config of a run over a text file.
pub fn train_config(runtime: &Runtime, folder: &Folder, steps: i64) -> v1::TrainConfig {
    let json = format!(
        r#"{{{SHAPE}, "output": "{}", "steps": {steps}, "eval_every": {},
            "data": {{"sequence_length": 16, "paths": ["{}"]}}}}"#,
        folder.path("run"),
        (steps / 2).max(1),
        folder.text(200),
    );
    runtime.from_json(&json).unwrap()
}

/// Resident memory of this process in bytes.
pub fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
