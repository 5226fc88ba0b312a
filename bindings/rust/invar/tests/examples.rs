//! The five examples that every language runs, with the inputs and outputs of bindings/testdata/examples.json.
mod support;

#[allow(dead_code)]
#[path = "../examples/convert.rs"]
mod convert;
#[allow(dead_code)]
#[path = "../examples/decode.rs"]
mod decode;
#[allow(dead_code)]
#[path = "../examples/fine_tune.rs"]
mod fine_tune;
#[allow(dead_code)]
#[path = "../examples/generate.rs"]
mod generate;
#[allow(dead_code)]
#[path = "../examples/host_loop.rs"]
mod host_loop;

use invar::v1;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};
use support::{case, runtime, Folder};

/// bindings/testdata/examples.json: in INVAR_TESTDATA, else in this project.
fn examples() -> Value {
    let folder = env::var_os("INVAR_TESTDATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata"), Into::into);
    serde_json::from_slice(&fs::read(folder.join("examples.json")).unwrap()).unwrap()
}

/// The digest of a tensor in the case's own description.
fn recorded_digest(name: &str, tensor: &str) -> String {
    let description = Path::new(&case(name)).parent().unwrap().join("case.json");
    let case: Value = serde_json::from_slice(&fs::read(description).unwrap()).unwrap();
    case["expected_digests"][tensor]["sha256"].as_str().unwrap().to_owned()
}

fn sha256(bytes: &[u8]) -> String {
    let mut tool = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    tool.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = tool.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The text that every language trains on: lines with their number, again, and the number plus one.
fn text_file(folder: &Folder, given: &Value) -> String {
    let (line, path) = (text(&given["line"]), folder.path("text.txt"));
    let filled = |number: u64| {
        [number, number, number + 1].iter().fold(line.to_owned(), |line, n| line.replacen("%d", &n.to_string(), 1))
    };
    let lines: String = (0..given["lines"].as_u64().unwrap()).map(filled).collect();
    fs::write(&path, lines).unwrap();
    path
}

fn expect_losses(losses: &[f64], example: &Value) {
    let wanted: Vec<f64> = example["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
    assert_eq!(losses.len(), wanted.len());
    let tolerance = example["tolerance"].as_f64().unwrap();
    for (step, (loss, wanted)) in losses.iter().zip(&wanted).enumerate() {
        assert!((loss - wanted).abs() <= tolerance, "step {}: {loss}, expected {wanted}", step + 1);
    }
}

#[test]
fn convert_with_report() {
    let (runtime, folder, example) = (runtime(), Folder::new(), &examples()["convert"]);
    let name = text(&example["case"]);
    let report = convert::convert(&runtime, &case(name), &folder.path("bf16")).unwrap();
    assert_eq!(report.tensors_written(), example["tensors_written"].as_i64().unwrap());
    assert_eq!(report.scales_used(), example["scales_used"].as_i64().unwrap());
    let mut rules = BTreeMap::new();
    for tensor in report.tensors.iter().filter(|tensor| tensor.rule() != "scale" && tensor.rule() != "drop") {
        *rules.entry(tensor.rule().to_owned()).or_insert(0i64) += 1;
    }
    let wanted: BTreeMap<String, i64> = serde_json::from_value(example["rules"].clone()).unwrap();
    assert_eq!(rules, wanted);
    for tensor in report.tensors.iter().filter(|tensor| wanted.contains_key(tensor.rule())) {
        let values = decode::decode(&runtime, &folder.path("bf16"), tensor.name(), i64::MAX / 2).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.0.to_le_bytes()).collect();
        if tensor.rule() != "copy" {
            assert_eq!(sha256(&bytes), recorded_digest(name, tensor.name()), "{}", tensor.name());
        }
    }
}

#[test]
fn decode_one_tensor_into_own_memory() {
    let (runtime, example) = (runtime(), &examples()["decode"]);
    let (name, tensor) = (text(&example["case"]), text(&example["tensor"]));
    for rows in [1, 7, example["rows"].as_i64().unwrap()] {
        let values = decode::decode(&runtime, &case(name), tensor, rows).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.0.to_le_bytes()).collect();
        assert_eq!(sha256(&bytes), recorded_digest(name, tensor), "{rows} rows by call");
    }
}

#[test]
fn fine_tune_export_and_generate() {
    let (runtime, folder, examples) = (runtime(), Folder::new(), examples());
    let example = &examples["fine_tune"];
    let mut config: v1::TrainConfig = runtime.from_json(&example["config"].to_string()).unwrap();
    config.output = Some(folder.path("run"));
    config.data.get_or_insert_with(Default::default).paths.push(text_file(&folder, &examples["text"]));
    let losses = fine_tune::fine_tune(&runtime, &config, &folder.path("model")).unwrap();
    expect_losses(&losses, example);

    let wanted = &examples["generate"];
    let request = v1::GenerateConfig {
        prompt: Some(text(&wanted["prompt"]).into()),
        max_tokens: wanted["max_tokens"].as_i64(),
        temperature: Some(0.0),
        ..Default::default()
    };
    let mut pieces = String::new();
    let whole = generate::generate(&runtime, &folder.path("model"), &request, |piece| pieces += piece).unwrap();
    assert!(!whole.is_empty());
    assert_eq!(pieces, whole);
}

#[test]
fn a_loop_of_the_host() {
    let (runtime, examples) = (runtime(), examples());
    let example = &examples["host_driven"];
    let config = runtime.from_json(&example["config"].to_string()).unwrap();
    let number = |key: &str| example[key].as_i64().unwrap();
    let given = host_loop::Loop {
        sequences: number("sequences") as usize,
        sequence_length: number("sequence_length") as usize,
        micro_batches: number("micro_batches"),
        steps: number("steps") as usize,
        lr: example["lr"].as_f64().unwrap(),
    };
    expect_losses(&host_loop::run(&runtime, &config, &given).unwrap(), example);
}
