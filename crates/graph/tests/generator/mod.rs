//! The pseudo-random numbers of the reference files, derived from names; `tests/reference/generator.py` has the rules.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// `count` numbers in [0, 1).
pub(crate) fn units(name: &str, count: usize) -> impl Iterator<Item = f64> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (0..count as u64).map(move |i| {
        let z = hash.wrapping_add(i.wrapping_mul(GOLDEN)).wrapping_add(GOLDEN);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f64 / f64::from(1 << 24)
    })
}

/// The first `count` elements of the weight of this name.
pub(crate) fn weight_of(name: &str, shape: &[usize], count: usize) -> Vec<f32> {
    let mut parts = name.rsplit('.');
    let (last, owner) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let embedding = ["wte", "wpe", "embedding", "cls", "position"];
    let scale = (3.0 / shape.iter().skip(1).product::<usize>() as f64).sqrt();
    let value = |u: f64| match last {
        "num_batches_tracked" => 0.0,
        "running_var" => 1.0 + 0.2 * u,
        _ if last == "running_mean" || last.contains("bias") => 0.1 * (2.0 * u - 1.0),
        _ if shape.len() <= 1 => 1.0 + 0.2 * (2.0 * u - 1.0),
        _ if embedding.contains(&owner) || embedding.contains(&last) => 0.5 * (2.0 * u - 1.0),
        _ => (2.0 * u - 1.0) * scale,
    };
    units(name, count).map(|u| value(u) as f32).collect()
}

pub(crate) fn to_bytes(values: Vec<f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn to_floats(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
}

type StateDict<'a> = BTreeMap<&'a str, (Vec<usize>, Vec<u8>)>;

/// Writes the file of weights that belongs to an exported model; `weight` makes the bytes of one.
pub(crate) fn write_weights(recipe: &Value, path: &Path, weight: fn(&str, &[usize]) -> Vec<u8>) {
    let mut state = StateDict::new();
    for entry in list(&recipe["state_dict"]) {
        let (name, shape) = (text(&entry["name"]), sizes(&entry["shape"]));
        let values = weight(entry["tied"].as_str().unwrap_or(name), &shape);
        state.insert(name, (shape, values));
    }
    let mut file = Vec::new();
    for entry in list(&recipe["initializers"]).iter().filter(|e| e["external"] == true) {
        file.resize(number(&entry["offset"]), 0);
        file.extend(initializer(entry, &state));
    }
    std::fs::write(path, file).expect("a temporary folder can be written");
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list of a recipe")
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("a text of a recipe")
}

fn number(value: &Value) -> usize {
    value.as_u64().expect("a number of a recipe") as usize
}

pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    list(value).iter().map(number).collect()
}

fn initializer(entry: &Value, state: &StateDict<'_>) -> Vec<u8> {
    if let Some(kind) = entry["fold"].as_str() {
        return folded(entry, kind, state);
    }
    let mut bytes = Vec::new();
    for part in list(&entry["parts"]) {
        let range = 4 * number(&part["start"])..4 * number(&part["end"]);
        bytes.extend_from_slice(&state[text(&part["source"])].1[range]);
    }
    if entry["transpose"].is_null() {
        return bytes;
    }
    let [rows, columns] = sizes(&entry["transpose"])[..] else { panic!("a matrix has two sizes") };
    let cells = bytes.as_chunks::<4>().0;
    (0..columns).flat_map(|c| (0..rows).map(move |r| r * columns + c)).flat_map(|i| cells[i]).collect()
}

fn folded(entry: &Value, kind: &str, state: &StateDict<'_>) -> Vec<u8> {
    let (conv, norm) = (text(&entry["conv"]), text(&entry["norm"]));
    let of = |what: &str| to_floats(&state[format!("{norm}.{what}").as_str()].1);
    let epsilon = entry["epsilon"].as_f64().expect("an epsilon");
    let scale: Vec<f64> =
        of("weight").iter().zip(of("running_var")).map(|(w, v)| w / (v + epsilon).sqrt()).collect();
    let (shape, weight) = &state[format!("{conv}.weight").as_str()];
    if kind == "weight" {
        let weight = to_floats(weight);
        let each = weight.len() / shape[0];
        return to_bytes(weight.iter().enumerate().map(|(i, w)| (w * scale[i / each]) as f32).collect());
    }
    let bias = state.get(format!("{conv}.bias").as_str()).map(|b| to_floats(&b.1));
    let (mean, shift) = (of("running_mean"), of("bias"));
    let bias = |i: usize| bias.as_ref().map_or(0.0, |b| b[i]);
    to_bytes((0..shape[0]).map(|i| ((bias(i) - mean[i]) * scale[i] + shift[i]) as f32).collect())
}
