//! Marks: short names for calls of a group of several hosts, so that ranks of one host can compare them.
//!
//! Within a host such a call is carried out by other calls. They carry the *mark* of the call as their name; it differs
//! when anything in the call differs. Only then do ranks send each other the calls themselves.

use super::words::{Kind, Reduction, Signature};
use phalanx_types::DType;

/// The most bytes of a name that are sent.
const NAME: usize = 64;

pub(crate) fn mark(signature: &Signature) -> String {
    format!("{:032x}", hash(&encode(signature)))
}

/// FNV-1a of 128 bits.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mix = |hash: u128, byte: &u8| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    };
    bytes.iter().fold(start, mix)
}

pub(crate) fn encode(signature: &Signature) -> Vec<u8> {
    let Signature { sequence, kind, reduction, dtype, count, name } = signature;
    let (kind, root) = kind.code();
    let mut bytes = Vec::with_capacity(23 + NAME);
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(root.to_le_bytes());
    bytes.push(kind);
    bytes.push(reduction.map_or(0, |reduction| 1 + index(&Reduction::ALL, &reduction)));
    bytes.push(index(&DType::ALL, dtype));
    bytes.extend(&name.as_bytes()[..name.floor_char_boundary(NAME)]);
    bytes
}

/// Decodes the call of another rank.
pub(crate) fn decode(bytes: &[u8]) -> Option<Signature> {
    let (sequence, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (root, rest) = rest.split_first_chunk()?;
    let ([kind, reduction, dtype], name) = rest.split_first_chunk()?;
    Some(Signature {
        sequence: u64::from_le_bytes(*sequence),
        kind: Kind::from_code(*kind, u32::from_le_bytes(*root))?,
        reduction: match reduction.checked_sub(1) {
            None => None,
            Some(index) => Some(*Reduction::ALL.get(usize::from(index))?),
        },
        dtype: *DType::ALL.get(usize::from(*dtype))?,
        count: u64::from_le_bytes(*count),
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

fn index<T: PartialEq>(all: &[T], word: &T) -> u8 {
    all.iter().position(|other| other == word).unwrap_or(all.len()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str) -> Signature {
        Signature {
            sequence: 3,
            kind: Kind::Broadcast { root: 7 },
            reduction: None,
            dtype: DType::Bf16,
            count: 9,
            name: name.to_owned(),
        }
    }

    #[test]
    fn calls_come_back_as_they_went() {
        let all_reduce =
            Signature { kind: Kind::AllReduce, reduction: Some(Reduction::Max), ..call("gewicht ä") };
        for signature in [call(""), call("x"), all_reduce] {
            let bytes = encode(&signature);
            assert_eq!(decode(&bytes), Some(signature));
            assert!((0..23).all(|length| decode(&bytes[..length]).is_none()));
        }
        assert_eq!(decode(&[255; 30]), None);
        assert_eq!(decode(&encode(&call(&"ä".repeat(99)))).unwrap().name, "ä".repeat(32));
    }

    #[test]
    fn marks_tell_calls_apart() {
        let one = call("x");
        for other in [
            Signature { sequence: 4, ..one.clone() },
            Signature { kind: Kind::Broadcast { root: 6 }, ..one.clone() },
            Signature { reduction: Some(Reduction::Sum), ..one.clone() },
            Signature { dtype: DType::F16, ..one.clone() },
            Signature { count: 10, ..one.clone() },
            call("y"),
        ] {
            assert_ne!(mark(&one), mark(&other));
        }
    }
}
