mod generator;
use phalanx_graph::{onnx::{self, ImportOptions}, zoo, weights};
use std::path::Path;
#[test]
fn adhoc() {
    let out = Path::new("/tmp/gx/out"); std::fs::create_dir_all(out).unwrap();
    let root = Path::new("/work/main/tests/reference");
    for e in std::fs::read_dir(root.join("ops")).unwrap() {
        let p = e.unwrap().path();
        if p.extension().is_none_or(|e| e != "onnx") { continue; }
        let name = p.file_name().unwrap().to_str().unwrap().to_owned();
        let Ok(i) = onnx::import(&p, &ImportOptions::default()) else { continue };
        if let Err(e) = onnx::export(&i.graph, &i.weights, &out.join(&name)) { println!("EXPORT {name}: {e}"); }
        let back = onnx::import(&out.join(&name), &ImportOptions::default());
        match back { Err(e) => println!("REIMPORT {name}: {e} {:?}", std::error::Error::source(&e)), Ok(b) => { let (a, c): (Vec<_>, Vec<_>) = (i.weights.keys().filter(|k| !k.ends_with("tracked")).collect(), b.weights.keys().filter(|k| !k.ends_with("tracked")).collect()); if a != c { println!("NAMES {name}: {a:?} {c:?}"); } } }
    }
    for n in zoo::NAMES {
        let o = if n.contains("net-") { zoo::ZooOptions { input: Some(if n.starts_with("mob") { vec![3,32,32] } else { vec![3, 64, 64] }), classes: None } } else { Default::default() }; let g = zoo::build(n, &o).unwrap();
        let mut w = g.initialise(phalanx_types::Seed(1));
        for (k, t) in w.clone() { if let Ok(v) = t.to_f32() { let sh: Vec<usize> = t.shape().iter().map(|d| *d as usize).collect(); let _ = v;
            w.insert(k.clone(), phalanx_types::Tensor::from_f32(t.shape().to_vec(), &generator::weight(&k, &sh)).unwrap()); } }
        onnx::export(&g, &w, &out.join(format!("zoo.{n}.onnx"))).unwrap();
        weights::save(&out.join(format!("zoo.{n}.safetensors")), &w).unwrap();
    }
    if std::env::var("MODELS").is_ok() {
      for e in std::fs::read_dir(root.join("models")).unwrap() {
        let p = e.unwrap().path();
        if p.extension().is_none_or(|e| e != "json") { continue; }
        let file = p.file_stem().unwrap().to_str().unwrap();
        if file.contains("resnet-18.dynamo-raw") { }
        let recipe: serde_json::Value = serde_json::from_slice(&std::fs::read(&p).unwrap()).unwrap();
        let t = tempfile::tempdir().unwrap();
        let m = t.path().join(format!("{file}.onnx"));
        std::fs::copy(p.with_extension("onnx"), &m).unwrap();
        generator::write_weights(&recipe, &t.path().join(format!("{file}.weights")));
        let i = match onnx::import(&m, &ImportOptions::default()) { Ok(i) => i, Err(e) => { println!("IMPORT {file}: {e}"); continue } };
        if !i.notes.is_empty() { println!("NOTES {file} {:?}", i.notes); }
        let mut ops = std::collections::BTreeMap::new();
        for n in &i.graph.nodes { *ops.entry(n.op.word()).or_insert(0) += 1; }
        println!("OPS {file} {ops:?}");
        if let Err(e) = onnx::export(&i.graph, &i.weights, &out.join(format!("model.{file}.onnx"))) { println!("EXPORT {file}: {e}"); }
      }
    }
}
