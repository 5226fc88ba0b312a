//! Right and wrong use of every part, as a host meets it.
mod support;

use invar::{
    v1, Accumulator, Allocate, Batch, CancelToken, Code, Controls, DType, Files, Granularity, LogLevel, Metrics, Model,
    Optimizer, OptimizerState, ProgressKind, Quantize, Runtime, RuntimeOptions, Session, Tensor,
};
use std::alloc::Layout;
use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{case, host_driven, resident, runtime, train_config, Folder};

#[test]
fn the_library_is_the_one_of_the_header() {
    assert!(invar::version().starts_with("0.1."));
    assert_eq!(invar::version_number() / 1000, 1);
    assert!(invar::build_info().contains(invar::version()));
    assert!(invar::has_feature("cpu"));
    assert!(!invar::has_feature("teleport"));
}

#[test]
fn codes_and_dtypes_map_both_ways_and_keep_unknown_numbers() {
    for raw in 1..=16 {
        assert_eq!(Code::from_raw(raw).raw(), raw);
        assert!(!matches!(Code::from_raw(raw), Code::Other(_)));
    }
    assert_eq!(Code::from_raw(99), Code::Other(99));
    assert_eq!(Code::InvalidArgument.name(), "INVALID_ARGUMENT");
    for raw in 1..=22 {
        assert_eq!(DType::from_raw(raw).raw(), raw);
        assert!(!DType::from_raw(raw).name().is_empty());
    }
    assert_eq!(DType::from_raw(99), DType::Other(99));
    assert_eq!((DType::Bf16.bits(), DType::Fp8E4m3.bits(), DType::Other(99).bits()), (16, 8, 0));
}

#[test]
fn messages_go_through_json_and_text() {
    let runtime = runtime();
    let config: v1::TrainConfig = runtime.from_text("steps: 7 optimizer { lr: 0.5 }").unwrap();
    assert_eq!(runtime.to_json(&config).unwrap(), r#"{"optimizer":{"lr":0.5},"steps":7}"#);
    assert!(runtime.to_json_pretty(&config).unwrap().contains("\"steps\": 7\n"));
    assert!(runtime.to_text(&config).unwrap().contains("steps: 7"));
    let config = runtime.set(&config, "steps=9").unwrap();
    assert_eq!(config.steps(), 9);
    let whole = runtime.with_defaults(&config).unwrap();
    assert_eq!(whole.micro_batch, Some(8));
    runtime.check(&whole).unwrap();
    let wrong = runtime.set(&config, "optimizer.lr=-1").unwrap();
    assert_eq!(runtime.check(&wrong).unwrap_err().reason(), "config.out_of_range");
    assert!(runtime.explain("train.optimizer.lr").unwrap().contains("lr"));
    assert!(runtime.describe::<v1::TrainConfig>().unwrap().contains("\"steps\""));
    assert_eq!(runtime.from_json::<v1::TrainConfig>("{").unwrap_err().reason(), "config.syntax");
}

#[test]
fn conversion_reports_and_can_be_stopped_in_every_way() {
    let (runtime, folder) = (runtime(), Folder::new());
    let config = |name: &str| v1::ConvertConfig {
        source: Some(case("autofp8-static-llama")),
        destination: Some(folder.path(name)),
        ..Default::default()
    };
    let mut work = 0;
    let report = runtime
        .convert(
            &config("done"),
            Controls::new().progress(|event| {
                work += usize::from(event.kind == ProgressKind::Work && event.unit == "bytes");
                ControlFlow::Continue(())
            }),
        )
        .unwrap();
    assert!(work > 0 && report.passed() && report.tensors_written() > 0);

    let token = CancelToken::new(&runtime).unwrap();
    token.cancel();
    let error = runtime.convert(&config("cancelled"), Controls::new().cancel(&token)).unwrap_err();
    assert!(error.is_cancelled(), "{error}");

    let stop = Controls::new().progress(|_| ControlFlow::Break(42));
    let error = runtime.convert(&config("stopped"), stop).unwrap_err();
    assert_eq!((error.code(), error.callback_value()), (Code::Aborted, 42));

    let panicking = Controls::new().progress(|_| panic!("from the callback"));
    let panic = catch_unwind(AssertUnwindSafe(|| runtime.convert(&config("panicked"), panicking))).unwrap_err();
    assert_eq!(*panic.downcast_ref::<&str>().unwrap(), "from the callback");
    for name in ["cancelled", "stopped", "panicked"] {
        assert!(!std::path::Path::new(&folder.path(name)).exists(), "{name} left something");
    }
    // The runtime is as good as before.
    assert!(runtime.convert(&config("again"), Controls::new()).unwrap().passed());
    let (a, b) = (Some(folder.path("done")), Some(folder.path("again")));
    let diff = v1::DiffConfig { a, b, ..Default::default() };
    assert!(runtime.diff(&diff, Controls::new()).unwrap().identical());
    let (source, destination) = (Some(case("autofp8-static-llama")), Some(folder.path("done")));
    let verify = v1::VerifyConfig { source, destination, ..Default::default() };
    assert!(runtime.verify(&verify, Controls::new()).unwrap().passed());
    let inspect = v1::InspectConfig { path: Some(folder.path("done")), ..Default::default() };
    assert_eq!(runtime.inspect(&inspect, Controls::new()).unwrap().tensors(), report.tensors_written());
}

#[test]
fn sessions_train_evaluate_generate_save_export_and_load() {
    let (runtime, folder) = (runtime(), Folder::new());
    let mut session = Session::create(&runtime, &train_config(&runtime, &folder, 12), Controls::new()).unwrap();
    let (mut losses, mut evals) = (Vec::new(), 0);
    let mut metrics = session.metrics().unwrap();
    for item in metrics.by_ref() {
        match item.unwrap() {
            Metrics::Step(step) => losses.push(step.loss),
            Metrics::Eval(_) => evals += 1,
            _ => {}
        }
    }
    let report = metrics.finish().unwrap();
    assert_eq!((losses.len(), evals, report.steps()), (12, 2, 12));
    assert!(losses[11] < losses[0]);
    assert!(session.evaluate(None, Controls::new()).unwrap().perplexity() > 1.0);
    assert_eq!(session.report().unwrap().steps(), 12);
    assert_eq!(session.info().unwrap().shape.unwrap().hidden_size(), 32);
    session.save(folder.path("saved")).unwrap();
    session.resume(folder.path("saved")).unwrap();
    let export = v1::ExportConfig { destination: Some(folder.path("out")), ..Default::default() };
    session.export(&export, Controls::new()).unwrap();

    let load = v1::LoadConfig { path: Some(folder.path("out")), ..Default::default() };
    let mut model = Model::load(&runtime, &load, Controls::new()).unwrap();
    assert_eq!(model.info().unwrap().shape.unwrap().hidden_size(), 32);
    let request = v1::GenerateConfig { prompt: Some("line".into()), max_tokens: Some(12), ..Default::default() };
    let whole = model.generate(&request).unwrap();
    assert_eq!(session.generate(&request).unwrap().ids, whole.ids);
    // The same tokens one by one, from both, by iterator and by callback.
    let tokens: Vec<i32> = model.tokens(&request).unwrap().map(|token| token.unwrap().id).collect();
    assert_eq!(tokens, whole.ids);
    let tokens: Vec<i32> = session.tokens(&request).unwrap().map(|token| token.unwrap().id).collect();
    assert_eq!(tokens, whole.ids);
    let mut seen = Vec::new();
    let report = model
        .generate_with(&request, None, |token| {
            seen.push(token.id);
            if seen.len() == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
    assert_eq!(seen, whole.ids[..3]);
    assert_eq!(report.finish_reason(), v1::FinishReason::Callback);
    // A reader that stops early ends the generation; the model works on.
    assert_eq!(model.tokens(&request).unwrap().next().unwrap().unwrap().id, whole.ids[0]);
    assert_eq!(model.generate(&request).unwrap().ids, whole.ids);
    let panic = catch_unwind(AssertUnwindSafe(|| session.generate_with(&request, None, |_| panic!("in a token"))));
    assert_eq!(*panic.unwrap_err().downcast_ref::<&str>().unwrap(), "in a token");
    assert_eq!(session.generate(&request).unwrap().ids, whole.ids);
    let data = v1::DataConfig { paths: vec![folder.path("text.txt")], ..Default::default() };
    let eval = v1::EvalConfig { data: Some(data), max_tokens: Some(64), ..Default::default() };
    assert!(model.evaluate(&eval, Controls::new()).unwrap().loss() > 0.0);
}

#[test]
fn a_run_is_cancelled_from_another_thread_and_goes_on_later() {
    let (runtime, folder) = (runtime(), Folder::new());
    let config = train_config(&runtime, &folder, 1_000_000);
    let mut session = Session::create(&runtime, &config, Controls::new()).unwrap();
    let token = CancelToken::new(&runtime).unwrap();
    let canceller = std::thread::spawn({
        let token = token.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            token.cancel();
        }
    });
    let error = session.run(Controls::new().cancel(&token)).unwrap_err();
    canceller.join().unwrap();
    assert!(error.is_cancelled(), "{error}");
    let done = session.report().unwrap();
    assert!(done.steps() > 0 && std::path::Path::new(done.checkpoint()).exists());
    // A dropped iterator cancels too.
    assert!(session.metrics().unwrap().next().unwrap().is_ok());
    assert!(session.report().unwrap().steps() > done.steps());
}

#[test]
fn a_host_drives_its_own_steps() {
    let runtime = runtime();
    let mut session = host_driven(&runtime);
    let ids: Vec<i32> = (0..32).map(|i| 97 + i % 7).collect();
    let batch = Batch::new(&ids, 16);
    assert_eq!(session.forward_backward(&batch).unwrap_err().code(), Code::FailedPrecondition);
    let mut losses = Vec::new();
    for step in 0..12 {
        session.begin(2).unwrap();
        for _ in 0..2 {
            assert_eq!(session.forward_backward(&batch).unwrap().tokens, 30);
        }
        let metrics = session.step_with_lr(0.01).unwrap();
        assert_eq!((metrics.step, metrics.lr, metrics.tokens), (step + 1, 0.01, 60));
        losses.push(metrics.loss);
    }
    assert!(losses[11] < losses[0] - 1.0);
    assert_eq!(session.step_with_lr(f64::NAN).unwrap_err().reason(), "argument.lr");

    session.begin(1).unwrap();
    assert_eq!(session.forward_backward(&Batch::new(&ids[..31], 16)).unwrap_err().reason(), "batch.shape");
    assert_eq!(session.forward_backward(&Batch::new(&ids, 0)).unwrap_err().reason(), "batch.shape");
    assert_eq!(session.forward_backward(&batch.mask(&[1; 31])).unwrap_err().reason(), "batch.shape");
    assert_eq!(session.forward_backward(&batch.targets(&[1; 33])).unwrap_err().reason(), "batch.shape");
    assert_eq!(session.forward_backward(&Batch::new(&[-5; 16], 16)).unwrap_err().reason(), "batch.id_out_of_range");
    assert_eq!(session.forward_backward(&batch.mask(&[0; 32])).unwrap().tokens, 0);
    assert_eq!(session.run(Controls::new()).unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(session.resume("/absent").unwrap_err().code(), Code::NotFound);
    assert_eq!(session.save("").unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn tensors_share_memory_and_know_their_type() {
    let runtime = runtime();
    let mut memory: Vec<f32> = (0..16 * 16).map(|i| i as f32 / 16.0 - 8.0).collect();
    let address = memory.as_ptr();
    let mut view = Tensor::view_mut(&runtime, &[16, 16], &mut memory).unwrap();
    assert_eq!(view.as_slice::<f32>().unwrap().as_ptr(), address);
    view.as_mut_slice::<f32>().unwrap()[0] = 448.0;
    assert_eq!(view.as_slice::<i32>().unwrap_err().reason(), "tensor.element_type");
    let blocks = Quantize::new().granularity(Granularity::Block { rows: 8, cols: 8 }).power_of_two(true);
    let quantized = view.quantize(&blocks).unwrap();
    let info = quantized.info().unwrap();
    assert_eq!((info.dtype, info.shape, info.bytes), (DType::Fp8E4m3, vec![16, 16], 256));
    let scales = info.scales.unwrap();
    assert_eq!((scales.rows, scales.cols, scales.scale_inv.len()), (2, 2, 4));
    assert_eq!(quantized.as_slice::<u8>().unwrap().len(), 256);
    let back = quantized.dequantize(DType::Fp32).unwrap();
    assert_eq!(back.as_slice::<f32>().unwrap()[0], 448.0);
    for (per, count) in [(Granularity::Tensor, 1), (Granularity::Row, 16)] {
        let info = view.quantize(&Quantize::new().granularity(per)).unwrap().info().unwrap();
        assert_eq!(info.scales.unwrap().scale_inv.len(), count);
    }
    let bf16 = view.cast(DType::Bf16).unwrap();
    assert_eq!(bf16.as_slice::<invar::Bf16>().unwrap()[0].to_f32(), 448.0);
    let mut bytes = [0; 512];
    assert_eq!(bf16.read(&mut bytes).unwrap(), 512);
    assert_eq!(bf16.read(&mut bytes[..511]).unwrap_err().code(), Code::OutOfRange);
    drop(view);
    assert_eq!(memory[0], 448.0);

    let lent = [1.0f32; 4];
    let mut shared = Tensor::view(&runtime, &[4], &lent).unwrap();
    assert_eq!(shared.as_mut_slice::<f32>().unwrap_err().reason(), "tensor.read_only");
    assert_eq!(Tensor::view(&runtime, &[5], &lent).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(Tensor::view(&runtime, &[-1], &lent).unwrap_err().code(), Code::InvalidArgument);
    assert!(Tensor::zeros(&runtime, DType::Fp32, &[1; 9]).is_err());
    assert!(Tensor::zeros(&runtime, DType::Other(99), &[1]).is_err());
    assert_eq!(Tensor::zeros(&runtime, DType::Fp32, &[0, 3]).unwrap().as_slice::<f32>().unwrap().len(), 0);
    let codes = [0x38u8; 4];
    let fp8 = Tensor::view_as(&runtime, DType::Fp8E4m3, &[4], &codes).unwrap();
    assert_eq!(fp8.cast(DType::Fp32).unwrap().as_slice::<f32>().unwrap(), [1.0; 4]);
    assert_eq!(Tensor::view_as(&runtime, DType::Fp32, &[1], &codes).unwrap_err().reason(), "tensor.element_type");
}

#[test]
fn dlpack_goes_out_and_comes_back() {
    let runtime = runtime();
    let mut tensor = Tensor::zeros(&runtime, DType::Fp32, &[2, 2]).unwrap();
    tensor.as_mut_slice::<f32>().unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
    let address = tensor.as_slice::<f32>().unwrap().as_ptr();
    let managed = tensor.into_dlpack().unwrap();
    // SAFETY: just made, and nobody else has it.
    let back = unsafe { Tensor::from_dlpack(&runtime, managed) }.unwrap();
    let elements = back.as_slice::<f32>().unwrap();
    assert_eq!((elements, elements.as_ptr()), (&[1.0, 2.0, 3.0, 4.0][..], address));
}

#[test]
fn an_optimizer_steps_the_hosts_tensors() {
    let runtime = runtime();
    let mut weights = [1.0f32, -1.0];
    let mut optimizer = Optimizer::new(&runtime, &v1::OptimizerConfig::default()).unwrap();
    assert_eq!(optimizer.add(Tensor::view_mut(&runtime, &[2], &mut weights).unwrap(), false).unwrap(), 0);
    let lent = [0.0f32];
    let read_only = Tensor::view(&runtime, &[1], &lent).unwrap();
    assert_eq!(optimizer.add(read_only, false).unwrap_err().reason(), "tensor.read_only");
    let mut sums = Accumulator::new(&runtime, &[2]).unwrap();
    sums.add(0, &Tensor::view(&runtime, &[2], &[1.0f32, -1.0]).unwrap()).unwrap();
    sums.add_tokens(2).unwrap();
    assert_eq!(sums.gradient(0).unwrap().as_slice::<f32>().unwrap(), [1.0, -1.0]);
    assert_eq!(
        sums.add(1, &Tensor::view(&runtime, &[2], &[1.0f32, -1.0]).unwrap()).unwrap_err().code(),
        Code::OutOfRange
    );
    let gradients = sums.gradients().unwrap();
    let step = optimizer.step(&gradients.iter().collect::<Vec<_>>(), 0.1, 0.5).unwrap();
    assert!(step.step == 1 && !step.skipped && step.grad_norm > 0.0);
    drop(gradients);
    sums.reset().unwrap();
    assert_eq!(sums.summary().unwrap().norm, 0.0);
    assert!(optimizer.state(0, OptimizerState::FirstMoment).unwrap().as_slice::<f32>().unwrap()[0] > 0.0);
    assert!(optimizer.state(0, OptimizerState::Master).unwrap().as_slice::<f32>().unwrap()[0] < 1.0);
    assert!(optimizer.state(7, OptimizerState::SecondMoment).is_err());
    assert_eq!(optimizer.step(&[], 0.1, 1.0).unwrap_err().code(), Code::InvalidArgument);
    optimizer.set_step(5).unwrap();
    let moved = optimizer.parameter(0).unwrap().as_slice::<f32>().unwrap()[0];
    assert!(moved < 1.0);
    optimizer.parameter_mut::<f32>(0).unwrap()[1] = 7.0;
    assert_eq!(optimizer.parameter_mut::<f32>(1).unwrap_err().code(), Code::OutOfRange);
    drop(optimizer);
    assert_eq!(weights, [moved, 7.0]);
}

struct Counting(Arc<AtomicUsize>, Mutex<HashMap<usize, Layout>>);

// SAFETY: the system's allocator with its layouts remembered.
unsafe impl Allocate for Counting {
    fn allocate(&self, size: usize, alignment: usize) -> *mut u8 {
        let layout = Layout::from_size_align(size.max(1), alignment).unwrap();
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc(layout) };
        self.1.lock().unwrap().insert(memory as usize, layout);
        self.0.fetch_add(1, Ordering::Relaxed);
        memory
    }

    unsafe fn deallocate(&self, memory: *mut u8, _: usize) {
        let layout = self.1.lock().unwrap().remove(&(memory as usize)).unwrap();
        // SAFETY: allocated above with this layout.
        unsafe { std::alloc::dealloc(memory, layout) }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        assert!(self.1.lock().unwrap().is_empty(), "all memory came back");
        self.0.store(usize::MAX, Ordering::Relaxed);
    }
}

#[test]
fn a_host_lends_memory_and_takes_the_log() {
    let count = Arc::new(AtomicUsize::new(0));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let runtime = RuntimeOptions::new()
        .threads(1)
        .allocator(Counting(count.clone(), Mutex::default()))
        .log(LogLevel::Debug, {
            let lines = lines.clone();
            move |level, message| {
                lines.lock().unwrap().push((level, message.to_owned()));
                panic!("dropped: a log sink cannot stop the library");
            }
        })
        .build()
        .unwrap();
    let tensor = Tensor::zeros(&runtime, DType::Fp32, &[64]).unwrap();
    let folder = Folder::new();
    // A change of the recipe is worth a line.
    let config = train_config(&runtime, &folder, 2);
    let config = runtime.set(&config, r#"precision={"recipe": "fp8_block", "ladder": {"warmup_steps": 1}}"#).unwrap();
    let mut session = Session::create(&runtime, &config, Controls::new()).unwrap();
    session.run(Controls::new()).unwrap();
    drop(session);
    drop(runtime);
    let used = count.load(Ordering::Relaxed);
    assert!(used > 0 && used < usize::MAX, "the tensor keeps the runtime alive");
    drop(tensor);
    assert_eq!(count.load(Ordering::Relaxed), usize::MAX, "the allocator was dropped");
    assert!(Arc::strong_count(&lines) == 1 && !lines.lock().unwrap().is_empty());
}

struct Store(HashMap<String, Vec<u8>>);

impl Files for Store {
    fn size(&self, path: &str) -> Result<u64, Code> {
        self.0.get(path).map(|file| file.len() as u64).ok_or(Code::NotFound)
    }

    fn read_at(&self, path: &str, offset: u64, buffer: &mut [u8]) -> Result<(), Code> {
        if path.ends_with("panic.safetensors") {
            panic!("a file that panics");
        }
        let file = self.0.get(path).ok_or(Code::NotFound)?;
        let from = offset as usize;
        buffer.copy_from_slice(file.get(from..from + buffer.len()).ok_or(Code::OutOfRange)?);
        Ok(())
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, Code> {
        let prefix = format!("{}/", directory.trim_end_matches('/'));
        let names: Vec<String> =
            self.0.keys().filter_map(|path| path.strip_prefix(&prefix)).map(str::to_owned).collect();
        if names.is_empty() {
            return Err(Code::NotFound);
        }
        Ok(names)
    }
}

#[test]
fn a_host_fetches_files_itself() {
    let mut files = HashMap::new();
    for name in ["config.json", "model.safetensors"] {
        let bytes = fs::read(format!("{}/{name}", case("autofp8-static-llama"))).unwrap();
        files.insert(format!("store://m/{name}"), bytes);
    }
    files.insert("store://p/panic.safetensors".to_owned(), vec![0; 64]);
    let runtime = RuntimeOptions::new().threads(1).files("store://", Store(files)).build().unwrap();
    let inspect = |path: &str| {
        runtime.inspect(&v1::InspectConfig { path: Some(path.to_owned()), ..Default::default() }, Controls::new())
    };
    let here = inspect(&case("autofp8-static-llama")).unwrap();
    assert_eq!(inspect("store://m").unwrap().tensors(), here.tensors());
    assert_eq!(inspect("store://absent").unwrap_err().code(), Code::NotFound);
    assert!(inspect("store://p/panic.safetensors").is_err());
    let prefix = RuntimeOptions::new().files("a\0b", Store(HashMap::new())).build();
    assert_eq!(prefix.unwrap_err().reason(), "runtime.file_prefix");
}

#[test]
fn everything_may_be_dropped_in_any_order_and_on_any_thread() {
    let runtime = runtime();
    let token = CancelToken::new(&runtime).unwrap();
    let tensor = Tensor::zeros(&runtime, DType::Fp32, &[4]).unwrap();
    let mut session = host_driven(&runtime);
    drop(runtime);
    let thread = std::thread::spawn(move || {
        token.cancel();
        session.begin(1).unwrap();
        drop(token);
        tensor.info().unwrap();
        session
    });
    drop(thread.join().unwrap());
}

/// `true` through the inherent constant when the bound holds, else through the trait's.
macro_rules! implements {
    ($type:ty: $bound:path) => {{
        #[allow(dead_code)]
        trait Otherwise {
            const ANSWER: bool = false;
        }
        impl<T> Otherwise for Probe<T> {}
        #[allow(dead_code)]
        struct Probe<T>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        impl<T: $bound> Probe<T> {
            const ANSWER: bool = true;
        }
        <Probe<$type>>::ANSWER
    }};
}

#[test]
fn thread_rules_are_in_the_types() {
    assert!(implements!(Runtime: Send) && implements!(Runtime: Sync) && implements!(Runtime: Clone));
    assert!(implements!(CancelToken: Send) && implements!(CancelToken: Sync) && implements!(CancelToken: Clone));
    assert!(implements!(Tensor<'static>: Send) && implements!(Tensor<'static>: Sync));
    assert!(implements!(Model: Send) && !implements!(Model: Sync));
    assert!(implements!(Session: Send) && !implements!(Session: Sync));
    assert!(implements!(Optimizer<'static>: Send) && !implements!(Optimizer<'static>: Sync));
    assert!(implements!(Accumulator: Send) && !implements!(Accumulator: Sync));
    assert!(implements!(invar::Error: Send) && implements!(invar::Error: Sync));
    assert!(resident() > 0);
}
