//! After the first steps forward, backward and update allocate nothing.

#![expect(unsafe_code, reason = "an allocator that counts")]
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "it/execution/zoo.rs"]
mod zoo;

use phalanx_engine::{AdamW, CompileOptions, CpuEngine, Loss, Optimizer, OptimizerSpec, Sgd, Target};
use phalanx_graph::Op;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zoo::{Case, PASS};

/// Counts allocations while `ON`.
struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Stack traces of the first allocations.
static WHO: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
static TRACES: AtomicUsize = AtomicUsize::new(0);

fn count() {
    if !ON.load(Ordering::Relaxed) {
        return;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    // What a trace allocates is not counted.
    if TRACES.fetch_add(1, Ordering::Relaxed) < 300 && ON.swap(false, Ordering::Relaxed) {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        let ours = trace.lines().map(str::trim).filter(|l| l.starts_with("at ./src/"));
        let who = ours.take(2).collect::<Vec<_>>().join(", ");
        WHO.lock().unwrap().insert(who);
        ON.store(true, Ordering::Relaxed);
    }
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of a step: forward, backward, update.
fn allocations(name: &str, threads: usize, spec: OptimizerSpec) -> [usize; 3] {
    let engine = CpuEngine::new(threads);
    let case = Case::new(name, 4);
    let mut model = case.compile(&engine, CompileOptions::default());
    let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
    let mut optimizer = Optimizer::new(spec, &sizes);
    let mut given = Vec::new();
    let mut counts = [0; 3];
    for step in 0..6 {
        let counted = |part: usize, counts: &mut [usize; 3], work: &mut dyn FnMut()| {
            COUNT.store(0, Ordering::Relaxed);
            ON.store(step >= 3, Ordering::Relaxed);
            work();
            ON.store(false, Ordering::Relaxed);
            counts[part] = counts[part].max(COUNT.load(Ordering::Relaxed));
        };
        counted(0, &mut counts, &mut || model.forward(0, case.batch, &[&case.x], PASS).unwrap());
        let shape = model.output_shape(0, 0);
        given.resize(shape.iter().product(), 0.0);
        let rows = &shape[..shape.len() - 1];
        let target = vec![1.0; rows.iter().product()];
        let target = Target { data: &target, shape: rows };
        let loss = Loss::CrossEntropy { smoothing: 0.0 };
        let (output, gradient) = (model.output(0, 0), Some(&mut given[..]));
        loss.evaluate(engine.threads(), output, &shape, target, 1.0, gradient).unwrap();
        counted(1, &mut counts, &mut || model.backward(0, &[&given], &mut |_, _| ()).unwrap());
        counted(2, &mut counts, &mut || {
            optimizer.begin_step();
            model.update(&mut |i, p, g| optimizer.update(engine.threads(), i, 0.01, p, g));
        });
    }
    counts
}

/// In one test: the counter is one for the whole process.
#[test]
fn a_step_allocates_nothing() {
    let mut wrong = Vec::new();
    for name in ["digits-cnn", "mobilenet-v2", "gpt-small"] {
        for threads in [1, 2] {
            let sgd = OptimizerSpec::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::default() });
            for spec in [sgd, OptimizerSpec::AdamW(AdamW::default())] {
                let counts = allocations(name, threads, spec);
                // The product of the gemm crate asks for a few KiB whenever it is called.
                let linear =
                    Case::new(name, 4).graph.nodes.iter().filter(|n| matches!(n.op, Op::Linear)).count();
                if counts[0] > 2 * linear || counts[1] > 3 * linear || counts[2] > 0 {
                    wrong.push(format!("{name}, {threads} threads, {spec:?}: {counts:?}"));
                }
            }
        }
    }
    let who = WHO.lock().unwrap().iter().cloned().collect::<Vec<_>>().join("\n");
    assert!(
        wrong.is_empty(),
        "allocations in forward, backward and update:\n{}\nby\n{who}",
        wrong.join("\n")
    );
}
