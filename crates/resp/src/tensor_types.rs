use phalanx_types::DType;

/// The names of element types in commands for tensors; 16-bit floats and unsigned types beyond 16 bits have none in
/// RedisAI.
const TYPES: [(&str, DType); 13] = [
    ("FLOAT", DType::F32),
    ("DOUBLE", DType::F64),
    ("INT8", DType::I8),
    ("INT16", DType::I16),
    ("INT32", DType::I32),
    ("INT64", DType::I64),
    ("UINT8", DType::U8),
    ("UINT16", DType::U16),
    ("UINT32", DType::U32),
    ("UINT64", DType::U64),
    ("BOOL", DType::Bool),
    ("FLOAT16", DType::F16),
    ("BFLOAT16", DType::Bf16),
];

/// How commands for tensors call a type of elements.
pub fn type_name(dtype: DType) -> &'static str {
    TYPES.iter().find(|(_, other)| *other == dtype).map_or("FLOAT", |(name, _)| name)
}

/// The type of elements that commands for tensors call so, in any case of letters.
pub fn named_type(name: &[u8]) -> Option<DType> {
    TYPES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes())).map(|(_, dtype)| *dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_name() {
        for dtype in DType::ALL {
            assert_eq!(named_type(type_name(dtype).to_lowercase().as_bytes()), Some(dtype));
        }
        assert_eq!(named_type(b"STRING"), None);
    }
}
