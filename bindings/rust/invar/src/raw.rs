//! Pointers of the C interface as Rust values. Everything unsafe that several modules share stands here.
use crate::error::{check, Code, Error, Result};
use invar_sys as sys;
use prost::Message;
use std::ffi::{c_char, CStr};
use std::mem::{size_of, MaybeUninit};
use std::path::Path;
use std::{ptr, slice};

/// A struct of the C interface that begins with its size and may be all zeros.
///
/// # Safety
/// The first field is `struct_size: u32`, and zeros are valid for every field.
pub(crate) unsafe trait CStruct: Copy {}

macro_rules! sized {
    ($($name:ident),* $(,)?) => { $(
        // SAFETY: integers, floats, nullable pointers and functions only, struct_size first.
        unsafe impl CStruct for sys::$name {}
    )* };
}

sized!(
    invar_accumulator_info,
    invar_batch,
    invar_checkpoint_tensor,
    invar_eval_metrics,
    invar_loss,
    invar_optimizer_result,
    invar_progress,
    invar_progress_callback,
    invar_quantize_options,
    invar_runtime_options,
    invar_step_metrics,
    invar_tensor_info,
    invar_token,
    invar_token_callback,
);

/// Zeros with the size set.
pub(crate) fn sized<T: CStruct>() -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: by the trait's contract zeros are valid and the first field is the size.
    unsafe {
        value.as_mut_ptr().cast::<u32>().write(size_of::<T>() as u32);
        value.assume_init()
    }
}

/// What the library filled, which may be an older (shorter) or newer (longer) struct; zeros for what it lacks.
///
/// # Safety
/// `from` points to a struct of the type whose first field says how long it is.
pub(crate) unsafe fn read_sized<T: CStruct>(from: *const T) -> T {
    let mut value = sized::<T>();
    // SAFETY: both sides have at least the copied bytes.
    unsafe {
        let there = from.cast::<u32>().read() as usize;
        let bytes = there.min(size_of::<T>());
        ptr::copy_nonoverlapping(from.cast::<u8>(), (&mut value as *mut T).cast::<u8>(), bytes);
    }
    value
}

/// # Safety
/// `data` is NULL or points to `size` bytes.
pub(crate) unsafe fn string(data: *const c_char, size: usize) -> String {
    if data.is_null() {
        return String::new();
    }
    // SAFETY: by contract.
    String::from_utf8_lossy(unsafe { slice::from_raw_parts(data.cast::<u8>(), size) }).into_owned()
}

/// # Safety
/// `data` is NULL or a string that ends in NUL and lives for `'a`.
pub(crate) unsafe fn str_of<'a>(data: *const c_char) -> &'a str {
    if data.is_null() {
        return "";
    }
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(data) }.to_str().unwrap_or("")
}

/// # Safety
/// As [`str_of`], for ever.
pub(crate) unsafe fn static_str(data: *const c_char) -> &'static str {
    // SAFETY: by contract.
    unsafe { str_of(data) }
}

/// The bytes of a path as the C interface takes them.
pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// A slice that C may read: NULL when empty is avoided, since some calls take NULL for "absent".
pub(crate) fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// Owned bytes of the C interface.
pub(crate) struct Bytes(*mut sys::invar_bytes);

impl Bytes {
    /// Runs a call whose last output is owned bytes.
    pub(crate) fn from_call(call: impl FnOnce(*mut *mut sys::invar_bytes) -> *mut sys::invar_status) -> Result<Bytes> {
        let mut out = Bytes(ptr::null_mut());
        check(call(&mut out.0))?;
        Ok(out)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: data and size belong together and live as long as self.
        unsafe {
            let data = sys::invar_bytes_data(self.0);
            if data.is_null() {
                return &[];
            }
            slice::from_raw_parts(data, sys::invar_bytes_size(self.0))
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.as_slice()).into_owned()
    }

    pub(crate) fn decode<M: Message + Default>(&self) -> Result<M> {
        M::decode(self.as_slice()).map_err(|error| {
            Error::new(Code::Internal, "message.decode", format!("the library's message does not decode: {error}"))
        })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: owned, released once; NULL is allowed.
        unsafe { sys::invar_bytes_release(self.0) }
    }
}

/// Runs a call whose last output is a new handle.
pub(crate) fn handle<T>(call: impl FnOnce(*mut *mut T) -> *mut sys::invar_status) -> Result<ptr::NonNull<T>> {
    let mut out = ptr::null_mut();
    check(call(&mut out))?;
    ptr::NonNull::new(out).ok_or_else(|| Error::new(Code::Internal, "handle.null", "the library returned no handle"))
}
