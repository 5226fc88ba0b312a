//! What a host lends to a runtime: a log sink, memory, files. Everything here may be called from any thread.
use crate::error::Code;
use invar_sys as sys;
use std::ffi::{c_char, c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::{ptr, slice};

pub(crate) type LogFn = dyn Fn(LogLevel, &str) + Send + Sync;

/// How serious a log message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LogLevel {
    /// For those who work on the library.
    Debug,
    /// What happens.
    Info,
    /// What may be wrong.
    Warning,
    /// What failed.
    Error,
}

impl LogLevel {
    fn raw(self) -> i32 {
        match self {
            LogLevel::Debug => sys::INVAR_LOG_DEBUG,
            LogLevel::Info => sys::INVAR_LOG_INFO,
            LogLevel::Warning => sys::INVAR_LOG_WARNING,
            LogLevel::Error => sys::INVAR_LOG_ERROR,
        }
    }

    fn from_raw(raw: i32) -> LogLevel {
        match raw {
            i32::MIN..=sys::INVAR_LOG_DEBUG => LogLevel::Debug,
            sys::INVAR_LOG_INFO => LogLevel::Info,
            sys::INVAR_LOG_WARNING => LogLevel::Warning,
            _ => LogLevel::Error,
        }
    }
}

/// Memory of tensors, weights, states and activations. A panic inside counts as no memory.
///
/// # Safety
/// `allocate` returns NULL or `size` bytes at a multiple of `alignment` that nobody else uses until `deallocate`.
pub unsafe trait Allocate: Send + Sync + 'static {
    /// `alignment` is a power of two. NULL when there is no memory.
    fn allocate(&self, size: usize, alignment: usize) -> *mut u8;
    /// Gives back what `allocate` returned.
    ///
    /// # Safety
    /// `memory` came from `allocate` with the same `size` and is given back once.
    unsafe fn deallocate(&self, memory: *mut u8, size: usize);
}

/// Read-only files that the host fetches itself. A panic inside counts as [`Code::Internal`].
pub trait Files: Send + Sync + 'static {
    /// Bytes of a file; [`Code::NotFound`] for a path that does not exist.
    fn size(&self, path: &str) -> Result<u64, Code>;
    /// Fills all of `buffer` from byte `offset`.
    fn read_at(&self, path: &str, offset: u64, buffer: &mut [u8]) -> Result<(), Code>;
    /// The names of the files in a directory.
    fn list(&self, directory: &str) -> Result<Vec<String>, Code>;
}

unsafe extern "C" fn drop_box<T>(user: *mut c_void) {
    // SAFETY: user is the Box<T> that a set_ function leaked; the library drops it once.
    let owned = unsafe { Box::from_raw(user.cast::<T>()) };
    // A panic in a destructor must not cross the boundary.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(owned)));
}

pub(crate) fn set_log(options: &mut sys::invar_runtime_options, level: LogLevel, sink: Box<LogFn>) {
    options.log = Some(on_log);
    options.log_level = level.raw();
    options.log_user = Box::into_raw(Box::new(sink)).cast();
    options.log_drop = Some(drop_box::<Box<LogFn>>);
}

unsafe extern "C" fn on_log(user: *mut c_void, level: i32, message: *const c_char, size: usize) {
    // SAFETY: user is the boxed sink, message has size bytes during the call.
    let (sink, message) = unsafe { (&*user.cast::<Box<LogFn>>(), slice::from_raw_parts(message.cast::<u8>(), size)) };
    let _ = catch_unwind(AssertUnwindSafe(|| sink(LogLevel::from_raw(level), &String::from_utf8_lossy(message))));
}

pub(crate) fn set_allocator(options: &mut sys::invar_runtime_options, allocator: Box<dyn Allocate>) {
    options.allocate = Some(on_allocate);
    options.deallocate = Some(on_deallocate);
    options.allocator_user = Box::into_raw(Box::new(allocator)).cast();
    options.allocator_drop = Some(drop_box::<Box<dyn Allocate>>);
}

unsafe extern "C" fn on_allocate(user: *mut c_void, size: usize, alignment: usize) -> *mut c_void {
    // SAFETY: user is the boxed allocator.
    let allocator = unsafe { &*user.cast::<Box<dyn Allocate>>() };
    catch_unwind(AssertUnwindSafe(|| allocator.allocate(size, alignment))).map_or(ptr::null_mut(), |p| p.cast())
}

unsafe extern "C" fn on_deallocate(user: *mut c_void, memory: *mut c_void, size: usize) {
    // SAFETY: user is the boxed allocator; memory came from it.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe {
        (*user.cast::<Box<dyn Allocate>>()).deallocate(memory.cast(), size);
    }));
}

pub(crate) fn set_files(options: &mut sys::invar_runtime_options, files: Box<dyn Files>) {
    options.file_size = Some(on_file_size);
    options.file_read_at = Some(on_file_read_at);
    options.file_list = Some(on_file_list);
    options.file_user = Box::into_raw(Box::new(files)).cast();
    options.file_drop = Some(drop_box::<Box<dyn Files>>);
}

/// Runs a file function and makes a status number of what it returns.
fn guard(call: impl FnOnce() -> Result<(), Code>) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => sys::INVAR_OK,
        Ok(Err(code)) => code.raw(),
        Err(_) => sys::INVAR_INTERNAL,
    }
}

unsafe extern "C" fn on_file_size(user: *mut c_void, path: *const c_char, size: *mut i64) -> i32 {
    guard(|| {
        // SAFETY: user is the boxed files, path ends in NUL, size is writable.
        unsafe {
            let found = (*user.cast::<Box<dyn Files>>()).size(crate::raw::str_of(path))?;
            *size = i64::try_from(found).map_err(|_| Code::OutOfRange)?;
        }
        Ok(())
    })
}

unsafe extern "C" fn on_file_read_at(
    user: *mut c_void,
    path: *const c_char,
    offset: i64,
    buffer: *mut c_void,
    size: usize,
) -> i32 {
    guard(|| {
        if size == 0 {
            return Ok(());
        }
        let offset = u64::try_from(offset).map_err(|_| Code::OutOfRange)?;
        // SAFETY: as above; buffer has size bytes.
        unsafe {
            let buffer = slice::from_raw_parts_mut(buffer.cast::<u8>(), size);
            (*user.cast::<Box<dyn Files>>()).read_at(crate::raw::str_of(path), offset, buffer)
        }
    })
}

unsafe extern "C" fn on_file_list(
    user: *mut c_void,
    directory: *const c_char,
    add: Option<unsafe extern "C" fn(*mut c_void, *const c_char)>,
    list: *mut c_void,
) -> i32 {
    guard(|| {
        let add = add.ok_or(Code::Internal)?;
        // SAFETY: as above; add copies the name.
        unsafe {
            for name in (*user.cast::<Box<dyn Files>>()).list(crate::raw::str_of(directory))? {
                let name = CString::new(name).map_err(|_| Code::InvalidArgument)?;
                add(list, name.as_ptr());
            }
        }
        Ok(())
    })
}
