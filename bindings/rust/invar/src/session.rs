//! Training: driven by the library from a config, or by the host micro-batch by micro-batch.
use crate::batch::{Batch, Loss};
use crate::cancel::CancelToken;
use crate::controls::{Controls, EvalMetrics, ProgressKind, StepMetrics};
use crate::error::{check, Result};
use crate::model::{generate, Source, Token, TokenRef};
use crate::raw::{self, Bytes};
use crate::runtime::Runtime;
use crate::stream::{self, Stream};
use crate::v1;
use invar_sys as sys;
use prost::Message;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A training session. `Send`, not `Sync`: one thread at a time, any thread in turn.
///
/// A host-driven loop calls, for every optimizer step, [`begin`](Session::begin), then
/// [`forward_backward`](Session::forward_backward) for each micro-batch, then [`step`](Session::step):
///
/// ```
/// use invar::{Batch, Controls, Runtime, Session};
///
/// let runtime = Runtime::new()?;
/// let config = runtime.from_json(
///     r#"{"model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64},
///         "data": {"sequence_length": 8, "tokenizer": {"kind": "byte"}}}"#,
/// )?;
/// let mut session = Session::create(&runtime, &config, Controls::new())?;
/// let ids: Vec<i32> = "invar is".bytes().map(i32::from).collect();
/// let mut losses = Vec::new();
/// for _ in 0..3 {
///     session.begin(1)?;
///     session.forward_backward(&Batch::new(&ids, 8))?;
///     losses.push(session.step()?.loss);
/// }
/// assert!(losses[2] < losses[0]);
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Debug)]
pub struct Session {
    handle: Arc<Handle>,
    runtime: Runtime,
    not_sync: PhantomData<Cell<()>>,
}

#[derive(Debug)]
struct Handle(NonNull<sys::invar_session>);

// SAFETY: any thread may use the handle; simultaneous use is refused by the library ("handle.busy").
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_session_release(self.0.as_ptr()) }
    }
}

/// One item of [`Session::metrics`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Metrics {
    /// An optimizer step.
    Step(StepMetrics),
    /// An evaluation.
    Eval(EvalMetrics),
}

impl Session {
    /// Makes or loads the model; with `resume` in the config the newest checkpoint of the output folder is loaded. A
    /// host-driven session needs neither `data.paths` nor `output`.
    pub fn create(runtime: &Runtime, config: &v1::TrainConfig, controls: Controls<'_>) -> Result<Session> {
        let config = config.encode_to_vec();
        let handle = controls.run(|cancel, progress| {
            // SAFETY: live runtime, pointer and size belong together.
            raw::handle(|out| unsafe {
                let data = config.as_ptr().cast();
                sys::invar_session_create(runtime.as_ptr(), data, config.len(), cancel, progress, out)
            })
            .map(Handle)
        })?;
        Ok(Session { handle: Arc::new(handle), runtime: runtime.clone(), not_sync: PhantomData })
    }

    /// Trains to the config's last step: metrics, evaluations, checkpoints and exports as the config says. When
    /// cancelled a training checkpoint is written and the error is [`Code::Cancelled`](crate::Code::Cancelled); the
    /// session stays valid and may run on.
    pub fn run(&mut self, controls: Controls<'_>) -> Result<v1::TrainReport> {
        run(&self.handle, controls)
    }

    /// As [`run`](Session::run), on a thread of its own; the iterator yields the metrics of every step and evaluation.
    /// Dropping it cancels the run.
    pub fn metrics(&mut self) -> Result<Stream<'_, Metrics, v1::TrainReport>> {
        let handle = self.handle.clone();
        stream::start(&self.runtime, move |cancel, sender| {
            let controls = Controls::new().cancel(cancel).progress(|event| {
                // A reader that went away has cancelled the run, which then writes its checkpoint.
                match event.kind {
                    ProgressKind::Step(step) => drop(sender.send(Metrics::Step(step))),
                    ProgressKind::Eval(eval) => drop(sender.send(Metrics::Eval(eval))),
                    _ => {}
                }
                ControlFlow::Continue(())
            });
            run(&handle, controls)
        })
    }

    /// What the session has done so far.
    pub fn report(&mut self) -> Result<v1::TrainReport> {
        // SAFETY: live handle.
        Bytes::from_call(|out| unsafe { sys::invar_session_report(self.as_ptr(), out) })?.decode()
    }

    /// Family, shape and tokenizer.
    pub fn info(&mut self) -> Result<v1::ModelInfo> {
        // SAFETY: live handle.
        Bytes::from_call(|out| unsafe { sys::invar_session_info(self.as_ptr(), out) })?.decode()
    }

    /// Opens an accumulation window of `micro_batches` calls of [`forward_backward`](Session::forward_backward), and
    /// drops what an unfinished one gathered.
    pub fn begin(&mut self, micro_batches: i64) -> Result<()> {
        // SAFETY: live handle.
        check(unsafe { sys::invar_session_begin(self.as_ptr(), micro_batches) })
    }

    /// Adds one micro-batch's gradients to the window.
    pub fn forward_backward(&mut self, batch: &Batch<'_>) -> Result<Loss> {
        let batch = batch.raw()?;
        let mut loss = raw::sized::<sys::invar_loss>();
        // SAFETY: live handle; the batch's slices are borrowed during the call.
        check(unsafe { sys::invar_session_forward_backward(self.as_ptr(), &batch, &mut loss) })?;
        Ok(Loss::from_raw(&loss))
    }

    /// Closes the window: mean over its tokens, clip, update. Gradients that are not finite skip the update; too many
    /// such steps in a row are an error.
    pub fn step(&mut self) -> Result<StepMetrics> {
        let mut metrics = raw::sized::<sys::invar_step_metrics>();
        // SAFETY: live handle.
        check(unsafe { sys::invar_session_step(self.as_ptr(), &mut metrics) })?;
        Ok(StepMetrics::from_raw(&metrics))
    }

    /// As [`step`](Session::step) with the host's own learning rate (finite, 0 or more); the schedule counts on.
    pub fn step_with_lr(&mut self, lr: f64) -> Result<StepMetrics> {
        let mut metrics = raw::sized::<sys::invar_step_metrics>();
        // SAFETY: live handle.
        check(unsafe { sys::invar_session_step_with_lr(self.as_ptr(), lr, &mut metrics) })?;
        Ok(StepMetrics::from_raw(&metrics))
    }

    /// Token loss and perplexity; without a config, of the held-out data.
    pub fn evaluate(&mut self, config: Option<&v1::EvalConfig>, controls: Controls<'_>) -> Result<v1::EvalReport> {
        let config = config.map(Message::encode_to_vec);
        let (data, size) = config.as_ref().map_or((ptr::null(), 0), |bytes| (bytes.as_ptr().cast(), bytes.len()));
        controls
            .run(|cancel, progress| {
                // SAFETY: live handle, pointer and size belong together.
                Bytes::from_call(|out| unsafe {
                    sys::invar_session_evaluate(self.as_ptr(), data, size, cancel, progress, out)
                })
            })?
            .decode()
    }

    /// Generates text with the weights as they are now.
    pub fn generate(&mut self, config: &v1::GenerateConfig) -> Result<v1::GenerateReport> {
        generate(Source::Session(self.as_ptr()), config, None, None)
    }

    /// Generates text and calls `token` for each token, on this thread. `ControlFlow::Break` ends the generation: the
    /// report says so, it is no error.
    pub fn generate_with(
        &mut self,
        config: &v1::GenerateConfig,
        cancel: Option<&CancelToken>,
        mut token: impl FnMut(&TokenRef<'_>) -> ControlFlow<()>,
    ) -> Result<v1::GenerateReport> {
        generate(Source::Session(self.as_ptr()), config, cancel, Some(&mut token))
    }

    /// Generates text on a thread of its own; the iterator yields the tokens as they come and ends the generation when
    /// it is dropped.
    pub fn tokens(&mut self, config: &v1::GenerateConfig) -> Result<Stream<'_, Token, v1::GenerateReport>> {
        let (handle, config) = (self.handle.clone(), config.clone());
        stream::start(&self.runtime, move |cancel, sender| {
            let source = Source::Session(handle.0.as_ptr());
            generate(source, &config, Some(cancel), Some(&mut |token| sender.send(token.owned())))
        })
    }

    /// Writes a training checkpoint to a folder that must not exist or be empty.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = raw::path_bytes(path.as_ref());
        // SAFETY: live handle, pointer and size belong together.
        check(unsafe { sys::invar_session_save(self.as_ptr(), raw::chars(path), path.len()) })
    }

    /// Loads a training checkpoint; the run continues bit for bit.
    pub fn resume(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = raw::path_bytes(path.as_ref());
        // SAFETY: live handle, pointer and size belong together.
        check(unsafe { sys::invar_session_resume(self.as_ptr(), raw::chars(path), path.len()) })
    }

    /// Writes a serving folder of the weights as they are now; the config's source is not read. A call that fails or is
    /// cancelled leaves no folder.
    pub fn export(&mut self, config: &v1::ExportConfig, controls: Controls<'_>) -> Result<v1::ExportReport> {
        let config = config.encode_to_vec();
        controls
            .run(|cancel, progress| {
                // SAFETY: live handle, pointer and size belong together.
                Bytes::from_call(|out| unsafe {
                    let data = config.as_ptr().cast();
                    sys::invar_session_export(self.as_ptr(), data, config.len(), cancel, progress, out)
                })
            })?
            .decode()
    }

    fn as_ptr(&self) -> *mut sys::invar_session {
        self.handle.0.as_ptr()
    }
}

fn run(handle: &Handle, controls: Controls<'_>) -> Result<v1::TrainReport> {
    controls
        .run(|cancel, progress| {
            // SAFETY: live handle.
            Bytes::from_call(|out| unsafe { sys::invar_session_run(handle.0.as_ptr(), cancel, progress, out) })
        })?
        .decode()
}
