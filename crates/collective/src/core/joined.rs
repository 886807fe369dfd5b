//! Which call ranks of one host follow when some of them have joined and have no more values.

use super::words::{Kind, Signature};
use phalanx_types::DType;

/// The signature announced by every rank that has joined.
pub(crate) fn joining(sequence: u64) -> Signature {
    Signature { sequence, kind: Kind::Join, reduction: None, dtype: DType::U8, count: 0, name: String::new() }
}

/// The call of all ranks that have not joined, if joined ranks can take part in it with zeros. Ranks that know the same
/// calls get the same result.
pub(crate) fn followed(calls: &[Signature]) -> Option<&Signature> {
    let call = calls.iter().find(|call| call.kind != Kind::Join)?;
    let joined = joining(call.sequence);
    let fits = |other: &Signature| other == call || *other == joined;
    (call.takes_zeros() && calls.iter().all(fits)).then_some(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::words::Reduction;

    fn sum(sequence: u64) -> Signature {
        let name = "grad".to_owned();
        let reduction = Some(Reduction::Sum);
        Signature { kind: Kind::AllReduce, reduction, count: 3, name, ..joining(sequence) }
    }

    #[test]
    fn who_has_joined_follows_what_the_others_agree_on() {
        assert_eq!(followed(&[joining(4), sum(4), joining(4), sum(4)]), Some(&sum(4)));
        assert_eq!(followed(&[sum(4), joining(4)]), Some(&sum(4)));
        let average = Signature { reduction: Some(Reduction::Average), ..sum(4) };
        assert_eq!(followed(&[joining(4), average.clone()]), Some(&average));
    }

    #[test]
    fn no_rank_follows_calls_that_differ_or_take_no_zeros() {
        assert_eq!(followed(&[]), None);
        assert_eq!(followed(&[joining(4), joining(4)]), None);
        assert_eq!(followed(&[joining(3), sum(4)]), None);
        for other in [
            Signature { count: 4, ..sum(4) },
            Signature { kind: Kind::Reduce { root: 0 }, ..sum(4) },
            Signature { reduction: Some(Reduction::Max), ..sum(4) },
            sum(5),
        ] {
            assert_eq!(followed(&[joining(4), sum(4), other.clone()]), None);
            assert_eq!(followed(&[joining(4), other.clone(), sum(4)]), None);
            if other.sequence == 4 && !other.takes_zeros() {
                assert_eq!(followed(&[joining(4), other]), None);
            }
        }
    }
}
