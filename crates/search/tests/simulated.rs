//! A thousand searches on clusters that break.

mod cluster;

const SEEDS: u64 = 1_000;

/// `PHALANX_SEARCH_SEED=7 cargo test -p phalanx-search --test simulated` repeats one.
#[test]
fn a_thousand_searches_on_breaking_clusters_train_every_trial_once() {
    let one = std::env::var("PHALANX_SEARCH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let mut all = cluster::Counts::default();
    let mut broken = Vec::new();
    for seed in seeds {
        match cluster::run(seed) {
            Ok(counts) => all += counts,
            Err(what) => broken.push(format!("PHALANX_SEARCH_SEED={seed}: {what}")),
        }
    }
    println!("{all:?}");
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken[..broken.len().min(20)].join("\n"));
    if one.is_none() {
        assert!(all.finished > SEEDS / 2 && all.kills > 5 * SEEDS && all.twins > SEEDS, "{all:?}");
    }
}
