//! Number formats, and the Rust types whose memory they share.
use invar_sys as sys;

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DType {
    Fp32,
    Fp16,
    Bf16,
    Fp64,
    Fp8E4m3,
    Fp8E5m2,
    Fp8E4m3Fnuz,
    Fp8E5m2Fnuz,
    E8m0,
    Fp4E2m1,
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    C64,
    Fp6E2m3,
    Fp6E3m2,
    /// A number that this crate does not know.
    Other(i32),
}

const DTYPES: [(i32, DType); 22] = [
    (sys::INVAR_DTYPE_FP32, DType::Fp32),
    (sys::INVAR_DTYPE_FP16, DType::Fp16),
    (sys::INVAR_DTYPE_BF16, DType::Bf16),
    (sys::INVAR_DTYPE_FP64, DType::Fp64),
    (sys::INVAR_DTYPE_FP8_E4M3, DType::Fp8E4m3),
    (sys::INVAR_DTYPE_FP8_E5M2, DType::Fp8E5m2),
    (sys::INVAR_DTYPE_FP8_E4M3FNUZ, DType::Fp8E4m3Fnuz),
    (sys::INVAR_DTYPE_FP8_E5M2FNUZ, DType::Fp8E5m2Fnuz),
    (sys::INVAR_DTYPE_E8M0, DType::E8m0),
    (sys::INVAR_DTYPE_FP4_E2M1, DType::Fp4E2m1),
    (sys::INVAR_DTYPE_BOOL, DType::Bool),
    (sys::INVAR_DTYPE_U8, DType::U8),
    (sys::INVAR_DTYPE_I8, DType::I8),
    (sys::INVAR_DTYPE_U16, DType::U16),
    (sys::INVAR_DTYPE_I16, DType::I16),
    (sys::INVAR_DTYPE_U32, DType::U32),
    (sys::INVAR_DTYPE_I32, DType::I32),
    (sys::INVAR_DTYPE_U64, DType::U64),
    (sys::INVAR_DTYPE_I64, DType::I64),
    (sys::INVAR_DTYPE_C64, DType::C64),
    (sys::INVAR_DTYPE_FP6_E2M3, DType::Fp6E2m3),
    (sys::INVAR_DTYPE_FP6_E3M2, DType::Fp6E3m2),
];

impl DType {
    /// The format of a number of the C interface, which equals that of [`v1::DType`](crate::v1::DType).
    pub fn from_raw(raw: i32) -> DType {
        DTYPES.iter().find(|(number, _)| *number == raw).map_or(DType::Other(raw), |(_, dtype)| *dtype)
    }

    /// The number in the C interface.
    pub fn raw(self) -> i32 {
        match self {
            DType::Other(raw) => raw,
            dtype => DTYPES.iter().find(|(_, each)| *each == dtype).map_or(0, |(number, _)| *number),
        }
    }

    /// `"bf16"`; empty for numbers that the library does not know.
    pub fn name(self) -> &'static str {
        // SAFETY: the function takes any number and its result lives for ever.
        unsafe { crate::raw::static_str(sys::invar_dtype_name(self.raw())) }
    }

    /// Bits of one element; 0 for numbers that the library does not know.
    pub fn bits(self) -> i32 {
        // SAFETY: the function takes any number.
        unsafe { sys::invar_dtype_bits(self.raw()) }
    }
}

/// A Rust type whose memory is that of a [`DType`]'s elements.
///
/// # Safety
/// Every bit pattern is a valid value, and size and alignment are those of each accepted format's elements.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The format of a tensor made from a slice of this type.
    const DTYPE: DType;
    /// Whether a tensor of `dtype` can be seen as a slice of this type.
    fn accepts(dtype: DType) -> bool {
        dtype == Self::DTYPE
    }
}

/// The bits of a BF16 number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Bf16 {
    /// The same value.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// The bits of an FP16 number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

macro_rules! element {
    ($($type:ty => $dtype:ident),* $(,)?) => { $(
        // SAFETY: plain numbers of exactly the format's size.
        unsafe impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )* };
}

element!(f32 => Fp32, f64 => Fp64, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
         Bf16 => Bf16, F16 => Fp16);

// SAFETY: one byte; the FP8 formats, E8M0 and booleans are codes of one byte.
unsafe impl Element for u8 {
    const DTYPE: DType = DType::U8;

    fn accepts(dtype: DType) -> bool {
        matches!(
            dtype,
            DType::U8
                | DType::Bool
                | DType::E8m0
                | DType::Fp8E4m3
                | DType::Fp8E5m2
                | DType::Fp8E4m3Fnuz
                | DType::Fp8E5m2Fnuz
        )
    }
}
