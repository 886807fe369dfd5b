//! Types of elements in safetensors files.

use crate::DType;
use safetensors::Dtype;

impl From<DType> for Dtype {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Dtype::F32,
            DType::F64 => Dtype::F64,
            DType::F16 => Dtype::F16,
            DType::Bf16 => Dtype::BF16,
            DType::I8 => Dtype::I8,
            DType::I16 => Dtype::I16,
            DType::I32 => Dtype::I32,
            DType::I64 => Dtype::I64,
            DType::U8 => Dtype::U8,
            DType::U16 => Dtype::U16,
            DType::U32 => Dtype::U32,
            DType::U64 => Dtype::U64,
            DType::Bool => Dtype::BOOL,
        }
    }
}

impl DType {
    /// The type of a safetensors file, if tensors can have it.
    pub fn from_safetensors(dtype: Dtype) -> Option<Self> {
        Self::ALL.into_iter().find(|ours| Dtype::from(*ours) == dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_of_its_own_in_files() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_safetensors(dtype.into()), Some(dtype));
            assert_eq!(Dtype::from(dtype).bitsize(), 8 * dtype.size());
        }
        assert_eq!(DType::from_safetensors(Dtype::F8_E4M3), None);
    }
}
