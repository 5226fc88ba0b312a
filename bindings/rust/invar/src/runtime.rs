//! The thread pool, log sink, allocator and files that work shares.
use crate::error::{check, Code, Error, Result};
use crate::host::{self, Allocate, Files, LogFn, LogLevel};
use crate::raw::{self, Bytes};
use crate::v1;
use invar_sys as sys;
use prost::{Message, Name};
use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Where everything begins. Clones share one runtime, from any thread at any time; what was made from it keeps it
/// alive. The work of one runtime shares its thread pool: calls take turns there.
///
/// ```
/// use invar::Runtime;
///
/// let runtime = Runtime::new()?;
/// let info = runtime.info()?;
/// println!("invar {} on {}", info.version(), info.cpu_features.join(" "));
/// # assert_eq!(info.version(), invar::version());
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Handle>);

#[derive(Debug)]
struct Handle(NonNull<sys::invar_runtime>);

// SAFETY: the C interface allows every use of a runtime from any thread at any time.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: owned, released once.
        unsafe { sys::invar_runtime_release(self.0.as_ptr()) }
    }
}

/// How a [`Runtime`] is made.
///
/// ```
/// use invar::{LogLevel, RuntimeOptions};
///
/// let runtime = RuntimeOptions::new()
///     .threads(1)
///     .log(LogLevel::Warning, |level, message| eprintln!("{level:?}: {message}"))
///     .build()?;
/// # drop(runtime);
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Default)]
pub struct RuntimeOptions {
    threads: i32,
    log: Option<(LogLevel, Box<LogFn>)>,
    allocator: Option<Box<dyn Allocate>>,
    files: Option<(String, Box<dyn Files>)>,
}

impl std::fmt::Debug for RuntimeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeOptions")
            .field("threads", &self.threads)
            .field("log", &self.log.as_ref().map(|(level, _)| level))
            .field("allocator", &self.allocator.is_some())
            .field("files", &self.files.as_ref().map(|(prefix, _)| prefix))
            .finish()
    }
}

impl RuntimeOptions {
    /// All processors, no log, the library's own allocator and files.
    pub fn new() -> RuntimeOptions {
        RuntimeOptions::default()
    }

    /// Thread budget, the calling thread included; 0: one for each usable processor.
    pub fn threads(mut self, threads: i32) -> RuntimeOptions {
        self.threads = threads;
        self
    }

    /// Receives messages of `level` and above, from any thread, several at once. A panic inside is dropped.
    pub fn log(mut self, level: LogLevel, sink: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> RuntimeOptions {
        self.log = Some((level, Box::new(sink)));
        self
    }

    /// Memory of tensors, weights, states and activations.
    pub fn allocator(mut self, allocator: impl Allocate) -> RuntimeOptions {
        self.allocator = Some(Box::new(allocator));
        self
    }

    /// Paths that begin with `prefix` (`"store://"`) are read through `files`.
    pub fn files(mut self, prefix: &str, files: impl Files) -> RuntimeOptions {
        self.files = Some((prefix.to_owned(), Box::new(files)));
        self
    }

    /// Makes the runtime.
    ///
    /// # Errors
    /// `"abi.mismatch"` when the loaded library is not the one that this crate was built for.
    pub fn build(self) -> Result<Runtime> {
        check_abi()?;
        let mut options = raw::sized::<sys::invar_runtime_options>();
        // SAFETY: options is a whole struct.
        unsafe { sys::invar_runtime_options_init(&mut options) };
        options.threads = self.threads;
        let prefix = match &self.files {
            Some((prefix, _)) => Some(CString::new(prefix.as_str()).map_err(|_| {
                Error::new(Code::InvalidArgument, "runtime.file_prefix", "the file prefix contains a zero byte")
            })?),
            None => None,
        };
        if let Some((level, sink)) = self.log {
            host::set_log(&mut options, level, sink);
        }
        if let Some(allocator) = self.allocator {
            host::set_allocator(&mut options, allocator);
        }
        if let (Some(prefix), Some((_, files))) = (&prefix, self.files) {
            options.file_prefix = prefix.as_ptr();
            host::set_files(&mut options, files);
        }
        // SAFETY: the options are filled as the header says; their users are dropped by the library.
        let handle = raw::handle(|out| unsafe { sys::invar_runtime_create(&options, out) })?;
        Ok(Runtime(Arc::new(Handle(handle))))
    }
}

fn check_abi() -> Result<()> {
    // SAFETY: no arguments.
    let loaded = unsafe { sys::invar_abi_version() };
    if loaded == sys::INVAR_ABI_VERSION {
        return Ok(());
    }
    Err(Error::new(
        Code::FailedPrecondition,
        "abi.mismatch",
        format!(
            "the loaded libinvar {} has abi {loaded}, this crate {} needs abi {}",
            version(),
            env!("CARGO_PKG_VERSION"),
            sys::INVAR_ABI_VERSION
        ),
    ))
}

/// The loaded library's version: `"0.1.0"`.
pub fn version() -> &'static str {
    // SAFETY: lives for ever.
    unsafe { raw::static_str(sys::invar_version_string()) }
}

/// The loaded library's version as a number: major * 1000000 + minor * 1000 + patch.
pub fn version_number() -> i32 {
    // SAFETY: no arguments.
    unsafe { sys::invar_version_number() }
}

/// Version, compiler and build options, a few lines for bug reports.
pub fn build_info() -> &'static str {
    // SAFETY: lives for ever.
    unsafe { raw::static_str(sys::invar_build_info()) }
}

/// Whether the loaded library can do something by name: `"cpu"`, `"cuda"`, `"fp8_block"`, `"safetensors"`, ...
pub fn has_feature(name: &str) -> bool {
    // SAFETY: pointer and size belong together.
    unsafe { sys::invar_feature_query(raw::chars(name.as_bytes()), name.len()) }
}

impl Runtime {
    /// All processors, no log. See [`RuntimeOptions`] for more.
    pub fn new() -> Result<Runtime> {
        RuntimeOptions::new().build()
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::invar_runtime {
        self.0 .0.as_ptr()
    }

    /// What this library and machine can do.
    pub fn info(&self) -> Result<v1::InfoReport> {
        // SAFETY: live handle.
        Bytes::from_call(|out| unsafe { sys::invar_runtime_info(self.as_ptr(), out) })?.decode()
    }

    /// A message from JSON; comments are allowed, unknown names are errors that offer the nearest one.
    ///
    /// ```
    /// use invar::{v1::TrainConfig, Runtime};
    ///
    /// let runtime = Runtime::new()?;
    /// let config: TrainConfig = runtime.from_json(r#"{"steps": 20, "optimizer": {"lr": 0.001}}"#)?;
    /// assert_eq!(config.steps, Some(20));
    /// let error = runtime.from_json::<TrainConfig>(r#"{"stepps": 20}"#).unwrap_err();
    /// assert_eq!(error.reason(), "config.unknown_field");
    /// # Ok::<(), invar::Error>(())
    /// ```
    #[allow(clippy::wrong_self_convention)]
    pub fn from_json<M: Message + Name + Default>(&self, json: &str) -> Result<M> {
        let name = M::full_name();
        // SAFETY: live handle; pointers and sizes belong together, as in every call below.
        Bytes::from_call(|out| unsafe {
            sys::invar_message_from_json(
                self.as_ptr(),
                raw::chars(name.as_bytes()),
                name.len(),
                raw::chars(json.as_bytes()),
                json.len(),
                out,
            )
        })?
        .decode()
    }

    /// A message from protobuf's text form.
    #[allow(clippy::wrong_self_convention)]
    pub fn from_text<M: Message + Name + Default>(&self, text: &str) -> Result<M> {
        let name = M::full_name();
        // SAFETY: as above.
        Bytes::from_call(|out| unsafe {
            sys::invar_message_from_text(
                self.as_ptr(),
                raw::chars(name.as_bytes()),
                name.len(),
                raw::chars(text.as_bytes()),
                text.len(),
                out,
            )
        })?
        .decode()
    }

    /// A message as JSON with every field on its own line.
    pub fn to_json_pretty<M: Message + Name>(&self, message: &M) -> Result<String> {
        self.json(message, true)
    }

    /// A message as JSON on one line.
    pub fn to_json<M: Message + Name>(&self, message: &M) -> Result<String> {
        self.json(message, false)
    }

    fn json<M: Message + Name>(&self, message: &M, pretty: bool) -> Result<String> {
        let name = M::full_name();
        let bytes = message.encode_to_vec();
        // SAFETY: as above.
        let text = Bytes::from_call(|out| unsafe {
            sys::invar_message_to_json(
                self.as_ptr(),
                raw::chars(name.as_bytes()),
                name.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
                pretty,
                out,
            )
        })?;
        Ok(text.text())
    }

    /// A message in protobuf's text form.
    pub fn to_text<M: Message + Name>(&self, message: &M) -> Result<String> {
        let name = M::full_name();
        let bytes = message.encode_to_vec();
        // SAFETY: as above.
        let text = Bytes::from_call(|out| unsafe {
            sys::invar_message_to_text(
                self.as_ptr(),
                raw::chars(name.as_bytes()),
                name.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
                out,
            )
        })?;
        Ok(text.text())
    }

    /// The message with one field set: `"optimizer.lr=3e-4"`; lists and objects in JSON form, `null` clears a field,
    /// `+=` appends to a list.
    pub fn set<M: Message + Name + Default>(&self, message: &M, assignment: &str) -> Result<M> {
        let name = M::full_name();
        let bytes = message.encode_to_vec();
        // SAFETY: as above.
        Bytes::from_call(|out| unsafe {
            sys::invar_message_set(
                self.as_ptr(),
                raw::chars(name.as_bytes()),
                name.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
                raw::chars(assignment.as_bytes()),
                assignment.len(),
                out,
            )
        })?
        .decode()
    }

    /// The message with every absent scalar at its default.
    pub fn with_defaults<M: Message + Name + Default>(&self, message: &M) -> Result<M> {
        let name = M::full_name();
        let bytes = message.encode_to_vec();
        // SAFETY: as above.
        Bytes::from_call(|out| unsafe {
            sys::invar_message_with_defaults(
                self.as_ptr(),
                raw::chars(name.as_bytes()),
                name.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
                out,
            )
        })?
        .decode()
    }

    /// Checks ranges, enumerations and required fields.
    pub fn check<M: Message + Name>(&self, message: &M) -> Result<()> {
        let name = M::full_name();
        let bytes = message.encode_to_vec();
        // SAFETY: as above.
        check(unsafe {
            sys::invar_message_check(
                self.as_ptr(),
                raw::chars(name.as_bytes()),
                name.len(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        })
    }

    /// About a field or message, for people: `"train.optimizer.lr"`, `"convert"`.
    pub fn explain(&self, path: &str) -> Result<String> {
        // SAFETY: as above.
        let text = Bytes::from_call(|out| unsafe {
            sys::invar_message_explain(self.as_ptr(), raw::chars(path.as_bytes()), path.len(), out)
        })?;
        Ok(text.text())
    }

    /// All fields of a message as JSON: name, type, default, unit, range, values, documentation.
    pub fn describe<M: Message + Name>(&self) -> Result<String> {
        let name = M::full_name();
        // SAFETY: as above.
        let text = Bytes::from_call(|out| unsafe {
            sys::invar_message_describe(self.as_ptr(), raw::chars(name.as_bytes()), name.len(), out)
        })?;
        Ok(text.text())
    }

    /// Whether both are the same runtime.
    pub fn same(&self, other: &Runtime) -> bool {
        ptr::eq(self.as_ptr(), other.as_ptr())
    }
}
