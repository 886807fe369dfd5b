//! Where the time of a training step goes, by kernel: `cargo run --release -p phalanx-engine --example profile -- cifar-cnn 128 2`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers of the engine")]

use phalanx_engine::{CompileOptions, CpuEngine, Engine, Loss, Optimizer, OptimizerSpec, Pass, Target};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_types::{DType, Seed};
use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "cifar-cnn".into());
    let batch: usize = args.next().map_or(128, |b| b.parse().unwrap());
    let threads: usize = args.next().map_or(2, |t| t.parse().unwrap());
    let detail = args.next().is_some();
    let input = (name == "mobilenet-v2" || name == "resnet-18").then(|| vec![3, 112, 112]);
    let graph = zoo::build(&name, &ZooOptions { input, ..ZooOptions::default() }).unwrap();
    let engine = CpuEngine::new(threads);
    for profile in [false, true] {
        let options = CompileOptions { profile, ..CompileOptions::default() };
        let mut model = engine.compile(&graph, &options).unwrap();
        model.load(&graph.initialise(Seed(1))).unwrap();
        let id = graph.inputs[0];
        let n: usize = graph.shape(id).at(batch).iter().product();
        let ints = graph.value(id).dtype != DType::F32;
        let x: Vec<f32> =
            (0..n).map(|i| if ints { (i * 7 % 1000) as f32 } else { (i as f32 * 0.37).sin() }).collect();
        let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
        let mut optimizer = Optimizer::new(OptimizerSpec::Adam(Default::default()), &sizes);
        let mut gradient = Vec::new();
        let (mut times, mut parts) = (Vec::new(), [0.0; 4]);
        let steps = 40;
        for step in 0..steps {
            if step == 5 {
                model.take_profile();
                parts = [0.0; 4];
            }
            let t0 = Instant::now();
            model.forward(0, batch, &[&x], Pass { training: true, seed: step }).unwrap();
            let t1 = Instant::now();
            let shape = model.output_shape(0, 0);
            let rows: usize = shape[..shape.len() - 1].iter().product();
            let y: Vec<f32> = (0..rows).map(|i| (i % shape[shape.len() - 1]) as f32).collect();
            gradient.resize(shape.iter().product(), 0.0);
            let target = Target { data: &y, shape: &shape[..shape.len() - 1] };
            let loss = if name == "digits-cnn" { Loss::Mse } else { Loss::CrossEntropy { smoothing: 0.0 } };
            loss.evaluate(engine.threads(), model.output(0, 0), &shape, target, 1.0, Some(&mut gradient))
                .unwrap();
            let t2 = Instant::now();
            model.backward(0, &[&gradient], &mut |_, _| ()).unwrap();
            let t3 = Instant::now();
            optimizer.begin_step();
            model.update(&mut |i, p, g| optimizer.update(engine.threads(), i, 1e-3, p, g));
            let t4 = Instant::now();
            let spans = [t1 - t0, t2 - t1, t3 - t2, t4 - t3];
            parts.iter_mut().zip(spans).for_each(|(p, s)| *p += s.as_secs_f64());
            times.push((t4 - t0).as_secs_f64());
        }
        times.drain(..5);
        times.sort_by(f64::total_cmp);
        let ms = |s: f64| s / (steps - 5) as f64 * 1e3;
        println!(
            "{name} batch {batch}, {threads} threads: median {:.3} ms, least {:.3} ms; forward {:.3}, loss {:.3}, backward {:.3}, optimizer {:.3}; {} MB",
            times[times.len() / 2] * 1e3,
            times[0] * 1e3,
            ms(parts[0]),
            ms(parts[1]),
            ms(parts[2]),
            ms(parts[3]),
            model.memory() >> 20,
        );
        let mut by: BTreeMap<String, (f64, u64)> = BTreeMap::new();
        for t in model.take_profile() {
            let node = if detail { format!(" {}", t.node) } else { String::new() };
            let e = by
                .entry(format!("{}{}{node}", if t.backward { "backward " } else { "forward " }, t.kernel))
                .or_default();
            *e = (e.0 + t.seconds, e.1 + t.calls);
        }
        let mut rows: Vec<_> = by.into_iter().collect();
        rows.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
        for (what, (s, calls)) in rows.iter().take(60) {
            println!("{:9.3} ms {:5} calls  {what}", ms(*s), calls / (steps - 5));
        }
    }
}
