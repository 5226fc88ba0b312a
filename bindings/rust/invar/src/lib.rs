//! Train and fine-tune decoder language models in mixed precision, and convert FP8 checkpoints to BF16 with proof, in
//! this process: the Rust face of libinvar.
//!
//! Convert a checkpoint:
//!
//! ```no_run
//! use invar::{v1::ConvertConfig, Controls, Runtime};
//!
//! let runtime = Runtime::new()?;
//! let config = ConvertConfig {
//!     source: Some("DeepSeek-FP8".into()),
//!     destination: Some("DeepSeek-BF16".into()),
//!     ..Default::default()
//! };
//! let report = runtime.convert(&config, Controls::new())?;
//! println!("{} tensors from layout {}", report.tensors_written(), report.layout());
//! # Ok::<(), invar::Error>(())
//! ```
//!
//! Train on a text file and generate:
//!
//! ```no_run
//! use invar::{v1, Controls, Metrics, Runtime, Session};
//!
//! let runtime = Runtime::new()?;
//! let config = runtime.from_json(
//!     r#"{"output": "run", "data": {"paths": ["text.txt"], "sequence_length": 64}, "steps": 50,
//!         "model": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 176}}"#,
//! )?;
//! let mut session = Session::create(&runtime, &config, Controls::new())?;
//! for item in session.metrics()? {
//!     if let Metrics::Step(step) = item? {
//!         println!("step {} loss {:.3}", step.step, step.loss);
//!     }
//! }
//! let request = v1::GenerateConfig { prompt: Some("the ".into()), ..Default::default() };
//! println!("{}", session.generate(&request)?.text());
//! # Ok::<(), invar::Error>(())
//! ```
//!
//! | type | threads |
//! |---|---|
//! | [`Runtime`], [`CancelToken`] | `Clone`, `Send`, `Sync`: any thread, any time |
//! | [`Tensor`] | `Send`, `Sync`: writes need `&mut` |
//! | [`Checkpoint`], [`Tokenizer`] | `Send`, `Sync`: several threads at once |
//! | [`Model`], [`Session`], [`Optimizer`], [`Accumulator`] | `Send`, not `Sync`: one thread at a time |
//!
//! Dropping in any order is safe: what was made from a runtime keeps it alive. Configs and reports are messages of the
//! module [`v1`]; absent fields stand for their defaults, which [`Runtime::explain`] names. Callbacks may panic: the
//! panic goes on after the call. In a child made by `fork` every call fails with [`Code::FailedPrecondition`].
//!
//! `invar-sys` finds the library: the folder that `INVAR_LIB_DIR` names while building, else pkg-config's `invar`.

mod batch;
mod cancel;
mod checkpoint;
mod controls;
mod dtype;
mod error;
mod host;
mod model;
mod optimizer;
mod raw;
mod reader;
mod runtime;
mod session;
mod stream;
mod tensor;
mod tokenizer;

/// Configs and reports: the messages of package invar.v1.
#[allow(missing_docs, rustdoc::broken_intra_doc_links, clippy::all)]
#[rustfmt::skip]
pub mod v1;

pub use batch::{Batch, Loss};
pub use cancel::CancelToken;
pub use controls::{Controls, EvalMetrics, LadderEvent, Progress, ProgressKind, StepMetrics};
pub use dtype::{Bf16, DType, Element, F16};
pub use error::{Code, Error, Result};
pub use host::{Allocate, Files, LogLevel};
pub use invar_sys as sys;
pub use model::{Model, Token, TokenRef};
pub use optimizer::{Accumulator, AccumulatorSummary, Optimizer, OptimizerState, OptimizerStep};
pub use prost;
pub use reader::{Checkpoint, CheckpointTensor, Tensors};
pub use runtime::{build_info, has_feature, version, version_number, Runtime, RuntimeOptions};
pub use session::{Metrics, Session};
pub use stream::Stream;
pub use tensor::{Granularity, Quantize, Scales, Tensor, TensorInfo};
pub use tokenizer::{EncodeOptions, Tokenizer};

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
