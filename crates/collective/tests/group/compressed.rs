//! Sums of compressed tensors.

use crate::harness::{TOPOLOGIES, rough, run};
use phalanx_collective::{Compression, Feedback};

const COMPRESSIONS: [Compression; 5] = [
    Compression::None,
    Compression::F16,
    Compression::Bf16,
    Compression::Int8,
    Compression::TopK { per_mille: 1000 },
];

/// The allowed error of a sum over `ranks` ranks of values below 1.1: each value and the sum are rounded once.
fn bound(compression: Compression, ranks: f32) -> f32 {
    let step = match compression {
        Compression::None | Compression::TopK { .. } => f32::EPSILON,
        Compression::F16 => 1.0 / 2048.0,
        Compression::Bf16 => 1.0 / 256.0,
        Compression::Int8 => 1.0 / 254.0,
    };
    2.0 * 1.1 * ranks * step
}

#[test]
fn sums_are_near_and_alike() {
    for topology in TOPOLOGIES {
        let ranks = topology.len();
        let cases: Vec<_> = COMPRESSIONS
            .iter()
            .flat_map(|compression| [0, 1, 37, 1003].map(|count| (*compression, count)))
            .collect();
        let results = run(topology, |group| {
            let sum = |(compression, count): &(Compression, usize)| {
                let mut feedback = Feedback::default();
                let mut values: Vec<f32> = (0..*count).map(|index| rough(group.rank(), index)).collect();
                group.all_reduce_compressed(&mut values, *compression, &mut feedback, "x").unwrap();
                values
            };
            cases.iter().map(sum).collect::<Vec<_>>()
        });
        let bits = |values: &Vec<f32>| bytemuck::cast_slice::<f32, u32>(values).to_vec();
        for (case, (compression, _)) in cases.iter().enumerate() {
            assert!(results.iter().all(|result| bits(&result[case]) == bits(&results[0][case])));
            for (index, got) in results[0][case].iter().enumerate() {
                let wanted: f32 = (0..ranks).map(|rank| rough(rank, index)).sum();
                let bound = bound(*compression, ranks as f32);
                assert!((got - wanted).abs() <= bound, "{topology} {compression} {got} {wanted}");
            }
        }
    }
}

/// The error of one step is sent with the next: the mean over many steps is far more precise than one step.
#[test]
fn feedback_brings_back_what_was_lost() {
    const COUNT: usize = 100;
    const STEPS: usize = 60;
    for topology in ["aaa", "abc", "aab"] {
        for (compression, near) in [(Compression::Int8, 2e-3), (Compression::TopK { per_mille: 100 }, 0.8)] {
            run(topology, |group| {
                let mut feedback = Feedback::default();
                let mut total = [0.0_f64; COUNT];
                for _ in 0..STEPS {
                    let mut values: Vec<f32> = (0..COUNT).map(|index| rough(group.rank(), index)).collect();
                    group.all_reduce_compressed(&mut values, compression, &mut feedback, "x").unwrap();
                    total.iter_mut().zip(values).for_each(|(total, value)| *total += f64::from(value));
                }
                for (index, total) in total.iter().enumerate() {
                    let wanted: f64 = (0..3).map(|rank| f64::from(rough(rank, index))).sum();
                    let mean = total / STEPS as f64;
                    assert!((mean - wanted).abs() < near, "{topology} {compression} {mean} {wanted}");
                }
            });
        }
    }
}

#[test]
fn less_is_sent() {
    for topology in ["aaaa", "abcd"] {
        let sent = |compression: Compression| {
            let sent = run(topology, |group| {
                let mut values = vec![1.0; 16 << 10];
                group.all_reduce_compressed(&mut values, compression, &mut Feedback::default(), "x").unwrap();
                group.sent()
            });
            sent.into_iter().sum::<u64>()
        };
        let plain = sent(Compression::None);
        assert_eq!(sent(Compression::F16), plain / 2 + lengths(topology));
        assert!(sent(Compression::Int8) < plain * 26 / 100 + lengths(topology));
        assert!(sent(Compression::TopK { per_mille: 10 }) < plain / 20);
    }
}

/// Between hosts ranks exchange their lengths: 8 bytes each.
fn lengths(topology: &str) -> u64 {
    if topology == "abcd" { 4 * 3 * 8 } else { 0 }
}

#[test]
fn ranks_must_compress_alike() {
    let errors = run("ab", |group| {
        let compression = if group.rank() == 0 { Compression::F16 } else { Compression::Bf16 };
        let mut values = vec![1.0; 10];
        group.all_reduce_compressed(&mut values, compression, &mut Feedback::default(), "x").unwrap_err()
    });
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("x by f16") && text.contains("x by bf16"), "{text}");
    }
}
