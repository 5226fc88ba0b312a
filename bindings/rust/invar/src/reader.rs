//! Checkpoints tensor by tensor: what a conversion would write, decoded into the caller's own memory.
use crate::cancel::CancelToken;
use crate::dtype::{DType, Element};
use crate::error::{check, Code, Error, Result};
use crate::raw;
use crate::runtime::Runtime;
use crate::v1;
use invar_sys as sys;
use prost::Message;
use std::mem::size_of_val;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// A checkpoint opened for reading: headers at once, elements when they are asked for. `Send` and `Sync`: several
/// threads may read at once.
///
/// ```no_run
/// use invar::{v1::OpenConfig, Checkpoint, Runtime};
///
/// let runtime = Runtime::new()?;
/// let config = OpenConfig { path: Some("DeepSeek-FP8".into()), ..Default::default() };
/// let checkpoint = Checkpoint::open(&runtime, &config)?;
/// for tensor in &checkpoint {
///     let tensor = tensor?;
///     println!("{} {:?} by {}", tensor.name, tensor.shape, tensor.rule);
/// }
/// let head = checkpoint.find("lm_head.weight")?;
/// let mut row = vec![0f32; (head.elements / head.rows) as usize];
/// checkpoint.read_rows(&head, 0..1, &mut row, None)?;
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint(NonNull<sys::invar_checkpoint>);

// SAFETY: the C interface lets any thread use a checkpoint, several at once.
unsafe impl Send for Checkpoint {}
// SAFETY: as above.
unsafe impl Sync for Checkpoint {}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_checkpoint_release(self.0.as_ptr()) }
    }
}

/// One tensor as a loader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointTensor {
    /// Its place among the tensors, which are sorted by name.
    pub index: i64,
    /// As it is stored.
    pub name: String,
    /// Of the stored elements.
    pub dtype: DType,
    /// Of the values.
    pub shape: Vec<i64>,
    /// Values in all.
    pub elements: i64,
    /// The first dimension; 1 for a scalar.
    pub rows: i64,
    /// Codes with scales, read as FP32, BF16 or FP16.
    pub quantized: bool,
    /// How it is decoded: `"copy"`, `"tensor_scale"`, `"row_scale"`, `"block_scale"`, `"unscaled"`, ...
    pub rule: String,
    /// The producer's layout; empty for copies.
    pub layout: String,
    /// Name of the file that holds it.
    pub file: String,
}

impl Checkpoint {
    /// Opens a checkpoint folder or file. Every tensor gets exactly one rule.
    ///
    /// # Errors
    /// Those of a conversion: `"checkpoint.*"` and `"safetensors.*"` name file and tensor.
    pub fn open(runtime: &Runtime, config: &v1::OpenConfig) -> Result<Checkpoint> {
        let config = config.encode_to_vec();
        // SAFETY: live runtime, pointer and size belong together.
        raw::handle(|out| unsafe {
            sys::invar_checkpoint_open(runtime.as_ptr(), config.as_ptr().cast(), config.len(), out)
        })
        .map(Checkpoint)
    }

    /// Tensors with values; scales are used up by their weights and not among them.
    pub fn len(&self) -> i64 {
        let mut count = 0;
        // SAFETY: live handle. The call fails in a child made by fork only, where every other call says so.
        match check(unsafe { sys::invar_checkpoint_count(self.as_ptr(), &mut count) }) {
            Ok(()) => count,
            Err(_) => 0,
        }
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensor at an index below [`len`](Checkpoint::len).
    ///
    /// # Errors
    /// [`Code::OutOfRange`].
    pub fn tensor(&self, index: i64) -> Result<CheckpointTensor> {
        let mut info = raw::sized::<sys::invar_checkpoint_tensor>();
        // SAFETY: live handle, info says its size.
        check(unsafe { sys::invar_checkpoint_describe(self.as_ptr(), index, &mut info) })?;
        let rank = usize::try_from(info.rank).unwrap_or(0).min(info.shape.len());
        // SAFETY: the texts live as long as the checkpoint.
        let [name, rule, layout, file] =
            [info.name, info.rule, info.layout, info.file].map(|text| unsafe { raw::str_of(text) }.to_owned());
        Ok(CheckpointTensor {
            index,
            name,
            dtype: DType::from_raw(info.dtype),
            shape: info.shape[..rank].to_vec(),
            elements: info.elements,
            rows: info.rows,
            quantized: info.quantized != 0,
            rule,
            layout,
            file,
        })
    }

    /// The tensor of a name.
    ///
    /// # Errors
    /// [`Code::NotFound`], `"checkpoint.no_tensor"`.
    pub fn find(&self, name: &str) -> Result<CheckpointTensor> {
        let mut index = 0;
        // SAFETY: live handle, pointer and size belong together.
        check(unsafe {
            sys::invar_checkpoint_find(self.as_ptr(), raw::chars(name.as_bytes()), name.len(), &mut index)
        })?;
        self.tensor(index)
    }

    /// All tensors, sorted by name.
    pub fn iter(&self) -> Tensors<'_> {
        Tensors { checkpoint: self, left: 0..self.len() }
    }

    /// Decodes rows of a tensor to the start of `memory`, row-major without gaps, as the memory's type: `f32`, [`Bf16`] or
    /// [`F16`]; what is not quantised also as it is stored. After a failure `memory` may be partly written.
    ///
    /// # Errors
    /// [`Code::OutOfRange`]: `"checkpoint.row_range"`, and `"checkpoint.read_size"` when `memory` is too small.
    ///
    /// [`Bf16`]: crate::Bf16
    /// [`F16`]: crate::F16
    pub fn read_rows<T: Element>(
        &self,
        tensor: &CheckpointTensor,
        rows: Range<i64>,
        memory: &mut [T],
        cancel: Option<&CancelToken>,
    ) -> Result<()> {
        let dtype = if T::accepts(tensor.dtype) && !tensor.quantized { tensor.dtype } else { T::DTYPE };
        let count = rows.end.checked_sub(rows.start).ok_or_else(|| {
            Error::new(Code::OutOfRange, "checkpoint.row_range", format!("rows {}..{} overflow", rows.start, rows.end))
        })?;
        // SAFETY: live handles; pointer and capacity belong together, and any bytes are valid elements.
        check(unsafe {
            sys::invar_checkpoint_read_rows(
                self.as_ptr(),
                tensor.index,
                rows.start,
                count,
                dtype.raw(),
                cancel.map_or(ptr::null_mut(), CancelToken::as_ptr),
                memory.as_mut_ptr().cast(),
                size_of_val(memory),
            )
        })
    }

    /// Decodes a whole tensor by its name.
    ///
    /// # Errors
    /// Those of [`find`](Checkpoint::find) and [`read_rows`](Checkpoint::read_rows).
    pub fn read<T: Element + Default>(&self, name: &str) -> Result<Vec<T>> {
        let tensor = self.find(name)?;
        let mut memory = vec![T::default(); usize::try_from(tensor.elements).unwrap_or(0)];
        self.read_rows(&tensor, 0..tensor.rows, &mut memory, None)?;
        Ok(memory)
    }

    fn as_ptr(&self) -> *const sys::invar_checkpoint {
        self.0.as_ptr()
    }
}

impl<'a> IntoIterator for &'a Checkpoint {
    type Item = Result<CheckpointTensor>;
    type IntoIter = Tensors<'a>;

    fn into_iter(self) -> Tensors<'a> {
        self.iter()
    }
}

/// The tensors of a [`Checkpoint`].
#[derive(Debug, Clone)]
pub struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
    left: Range<i64>,
}

impl Iterator for Tensors<'_> {
    type Item = Result<CheckpointTensor>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left.next().map(|index| self.checkpoint.tensor(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}
