//! AdamW on the host's own tensors, and sums of gradients over micro-batches.
use crate::dtype::Element;
use crate::error::{check, Code, Error, Result};
use crate::raw;
use crate::runtime::Runtime;
use crate::tensor::Tensor;
use crate::v1;
use invar_sys as sys;
use prost::Message;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// An optimizer over parameters that it owns or borrows for `'a`. `Send`, not `Sync`.
///
/// ```
/// use invar::{v1::OptimizerConfig, Optimizer, Runtime, Tensor};
///
/// let runtime = Runtime::new()?;
/// let mut weights = [1.0f32, -1.0];
/// {
///     let mut optimizer = Optimizer::new(&runtime, &OptimizerConfig::default())?;
///     optimizer.add(Tensor::view_mut(&runtime, &[2], &mut weights)?, false)?;
///     let gradient = Tensor::view(&runtime, &[2], &[0.5f32, -0.5])?;
///     let step = optimizer.step(&[&gradient], 0.1, 1.0)?;
///     assert_eq!(step.step, 1);
/// }
/// assert!(weights[0] < 1.0 && weights[1] > -1.0);
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Debug)]
pub struct Optimizer<'a> {
    handle: NonNull<sys::invar_optimizer>,
    parameters: Vec<Tensor<'a>>,
    not_sync: PhantomData<Cell<()>>,
}

// SAFETY: any thread in turn may use the handle; the parameters are Send.
unsafe impl Send for Optimizer<'_> {}

impl Drop for Optimizer<'_> {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_optimizer_release(self.handle.as_ptr()) }
    }
}

/// One update.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct OptimizerStep {
    /// Updates done.
    pub step: i64,
    /// Gradients were not finite and nothing was updated.
    pub skipped: bool,
    /// Global norm of gradient * grad_scale before clipping.
    pub grad_norm: f64,
    /// 1 when not clipped.
    pub clip_factor: f64,
}

/// A state that the optimizer keeps for a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptimizerState {
    /// The FP32 weights.
    Master,
    /// Running mean of gradients.
    FirstMoment,
    /// Running mean of squared gradients.
    SecondMoment,
}

impl<'a> Optimizer<'a> {
    /// An optimizer without parameters.
    pub fn new(runtime: &Runtime, config: &v1::OptimizerConfig) -> Result<Optimizer<'a>> {
        let config = config.encode_to_vec();
        // SAFETY: live runtime, pointer and size belong together.
        let handle = raw::handle(|out| unsafe {
            sys::invar_optimizer_create(runtime.as_ptr(), config.as_ptr().cast(), config.len(), out)
        })?;
        Ok(Optimizer { handle, parameters: Vec::new(), not_sync: PhantomData })
    }

    /// Adds an FP32 parameter (updated in place) or a BF16 one (a master is kept inside) before the first step; its
    /// index. `decays`: the config's weight decay applies, by rule to matrices and not to gains and biases.
    pub fn add(&mut self, parameter: Tensor<'a>, decays: bool) -> Result<usize> {
        parameter.writable()?;
        let mut index = 0;
        // SAFETY: live handles; the tensor stays alive with the optimizer.
        check(unsafe { sys::invar_optimizer_add(self.handle.as_ptr(), parameter.as_ptr(), decays, &mut index) })?;
        self.parameters.push(parameter);
        Ok(index as usize)
    }

    /// A parameter as it is now.
    pub fn parameter(&self, index: usize) -> Option<&Tensor<'a>> {
        self.parameters.get(index)
    }

    /// The elements of a parameter for writing.
    pub fn parameter_mut<T: Element>(&mut self, index: usize) -> Result<&mut [T]> {
        let count = self.parameters.len();
        let parameter = self.parameters.get_mut(index).ok_or_else(|| {
            Error::new(Code::OutOfRange, "optimizer.index", format!("optimizer: index {index} of {count} parameters"))
        })?;
        parameter.as_mut_slice()
    }

    /// One update of every parameter: an FP32 gradient for each, in the order of their indices; `lr`: this step's
    /// rate; `grad_scale` multiplies every gradient first (1 / tokens).
    pub fn step(&mut self, gradients: &[&Tensor<'_>], lr: f64, grad_scale: f64) -> Result<OptimizerStep> {
        let pointers: Vec<*const sys::invar_tensor> =
            gradients.iter().map(|tensor| tensor.as_ptr().cast_const()).collect();
        let mut result = raw::sized::<sys::invar_optimizer_result>();
        // SAFETY: live handles, pointer and count belong together.
        check(unsafe {
            let (data, count) = (pointers.as_ptr(), pointers.len() as i64);
            sys::invar_optimizer_step(self.handle.as_ptr(), data, count, lr, grad_scale, &mut result)
        })?;
        Ok(OptimizerStep {
            step: result.step,
            skipped: result.skipped != 0,
            grad_norm: result.grad_norm,
            clip_factor: result.clip_factor,
        })
    }

    /// One state of one parameter, sharing its memory: read it to save, write it to restore.
    pub fn state(&mut self, index: usize, which: OptimizerState) -> Result<Tensor<'_>> {
        let which = match which {
            OptimizerState::Master => sys::INVAR_STATE_MASTER,
            OptimizerState::FirstMoment => sys::INVAR_STATE_FIRST_MOMENT,
            OptimizerState::SecondMoment => sys::INVAR_STATE_SECOND_MOMENT,
        };
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        // SAFETY: live handle; the result borrows the optimizer, so that no step runs meanwhile.
        raw::handle(|out| unsafe { sys::invar_optimizer_state(self.handle.as_ptr(), index, which, out) })
            .map(Tensor::own)
    }

    /// Sets the count of updates done, which the bias correction uses.
    pub fn set_step(&mut self, step: i64) -> Result<()> {
        // SAFETY: live handle.
        check(unsafe { sys::invar_optimizer_set_step(self.handle.as_ptr(), step) })
    }
}

/// FP32 sums of gradients over the micro-batches of a window, and its tokens. `Send`, not `Sync`.
///
/// ```
/// use invar::{Accumulator, Runtime, Tensor};
///
/// let runtime = Runtime::new()?;
/// let mut sums = Accumulator::new(&runtime, &[2])?;
/// sums.add(0, &Tensor::view(&runtime, &[2], &[3.0f32, 4.0])?)?;
/// sums.add_tokens(10)?;
/// let summary = sums.summary()?;
/// assert_eq!((summary.norm, summary.tokens, summary.finite), (5.0, 10, true));
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Debug)]
pub struct Accumulator {
    handle: NonNull<sys::invar_accumulator>,
    count: usize,
    not_sync: PhantomData<Cell<()>>,
}

// SAFETY: any thread in turn may use the handle.
unsafe impl Send for Accumulator {}

impl Drop for Accumulator {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_accumulator_release(self.handle.as_ptr()) }
    }
}

/// What an [`Accumulator`] holds.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct AccumulatorSummary {
    /// Every sum is finite.
    pub finite: bool,
    /// Tokens counted.
    pub tokens: i64,
    /// Global norm of the sums.
    pub norm: f64,
}

impl Accumulator {
    /// Sums of gradients with these numbers of elements.
    pub fn new(runtime: &Runtime, elements: &[i64]) -> Result<Accumulator> {
        // SAFETY: live runtime, pointer and count belong together.
        let handle = raw::handle(|out| unsafe {
            sys::invar_accumulator_create(runtime.as_ptr(), elements.as_ptr(), elements.len() as i64, out)
        })?;
        Ok(Accumulator { handle, count: elements.len(), not_sync: PhantomData })
    }

    /// Adds a gradient (FP32 or BF16, of a sum of token losses).
    pub fn add(&mut self, index: usize, gradient: &Tensor<'_>) -> Result<()> {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        // SAFETY: live handles.
        check(unsafe { sys::invar_accumulator_add(self.handle.as_ptr(), index, gradient.as_ptr()) })
    }

    /// Counts tokens of one micro-batch.
    pub fn add_tokens(&mut self, tokens: i64) -> Result<()> {
        // SAFETY: live handle.
        check(unsafe { sys::invar_accumulator_add_tokens(self.handle.as_ptr(), tokens) })
    }

    /// Norm, tokens and whether every sum is finite.
    pub fn summary(&mut self) -> Result<AccumulatorSummary> {
        let mut info = raw::sized::<sys::invar_accumulator_info>();
        // SAFETY: live handle.
        check(unsafe { sys::invar_accumulator_summary(self.handle.as_ptr(), &mut info) })?;
        Ok(AccumulatorSummary { finite: info.finite != 0, tokens: info.tokens, norm: info.norm })
    }

    /// One sum as an FP32 tensor of rank 1 that shares its memory.
    pub fn gradient(&mut self, index: usize) -> Result<Tensor<'_>> {
        self.shared(i64::try_from(index).unwrap_or(i64::MAX))
    }

    /// All sums, for [`Optimizer::step`].
    pub fn gradients(&mut self) -> Result<Vec<Tensor<'_>>> {
        (0..self.count as i64).map(|index| self.shared(index)).collect()
    }

    /// The callers borrow self exclusively, so that nothing is added meanwhile.
    fn shared(&self, index: i64) -> Result<Tensor<'_>> {
        // SAFETY: live handle.
        raw::handle(|out| unsafe { sys::invar_accumulator_gradient(self.handle.as_ptr(), index, out) }).map(Tensor::own)
    }

    /// Sums and tokens back to zero.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: live handle.
        check(unsafe { sys::invar_accumulator_reset(self.handle.as_ptr()) })
    }
}
