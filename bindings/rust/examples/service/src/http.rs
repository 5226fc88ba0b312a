//! Answers, and reading bodies within bounds.
use serde_json::{json, Value};
use std::io::{Cursor, Read};
use tiny_http::{Header, Request, Response};

/// An answer that is not a stream.
pub type Answer = Response<Box<dyn Read + Send>>;

/// A refusal: status and message.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub reason: String,
    pub message: String,
}

impl Refusal {
    pub fn new(status: u16, reason: &str, message: impl Into<String>) -> Refusal {
        Refusal { status, reason: reason.into(), message: message.into() }
    }

    pub fn not_found(what: &str) -> Refusal {
        Refusal::new(404, "http.not_found", format!("{what}: not found"))
    }
}

impl From<invar::Error> for Refusal {
    fn from(error: invar::Error) -> Refusal {
        let status = match error.code() {
            invar::Code::InvalidArgument | invar::Code::OutOfRange => 400,
            invar::Code::NotFound => 404,
            invar::Code::AlreadyExists | invar::Code::FailedPrecondition | invar::Code::Aborted => 409,
            invar::Code::DataLoss => 422,
            invar::Code::ResourceExhausted => 507,
            invar::Code::Cancelled | invar::Code::Unavailable => 503,
            _ => 500,
        };
        Refusal::new(status, error.reason(), error.message())
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        Refusal::new(500, "http.io", error.to_string())
    }
}

pub fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("names and values here are ASCII")
}

pub fn text(status: u16, kind: &str, body: String) -> Answer {
    let size = body.len();
    let reader: Box<dyn Read + Send> = Box::new(Cursor::new(body.into_bytes()));
    Response::new(status.into(), vec![header("Content-Type", kind)], reader, Some(size), None)
}

pub fn json(status: u16, value: &Value) -> Answer {
    text(status, "application/json", value.to_string())
}

pub fn refuse(refusal: &Refusal) -> Answer {
    json(refusal.status, &json!({"reason": refusal.reason, "error": refusal.message}))
}

/// Copies the body to `out`; 413 as soon as it is known to be longer than `limit`.
pub fn copy_body(request: &mut Request, limit: u64, out: &mut impl std::io::Write) -> Result<u64, Refusal> {
    let too_large = || Refusal::new(413, "http.too_large", format!("the body is larger than {limit} bytes"));
    if request.body_length().is_some_and(|length| length as u64 > limit) {
        return Err(too_large());
    }
    let copied = std::io::copy(&mut request.as_reader().take(limit + 1), out)?;
    if copied > limit {
        return Err(too_large());
    }
    if request.body_length().is_some_and(|length| length as u64 != copied) {
        return Err(Refusal::new(400, "http.body_cut", "the body ends before its Content-Length"));
    }
    Ok(copied)
}

/// A body of JSON; an empty one is `{}`.
pub fn json_body(request: &mut Request) -> Result<Value, Refusal> {
    let mut bytes = Vec::new();
    copy_body(request, 1 << 20, &mut bytes)?;
    if bytes.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&bytes).map_err(|error| Refusal::new(400, "http.json", error.to_string()))
}

/// A name that is one plain path component.
pub fn plain_name(name: &str) -> Result<&str, Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(plain) {
        return Err(Refusal::new(400, "http.name", format!("{name:?}: a name has letters, digits, '.', '_' and '-'")));
    }
    Ok(name)
}
