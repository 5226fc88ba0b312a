//! Ten thousand calls of each kind leave memory where it was. One test: nothing else runs in this process.
mod support;

use invar::{
    v1, Accumulator, Batch, CancelToken, Checkpoint, Controls, DType, EncodeOptions, Model, Optimizer, OptimizerState,
    Quantize, Runtime, Session, Tensor, Tokenizer,
};
use std::ops::ControlFlow;
use support::{case, host_driven, resident, runtime, train_config, Folder};

/// Calls until memory settles, then `count` times; the growth stays under half a byte a call plus what an allocator
/// moves about.
fn flat(what: &str, count: usize, mut call: impl FnMut()) {
    const SLACK: usize = 512 << 10;
    for _ in 0..count / 5 {
        call();
    }
    let before = resident();
    for _ in 0..count {
        call();
    }
    let growth = resident().saturating_sub(before);
    println!("{what}: {count} calls, {} KiB more", growth >> 10);
    assert!(growth < SLACK, "{what}: {count} calls grew memory by {growth} bytes");
}

#[test]
fn memory_is_flat() {
    const MANY: usize = 10_000;
    let (runtime, folder) = (runtime(), Folder::new());
    flat("runtime", 1_000, || drop(support::runtime()));
    flat("info", MANY, || drop(runtime.info().unwrap()));
    flat("cancel token", MANY, || CancelToken::new(&runtime).unwrap().clone().cancel());
    messages(&runtime, MANY);
    tensors(&runtime, MANY);
    checkpoints(&runtime, &folder, MANY);
    sessions(&runtime, &folder, MANY);
}

fn messages(runtime: &Runtime, many: usize) {
    flat("message", many, || {
        let config: v1::TrainConfig = runtime.from_json(r#"{"steps": 3}"#).unwrap();
        runtime.to_json(&runtime.with_defaults(&config).unwrap()).unwrap();
    });
    flat("error", many, || drop(runtime.from_json::<v1::TrainConfig>(r#"{"stepps": 3}"#).unwrap_err()));
    flat("explain and set", many, || {
        runtime.explain("train.steps").unwrap();
        runtime.set(&v1::TrainConfig::default(), "steps=4").unwrap();
    });
}

fn tensors(runtime: &Runtime, many: usize) {
    let memory: Vec<f32> = (0..64).map(|i| i as f32).collect();
    flat("tensor", many, || {
        let view = Tensor::view(runtime, &[8, 8], &memory).unwrap();
        let quantized = view.quantize(&Quantize::default()).unwrap();
        assert!(quantized.info().unwrap().scales.is_some());
        quantized.dequantize(DType::Bf16).unwrap().cast(DType::Fp32).unwrap();
        view.matmul(false, &view, true, DType::Fp32).unwrap();
    });
    flat("dlpack", many, || {
        let managed = Tensor::zeros(runtime, DType::Fp32, &[4]).unwrap().into_dlpack().unwrap();
        // SAFETY: just made, and nobody else has it.
        drop(unsafe { Tensor::from_dlpack(runtime, managed) }.unwrap());
    });
    flat("optimizer", many, || {
        let mut weights = [1.0f32; 8];
        let mut optimizer = Optimizer::new(runtime, &v1::OptimizerConfig::default()).unwrap();
        optimizer.add(Tensor::view_mut(runtime, &[8], &mut weights).unwrap(), true).unwrap();
        let mut sums = Accumulator::new(runtime, &[8]).unwrap();
        sums.add(0, &Tensor::view(runtime, &[8], &memory[..8]).unwrap()).unwrap();
        let gradients = sums.gradients().unwrap();
        optimizer.step(&gradients.iter().collect::<Vec<_>>(), 0.1, 1.0).unwrap();
        optimizer.state(0, OptimizerState::Master).unwrap();
    });
}

fn checkpoints(runtime: &Runtime, folder: &Folder, many: usize) {
    let config = v1::InspectConfig { path: Some(case("autofp8-static-llama")), ..Default::default() };
    flat("inspect", many / 10, || {
        runtime.inspect(&config, Controls::new().progress(|_| ControlFlow::Continue(()))).unwrap();
    });
    let open = v1::OpenConfig { path: Some(case("autofp8-static-llama")), ..Default::default() };
    flat("open", many / 10, || assert!(!Checkpoint::open(runtime, &open).unwrap().is_empty()));
    let checkpoint = Checkpoint::open(runtime, &open).unwrap();
    flat("decode", many, || {
        checkpoint.read::<f32>("model.layers.0.self_attn.k_proj.weight").unwrap();
        checkpoint.find("no.such.tensor").unwrap_err();
    });
    let learn = v1::TokenizerTrainConfig {
        paths: vec![folder.text(200)],
        vocab_size: Some(300),
        output: Some(folder.path("vocabulary")),
        ..Default::default()
    };
    runtime.train_tokenizer(&learn, Controls::new()).unwrap();
    flat("load tokenizer", many / 10, || drop(Tokenizer::load(runtime, folder.path("vocabulary")).unwrap()));
    let tokenizer = Tokenizer::load(runtime, folder.path("vocabulary")).unwrap();
    flat("encode and decode", many, || {
        let ids = tokenizer.encode("line 7 says that 7 and 1 is 8", EncodeOptions::new()).unwrap();
        tokenizer.decode(&ids, true).unwrap();
        tokenizer.decode(&[-1], true).unwrap_err();
    });
    let config = v1::ConvertConfig {
        source: Some(case("autofp8-static-llama")),
        destination: Some(folder.path("never")),
        durable: Some(false),
        ..Default::default()
    };
    flat("stopped conversion", many / 10, || {
        runtime.convert(&config, Controls::new().progress(|_| ControlFlow::Break(7))).unwrap_err();
    });
}

fn sessions(runtime: &Runtime, folder: &Folder, many: usize) {
    flat("session", many / 20, || drop(host_driven(runtime)));
    let mut session = host_driven(runtime);
    let ids = [97; 16];
    flat("step", many, || {
        session.begin(1).unwrap();
        session.forward_backward(&Batch::new(&ids, 16)).unwrap();
        session.step_with_lr(1e-5).unwrap();
    });
    flat("report and info", many, || {
        session.report().unwrap();
        session.info().unwrap();
    });
    let request = v1::GenerateConfig { prompt: Some("a".into()), max_tokens: Some(1), ..Default::default() };
    flat("generate", many, || {
        session.generate_with(&request, None, |_| ControlFlow::Continue(())).unwrap();
    });
    flat("token iterator", many / 5, || assert!(session.tokens(&request).unwrap().all(|token| token.is_ok())));

    let mut run = Session::create(runtime, &train_config(runtime, folder, 1), Controls::new()).unwrap();
    run.run(Controls::new()).unwrap();
    let destination = Some(folder.path("out"));
    run.export(&v1::ExportConfig { destination, ..Default::default() }, Controls::new()).unwrap();
    let load = v1::LoadConfig { path: Some(folder.path("out")), ..Default::default() };
    flat("model", many / 20, || {
        Model::load(runtime, &load, Controls::new()).unwrap().generate(&request).unwrap();
    });
}
