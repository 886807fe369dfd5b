//! Configurations built in code.

use super::*;
use phalanx_collective::Compression;
use phalanx_data::{Columns, Crop, Sides, SourceSpec, Transform};
use phalanx_engine::{Loss, Metric, OptimizerSpec, Schedule, Sgd};
use phalanx_streams::ReadMode;
use phalanx_types::{ByteSize, Seed};

const FEWEST: &str =
    "[model]\nzoo = \"mlp\"\n[data]\ntrain = { file = \"/a.npz\" }\n[train]\nloss = \"mse\"\nepochs = 1\n";

fn parse(text: &str) -> Result<RunConfig, ConfigError> {
    Ok(RunFile::parse(Path::new("run.toml"), text, &[])?.config)
}

fn named() -> RunConfig {
    let mut config = RunConfig::default();
    config.model.from = ModelFrom::Zoo("mlp".to_owned());
    config.data.train = SourceSpec::file("/a.npz");
    config
}

#[test]
fn defaults_are_what_empty_sections_mean() {
    let read = parse(FEWEST).unwrap();
    assert_eq!(read, named());
    let empty = parse(&format!("{FEWEST}[formation]\n[sync]\n")).unwrap();
    assert_eq!(empty.formation, FormationConfig::default());
    assert_eq!(empty.sync, SyncConfig::default());
    assert_eq!((empty.train, empty.name), (TrainConfig::default(), None));
    assert_eq!(empty.data, DataConfig { train: SourceSpec::file("/a.npz"), ..DataConfig::default() });
    assert_eq!(empty.model, ModelConfig::new(ModelFrom::Zoo("mlp".to_owned())));
}

#[test]
fn a_configuration_reads_back_from_the_file_it_is_written_as() {
    let mut full = named();
    full.name = Some("first".to_owned());
    full.model.input = Some(vec![3, 4]);
    full.model.classes = Some(7);
    full.model.weights = Some("/w.safetensors".into());
    full.model.dropout = Some(0.1);
    full.data.train.x = Some(Columns::Many(vec!["a".to_owned(), "b".to_owned()]));
    full.data.valid = Some(SourceSpec { y: Some("y".to_owned()), ..SourceSpec::file("/b.csv") });
    full.data.transform = Transform {
        reshape: Some(vec![1, 8, 8]),
        crop: Some(Crop { size: Some(Sides::Sides([6, 7])), pad: 2 }),
        flip: true,
        scale: Some(1.0 / 255.0),
        mean: Some(vec![0.1]),
        std: Some(vec![0.3]),
        one_hot: Some(10),
    };
    full.data.shuffle = false;
    full.train = TrainConfig {
        loss: Loss::Huber { delta: 0.3 },
        optimizer: OptimizerSpec::Sgd(Sgd { momentum: 0.7, ..Sgd::default() }),
        schedule: Schedule::OneCycle {
            max_lr: None,
            pct_start: 0.25,
            div_factor: 10.0,
            final_div_factor: 1e4,
            warmup: 3,
        },
        length: Length::Steps(77),
        batch: 36,
        seed: Seed(5),
        clip_norm: Some(0.1),
        validate_every: Every::Steps(3),
        checkpoint_every: Every::Never,
        threads: Some(2),
        metrics: vec![Metric::TopK { k: 3 }, Metric::Mae],
        ..TrainConfig::default()
    };
    full.formation = FormationConfig {
        batch: BatchOf::PerReplica,
        shares: SharesBy::Equal,
        min_replicas: 2,
        max_replicas: 9,
        patience: Duration::from_millis(1500),
        cores: Some(3),
        memory: Some(ByteSize((1 << 30) + 1)),
        ..FormationConfig::on_local_nodes(4)
    };
    full.sync = SyncConfig { scale_lr: ScaleLr::Sqrt, compress: Compression::F16, ..SyncConfig::outer(5) };
    let mut staged = named();
    staged.formation = FormationConfig {
        mode: Mode::Asynchronous,
        in_flight: Some(5),
        micro_batches: Some(4),
        compress: Compression::Int8,
        cuts: vec![CutBefore { op: "fc2".to_owned(), source: Source::Code }],
        copies: 0,
        measure: false,
        ..FormationConfig::staged(3, 2)
    };
    staged.sync = SyncConfig { average_optimizer: true, ..SyncConfig::parameters(20) };
    let mut auto = named();
    auto.formation = FormationConfig { stages: None, ahead: 4, ..FormationConfig::default() };
    let mut replicated = named();
    replicated.formation = FormationConfig::replicated(3);
    replicated.sync.shared_statistics = false;
    let mut own = named();
    own.train.own_loss = Some("mine".to_owned());
    own.train.schedule = Schedule::Table { steps: vec![0, 17], rates: vec![1e-3, 2.5e-4], warmup: 0 };
    for config in [named(), full, staged, auto, replicated, own] {
        let text = config.resolve().unwrap().to_toml();
        assert_eq!(parse(&text).expect(&text), config, "{text}");
    }
}

#[test]
fn mistakes_in_code_name_the_key_and_no_place() {
    type Change = fn(&mut RunConfig);
    let mistakes: &[(Change, &str)] = &[
        (|c| c.name = Some("a/b".to_owned()), "`name` must be a word of letters"),
        (|c| c.model.dropout = Some(1.0), "`model.dropout` must be from 0 to below 1, not 1"),
        (|c| c.data.transform.one_hot = Some(0), "`data.one_hot` must be a whole number from 1"),
        (|c| c.data.transform.reshape = Some(vec![]), "`data.reshape` must be a list"),
        (|c| c.train.batch = 0, "`train.batch` must be a whole number from 1"),
        (|c| c.train.length = Length::Steps(0), "`train.steps` must be a whole number from 1 on, not 0"),
        (|c| c.train.clip_norm = Some(0.0), "`train.clip_norm` must be above 0, not 0"),
        (|c| c.train.clip_value = Some(f32::INFINITY), "`train.clip_value` must be a finite number"),
        (|c| c.train.loss = Loss::Huber { delta: -1.0 }, "`train.loss.delta` must be a number above 0"),
        (|c| c.train.own_loss = Some(String::new()), "`train.own_loss` must be the name of a loss"),
        (|c| c.train.schedule = table(&[3, 3], &[0.1, 0.2]), "`train.schedule.steps` must be ascending"),
        (|c| c.train.schedule = table(&[3], &[]), "`train.schedule.rates` must be a list of 1"),
        (|c| c.train.schedule = table(&[3], &[-0.1]), "`train.schedule.rates` must be a number from 0 on"),
        (
            |c| c.train.optimizer = OptimizerSpec::Sgd(Sgd { momentum: 1.5, ..Sgd::default() }),
            "`train.optimizer.momentum` must be from 0 to below 1, not 1.5",
        ),
        (
            |c| c.train.validate_every = Every::Time(Duration::from_secs(30)),
            "`train.validate_every` must be a number of steps",
        ),
        (|c| c.formation.replicas = 0, "`formation.replicas` must be a whole number from 1 to 1024"),
        (|c| c.formation.local = 3, "`formation.replicas` must be 3, as `formation.local`"),
        (|c| c.formation.min_replicas = 2, "`formation.min_replicas` must be at most `formation.replicas`"),
        (|c| c.formation.in_flight = Some(2), "`formation.in_flight` means nothing here"),
        (|c| c.formation.micro_batches = Some(33), "must be at most the batch, 32, not 33"),
        (|c| c.sync.every = 2, "`sync.every` must be 1 with `sync.exchange = \"gradients\"`"),
        (|c| c.sync.exchange = ExchangeOf::Outer, "`sync.batch_norm` must be \"local\""),
        (|c| c.sync.outer_momentum = 1.0, "`sync.outer_momentum` must be from 0 to below 1"),
        (|c| c.sync.average_optimizer = true, "`sync.average_optimizer` means nothing here"),
    ];
    for (change, expected) in mistakes {
        let mut config = named();
        change(&mut config);
        let error = config.validate().expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        assert!(!error.contains("at the program") && !error.contains("at default"), "{error}");
    }
    let error = parse(&format!("{FEWEST}clip_norm = -2\n")).unwrap_err().to_string();
    assert_eq!(error, "`train.clip_norm` must be above 0, not -2, at run.toml:8:13");
}

#[test]
fn what_is_in_memory_has_no_run_file() {
    let error = RunConfig::default().resolve().unwrap_err();
    assert_eq!(error.to_string(), "`model` is in memory: a run file cannot name it");
    let mut config = named();
    config.data.train = SourceSpec::default();
    assert!(matches!(config.resolve(), Err(ConfigError::InMemory { key: "data.train" })));
}

fn table(steps: &[u64], rates: &[f64]) -> Schedule {
    Schedule::Table { steps: steps.to_vec(), rates: rates.to_vec(), warmup: 0 }
}

/// A run from a stream in some mode.
fn streaming(mode: ReadMode) -> RunConfig {
    let [stream, store, x, y] = ["heat", "n1:6780", "begins", "ends"].map(str::to_owned);
    let mut config = named();
    config.data.train = SourceSpec::default();
    config.data.stream = Some(StreamConfig { stream, store, x, y, mode });
    config
}

#[test]
fn a_stream_reads_back_from_the_file_it_is_written_as() {
    for mode in [
        ReadMode::Static,
        ReadMode::Grow { min_samples: 7, new_samples: 9 },
        ReadMode::Once { window: 11 },
        ReadMode::Reservoir { capacity: 13, min_samples: 5, steps: None },
        ReadMode::Reservoir { capacity: 13, min_samples: 5, steps: Some(3) },
    ] {
        let config = streaming(mode);
        let written = config.resolve().unwrap().to_toml();
        assert_eq!(parse(&written).unwrap(), config, "{written}");
    }
}

#[test]
fn what_a_stream_cannot_follow_is_refused() {
    let refused = |mode: ReadMode, change: fn(&mut RunConfig)| {
        let mut config = streaming(mode);
        config.validate().unwrap();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    let grow = ReadMode::Grow { min_samples: 1, new_samples: 0 };
    let once = ReadMode::Once { window: 9 };
    for (error, key) in [
        (refused(grow, |config| config.data.shuffle = false), "`data.shuffle`"),
        (refused(once, |config| config.data.drop_last = true), "`data.drop_last`"),
        (refused(once, |config| config.train.length = Length::Passes(2)), "`train.epochs`"),
        (
            refused(grow, |config| config.train.schedule = Schedule::Cosine { min_lr: 0.0, warmup: 0 }),
            "`train.schedule`",
        ),
    ] {
        assert!(error.starts_with(key), "{error}");
    }
    let mut known = streaming(grow);
    known.train.schedule = Schedule::Cosine { min_lr: 0.0, warmup: 0 };
    known.train.length = Length::Steps(100);
    known.validate().unwrap();
}
