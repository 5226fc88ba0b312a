//! Watching and ending work: progress events, step metrics, cancellation.
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::raw;
use invar_sys as sys;
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;

/// Metrics of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct StepMetrics {
    /// 1 for the first optimizer step.
    pub step: i64,
    /// Mean token loss over the accumulation window, nats.
    pub loss: f64,
    /// Learning rate of this step.
    pub lr: f64,
    /// Global norm before clipping.
    pub grad_norm: f64,
    /// Tokens that carried loss in this step.
    pub tokens: i64,
    /// Tokens that carried loss since the start of the run.
    pub total_tokens: i64,
    /// Duration of the step.
    pub seconds: f64,
    /// Rate of this step.
    pub tokens_per_second: f64,
    /// Gradients were not finite and nothing was updated.
    pub skipped: bool,
    /// Steps skipped since the start of the run.
    pub total_skipped: i64,
    /// A number of [`v1::Recipe`](crate::v1::Recipe).
    pub recipe: i32,
    /// What the precision ladder did at this step.
    pub ladder: LadderEvent,
}

/// What the precision ladder did at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LadderEvent {
    /// Nothing.
    None,
    /// The run's recipe began.
    Raised,
    /// Back to BF16 after an anomaly.
    FellBack,
    /// The last steps in BF16 began.
    Final,
    /// A number that this crate does not know.
    Other(i32),
}

impl StepMetrics {
    pub(crate) fn from_raw(raw: &sys::invar_step_metrics) -> StepMetrics {
        StepMetrics {
            step: raw.step,
            loss: raw.loss,
            lr: raw.lr,
            grad_norm: raw.grad_norm,
            tokens: raw.tokens,
            total_tokens: raw.total_tokens,
            seconds: raw.seconds,
            tokens_per_second: raw.tokens_per_second,
            skipped: raw.skipped != 0,
            total_skipped: raw.total_skipped,
            recipe: raw.recipe,
            ladder: match raw.ladder_event {
                sys::INVAR_LADDER_NONE => LadderEvent::None,
                sys::INVAR_LADDER_RAISED => LadderEvent::Raised,
                sys::INVAR_LADDER_FELL_BACK => LadderEvent::FellBack,
                sys::INVAR_LADDER_FINAL => LadderEvent::Final,
                other => LadderEvent::Other(other),
            },
        }
    }
}

/// Metrics of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct EvalMetrics {
    /// Optimizer steps done.
    pub step: i64,
    /// Mean token loss, nats.
    pub loss: f64,
    /// exp(loss).
    pub perplexity: f64,
    /// Tokens scored.
    pub tokens: i64,
    /// Duration of the evaluation.
    pub seconds: f64,
}

impl EvalMetrics {
    fn from_raw(raw: &sys::invar_eval_metrics) -> EvalMetrics {
        EvalMetrics {
            step: raw.step,
            loss: raw.loss,
            perplexity: raw.perplexity,
            tokens: raw.tokens,
            seconds: raw.seconds,
        }
    }
}

/// What a progress event is about.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ProgressKind {
    /// `done` and `total` moved.
    Work,
    /// An optimizer step was done.
    Step(StepMetrics),
    /// An evaluation was done.
    Eval(EvalMetrics),
    /// `detail` says something worth a line.
    Note,
    /// A kind that this crate does not know.
    Other(i32),
}

/// One event of long work, borrowed during the callback.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// What it is about.
    pub kind: ProgressKind,
    /// `"convert"`, `"verify"`, `"train"`, `"eval"`, `"save"`, ...
    pub stage: &'a str,
    /// A tensor's name, a path or a sentence; may be empty.
    pub detail: &'a str,
    /// Of `done` and `total`: `"bytes"`, `"tensors"`, `"tokens"`, `"steps"`.
    pub unit: &'a str,
    /// How much is done.
    pub done: i64,
    /// How much there is; 0 when not known.
    pub total: i64,
    /// Seconds since the work began.
    pub seconds: f64,
}

impl Progress<'_> {
    /// # Safety
    /// `event` is a progress event of the library, valid during `'a`.
    unsafe fn from_raw<'a>(event: *const sys::invar_progress) -> Progress<'a> {
        // SAFETY: by contract; step and eval point to structs of their kind where they are not NULL.
        unsafe {
            let raw = raw::read_sized(event);
            let kind = match raw.kind {
                sys::INVAR_PROGRESS_WORK => ProgressKind::Work,
                sys::INVAR_PROGRESS_STEP if !raw.step.is_null() => {
                    ProgressKind::Step(StepMetrics::from_raw(&raw::read_sized(raw.step)))
                }
                sys::INVAR_PROGRESS_EVAL if !raw.eval.is_null() => {
                    ProgressKind::Eval(EvalMetrics::from_raw(&raw::read_sized(raw.eval)))
                }
                sys::INVAR_PROGRESS_NOTE => ProgressKind::Note,
                other => ProgressKind::Other(other),
            };
            Progress {
                kind,
                stage: raw::str_of(raw.stage),
                detail: raw::str_of(raw.detail),
                unit: raw::str_of(raw.unit),
                done: raw.done,
                total: raw.total,
                seconds: raw.seconds,
            }
        }
    }
}

type ProgressFn<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<i32> + 'a;

/// How one call is watched and ended: an optional cancel token and an optional progress callback.
///
/// The callback runs on the calling thread. `ControlFlow::Break(value)` stops the work with
/// [`Code::Aborted`](crate::Code::Aborted) and [`Error::callback_value`](crate::Error::callback_value); a panic stops it
/// too and goes on after the call.
///
/// ```
/// use invar::{CancelToken, Controls, Runtime};
/// use std::ops::ControlFlow;
///
/// let runtime = Runtime::new()?;
/// let token = CancelToken::new(&runtime)?;
/// let controls = Controls::new().cancel(&token).progress(|event| {
///     eprintln!("{} {}/{} {}", event.stage, event.done, event.total, event.unit);
///     ControlFlow::Continue(())
/// });
/// # let _ = controls;
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Default)]
pub struct Controls<'a> {
    cancel: Option<CancelToken>,
    progress: Option<Box<ProgressFn<'a>>>,
}

impl fmt::Debug for Controls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controls").field("cancel", &self.cancel).field("progress", &self.progress.is_some()).finish()
    }
}

impl<'a> Controls<'a> {
    /// Neither watched nor ended early.
    pub fn new() -> Controls<'a> {
        Controls::default()
    }

    /// Ends the work when the token is cancelled.
    pub fn cancel(mut self, token: &CancelToken) -> Controls<'a> {
        self.cancel = Some(token.clone());
        self
    }

    /// Calls `function` for every event.
    pub fn progress(mut self, function: impl FnMut(&Progress<'_>) -> ControlFlow<i32> + 'a) -> Controls<'a> {
        self.progress = Some(Box::new(function));
        self
    }

    /// Runs a call of the C interface under these controls; a panic of the callback resumes after it.
    pub(crate) fn run<T>(
        self,
        call: impl FnOnce(*mut sys::invar_cancel, *const sys::invar_progress_callback) -> Result<T>,
    ) -> Result<T> {
        let cancel = self.cancel.as_ref().map_or(ptr::null_mut(), CancelToken::as_ptr);
        let Some(function) = self.progress else {
            return call(cancel, ptr::null());
        };
        let mut guarded = Guarded { function, panic: None };
        let mut callback = raw::sized::<sys::invar_progress_callback>();
        callback.call = Some(on_progress);
        callback.user = (&mut guarded as *mut Guarded<Box<ProgressFn<'_>>>).cast();
        let result = call(cancel, &callback);
        guarded.finish(result)
    }
}

/// A callback and the panic that it ended with.
pub(crate) struct Guarded<F> {
    pub(crate) function: F,
    pub(crate) panic: Option<Box<dyn Any + Send>>,
}

impl<F> Guarded<F> {
    /// Calls the function unless it panicked before; the number to return to the library.
    pub(crate) fn call(&mut self, call: impl FnOnce(&mut F) -> ControlFlow<i32>) -> i32 {
        const PANICKED: i32 = i32::MIN;
        if self.panic.is_some() {
            return PANICKED;
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.function))) {
            Ok(ControlFlow::Continue(())) => 0,
            // 0 would mean to go on.
            Ok(ControlFlow::Break(value)) => {
                if value == 0 {
                    1
                } else {
                    value
                }
            }
            Err(panic) => {
                self.panic = Some(panic);
                PANICKED
            }
        }
    }

    /// Hands on the result, or the panic that a callback ended with.
    pub(crate) fn finish<T>(self, result: Result<T>) -> Result<T> {
        if let Some(panic) = self.panic {
            drop(result);
            resume_unwind(panic);
        }
        result
    }
}

unsafe extern "C" fn on_progress(user: *mut c_void, event: *const sys::invar_progress) -> i32 {
    // SAFETY: user is the Guarded of Controls::run, which outlives the call; the library calls on that thread only.
    unsafe {
        let guarded = &mut *user.cast::<Guarded<Box<ProgressFn<'_>>>>();
        let event = Progress::from_raw(event);
        guarded.call(|function| function(&event))
    }
}
