//! The numbers of the reference files, made of names; `tests/reference/generator.py` has the rules.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// `count` numbers in [0, 1).
fn units(name: &str, count: usize) -> impl Iterator<Item = f64> {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (0..count as u64).map(move |i| {
        let z = hash.wrapping_add(i.wrapping_mul(GOLDEN)).wrapping_add(GOLDEN);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f64 / f64::from(1 << 24)
    })
}

/// The weight of this name.
pub(crate) fn weight(name: &str, shape: &[usize]) -> Vec<f32> {
    weight_of(name, shape, shape.iter().product())
}

fn weight_of(name: &str, shape: &[usize], count: usize) -> Vec<f32> {
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

pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}

/// The weight of this name, but a large one repeats its beginning: enough to know it again, and quick to make.
pub(crate) fn quick_weight(name: &str, shape: &[usize]) -> Vec<f32> {
    const PERIOD: usize = 4099;
    let count = shape.iter().product::<usize>();
    if count <= PERIOD {
        return weight(name, shape);
    }
    let mut values = weight_of(name, shape, PERIOD);
    while values.len() < count {
        let n = values.len().min(count - values.len());
        values.extend_from_within(..n);
    }
    values
}

/// Writes the file of weights that belongs to an exported model.
pub(crate) fn write_weights(recipe: &Value, path: &Path) {
    let mut state: BTreeMap<&str, (Vec<usize>, Vec<f32>)> = BTreeMap::new();
    for entry in recipe["state_dict"].as_array().unwrap() {
        let (name, shape) = (entry["name"].as_str().unwrap(), sizes(&entry["shape"]));
        let values = if std::env::var("MODELS").is_ok() { weight(entry["tied"].as_str().unwrap_or(name), &shape) } else { quick_weight(entry["tied"].as_str().unwrap_or(name), &shape) };
        state.insert(name, (shape, values));
    }
    let mut file = Vec::new();
    for entry in recipe["initializers"].as_array().unwrap() {
        if entry["external"].as_bool() != Some(true) {
            continue;
        }
        let values = initializer(entry, &state);
        file.resize(entry["offset"].as_u64().unwrap() as usize, 0);
        file.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    }
    std::fs::write(path, file).unwrap();
}

fn initializer(entry: &Value, state: &BTreeMap<&str, (Vec<usize>, Vec<f32>)>) -> Vec<f32> {
    if let Some(kind) = entry["fold"].as_str() {
        return folded(entry, kind, state);
    }
    let mut values = Vec::new();
    for part in entry["parts"].as_array().unwrap() {
        let [start, end] = ["start", "end"].map(|k| part[k].as_u64().unwrap() as usize);
        values.extend_from_slice(&state[part["source"].as_str().unwrap()].1[start..end]);
    }
    if entry["transpose"].is_null() {
        return values;
    }
    let [rows, columns] = sizes(&entry["transpose"])[..] else { panic!("a matrix") };
    (0..columns).flat_map(|c| (0..rows).map(move |r| (r, c))).map(|(r, c)| values[r * columns + c]).collect()
}

fn folded(entry: &Value, kind: &str, state: &BTreeMap<&str, (Vec<usize>, Vec<f32>)>) -> Vec<f32> {
    let (conv, norm) = (entry["conv"].as_str().unwrap(), entry["norm"].as_str().unwrap());
    let of = |what: &str| state[format!("{norm}.{what}").as_str()].1.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    let epsilon = entry["epsilon"].as_f64().unwrap();
    let scale: Vec<f64> =
        of("weight").iter().zip(of("running_var")).map(|(w, v)| w / (v + epsilon).sqrt()).collect();
    let (shape, weight) = &state[format!("{conv}.weight").as_str()];
    if kind == "weight" {
        let each = weight.len() / shape[0];
        return weight.iter().enumerate().map(|(i, w)| (f64::from(*w) * scale[i / each]) as f32).collect();
    }
    let bias = state.get(format!("{conv}.bias").as_str()).map(|b| b.1.clone());
    let (mean, shift) = (of("running_mean"), of("bias"));
    let bias = |i: usize| bias.as_ref().map_or(0.0, |b| f64::from(b[i]));
    (0..shape[0]).map(|i| ((bias(i) - mean[i]) * scale[i] + shift[i]) as f32).collect()
}
