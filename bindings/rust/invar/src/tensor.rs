//! Row-major numbers in host memory: the library's own, or views of a Rust slice without a copy.
use crate::dtype::{DType, Element};
use crate::error::{check, Code, Error, Result};
use crate::raw;
use crate::runtime::Runtime;
use invar_sys as sys;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::size_of_val;
use std::ptr::{self, NonNull};
use std::slice;

/// Row-major numbers in host memory; a quantised tensor carries its scales.
///
/// `'a` is how long borrowed memory lives; tensors with memory of their own are `Tensor<'static>`. `Send` and `Sync`:
/// shared references only read.
///
/// ```
/// use invar::{DType, Runtime, Tensor};
///
/// let runtime = Runtime::new()?;
/// let mut weights = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
/// {
///     let mut view = Tensor::view_mut(&runtime, &[2, 3], &mut weights)?; // no copy
///     view.as_mut_slice::<f32>()?[0] = 10.0;
/// }
/// assert_eq!(weights[0], 10.0);
///
/// let a = Tensor::view(&runtime, &[2, 3], &weights)?;
/// let square = a.matmul(false, &a, true, DType::Fp32)?; // [2, 3] x [3, 2]
/// assert_eq!(square.as_slice::<f32>()?, [113.0, 68.0, 68.0, 77.0]);
/// # Ok::<(), invar::Error>(())
/// ```
///
/// A view cannot outlive its memory:
///
/// ```compile_fail,E0505
/// # let runtime = invar::Runtime::new().unwrap();
/// let memory = vec![0.0f32; 4];
/// let view = invar::Tensor::view(&runtime, &[4], &memory).unwrap();
/// drop(memory);
/// view.info().unwrap();
/// ```
#[derive(Debug)]
pub struct Tensor<'a> {
    handle: NonNull<sys::invar_tensor>,
    /// The memory was lent by a shared reference.
    read_only: bool,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: any thread may use a tensor; writes need an exclusive reference here.
unsafe impl Send for Tensor<'_> {}
// SAFETY: shared references only read.
unsafe impl Sync for Tensor<'_> {}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_tensor_release(self.handle.as_ptr()) }
    }
}

/// What a tensor is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Format of the elements.
    pub dtype: DType,
    /// Size of each dimension, slowest first.
    pub shape: Vec<i64>,
    /// Elements in all.
    pub elements: i64,
    /// Bytes of the elements.
    pub bytes: usize,
    /// The grid of scales of a quantised tensor.
    pub scales: Option<Scales>,
}

/// The scales of a quantised tensor: value = code * scale_inv of its block.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scales {
    /// Rows of one scale's block.
    pub block_rows: i64,
    /// Columns of one scale's block.
    pub block_cols: i64,
    /// Rows of the grid.
    pub rows: i64,
    /// Columns of the grid.
    pub cols: i64,
    /// `[rows, cols]`, row-major.
    pub scale_inv: Vec<f32>,
}

/// How [`Tensor::quantize`] scales. The default is E4M3 in 128x128 blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quantize {
    /// [`DType::Fp8E4m3`] or [`DType::Fp8E5m2`].
    pub dtype: DType,
    /// What shares a scale.
    pub granularity: Granularity,
    /// Scales are powers of two.
    pub power_of_two: bool,
}

/// What shares a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Granularity {
    /// The whole tensor.
    Tensor,
    /// One row.
    Row,
    /// A block of rows and columns.
    Block {
        /// Rows of a block.
        rows: i64,
        /// Columns of a block.
        cols: i64,
    },
}

impl Default for Quantize {
    fn default() -> Quantize {
        Quantize {
            dtype: DType::Fp8E4m3,
            granularity: Granularity::Block { rows: 128, cols: 128 },
            power_of_two: false,
        }
    }
}

impl Quantize {
    /// E4M3 in 128x128 blocks.
    pub fn new() -> Quantize {
        Quantize::default()
    }

    /// Another FP8 format.
    pub fn dtype(mut self, dtype: DType) -> Quantize {
        self.dtype = dtype;
        self
    }

    /// Another granularity.
    pub fn granularity(mut self, granularity: Granularity) -> Quantize {
        self.granularity = granularity;
        self
    }

    /// Scales rounded up to powers of two.
    pub fn power_of_two(mut self, power_of_two: bool) -> Quantize {
        self.power_of_two = power_of_two;
        self
    }
}

impl Tensor<'static> {
    /// Zeros in memory of the tensor's own.
    pub fn zeros(runtime: &Runtime, dtype: DType, shape: &[i64]) -> Result<Tensor<'static>> {
        // SAFETY: live runtime, shape and rank belong together.
        let handle = raw::handle(|out| unsafe {
            sys::invar_tensor_create(runtime.as_ptr(), dtype.raw(), shape.as_ptr(), rank(shape), out)
        })?;
        Ok(Tensor::own(handle))
    }

    /// Takes over a DLPack tensor (1.x, CPU, row-major without gaps); its deleter runs when the tensor is dropped.
    ///
    /// # Safety
    /// `managed` is a valid DLPack tensor whose elements nobody else reads or writes while this tensor lives. On failure
    /// it still belongs to the caller.
    pub unsafe fn from_dlpack(
        runtime: &Runtime,
        managed: NonNull<sys::DLManagedTensorVersioned>,
    ) -> Result<Tensor<'static>> {
        // SAFETY: by contract.
        let handle =
            raw::handle(|out| unsafe { sys::invar_tensor_from_dlpack(runtime.as_ptr(), managed.as_ptr(), out) })?;
        Ok(Tensor::own(handle))
    }

    /// The tensor's memory for another library, which calls the deleter of the result when it is done. Quantised
    /// tensors are refused: DLPack has no place for scales.
    pub fn into_dlpack(self) -> Result<NonNull<sys::DLManagedTensorVersioned>> {
        self.writable()?;
        // SAFETY: live handle; the result keeps the memory alive.
        raw::handle(|out| unsafe { sys::invar_tensor_to_dlpack(self.as_ptr(), out) })
    }
}

impl<'a> Tensor<'a> {
    pub(crate) fn own(handle: NonNull<sys::invar_tensor>) -> Tensor<'a> {
        Tensor { handle, read_only: false, memory: PhantomData }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::invar_tensor {
        self.handle.as_ptr()
    }

    /// A view of `data`, which has at least the elements of the shape; no copy.
    pub fn view<T: Element>(runtime: &Runtime, shape: &[i64], data: &'a [T]) -> Result<Tensor<'a>> {
        Tensor::view_as(runtime, T::DTYPE, shape, data)
    }

    /// As [`view`](Tensor::view) in another format that `T` can hold, such as FP8 codes in bytes.
    pub fn view_as<T: Element>(runtime: &Runtime, dtype: DType, shape: &[i64], data: &'a [T]) -> Result<Tensor<'a>> {
        let memory = data.as_ptr().cast_mut().cast();
        let mut tensor = Tensor::over::<T>(runtime, dtype, shape, memory, size_of_val(data))?;
        tensor.read_only = true;
        Ok(tensor)
    }

    /// A view of `data` that can be written through the tensor; no copy.
    pub fn view_mut<T: Element>(runtime: &Runtime, shape: &[i64], data: &'a mut [T]) -> Result<Tensor<'a>> {
        Tensor::view_mut_as(runtime, T::DTYPE, shape, data)
    }

    /// As [`view_mut`](Tensor::view_mut) in another format that `T` can hold.
    pub fn view_mut_as<T: Element>(
        runtime: &Runtime,
        dtype: DType,
        shape: &[i64],
        data: &'a mut [T],
    ) -> Result<Tensor<'a>> {
        Tensor::over::<T>(runtime, dtype, shape, data.as_mut_ptr().cast(), size_of_val(data))
    }

    /// The memory belongs to the caller for `'a`.
    fn over<T: Element>(
        runtime: &Runtime,
        dtype: DType,
        shape: &[i64],
        memory: *mut c_void,
        bytes: usize,
    ) -> Result<Tensor<'a>> {
        if !T::accepts(dtype) {
            return Err(wrong_type::<T>(dtype));
        }
        let (data, rank) = (shape.as_ptr(), rank(shape));
        // SAFETY: memory has the bytes and outlives the tensor by 'a; nothing is dropped by the library.
        let handle = raw::handle(|out| unsafe {
            let (runtime, user) = (runtime.as_ptr(), ptr::null_mut());
            sys::invar_tensor_view(runtime, dtype.raw(), data, rank, memory, bytes, user, None, out)
        })?;
        Ok(Tensor::own(handle))
    }

    fn describe(&self) -> Result<sys::invar_tensor_info> {
        let mut info = raw::sized::<sys::invar_tensor_info>();
        // SAFETY: live handle.
        check(unsafe { sys::invar_tensor_describe(self.as_ptr(), &mut info) })?;
        Ok(info)
    }

    /// Format, shape and scales.
    pub fn info(&self) -> Result<TensorInfo> {
        let info = self.describe()?;
        let scales = (info.quantized != 0 && !info.scale_inv.is_null()).then(|| {
            let count = (info.scale_rows * info.scale_cols) as usize;
            // SAFETY: the grid is borrowed from the tensor, which lives.
            let scale_inv = unsafe { slice::from_raw_parts(info.scale_inv, count) }.to_vec();
            Scales {
                block_rows: info.block_rows,
                block_cols: info.block_cols,
                rows: info.scale_rows,
                cols: info.scale_cols,
                scale_inv,
            }
        });
        Ok(TensorInfo {
            dtype: DType::from_raw(info.dtype),
            shape: info.shape[..info.rank.clamp(0, sys::INVAR_MAX_RANK) as usize].to_vec(),
            elements: info.elements,
            bytes: info.bytes,
            scales,
        })
    }

    /// Pointer to the elements and their number.
    fn memory<T: Element>(&self) -> Result<(*mut T, usize)> {
        let info = self.describe()?;
        let dtype = DType::from_raw(info.dtype);
        if !T::accepts(dtype) {
            return Err(wrong_type::<T>(dtype));
        }
        let mut data = ptr::null_mut();
        // SAFETY: live handle.
        check(unsafe { sys::invar_tensor_data(self.as_ptr(), &mut data) })?;
        let count = usize::try_from(info.elements).unwrap_or(0);
        if count == 0 || data.is_null() {
            return Ok((NonNull::dangling().as_ptr(), 0));
        }
        if (data as usize) % std::mem::align_of::<T>() != 0 {
            return Err(Error::new(
                Code::InvalidArgument,
                "tensor.alignment",
                format!("tensor: the memory at {data:p} is not aligned to {}", std::mem::align_of::<T>()),
            ));
        }
        Ok((data.cast(), count))
    }

    /// The elements, without a copy. Bytes (`u8`) also show FP8 codes, E8M0 and booleans.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        let (data, count) = self.memory::<T>()?;
        // SAFETY: count elements of the format that T accepts; nobody writes while self is shared.
        Ok(unsafe { slice::from_raw_parts(data, count) })
    }

    /// The elements for writing, without a copy. A view of a shared slice is refused ("tensor.read_only").
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.writable()?;
        let (data, count) = self.memory::<T>()?;
        // SAFETY: as above, and self is exclusive.
        Ok(unsafe { slice::from_raw_parts_mut(data, count) })
    }

    pub(crate) fn writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::new(
                Code::FailedPrecondition,
                "tensor.read_only",
                "tensor: a view of a shared slice cannot be written; make it with view_mut",
            ));
        }
        Ok(())
    }

    /// Copies the elements' bytes into `destination`; their number.
    ///
    /// # Errors
    /// [`Code::OutOfRange`] when `destination` is too small.
    pub fn read(&self, destination: &mut [u8]) -> Result<usize> {
        let mut needed = 0;
        // SAFETY: live handle, pointer and capacity belong together.
        check(unsafe {
            let to = destination.as_mut_ptr().cast();
            sys::invar_tensor_read(self.as_ptr(), to, destination.len(), &mut needed)
        })?;
        Ok(needed)
    }

    /// In another float format, rounded to nearest even; FP8 saturates.
    pub fn cast(&self, dtype: DType) -> Result<Tensor<'static>> {
        // SAFETY: live handle.
        raw::handle(|out| unsafe { sys::invar_tensor_cast(self.as_ptr(), dtype.raw(), out) }).map(Tensor::own)
    }

    /// FP32 or BF16 of rank 1 or 2 to codes with scales.
    pub fn quantize(&self, options: &Quantize) -> Result<Tensor<'static>> {
        let mut raw_options = raw::sized::<sys::invar_quantize_options>();
        raw_options.dtype = options.dtype.raw();
        raw_options.power_of_two = options.power_of_two.into();
        match options.granularity {
            Granularity::Tensor => raw_options.granularity = sys::INVAR_GRANULARITY_TENSOR,
            Granularity::Row => raw_options.granularity = sys::INVAR_GRANULARITY_ROW,
            Granularity::Block { rows, cols } => {
                raw_options.granularity = sys::INVAR_GRANULARITY_BLOCK;
                raw_options.block_rows = rows;
                raw_options.block_cols = cols;
            }
        }
        // SAFETY: live handle.
        raw::handle(|out| unsafe { sys::invar_tensor_quantize(self.as_ptr(), &raw_options, out) }).map(Tensor::own)
    }

    /// code * scale_inv in FP32, rounded to nearest even to FP32, BF16 or FP16.
    pub fn dequantize(&self, dtype: DType) -> Result<Tensor<'static>> {
        // SAFETY: live handle.
        raw::handle(|out| unsafe { sys::invar_tensor_dequantize(self.as_ptr(), dtype.raw(), out) }).map(Tensor::own)
    }

    /// `[rows, inner] x [inner, cols]` with FP32 accumulation; `transpose_*`: stored the other way round. Both FP32 or
    /// both BF16; `dtype` of the result is FP32 or BF16.
    pub fn matmul(
        &self,
        transpose_self: bool,
        other: &Tensor<'_>,
        transpose_other: bool,
        dtype: DType,
    ) -> Result<Tensor<'static>> {
        // SAFETY: live handles.
        raw::handle(|out| unsafe {
            let (a, b) = (self.as_ptr(), other.as_ptr());
            sys::invar_tensor_matmul(a, transpose_self, b, transpose_other, dtype.raw(), out)
        })
        .map(Tensor::own)
    }
}

fn rank(shape: &[i64]) -> i32 {
    i32::try_from(shape.len()).unwrap_or(i32::MAX)
}

fn wrong_type<T>(dtype: DType) -> Error {
    let message = format!("tensor: elements are {}, not {}", dtype.name(), std::any::type_name::<T>());
    Error::new(Code::InvalidArgument, "tensor.element_type", message)
}
