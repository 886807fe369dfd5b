//! Properties of orders and shards, over many sizes and seeds.

use phalanx_data::{DataError, Order, Shard};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

fn assert_permutation(order: &Order) {
    let mut seen = vec![false; order.len()];
    for position in 0..order.len() {
        assert!(!std::mem::replace(&mut seen[order.get(position)], true), "twice: {position}");
    }
}

#[test]
fn every_order_is_a_permutation() {
    let mut rng = Pcg32::seed_from_u64(1);
    let large: Vec<usize> = (0..40).map(|_| rng.random_range(40..5000)).collect();
    for len in (0..40).chain(large) {
        for pass in 0..3 {
            assert_permutation(&Order::new(len, Some(rng.random()), pass));
            assert_permutation(&Order::new(len, None, pass));
        }
    }
}

#[test]
fn orders_depend_on_seed_and_pass_and_nothing_else() {
    assert_eq!(Order::new(100, Some(1), 2), Order::new(100, Some(1), 2));
    assert_ne!(Order::new(100, Some(1), 2), Order::new(100, Some(1), 3));
    assert_ne!(Order::new(100, Some(1), 2), Order::new(100, Some(2), 2));
    let plain = Order::new(5, None, 7);
    assert_eq!((0..5).map(|p| plain.get(p)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    // A run that is resumed with a newer version must find the order it began with.
    let golden = Order::new(8, Some(42), 1);
    assert_eq!((0..8).map(|p| golden.get(p)).collect::<Vec<_>>(), GOLDEN);
}

const GOLDEN: [usize; 8] = [6, 0, 7, 5, 4, 3, 2, 1];

#[test]
fn every_place_is_about_as_likely() {
    let mut counts = [[0; 6]; 6];
    for pass in 0..6000 {
        let order = Order::new(6, Some(9), pass);
        for (position, counts) in counts.iter_mut().enumerate() {
            counts[order.get(position)] += 1;
        }
    }
    assert!(counts.iter().flatten().all(|n| (880..1120).contains(n)), "{counts:?}");
}

/// Each position of a pass is in exactly one of the shards.
fn assert_division(len: usize, shards: &[Shard]) {
    let mut seen = vec![false; len];
    for shard in shards {
        for k in 0..shard.len() {
            assert!(!std::mem::replace(&mut seen[shard.get(k)], true), "{len}: {shards:?}");
        }
    }
    assert!(seen.iter().all(|seen| *seen), "{len}: {shards:?}");
}

#[test]
fn equal_shards_take_each_sample_once_and_differ_by_one() {
    for len in 0..60 {
        for count in 1..20 {
            let shards: Vec<Shard> = (0..count).map(|i| Shard::new(len, i, count).unwrap()).collect();
            assert_division(len, &shards);
            let sizes = shards.iter().map(Shard::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }
    assert!(matches!(Shard::new(10, 2, 2), Err(DataError::NoSuchShard { index: 2, count: 2 })));
    assert!(matches!(Shard::new(10, 0, 0), Err(DataError::NoSuchShard { .. })));
    assert_division(5, &[Shard::whole(5)]);
}

#[test]
fn weighted_shards_take_each_sample_once_and_come_near_their_weights() {
    let mut rng = Pcg32::seed_from_u64(2);
    for _ in 0..2000 {
        let len = rng.random_range(0..500);
        let weights: Vec<f64> =
            (0..rng.random_range(1..9)).map(|_| f64::from(rng.random_range(0..50))).collect();
        let total: f64 = weights.iter().sum();
        if total == 0.0 {
            continue;
        }
        let shards = Shard::weighted(len, &weights).unwrap();
        assert_eq!(shards.len(), weights.len());
        assert_division(len, &shards);
        for (shard, weight) in shards.iter().zip(&weights) {
            let exact = weight / total * len as f64;
            assert!((shard.len() as f64 - exact).abs() < 1.0 + 1e-9, "{len} {weights:?} {shards:?}");
        }
    }
}

#[test]
fn weights_without_meaning_are_refused() {
    for weights in [&[][..], &[0.0], &[-1.0, 2.0], &[f64::NAN], &[f64::INFINITY], &[f64::MAX, f64::MAX]] {
        assert!(matches!(Shard::weighted(10, weights), Err(DataError::Weights { .. })), "{weights:?}");
    }
    let shards = Shard::weighted(10, &[3.0, 0.0, 1.0]).unwrap();
    assert_eq!(shards.iter().map(Shard::len).collect::<Vec<_>>(), [8, 0, 2]);
}
