//! A hash of a model's weights.

use phalanx_graph::Weights;
use std::fmt::Write;

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

/// SHA-256 of some bytes, in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

/// A hash of all parameters and buffers: SHA-256 over each one's name, a zero byte and its little-endian bytes in
/// the order of the user's `state_dict`, the names sorted. Equal hashes mean bit-identical models.
pub fn params_hash(weights: &Weights) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for (name, tensor) in weights {
        context.update(name.as_bytes());
        context.update(&[0]);
        context.update(tensor.data());
    }
    hex(context.finish().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::Tensor;

    #[test]
    fn the_hash_is_the_documented_one() {
        let tensor = |values: &[f32]| Tensor::from_f32(vec![values.len() as u64], values).unwrap();
        let weights =
            Weights::from([("b".to_owned(), tensor(&[1.0])), ("a".to_owned(), tensor(&[0.5, 2.0]))]);
        let bytes =
            [b"a\0".as_slice(), &0.5f32.to_le_bytes(), &2f32.to_le_bytes(), b"b\0", &1f32.to_le_bytes()];
        assert_eq!(params_hash(&weights), sha256(&bytes.concat()));
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
