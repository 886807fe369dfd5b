use super::*;
use crate::kernels::math::testing::{bits, close, double, noise, slopes, slopes_agree};

const EPS: f32 = 1e-5;

const RELU: Activation = Activation::Clip(0.0, f32::INFINITY);

struct Case {
    n: usize,
    rows: usize,
    c: usize,
    groups: usize,
    activation: Activation,
}

fn cases() -> Vec<Case> {
    let case = |n, rows, c, groups, activation| Case { n, rows, c, groups, activation };
    vec![
        case(1, 7, 3, 3, Activation::None),
        case(1, 4, 1, 1, Activation::None),
        case(1, 50, 24, 24, RELU),
        case(1, 333, 32, 32, Activation::Clip(-0.5, 0.75)),
        case(1, 40, 130, 130, RELU),
        case(1, 1200, 100, 100, Activation::None),
        case(3, 25, 6, 2, Activation::None),
        case(2, 49, 32, 8, RELU),
        case(2, 700, 48, 1, Activation::None),
        case(70, 9, 16, 16, Activation::None),
    ]
}

impl Case {
    fn norm<'a>(&self, weight: &'a [f32], bias: &'a [f32]) -> GroupNorm<'a> {
        let Case { n, rows, c, groups, activation } = *self;
        GroupNorm { n, rows, c, groups, weight: Some(weight), bias: Some(bias), activation }
    }

    fn reference(&self, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let (low, high) = self.activation.limits();
        let size = self.c / self.groups;
        let mut y = vec![0.0; x.len()];
        for sample in 0..self.n {
            for group in 0..self.groups {
                let at =
                    |row: usize, channel: usize| (sample * self.rows + row) * self.c + group * size + channel;
                let indices = || (0..self.rows).flat_map(|row| (0..size).map(move |channel| (row, channel)));
                let count = (self.rows * size) as f64;
                let mean = indices().map(|(r, c)| x[at(r, c)]).sum::<f64>() / count;
                let variance = indices().map(|(r, c)| (x[at(r, c)] - mean).powi(2)).sum::<f64>() / count;
                for (r, c) in indices() {
                    let normal = (x[at(r, c)] - mean) / (variance + f64::from(EPS)).sqrt();
                    let z = normal * weight[group * size + c] + bias[group * size + c];
                    y[at(r, c)] = z.clamp(f64::from(low), f64::from(high));
                }
            }
        }
        y
    }
}

fn batch_norm(rows: usize, c: usize, weight: Option<&[f32]>) -> GroupNorm<'_> {
    GroupNorm { n: 1, rows, c, groups: c, weight, bias: None, activation: Activation::None }
}

#[derive(Debug, PartialEq)]
struct Run {
    y: Vec<u32>,
    dx: Vec<u32>,
    dweight: Vec<u32>,
    dbias: Vec<u32>,
}

fn floats(bits: &[u32]) -> Vec<f32> {
    bits.iter().map(|bits| f32::from_bits(*bits)).collect()
}

/// No other replica has anything to add.
fn alone(_: &mut [f64]) -> Result<(), ()> {
    Ok(())
}

fn run(case: &Case, threads: usize, x: &[f32], weight: &[f32], bias: &[f32], dy: &[f32]) -> Run {
    let t = Threads::new(threads);
    let norm = case.norm(weight, bias);
    let groups = case.n * case.groups;
    let (mut mean, mut inv_std, mut variance) = (vec![0.0; groups], vec![0.0; groups], vec![0.0; groups]);
    let mut y = vec![f32::NAN; x.len()];
    let statistics = Statistics { mean: &mut mean, inv_std: &mut inv_std, variance: &mut variance };
    norm.forward(&t, (x, EPS), &mut y, statistics, alone).unwrap();
    let (mut dx, mut dweight, mut dbias) = (vec![f32::NAN; x.len()], vec![0.0; case.c], vec![0.0; case.c]);
    let gradients = Gradients { dx: &mut dx, dweight: Some(&mut dweight), dbias: Some(&mut dbias) };
    norm.backward(&t, (x, dy), (&mean, &inv_std), (false, alone), gradients).unwrap();
    Run { y: bits(&y), dx: bits(&dx), dweight: bits(&dweight), dbias: bits(&dbias) }
}

#[test]
fn results_and_gradients_match_the_definition() {
    for case in cases() {
        let what = format!("{} x {} x {} in {}", case.n, case.rows, case.c, case.groups);
        let elements = case.n * case.rows * case.c;
        let x: Vec<f32> = noise(elements, 1).iter().map(|x| x + 0.5).collect();
        let (weight, bias, dy) = (noise(case.c, 2), noise(case.c, 3), noise(elements, 4));
        let result = run(&case, 2, &x, &weight, &bias, &dy);
        let (xd, wd, bd, gd) = (double(&x), double(&weight), double(&bias), double(&dy));
        close(&floats(&result.y), &case.reference(&xd, &wd, &bd), 2e-6, &what);
        let loss = |x: &[f64], w: &[f64], b: &[f64]| -> f64 {
            case.reference(x, w, b).iter().zip(&gd).map(|(y, g)| y * g).sum()
        };
        slopes_agree(&floats(&result.dx), &slopes(&x, |x| loss(x, &wd, &bd)), 2e-4, &what);
        slopes_agree(&floats(&result.dweight), &slopes(&weight, |w| loss(&xd, w, &bd)), 2e-4, &what);
        slopes_agree(&floats(&result.dbias), &slopes(&bias, |b| loss(&xd, &wd, b)), 2e-4, &what);
        for threads in [1, 3] {
            assert!(run(&case, threads, &x, &weight, &bias, &dy) == result, "{what}: {threads} threads");
        }
    }
}

#[test]
fn statistics_are_exact_far_from_zero() {
    let (rows, c) = (30_000, 5);
    let x: Vec<f32> = noise(rows * c, 9).iter().map(|x| 1000.0 + x).collect();
    let norm = batch_norm(rows, c, None);
    let (mut mean, mut inv_std, mut variance, mut y) =
        (vec![0.0; c], vec![0.0; c], vec![0.0; c], vec![0.0; x.len()]);
    let statistics = Statistics { mean: &mut mean, inv_std: &mut inv_std, variance: &mut variance };
    norm.forward(&Threads::new(2), (&x, EPS), &mut y, statistics, alone).unwrap();
    for channel in 0..c {
        let values = || x.iter().skip(channel).step_by(c).map(|x| f64::from(*x));
        let true_mean = values().sum::<f64>() / rows as f64;
        let about_mean = values().map(|x| (x - true_mean).powi(2)).sum::<f64>();
        assert!((f64::from(mean[channel]) / true_mean - 1.0).abs() < 1e-7);
        assert!((f64::from(variance[channel]) / (about_mean / (rows - 1) as f64) - 1.0).abs() < 1e-6);
        let true_inv = 1.0 / (about_mean / rows as f64 + f64::from(EPS)).sqrt();
        assert!((f64::from(inv_std[channel]) / true_inv - 1.0).abs() < 1e-6);
    }
}

#[test]
fn frozen_statistics_let_the_gradient_through_scaled() {
    let (rows, c) = (40, 3);
    let (x, dy, weight) = (noise(rows * c, 1), noise(rows * c, 2), [2.0, 0.5, -1.0]);
    let norm = batch_norm(rows, c, Some(&weight));
    let (mean, inv_std) = ([0.25; 3], [2.0; 3]);
    let mut dx = vec![0.0; x.len()];
    let gradients = Gradients { dx: &mut dx, dweight: None, dbias: None };
    norm.backward(&Threads::new(1), (&x, &dy), (&mean, &inv_std), (true, alone), gradients).unwrap();
    assert!(dx.iter().zip(&dy).enumerate().all(|(i, (dx, dy))| *dx == dy * 2.0 * weight[i % c]));
}

fn layer_reference(d: usize, x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let row = |x: &[f64]| -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / d as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
        let scale = 1.0 / (variance + f64::from(EPS)).sqrt();
        (0..d).map(|j| (x[j] - mean) * scale * weight[j] + bias[j]).collect()
    };
    x.chunks(d).flat_map(row).collect()
}

#[test]
fn layer_norm_is_that_of_the_definition() {
    for (rows, d, affine) in
        [(3, 5, true), (70, 33, true), (400, 64, false), (1, 1000, true), (130, 256, true)]
    {
        let what = format!("{rows} x {d}");
        let x: Vec<f32> = noise(rows * d, 1).iter().map(|x| x + 3.0).collect();
        let (weight, bias) = if affine { (noise(d, 2), noise(d, 3)) } else { (vec![1.0; d], vec![0.0; d]) };
        let dy = noise(rows * d, 4);
        let norm = LayerNorm { d, weight: affine.then_some(&weight[..]), bias: affine.then_some(&bias[..]) };
        let run = |threads: usize| {
            let t = Threads::new(threads);
            let (mut y, mut mean, mut inv_std) = (vec![f32::NAN; x.len()], vec![0.0; rows], vec![0.0; rows]);
            layer_norm_forward(&t, norm, &x, EPS, &mut y, (&mut mean, &mut inv_std));
            let (mut dx, mut dweight, mut dbias) = (vec![f32::NAN; x.len()], vec![0.0; d], vec![0.0; d]);
            let learned = (Some(&mut dweight[..]), Some(&mut dbias[..]));
            layer_norm_backward(&t, norm, (&x, &dy), (&mean, &inv_std), &mut dx, learned);
            Run { y: bits(&y), dx: bits(&dx), dweight: bits(&dweight), dbias: bits(&dbias) }
        };
        let result = run(2);
        let (xd, wd, bd, gd) = (double(&x), double(&weight), double(&bias), double(&dy));
        close(&floats(&result.y), &layer_reference(d, &xd, &wd, &bd), 2e-6, &what);
        let loss = |x: &[f64], w: &[f64], b: &[f64]| -> f64 {
            layer_reference(d, x, w, b).iter().zip(&gd).map(|(y, g)| y * g).sum()
        };
        slopes_agree(&floats(&result.dx), &slopes(&x, |x| loss(x, &wd, &bd)), 1e-4, &what);
        slopes_agree(&floats(&result.dweight), &slopes(&weight, |w| loss(&xd, w, &bd)), 1e-5, &what);
        slopes_agree(&floats(&result.dbias), &slopes(&bias, |b| loss(&xd, &wd, b)), 1e-5, &what);
        assert!(run(1) == result && run(3) == result, "{what}");
    }
}
