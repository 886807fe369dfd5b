mod keys;
mod page;

use super::*;
use phalanx_engine::{Loss, Metric, OptimizerSpec, Schedule};

const RUN: &str = r#"
[model]
zoo = "digits-cnn"

[data]
train = { file = "digits.npz", x = "x_train", y = "y_train" }
valid = { file = "digits.npz", x = "x_test", y = "y_test" }

[train]
loss = "mse"
optimizer = { name = "adam", lr = 0.01 }
epochs = 3
"#;

fn parse(text: &str, overrides: &[Override]) -> Result<RunFile, ConfigError> {
    RunFile::parse(Path::new("conf/run.toml"), text, overrides)
}

fn with_overrides(overrides: &[(&str, &str)]) -> Result<RunFile, ConfigError> {
    let overrides: Vec<Override> =
        overrides.iter().map(|(key, value)| Override::flag("--set", key, value)).collect();
    parse(RUN, &overrides)
}

/// `RUN` with a line added at the end of a section, or replacing the line of the same key.
fn with_line(section: &str, line: &str) -> String {
    let key = line.split(['=', ' ']).next().unwrap();
    let mut out = Vec::new();
    let mut inside = false;
    for old in RUN.lines() {
        if old.starts_with('[') {
            inside = old == format!("[{section}]");
            out.push(old);
            if inside {
                out.push(line);
            }
        } else if !(inside && old.starts_with(&format!("{key} "))) {
            out.push(old);
        }
    }
    out.join("\n")
}

#[test]
fn a_share_of_a_node_is_said_in_the_formation() {
    let said = [("formation.replicas", "2"), ("formation.cores", "2"), ("formation.memory", "3GiB")];
    let file = with_overrides(&said).unwrap();
    let formation = &file.config.formation;
    assert_eq!((formation.cores, formation.memory), (Some(2), Some(phalanx_types::ByteSize::gib(3))));
    assert_eq!(file.config.threads(), Some(2));
    let text = file.resolved.to_toml();
    assert!(text.contains("cores = 2") && text.contains("memory = \"3GiB\""), "{text}");
    assert_eq!(parse(&text, &[]).unwrap().config, file.config, "a node reads the same");
    let alone = with_overrides(&[("formation.cores", "2"), ("train.threads", "1")]).unwrap().config;
    assert_eq!(alone.threads(), Some(1), "fewer threads than cores");
    assert_eq!(alone.told(), parse(RUN, &[]).unwrap().config.told(), "results do not depend on it");
    for (said, why) in [
        (
            [("formation.cores", "0"), ("formation.replicas", "2")],
            "`formation.cores` must be a whole number from 1",
        ),
        (
            [("formation.cores", "1"), ("train.threads", "2")],
            "`formation.cores` must be at least `train.threads`",
        ),
        ([("formation.memory", "much"), ("formation.replicas", "2")], "must be a size such as \"2GiB\""),
        ([("formation.memory", "1GiB"), ("train.seed", "1")], "this one is in one process"),
    ] {
        let error = with_overrides(&said).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_run_file_says_what_it_says() {
    let config = parse(RUN, &[]).unwrap().config;
    assert_eq!(config.model.from, ModelFrom::Zoo("digits-cnn".to_owned()));
    assert!(config.data.train.file.is_absolute() && config.data.train.file.ends_with("conf/digits.npz"));
    assert_eq!(config.data.train.y.as_deref(), Some("y_train"));
    assert!(config.data.shuffle && config.data.valid.is_some());
    assert_eq!(config.train.loss, Loss::Mse);
    assert_eq!(config.train.optimizer.lr(), 0.01);
    assert_eq!((config.train.length, config.train.batch), (Length::Passes(3), 32));
    assert_eq!(config.train.validate_every, Every::Passes(1));
}

/// A section, a line in it, and what the error says.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    (
        "train",
        "optimiser = \"adam\"",
        &["unknown key `optimiser` in [train] at conf/run.toml:10:1", "did you mean `optimizer`?"],
    ),
    (
        "train",
        "optimizer = \"adamm\"",
        &["unknown optimizer \"adamm\" for `train.optimizer`", "run.toml:10:13", "`adam`"],
    ),
    (
        "train",
        "optimizer = { name = \"adam\", lrr = 1 }",
        &["unknown key `lrr` in [train.optimizer]", "run.toml:10:", "`lr`"],
    ),
    (
        "train",
        "optimizer = { name = \"adam\", lr = -1 }",
        &["`train.optimizer.lr` must be a number above 0, not -1"],
    ),
    (
        "train",
        "optimizer = { name = \"adam\", lr = \"fast\" }",
        &["`train.optimizer.lr` must be a number, not a text"],
    ),
    ("train", "optimizer = { name = \"adam\", betas = [0.9] }", &["`train.optimizer.betas`", "run.toml:10"]),
    ("train", "optimizer = { lr = 1 }", &["there is no `name` in [train.optimizer]"]),
    (
        "train",
        "optimizer = 3",
        &["`train.optimizer` must be a name, or a table with a name, not a whole number"],
    ),
    ("train", "loss = \"cross-entropy\"", &["unknown loss \"cross-entropy\"", "`cross_entropy`"]),
    (
        "train",
        "loss = { name = \"cross_entropy\", smoothing = 1.5 }",
        &["`train.loss.smoothing` must be from 0 to below 1"],
    ),
    (
        "train",
        "loss = { name = \"mse\", smoothing = 0.1 }",
        &["unknown key `smoothing` in [train.loss]", "run.toml:10"],
    ),
    ("train", "schedule = \"step\"", &["there is no `every` in [train.schedule]"]),
    ("train", "schedule = { name = \"cosine\", warm_up = 3 }", &["unknown key `warm_up`", "`warmup`"]),
    (
        "train",
        "epochs = 0",
        &["`train.epochs` must be a whole number from 1 on, not 0, at conf/run.toml:10:10"],
    ),
    ("train", "epochs = 1.5", &["`train.epochs` must be a whole number, not a number"]),
    ("train", "epochs = \"ten\"", &["must be a whole number, not a text"]),
    ("train", "steps = 5", &["`steps` and `epochs` are both given in [train]"]),
    ("train", "batch = -3", &["`train.batch` must be a whole number from 1 to 16777216, not -3"]),
    ("train", "lr = 0.1", &["`lr` and `optimizer.lr` are both given"]),
    ("train", "validate_every = \"sometimes\"", &["`train.validate_every`", "\"1 epoch\""]),
    ("train", "validate_every = \"30s\"", &["`train.validate_every`", "not 30s"]),
    ("train", "clip_norm = 0", &["`train.clip_norm` must be above 0, not 0"]),
    ("train", "clip_norm = inf", &["`train.clip_norm` must be a finite number"]),
    ("train", "metrics = [\"acuracy\"]", &["unknown metric \"acuracy\"", "`accuracy`"]),
    ("train", "recompute = 1", &["`train.recompute` must be true or false"]),
    ("train", "seed = 99999999999999999999", &["run.toml:10:8", "too large"]),
    ("train", "seed = 1979-05-27", &["run.toml:10:8", "dates"]),
    (
        "model",
        "zoo = \"digit-cnn\"",
        &["unknown model \"digit-cnn\" for `model.zoo` at conf/run.toml:3:7", "`digits-cnn`"],
    ),
    ("model", "onnx = \"a.onnx\"", &["`zoo` and `onnx` are both given in [model]"]),
    ("model", "clases = 3", &["unknown key `clases` in [model] at conf/run.toml:3:1", "`classes`"]),
    ("model", "input = [1, 0]", &["`model.input`", "[1, 8, 8]"]),
    ("model", "dims = { seq = 0 }", &["`model.dims` means nothing here"]),
    (
        "data",
        "train = { fil = \"a\" }",
        &["unknown key `fil` in [data.train] at conf/run.toml:6:11", "`file`"],
    ),
    ("data", "train = { x = \"a\" }", &["there is no `file` in [data.train]"]),
    ("data", "train = \"digits.npz\"", &["`data.train` must be a table"]),
    ("data", "train = { stream = \"s\" }", &["there is no `x` in [data.train]"]),
    ("data", "train = { stream = \"s\", file = \"a.npz\" }", &["`stream` and `file` are both given"]),
    (
        "data",
        "train = { stream = \"s\", x = \"a\", y = \"b\", format = \"npz\" }",
        &["`data.train.format`", "stream"],
    ),
    ("data", "train = { stream = \"s\", x = \"a\", y = \"b\", mode = \"grwo\" }", &["did you mean `grow`?"]),
    (
        "data",
        "train = { stream = \"s\", x = \"a\", y = \"b\", window = 9 }",
        &["`data.train.window`", "\"static\""],
    ),
    (
        "data",
        "train = { stream = \"s\", x = \"a\", y = \"b\", mode = \"reservoir\" }",
        &["there is no `capacity`"],
    ),
    (
        "data",
        "train = { file = \"a.npz\", mode = \"grow\" }",
        &["`data.train.mode`", "`stream` is not given"],
    ),
    ("data", "train = { file = \"a\", format = \"npzz\" }", &["unknown format \"npzz\"", "`npz`"]),
    ("data", "shufle = true", &["unknown key `shufle` in [data]", "`shuffle`"]),
    ("data", "mean = \"none\"", &["`data.mean` must be a number or a list of numbers"]),
    ("data", "crop = { sise = 3 }", &["unknown key `sise` in [data.crop]", "`size`"]),
    ("data", "one_hot = 0", &["`data.one_hot` must be a whole number from 1"]),
];

#[test]
fn mistakes_are_named_with_their_place_and_the_right_word() {
    for (section, line, expected) in MISTAKES {
        let error = parse(&with_line(section, line), &[]).expect_err(line).to_string();
        for words in *expected {
            assert!(error.contains(words), "{line}: {words:?} is not in {error:?}");
        }
    }
}

#[test]
fn what_is_not_there_is_named() {
    for (text, expected) in [
        ("", "there is no `[model]` in the run file of conf/run.toml"),
        ("[model]\nzoo = \"mlp\"", "there is no `[data]`"),
        ("[model]\n[data]\n[train]", "there is no `onnx` in [model]"),
        ("[model]\nzoo = \"mlp\"\n[data]\n[train]", "there is no `train` in [data]"),
        ("[modle]", "unknown key `modle` in the run file at conf/run.toml:1:2; did you mean `model`?"),
        ("model = 3\n[data]\n[train]", "`model` must be a table, not a whole number"),
        ("[model\n", "not TOML at conf/run.toml:1:7"),
    ] {
        let error = parse(text, &[]).expect_err(text);
        assert!(error.to_string().contains(expected), "{text}: {error}");
    }
    let error = parse(&with_line("train", "epochs = 1").replace("epochs = 1", ""), &[]).unwrap_err();
    assert!(
        error.to_string().contains("there is no `epochs` in [train]") && error.hint().is_some(),
        "{error}"
    );
}

/// Contradictions of [formation] and [sync], and the text of the error.
const WRONG_FORMATIONS: &[(&str, &str)] = &[
    ("[formation]\nreplicas = 0", "`formation.replicas`"),
    ("[formation]\nreplicas = 2\nmin_replicas = 3", "at most `formation.replicas`, which is 2"),
    ("[formation]\nreplicas = 4\nmax_replicas = 3", "`formation.max_replicas`"),
    ("[formation]\npatience = \"soon\"", "a duration such as"),
    ("[formation]\nstages = 0", "`formation.stages`"),
    ("[formation]\nstages = \"many\"", "`formation.stages` must be a whole number or \"auto\", not a text"),
    (
        "accumulate = 2\n[formation]\nmicro_batches = 65",
        "`formation.micro_batches` must be at most the batch, 64, not 65, at conf/run.toml:15:17",
    ),
    (
        "[formation]\nstages = 2\nin_flight = 3",
        "`formation.in_flight` means nothing here: only asynchronous stages have batches in flight, at conf/run.toml:15:1",
    ),
    (
        "[formation]\nstages = 2\nmode = \"asynchronous\"\nahead = 1",
        "`formation.ahead` means nothing here: `formation.in_flight` says",
    ),
    (
        "[sync]\naverage_optimizer = true",
        "`sync.average_optimizer` means nothing here: with `sync.exchange = \"gradients\"` the optimizers of all replicas",
    ),
    ("[formation]\ncompress = \"topk\"", "there are none, f16"),
    ("[sync]\nexchange = \"gradient\"", "`gradients`"),
    ("[sync]\nevery = 5", "1 with `sync.exchange = \"gradients\"`"),
    (
        "[formation]\nstages = 2\nmode = \"asynchronous\"\n[sync]\nexchange = \"gradients\"",
        "\"outer\" with asynchronous stages, unless there is one replica",
    ),
    ("[sync]\nexchange = \"outer\"\nbatch_norm = \"sync\"", "\"local\""),
    ("[formation]\nstages = 2\n[sync]\nbatch_norm = \"sync\"", "\"local\": stages"),
    ("[sync]\ncompress = \"zip\"", "one of none, f16"),
    ("[sync]\nouter_momentum = 1.0", "from 0 to below 1"),
    ("[sync]\nexchange = \"parameters\"\nouter_lr = 0.5", "only `sync.exchange = \"outer\"` has"),
    (
        "[sync]\nexchange = \"outer\"\nverify = 5",
        "`sync.verify` means nothing here: replicas that learn alone",
    ),
    (
        "[formation]\nstages = 2\n[sync]\naverage_optimizer = true",
        "with `sync.exchange = \"gradients\"` the optimizers of all replicas keep the same",
    ),
    (
        "[formation]\nlocal = 4\nreplicas = 2",
        "`formation.replicas` must be 4, as `formation.local`: without stages each node holds a replica, not 2",
    ),
];

#[test]
fn formations_and_exchanges_are_read_and_checked() {
    let text = "[formation]\nlocal = 3\nstages = 3\nmode = \"asynchronous\"\ncompress = \"f16\"";
    let staged = parse(&format!("{RUN}{text}"), &[]).unwrap().config.formation;
    assert!(staged.is_staged() && staged.is_distributed() && staged.is_asynchronous());
    assert_eq!((staged.nodes_wanted(), staged.in_flight_of(3), staged.pipelines), (3, 6, None));
    let flowing = parse(&format!("{RUN}{text}"), &[]).unwrap().config.sync;
    assert_eq!((flowing.exchange, flowing.every), (super::ExchangeOf::Parameters, 20));
    let auto = parse(&format!("{RUN}[formation]\nstages = \"auto\""), &[]).unwrap().config.formation;
    assert_eq!((auto.stages, auto.is_staged()), (None, true));
    for (text, words) in WRONG_FORMATIONS {
        let error = parse(&format!("{RUN}{text}"), &[]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    for text in [
        "accumulate = 2\n[formation]\nstages = 2\nmicro_batches = 64",
        "[formation]\nstages = 2\nreplicas = 2\nbatch = \"per_replica\"\nmicro_batches = 64",
        "[formation]\nstages = 1\nmode = \"asynchronous\"\nin_flight = 3",
        "[formation]\nreplicas = 2\n[sync]\nexchange = \"outer\"\naverage_optimizer = true",
        "[formation]\nstages = 2\nmin_replicas = 1\nshares = \"speed\"\n[sync]\nverify = 0",
        "[formation]\nstages = 2\nmode = \"asynchronous\"\nin_flight = 3\n[sync]\naverage_optimizer = true",
        "[sync]\naverage_optimizer = false",
        "[formation]\nstages = 2\nreplicas = 1\nmode = \"asynchronous\"\n[sync]\nexchange = \"gradients\"",
    ] {
        parse(&format!("{RUN}{text}"), &[]).expect(text);
    }
    let text = "[formation]\nlocal = 4\nbatch = \"per_replica\"\n[sync]\nexchange = \"outer\"\nscale_lr = \"linear\"";
    let config = parse(&format!("{RUN}{text}"), &[]).unwrap().config;
    let alone = parse(RUN, &[]).unwrap().config;
    assert_eq!((config.formation.replicas, config.formation.min_replicas, config.sync.every), (4, 1, 20));
    assert_eq!(config.train.batch, 4 * alone.train.batch);
    assert_eq!(config.lr(3, 10), 4.0 * alone.lr(3, 10));
    assert!(!config.sync.shared_statistics && alone.sync.shared_statistics);
}

#[test]
fn runs_that_depend_on_timing_say_how_to_make_them_repeat() {
    let note = |text: &str| parse(&format!("{RUN}{text}"), &[]).unwrap().config.formation.timing_note();
    assert!(note("[formation]\nreplicas = 2").unwrap().contains("`formation.shares = \"equal\"`"));
    for text in ["", "[formation]\nreplicas = 2\nshares = \"equal\"", "[formation]\nstages = 2\nreplicas = 2"]
    {
        assert_eq!(note(text), None, "{text}");
    }
}

#[test]
fn nodes_that_a_flag_starts_go_before_the_replicas_of_the_file() {
    let text = format!("{RUN}[formation]\nreplicas = 2");
    let file = parse(&text, &[Override::flag("--local", "formation.local", 4)]).unwrap();
    assert_eq!(file.config.formation.replicas, 4);
    // The file in the run directory is equivalent, and consistent.
    let again = parse(&file.resolved.to_toml(), &[]).unwrap().config.formation;
    assert_eq!((again.replicas, again.local), (4, 4));
}

#[test]
fn an_override_for_what_is_not_said_gives_way_to_everything_else() {
    let auto = [Override::unless_said("formation.stages", "auto")];
    let file = parse(&format!("{RUN}[formation]\ncopies = 3"), &auto).unwrap();
    assert!(file.config.formation.stages.is_none() && !file.resolved.is_said("formation", "stages"));
    let file = parse(&format!("{RUN}[formation]\nstages = 2"), &auto).unwrap();
    assert_eq!(file.config.formation.stages, Some(2));
    assert!(file.resolved.is_said("formation", "stages"));
}

#[test]
fn what_a_run_in_stages_was_told_can_be_read_again() {
    for text in ["[formation]\nstages = 3\nlocal = 3", "[formation]\nstages = \"auto\""] {
        let file = parse(&format!("{RUN}{text}"), &[]).unwrap();
        let resolved = file.resolved.to_toml();
        let again = parse(&resolved, &[]).unwrap_or_else(|error| panic!("{error}\n{resolved}"));
        assert_eq!(again.config.formation, file.config.formation);
    }
}

#[test]
fn who_computes_is_not_part_of_what_a_run_was_told() {
    let alone = parse(RUN, &[]).unwrap().config;
    let many = parse(&format!("{RUN}[formation]\nlocal = 4\nmin_replicas = 2"), &[]).unwrap().config;
    assert_ne!(alone, many);
    assert_eq!(alone.told(), many.told());
    let scaled = parse(&format!("{RUN}[formation]\nlocal = 4\nbatch = \"per_replica\""), &[]).unwrap().config;
    assert_ne!(alone.told(), scaled.told());
}

#[test]
fn overrides_go_before_the_file_and_later_ones_before_earlier_ones() {
    let config =
        with_overrides(&[("train.epochs", "9"), ("train.optimizer.lr", "0.5"), ("train.epochs", "7")]);
    let train = config.unwrap().config.train;
    assert_eq!((train.length, train.optimizer.lr()), (Length::Passes(7), 0.5));
    let train = with_overrides(&[("train.steps", "11")]).unwrap().config.train;
    assert_eq!(train.length, Length::Steps(11));
    let train = with_overrides(&[("train.lr", "0.25")]).unwrap().config.train;
    assert_eq!(train.optimizer.lr(), 0.25);
    let train = with_overrides(&[("train.optimizer", "sgd"), ("train.optimizer.momentum", "0.9")]);
    let OptimizerSpec::Sgd(sgd) = train.unwrap().config.train.optimizer else { panic!("not sgd") };
    assert_eq!(sgd.momentum, 0.9);
    let schedule = with_overrides(&[("train.schedule", "{ name = \"cosine\", warmup = 5 }")]);
    assert_eq!(schedule.unwrap().config.train.schedule, Schedule::Cosine { min_lr: 0.0, warmup: 5 });
    let metrics = with_overrides(&[("train.metrics", "[\"mae\", { name = \"top_k\", k = 2 }]")]);
    assert_eq!(metrics.unwrap().config.train.metrics, [Metric::Mae, Metric::TopK { k: 2 }]);

    for (overrides, expected) in [
        (&[("train.epoch", "9")][..], "unknown key `epoch` in [train] at --set; did you mean `epochs`?"),
        (&[("train.epochs.x", "9")], "a part of this key is a value"),
        (&[("", "9")], "there is no key"),
        (&[("train..x", "9")], "a key is empty"),
        (&[("train.epochs", "many")], "`train.epochs` must be a whole number, not a text, at --set"),
    ] {
        let error = with_overrides(overrides).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(Override::set("train.epochs").unwrap_err().to_string().contains("there is no `=`"));
    assert_eq!(Override::set("a.b = 3").unwrap(), Override::flag("--set", "a.b", "3"));
}

#[test]
fn the_environment_goes_before_the_file_and_flags_before_it() {
    let vars = [
        ("PHALANX_TRAIN_EPOCHS", "5"),
        ("PHALANX_TRAIN_BATCH", "8"),
        ("HOME", "/"),
        ("PHALANX_OUTPUT", "json"),
    ];
    let mut overrides = Override::from_env(vars.map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter());
    overrides.push(Override::flag("--batch", "train.batch", 16));
    let file = parse(RUN, &overrides).unwrap();
    assert_eq!((file.config.train.length, file.config.train.batch), (Length::Passes(5), 16));
    let text = file.resolved.to_toml();
    assert!(text.contains("# PHALANX_TRAIN_EPOCHS") && text.contains("# --batch"), "{text}");
    let wrong = Override::from_env([("PHALANX_TRAIN_EPOCS".to_owned(), "5".to_owned())].into_iter());
    let error = parse(RUN, &wrong).unwrap_err().to_string();
    assert!(error.contains("at PHALANX_TRAIN_EPOCS; did you mean `epochs`?"), "{error}");
}

#[test]
fn the_resolved_file_says_the_same_and_who_said_it() {
    let rich = RUN.to_owned()
        + r#"
accumulate = 2
clip_norm = 1.5
schedule = { name = "one_cycle", warmup = 3 }
validate_every = 50
metrics = ["mae", { name = "top_k", k = 3 }]
[formation]
replicas = 1
"#;
    let rich =
        rich.replace("[data]\n", "[data]\ncrop = { size = [6, 7], pad = 1 }\nmean = [0.5]\nscale = 0.0625\n");
    let rich = rich.replace("zoo = \"digits-cnn\"", "onnx = \"a.onnx\"");
    let rich = format!("name = \"first\"\n{rich}");
    let file = parse(&rich, &[Override::flag("--set", "model.dims.seq", 4)]).unwrap();
    let text = file.resolved.to_toml();
    for words in ["# from run.toml:", "# default", "# --set", "batch = 32", "betas = [0.9, 0.999]"] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    let line = text.lines().find(|line| line.starts_with("epochs")).unwrap();
    let number = 1 + rich.lines().position(|line| line.starts_with("epochs")).unwrap();
    assert!(line.ends_with(&format!("# from run.toml:{number}")), "{line}");
    let again =
        RunFile::parse(Path::new("runs/a/run.toml"), &text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.config, file.config);
}
