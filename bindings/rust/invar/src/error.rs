//! What went wrong: a canonical code, a stable reason and a message.
use invar_sys as sys;
use std::fmt;

/// The result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// The canonical status codes, equal to those of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// A [`CancelToken`](crate::CancelToken) ended the work.
    Cancelled,
    /// Nothing more is known.
    Unknown,
    /// The call is wrong whatever the state: fix the argument or config.
    InvalidArgument,
    /// Time ran out.
    DeadlineExceeded,
    /// A file or folder does not exist.
    NotFound,
    /// A file or folder is in the way.
    AlreadyExists,
    /// The system refused access.
    PermissionDenied,
    /// Memory or disk ran out.
    ResourceExhausted,
    /// The call is wrong in this state: a busy handle, a missing step before.
    FailedPrecondition,
    /// A callback stopped the work; see [`Error::callback_value`].
    Aborted,
    /// An index or size is beyond the end.
    OutOfRange,
    /// This library cannot do that.
    Unimplemented,
    /// A fault of the library.
    Internal,
    /// Try again later.
    Unavailable,
    /// Stored data is damaged.
    DataLoss,
    /// Credentials are missing.
    Unauthenticated,
    /// A code that this crate does not know.
    Other(i32),
}

const CODES: [(i32, Code); 16] = [
    (sys::INVAR_CANCELLED, Code::Cancelled),
    (sys::INVAR_UNKNOWN, Code::Unknown),
    (sys::INVAR_INVALID_ARGUMENT, Code::InvalidArgument),
    (sys::INVAR_DEADLINE_EXCEEDED, Code::DeadlineExceeded),
    (sys::INVAR_NOT_FOUND, Code::NotFound),
    (sys::INVAR_ALREADY_EXISTS, Code::AlreadyExists),
    (sys::INVAR_PERMISSION_DENIED, Code::PermissionDenied),
    (sys::INVAR_RESOURCE_EXHAUSTED, Code::ResourceExhausted),
    (sys::INVAR_FAILED_PRECONDITION, Code::FailedPrecondition),
    (sys::INVAR_ABORTED, Code::Aborted),
    (sys::INVAR_OUT_OF_RANGE, Code::OutOfRange),
    (sys::INVAR_UNIMPLEMENTED, Code::Unimplemented),
    (sys::INVAR_INTERNAL, Code::Internal),
    (sys::INVAR_UNAVAILABLE, Code::Unavailable),
    (sys::INVAR_DATA_LOSS, Code::DataLoss),
    (sys::INVAR_UNAUTHENTICATED, Code::Unauthenticated),
];

impl Code {
    /// The code of a number of the C interface.
    pub fn from_raw(raw: i32) -> Code {
        CODES.iter().find(|(number, _)| *number == raw).map_or(Code::Other(raw), |(_, code)| *code)
    }

    /// The number in the C interface.
    pub fn raw(self) -> i32 {
        match self {
            Code::Other(raw) => raw,
            code => CODES.iter().find(|(_, each)| *each == code).map_or(sys::INVAR_UNKNOWN, |(number, _)| *number),
        }
    }

    /// `"INVALID_ARGUMENT"`; `"UNKNOWN"` for numbers that the library does not know.
    pub fn name(self) -> &'static str {
        // SAFETY: the function takes any number and its result lives for ever.
        unsafe { crate::raw::static_str(sys::invar_code_name(self.raw())) }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failed call. `Display` gives the message; decide by [`code`](Error::code) and [`reason`](Error::reason).
///
/// ```
/// use invar::{v1::ConvertConfig, Code, Controls, Runtime};
///
/// let runtime = Runtime::new()?;
/// let config = ConvertConfig { source: Some("/absent".into()), dry_run: Some(true), ..Default::default() };
/// let error = runtime.convert(&config, Controls::new()).unwrap_err();
/// assert_eq!(error.code(), Code::NotFound);
/// assert!(error.message().contains("/absent"));
/// # Ok::<(), invar::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    reason: String,
    message: String,
    callback_value: i32,
}

impl Error {
    pub(crate) fn new(code: Code, reason: &str, message: impl Into<String>) -> Error {
        Error { code, reason: reason.to_owned(), message: message.into(), callback_value: 0 }
    }

    /// The canonical code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// A stable dotted word for programs, such as `"config.unknown_field"`; may be empty.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// For people: names the thing, the value and the expectation.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What a progress callback broke with; 0 otherwise.
    pub fn callback_value(&self) -> i32 {
        self.callback_value
    }

    /// Whether a [`CancelToken`](crate::CancelToken) ended the work.
    pub fn is_cancelled(&self) -> bool {
        self.code == Code::Cancelled
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Takes over a status of the C interface.
pub(crate) fn check(status: *mut sys::invar_status) -> Result<()> {
    if status.is_null() {
        return Ok(());
    }
    // SAFETY: status is an owned status; its strings are copied before it is released.
    unsafe {
        let mut size = 0;
        let data = sys::invar_status_message(status, &mut size);
        let message = crate::raw::string(data, size);
        let data = sys::invar_status_reason(status, &mut size);
        let reason = crate::raw::string(data, size);
        let error = Error {
            code: Code::from_raw(sys::invar_status_code(status)),
            reason,
            message,
            callback_value: sys::invar_status_callback_value(status),
        };
        sys::invar_status_release(status);
        Err(error)
    }
}
