//! Ending work from another thread.
use crate::error::Result;
use crate::raw;
use crate::runtime::Runtime;
use invar_sys as sys;
use std::ptr::NonNull;
use std::sync::Arc;

/// A sticky flag that ends work with [`Code::Cancelled`](crate::Code::Cancelled) at its next boundary: a block, a
/// micro-batch, a token. Clones share the flag; any thread may use it at any time.
///
/// ```
/// use invar::{v1::ConvertConfig, CancelToken, Code, Controls, Runtime};
///
/// let runtime = Runtime::new()?;
/// let token = CancelToken::new(&runtime)?;
/// let other = token.clone();
/// std::thread::spawn(move || other.cancel()).join().unwrap();
/// assert!(token.is_cancelled());
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CancelToken(Arc<Flag>);

#[derive(Debug)]
struct Flag(NonNull<sys::invar_cancel>);

// SAFETY: the C interface allows every use of a cancel object from any thread at any time.
unsafe impl Send for Flag {}
// SAFETY: as above.
unsafe impl Sync for Flag {}

impl CancelToken {
    /// A new flag, not set.
    pub fn new(runtime: &Runtime) -> Result<CancelToken> {
        // SAFETY: the runtime's handle is live.
        let flag = raw::handle(|out| unsafe { sys::invar_cancel_create(runtime.as_ptr(), out) })?;
        Ok(CancelToken(Arc::new(Flag(flag))))
    }

    /// Sets the flag; it stays set.
    pub fn cancel(&self) {
        // SAFETY: live handle.
        unsafe { sys::invar_cancel_request(self.as_ptr()) }
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        // SAFETY: live handle.
        unsafe { sys::invar_cancel_requested(self.as_ptr()) }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::invar_cancel {
        self.0 .0.as_ptr()
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_cancel_release(self.0.as_ptr()) }
    }
}
