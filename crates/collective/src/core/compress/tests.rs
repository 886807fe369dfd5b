use super::*;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

const SIZES: [usize; 8] = [0, 1, 7, 255, 256, 257, 1000, 9001];
const ALL: [Compression; 8] = [
    Compression::None,
    Compression::F16,
    Compression::Bf16,
    Compression::Int8,
    Compression::TopK { per_mille: 0 },
    Compression::TopK { per_mille: 10 },
    Compression::TopK { per_mille: 333 },
    Compression::TopK { per_mille: 1000 },
];

fn draw(dice: &mut Pcg64, count: usize) -> Vec<f32> {
    let unit = |dice: &mut Pcg64| (dice.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0;
    // Magnitudes differ from value to value, and some values are equal.
    (0..count).map(|_| unit(dice) * [1.0, 0.1, 1e-3, 0.0][dice.next_u32() as usize % 4]).collect()
}

fn encoded(compression: Compression, values: &[f32], feedback: Option<&mut [f32]>) -> Vec<u8> {
    let mut out = vec![1, 2, 3];
    encode(compression, values, feedback, &mut out);
    assert_eq!(out[..3], [1, 2, 3]);
    out.split_off(3)
}

fn decoded(compression: Compression, bytes: &[u8], count: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; count];
    decode(compression, bytes, &mut out).expect("an encoder made these bytes");
    out
}

/// The allowed distance of the decoded value from `value` when the greatest magnitude of its block is `greatest`.
fn bound(compression: Compression, value: f32, greatest: f32) -> f32 {
    match compression {
        Compression::None => 0.0,
        Compression::F16 => value.abs() / 2048.0 + 3e-8,
        Compression::Bf16 => value.abs() / 256.0,
        Compression::Int8 => greatest / 254.0 * 1.0001,
        Compression::TopK { .. } => unreachable!("compared with a sorted copy"),
    }
}

#[test]
fn errors_stay_within_their_bounds() {
    let mut dice = Pcg64::seed_from_u64(31);
    for compression in &ALL[..4] {
        for count in SIZES {
            let values = draw(&mut dice, count);
            let bytes = encoded(*compression, &values, None);
            assert_eq!(bytes.len(), encoded_len(*compression, count));
            let decoded = decoded(*compression, &bytes, count);
            for (values, decoded) in values.chunks(256).zip(decoded.chunks(256)) {
                let greatest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                for (value, decoded) in values.iter().zip(decoded) {
                    let bound = bound(*compression, *value, greatest);
                    assert!((value - decoded).abs() <= bound, "{compression}: {value} became {decoded}");
                }
            }
        }
    }
}

#[test]
fn topk_sends_the_greatest_and_of_equals_the_first() {
    let mut dice = Pcg64::seed_from_u64(32);
    for compression in &ALL[4..] {
        for count in SIZES {
            for coarse in [false, true] {
                let mut values = draw(&mut dice, count);
                if coarse {
                    values.iter_mut().for_each(|v| *v = (*v * 4.0).round());
                }
                let bytes = encoded(*compression, &values, None);
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by(|a, b| values[*b].abs().total_cmp(&values[*a].abs()).then(a.cmp(b)));
                let mut expected = vec![0.0; count];
                for index in &order[..bytes.len() / 8] {
                    expected[*index] = values[*index];
                }
                assert_eq!(decoded(*compression, &bytes, count), expected);
            }
        }
    }
}

#[test]
fn sizes_are_known_beforehand() {
    let topk = |per_mille, count| encoded_len(Compression::TopK { per_mille }, count) / 8;
    assert_eq!([topk(10, 0), topk(10, 1), topk(10, 100), topk(10, 101), topk(10, 1000)], [0, 1, 1, 2, 10]);
    assert_eq!([topk(0, 50), topk(1000, 50), topk(u32::MAX, 50)], [1, 50, 50]);
    assert_eq!([0, 1, 256, 257].map(|n| encoded_len(Compression::Int8, n)), [0, 5, 260, 265]);
    assert_eq!(encoded_len(Compression::F16, 7), 14);
    assert_eq!(encoded_len(Compression::None, 7), 28);
}

#[test]
fn what_is_not_sent_stays_in_the_feedback() {
    let mut dice = Pcg64::seed_from_u64(33);
    for compression in ALL {
        for count in SIZES {
            let mut feedback = vec![0.0; count];
            let (mut given, mut sent) = (vec![0.0f64; count], vec![0.0f64; count]);
            for _ in 0..20 {
                let values = draw(&mut dice, count);
                let before = feedback.clone();
                let bytes = encoded(compression, &values, Some(&mut feedback));
                let decoded = decoded(compression, &bytes, count);
                for i in 0..count {
                    let (all, known) = (values[i] + before[i], decoded[i] + feedback[i]);
                    assert!((all - known).abs() <= all.abs() * 1e-6, "{compression}: {all} became {known}");
                    given[i] += f64::from(values[i]);
                    sent[i] += f64::from(decoded[i]);
                }
            }
            for i in 0..count {
                assert!((given[i] - sent[i] - f64::from(feedback[i])).abs() < 1e-4, "{compression}");
            }
        }
    }
}

#[test]
fn feedback_of_zeros_changes_no_bytes() {
    let mut dice = Pcg64::seed_from_u64(34);
    for compression in ALL {
        let values = draw(&mut dice, 9001);
        let mut feedback = vec![0.0; values.len()];
        let with = encoded(compression, &values, Some(&mut feedback));
        let (with, without) = (decoded(compression, &with, 9001), encoded(compression, &values, None));
        assert_eq!(with, decoded(compression, &without, 9001), "{compression}");
    }
}

#[test]
fn adding_adds_what_decoding_gives() {
    let mut dice = Pcg64::seed_from_u64(35);
    for compression in ALL {
        let (values, mut sum) = (draw(&mut dice, 1000), draw(&mut dice, 1000));
        let bytes = encoded(compression, &values, None);
        let decoded = decoded(compression, &bytes, 1000);
        let expected: Vec<f32> = sum.iter().zip(&decoded).map(|(a, b)| a + b).collect();
        decode_add(compression, &bytes, &mut sum).expect("an encoder made these bytes");
        assert_eq!(sum, expected);
    }
}

#[test]
fn values_that_are_not_finite_stay_so_and_do_not_come_back() {
    for compression in ALL {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![0.5; 1000];
            values[300] = bad;
            values[301] = bad;
            let mut feedback = vec![0.0; 1000];
            let bytes = encoded(compression, &values, Some(&mut feedback));
            let first = decoded(compression, &bytes, 1000);
            assert!(!first[300].is_finite(), "{compression}: {bad} became {}", first[300]);
            assert!(feedback.iter().all(|value| value.is_finite()));
            let bytes = encoded(compression, &vec![0.5; 1000], Some(&mut feedback));
            assert!(decoded(compression, &bytes, 1000).iter().all(|value| value.is_finite()));
        }
    }
    let bytes = encoded(Compression::F16, &[70_000.0, -70_000.0], None);
    assert_eq!(decoded(Compression::F16, &bytes, 2), [f32::INFINITY, f32::NEG_INFINITY]);
}

#[test]
fn int8_takes_the_smallest_and_the_greatest() {
    let tiny = [1e-45, -1e-40, 0.0, 1e-38];
    let bytes = encoded(Compression::Int8, &tiny, None);
    assert_eq!(decoded(Compression::Int8, &bytes, 4), [0.0; 4]);
    let great = [3e38f32, -3e38, 1e38, 0.0];
    let bytes = encoded(Compression::Int8, &great, None);
    for (value, decoded) in great.iter().zip(decoded(Compression::Int8, &bytes, 4)) {
        assert!((value / 3e38 - decoded / 3e38).abs() < 0.004, "{value} became {decoded}");
    }
    let bytes = encoded(Compression::Int8, &[127.0, -127.0, 0.5, 1.5, -2.5, 3.25], None);
    assert_eq!(decoded(Compression::Int8, &bytes, 6), [127.0, -127.0, 0.0, 2.0, -2.0, 3.0]);
}

#[test]
fn hostile_bytes_are_refused_and_change_nothing() {
    let topk = Compression::TopK { per_mille: 20 };
    let pairs = |pairs: [(u32, f32); 2]| -> Vec<u8> {
        pairs.iter().flat_map(|(i, v)| [i.to_le_bytes(), v.to_le_bytes()].concat()).collect()
    };
    let refused = |compression, bytes: &[u8], error: DecodeError| {
        let mut out = [1.0; 100];
        assert_eq!(decode(compression, bytes, &mut out), Err(error.clone()));
        assert_eq!(decode_add(compression, bytes, &mut out), Err(error));
        assert_eq!(out, [1.0; 100]);
    };
    refused(topk, &pairs([(1, 1.0), (100, 1.0)]), DecodeError::Index { index: 100, elements: 100 });
    refused(topk, &pairs([(u32::MAX, 1.0), (1, 1.0)]), DecodeError::Index { index: u32::MAX, elements: 100 });
    refused(topk, &pairs([(5, 1.0), (5, 1.0)]), DecodeError::Order { index: 5, before: 5 });
    refused(topk, &pairs([(5, 1.0), (4, 1.0)]), DecodeError::Order { index: 4, before: 5 });
    let mut negative = vec![0; 104];
    negative[3] = 0x80;
    refused(Compression::Int8, &negative, DecodeError::Scale { block: 0 });
    for compression in ALL {
        let wanted = encoded_len(compression, 100);
        for got in [0, 1, wanted - 1, wanted + 1, 2 * wanted] {
            let error = DecodeError::Length { compression, elements: 100, wanted, got };
            assert_eq!(error.class(), Class::Peer);
            refused(compression, &vec![0; got], error);
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut dice = Pcg64::seed_from_u64(36);
    for round in 0..2000 {
        let compression = ALL[round % ALL.len()];
        let count = dice.next_u32() as usize % 600;
        let exact = encoded_len(compression, count);
        let length = if round % 3 == 0 { dice.next_u32() as usize % 3000 } else { exact };
        let mut bytes = vec![0; length];
        dice.fill_bytes(&mut bytes);
        let mut out = vec![0.0; count];
        let result = decode(compression, &bytes, &mut out);
        assert!(result.is_err() || length == exact);
        assert_eq!(decode_add(compression, &bytes, &mut out), result);
    }
}

#[test]
fn words_are_parsed_and_printed() {
    for compression in ALL.into_iter().filter(|c| *c != Compression::TopK { per_mille: 0 }) {
        assert_eq!(compression.to_string().parse(), Ok(compression));
        let text = String::from(compression);
        let deserializer = IntoDeserializer::<Error>::into_deserializer(text.as_str());
        assert_eq!(Compression::deserialize(deserializer), Ok(compression));
    }
    for per_mille in 1..=1000 {
        let compression = Compression::TopK { per_mille };
        assert_eq!(compression.to_string().parse(), Ok(compression));
    }
    assert_eq!("topk".parse(), Ok(Compression::TopK { per_mille: 10 }));
    assert_eq!("topk:0.01".parse(), Ok(Compression::TopK { per_mille: 10 }));
    assert_eq!(Compression::TopK { per_mille: 10 }.to_string(), "topk:0.01");
    for text in ["", "F16", "zip", "topk0.01", "int8:3"] {
        let error = ParseCompressionError::Word { text: text.to_owned() };
        assert_eq!(text.parse::<Compression>(), Err(error));
    }
    for part in ["", "0", "-1", "1.1", "0.0005", "0.0015", "nan", "inf", "x"] {
        let error = ParseCompressionError::Part { text: part.to_owned() };
        assert_eq!(format!("topk:{part}").parse::<Compression>(), Err(error));
    }
}
