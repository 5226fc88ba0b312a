//! Raw declarations of invar's C interface, generated from `invar/invar.h`.
//!
//! Use the crate `invar`; this one is for those who need the C functions themselves. The header is the manual:
//! ownership, errors and thread rules stand there for every function. C enumerations are plain integers here, so that a
//! newer library's values are never undefined behaviour.
//!
//! `build.rs` links the library that `INVAR_LIB_DIR` names, else the one that pkg-config finds.
#![no_std]
#![allow(non_camel_case_types, missing_docs)]

#[rustfmt::skip]
mod bindings;

pub use bindings::*;
