use super::*;

const RELU: &str = "{ type = 'relu' }";

#[test]
fn what_a_candidate_cannot_be_is_said_with_its_line() {
    let file = parse(&with_layers("w = [4, 6]", "\n{ type = 'linear', out = '$w / 4' }"));
    assert!(file.expand(&candidate(&file, &[])).is_ok());
    let of = |file: &SearchFile, labels: &[(&str, &str)]| {
        file.expand(&candidate(file, labels)).unwrap_err().to_string().replace("/searches/", "")
    };
    let why = "search.toml:6: `$w / 4` in `out` cannot be computed: 6 / 4 is not a whole number";
    assert_eq!(of(&file, &[("w", "6")]), why);
    let layers = "{ when = { w = 4 }, name = 'a', type = 'relu' }, { type = 'residual', from = 'a' }";
    let file = parse(&with_layers("w = [4, 6]", layers));
    assert_eq!(of(&file, &[("w", "6")]), "search.toml:5: layer `a` does not exist in this candidate");
    let lr = "optimizer = [{ when = { w = 4 }, name = 'adam' }, { when = { w = 6 }, name = 'sgd' }, { when = { w = 6 }, name = 'rmsprop' }]\nloss";
    let file = parse(&with_layers("w = [4, 6]", "{ type = 'relu' }").replace("loss", lr));
    let why = "search.toml:10: 2 of the alternatives of `train.optimizer` apply to this candidate, and exactly one must";
    assert_eq!(of(&file, &[("w", "6")]), why);
    let float = parse(&with_layers("w = [0.5, 4]", "{ type = 'linear', out = '$w * 2' }"));
    assert!(of(&float, &[]).ends_with("cannot be computed: `w` is 0.5, not a whole number"));
}

#[test]
fn errors_name_the_line_and_the_nearest_word() {
    for (space, layers, why) in [
        (
            "a = [1]",
            "{ type = 'linear', out = '$b' }",
            "s.toml:5: nothing in [space] is called `b`; did you mean `a`?",
        ),
        ("a = [1]", RELU, "s.toml:2: `a` is never used: write \"$a\" where its value belongs"),
        (
            "a = ['x1', 'y']",
            "{ when = { a = 'x2' }, type = 'relu' }",
            "s.toml:5: `a` has no choice x2; did you mean `x1`?",
        ),
        (
            "a = { choose = [1], when = { b = 1 } }\nb = [1]",
            "{ type = 'linear', out = '$a' }",
            "s.toml:2: `a` depends on `b`, which stands after it: move `b` up",
        ),
        (
            "a = [1, 2]\nb = { choose = [1], when = { a = 2 } }",
            "{ type = 'linear', out = '$b' }",
            "s.toml:6: `b` does not exist here for every candidate: it needs a = 2; add this to the `when` of the layer",
        ),
        (
            "",
            "{ repeat = 'x', layer = [] }",
            "s.toml:5: `repeat` must be a whole number from 0 to 1000, or \"$name\", not \"x\": it must have one name",
        ),
        (
            "",
            "{ repeat = -1, layer = [] }",
            "s.toml:5: `repeat` must be a whole number from 0 to 1000, or \"$name\", not -1",
        ),
    ] {
        assert_eq!(error(&with_layers(space, layers)), why, "{layers}");
    }
}

#[test]
fn errors_of_blocks_and_layers_name_what_they_need() {
    for (space, layers, why) in [
        ("", "{ repeat = 2, type = 'relu' }", "s.toml:5: there is no key `type` in a block of layers"),
        (
            "",
            "{ repeat = 2 }",
            "s.toml:5: a block of layers needs the key `layer`, as in layer = [{ type = \"linear\", out = 10 }]",
        ),
        (
            "",
            "{ each = { a = [1] }, layer = [] }",
            "s.toml:5: a block of layers needs the key `repeat`, as in repeat = 3, or \"$name\"",
        ),
        (
            "",
            "{ each = { a = [1] }, repeat = 2, layer = [] }",
            "s.toml:5: a block with `each` needs the key `name`, as in name = \"cells\"",
        ),
        (
            "",
            "{ repeat = 2, layr = [] }",
            "s.toml:5: there is no key `layr` in a block of layers; did you mean `layer`?",
        ),
        (
            "a = ['x']",
            "{ repeat = '$a', layer = [] }",
            "s.toml:5: `$a` in `repeat` cannot be computed: the choice \"x\" is not a whole number",
        ),
        ("", "{ out = 3 }", "s.toml:5: a layer needs the key `type`, as in type = \"linear\""),
        (
            "a = [1]",
            "{ type = 'linear', out = '$a %' }",
            "s.toml:5: `$a %` in `out` cannot be read: arithmetic has whole numbers, names with a `$`, + - * / and ( ); to insert a name into a text, write ${name}",
        ),
        (
            "",
            "{ type = 'relu', name = 'act' }, { type = 'residual', from = 'acd' }",
            "s.toml:5: no layer before this one is called `acd`; did you mean `act`?",
        ),
        ("a-b = [1]", RELU, "s.toml:2: `a-b` must be a name of letters, digits and `_`, not this"),
        (
            "a = [1, 2]",
            "{ when = { a = 1 }, layer = [{ when = { a = 2 }, type = 'relu' }] }",
            "s.toml:5: `when` must be possible: the block around it wants another choice, not this",
        ),
        (
            "",
            "{ type = 'relu', name = 'x' }",
            "s.toml:5: `name` must be a name of its own: not `before`, not `x`, without `$`, not x",
        ),
    ] {
        assert_eq!(error(&with_layers(space, layers)), why, "{layers}");
    }
}

#[test]
fn errors_of_settings_name_their_field() {
    let text = with_layers("", "{ type = 'relu' }");
    let with = |section: &str| format!("{section}\n{text}");
    for (section, why) in [
        ("[search]\ntrials = 0", "s.toml:2: `search.trials` must be a whole number from 1 on, not 0"),
        ("[search]\ntrails = 5", "s.toml:2: there is no key `trails` in [search]; did you mean `trials`?"),
        ("[serach]", "s.toml:1: there is no key `serach` in a search file; did you mean `search`?"),
        (
            "[search]\nalgorithm = 'nsga'",
            "s.toml:2: `search.algorithm` must be one of guided, evolution_pareto, nsga2, regularized, local, random, grid, bananas, asha, successive_halving, not \"nsga\"; did you mean `nsga2`?",
        ),
        (
            "[search]\nalgorithm = { name = 'nsga2', populaton = 3 }",
            "s.toml:2: there is no key `populaton` in `search.algorithm`; did you mean `population`?",
        ),
        (
            "[search]\nalgorithm = { name = 'guided', rounds = 0.5 }",
            "s.toml:2: `search.algorithm.rounds` must be a whole number, not 0.5",
        ),
        (
            "[search]\ndeadline = 'soon'",
            "s.toml:2: `search.deadline` must be a duration such as \"10m\", not \"soon\"",
        ),
        (
            "[search]\nmemory = 'much'",
            "s.toml:2: `search.memory` must be a size such as \"512MiB\", not \"much\"",
        ),
        (
            "[search]\nfinish = 'some'",
            "s.toml:2: `search.finish` must be one of front, all, none, not \"some\"",
        ),
        (
            "[search]\nrungs = { first = '20 epochs' }",
            "s.toml:2: `search.rungs.first` must be a number of epochs, below 10 of the full training, as in \"0.1 epochs\", not \"20 epochs\"",
        ),
        (
            "[search]\nrungs = { first = 1, factor = 1 }",
            "s.toml:2: `search.rungs.factor` must be a whole number from 2 on, not 1",
        ),
        ("[objective.x]\ngoal = 'up'", "s.toml:2: `objective.x.goal` must be min or max, not \"up\""),
        (
            "[objective.x]\ngoal = 'min'",
            "s.toml:1: [objective.x] needs the key `from`, as in from = \"valid.accuracy\"",
        ),
        (
            "[objective.x]\ngoal = 'min'\nfrom = 'latencies'",
            "s.toml:3: `objective.x.from` must be one of params, flops, memory, activation_memory, training_memory, size, latency, onnx_latency, seconds, valid.accuracy, valid.loss, train.loss, or another valid.<metric>, not \"latencies\"; did you mean `latency`?",
        ),
        (
            "[objective.x]\ngoal = 'min'\nfrom = 'valid.loss'\ncheap = true",
            "s.toml:4: `objective.x.cheap` must be false: valid.loss is known only after a training, not true",
        ),
        (
            "[objective.x]\ngoal = 'min'\nprogram = []",
            "s.toml:3: `objective.x.program` must be a program and its arguments, not []",
        ),
        (
            "[objective.x]\ngoal = 'min'\nprogram = ['sh']\nfrom = 'params'",
            "s.toml:1: `program` and `from` exclude each other",
        ),
        (
            "[constraint]\nparams = { at_least = 2, at_most = 1 }",
            "s.toml:2: `constraint.params.at_most` must be 2 or more: nothing is left, not 1",
        ),
        (
            "[constraint]\nparams = {}",
            "s.toml:2: `constraint.params` needs the key `at_most`, as in { at_most = 1e6 }",
        ),
        (
            "[trial]\nepochs = 1",
            "s.toml:1: [trial] needs the key `command`, as in command = [\"python3\", \"train.py\"]",
        ),
        ("a = ", "s.toml:1: not TOML: string values must be quoted, expected literal string"),
    ] {
        assert_eq!(error(&with(section)), why, "{section}");
    }
}

#[test]
fn files_without_what_they_need_are_refused() {
    let text = with_layers("", "{ type = 'relu' }");
    let twice = "[model]\nlayer = [{ type = 'relu' }]\nzoo = 'mlp'";
    assert_eq!(error(twice), "s.toml:2: `layer` and `zoo` exclude each other");
    let without = text.replace("input = [4]", "");
    assert_eq!(error(&without), "s.toml:3: [model] needs the key `input`, as in input = [1, 28, 28]");
    let without = text.split("[objective").next().unwrap();
    assert!(error(without).starts_with("s.toml:1: a search file needs the key `objective`"));
}

#[test]
fn files_that_would_be_enormous_are_refused() {
    let copies = |inner: &str| format!("{{ repeat = 1000, layer = [{inner}] }}");
    let text = with_layers("", &copies(&copies(&copies(""))));
    assert_eq!(error(&text), "s.toml:5: there are more than 10000 copies of blocks");
    let text = with_layers("", &copies(&[RELU; 11].join(", ")));
    assert_eq!(error(&text), "s.toml:5: there are more than 10000 layers");
    let many = "{ name = 'c', repeat = 600, each = { a = [1], b = [1], c = [1], d = [1], e = [1], f = [1], g = [1], h = [1], i = [1] }, layer = [] }";
    assert_eq!(error(&with_layers("", many)), "s.toml:5: there are more than 5000 choices to make");
    let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
    assert!(error(&format!("a = {deep}")).contains("not TOML"));
}

/// Files with parts lost, doubled or exchanged are read, expanded or refused, and never a panic.
#[test]
fn damaged_files_do_no_harm() {
    let mut dice = Dice::new(Seed(4));
    let mut read = 0;
    for _ in 0..3000 {
        let mut text = EXAMPLE.to_owned();
        for _ in 0..1 + dice.below(3) {
            let (from, length, to) = (dice.below(text.len()), dice.below(12), dice.below(text.len()));
            let piece = text.get(from..from + length).unwrap_or("$").to_owned();
            match dice.below(3) {
                0 => text.replace_range(from..(from + length).min(text.len()), ""),
                1 => text.insert_str(to, &piece),
                _ => text.replace_range(to..(to + piece.len()).min(text.len()), &piece),
            }
        }
        let Ok(file) = SearchFile::parse(Path::new("s.toml"), &text) else { continue };
        read += 1;
        let genes = file.space().sample(&mut dice);
        assert!(file.space().contains(&genes));
        if let Ok(Expanded { model: Some(model), .. }) = file.expand(&genes) {
            assert!(tree::parse(&model).is_ok(), "{model}");
        }
    }
    assert!(read > 100, "{read}");
}
