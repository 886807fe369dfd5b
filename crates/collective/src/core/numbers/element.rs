//! The Rust types that can be elements of tensors in collectives.

use half::{bf16, f16};
use phalanx_types::DType;

mod sealed {
    pub trait Sealed {}
}

/// A number that collectives can transfer and reduce.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    const DTYPE: DType;
}

macro_rules! elements {
    ($($element:ty => $dtype:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $element {}
            impl Element for $element {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

elements! { f32 => F32, f64 => F64, f16 => F16, bf16 => Bf16, i32 => I32, i64 => I64, u8 => U8 }
