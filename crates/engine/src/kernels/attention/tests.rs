use super::*;
use crate::kernels::math::testing::{bits, close, double, noise, slopes, slopes_agree};

/// Heads one after another, each of `rows` rows of `width` elements.
fn packed(heads: usize, rows: usize, width: usize) -> HeadLayout {
    HeadLayout { offset: 0, batch: heads * rows * width, head: rows * width, row: width }
}

fn sizes(n: usize, heads: usize, (t, s): (usize, usize), (d, e): (usize, usize), causal: bool) -> Attention {
    Attention { n, heads, t, s, d, e, scale: 1.0 / (d as f32).sqrt(), causal }
}

/// The definition, all operands packed `[n, heads, rows, width]`; the mask is `[t, s]`.
fn reference(sizes: &Attention, q: &[f64], k: &[f64], v: &[f64], mask: &[f32]) -> Vec<f64> {
    let Attention { n, heads, t, s, d, e, scale, causal } = *sizes;
    let mut o = vec![0.0; n * heads * t * e];
    for head in 0..n * heads {
        for i in 0..t {
            let seen = if causal { s.min(i + 1) } else { s };
            let score = |j: usize| {
                let product: f64 =
                    (0..d).map(|c| q[(head * t + i) * d + c] * k[(head * s + j) * d + c]).sum();
                (product * f64::from(scale) + f64::from(mask[i * s + j])).exp()
            };
            let p: Vec<f64> = (0..seen).map(score).collect();
            let total: f64 = p.iter().sum();
            for c in 0..e {
                let value: f64 = (0..seen).map(|j| p[j] * v[(head * s + j) * e + c]).sum();
                o[(head * t + i) * e + c] = if total == 0.0 { 0.0 } else { value / total };
            }
        }
    }
    o
}

struct Run {
    o: Vec<f32>,
    gradients: [Vec<f32>; 3],
}

fn run(sizes: &Attention, threads: usize, [q, k, v]: [&[f32]; 3], d_o: &[f32], mask: Option<&[f32]>) -> Run {
    let threads = Threads::new(threads);
    let Attention { n, heads, t, s, d, e, .. } = *sizes;
    let view = |data, rows, width| HeadView { data, layout: packed(heads, rows, width) };
    let mask = mask.map(|data| Mask { data, batch: 0, head: 0, row: s, col: 1 });
    let operands = Operands { q: view(q, t, d), k: view(k, s, d), v: view(v, s, e), mask };
    let (mut o, mut lse) = (vec![f32::NAN; n * heads * t * e], vec![0.0; n * heads * t]);
    let out = Out { data: SharedOutput::new(&mut o), layout: packed(heads, t, e) };
    sizes.forward(&threads, operands, out, &mut lse);
    let mut gradients = [q, k, v].map(|x| vec![f32::NAN; x.len()]);
    let [dq, dk, dv] = &mut gradients;
    let layout =
        |data, rows, width| Out { data: SharedOutput::new(data), layout: packed(heads, rows, width) };
    let outs = [layout(dq, t, d), layout(dk, s, d), layout(dv, s, e)];
    let results = Results { o: view(&o, t, e), lse: &lse };
    sizes.backward(&threads, operands, results, view(d_o, t, e), outs);
    Run { o, gradients }
}

fn operands(sizes: &Attention) -> ([Vec<f32>; 3], Vec<f32>) {
    let Attention { n, heads, t, s, d, e, .. } = *sizes;
    let heads = n * heads;
    ([noise(heads * t * d, 1), noise(heads * s * d, 2), noise(heads * s * e, 3)], noise(heads * t * e, 4))
}

#[test]
fn results_and_gradients_match_the_definition() {
    let hide = |i: usize| if i % 4 == 1 || i / 9 == 2 { f32::NEG_INFINITY } else { 0.1 };
    let mask: Vec<f32> = (0..54).map(hide).collect();
    let cases = [
        (sizes(1, 1, (1, 1), (1, 1), false), None),
        (sizes(2, 3, (5, 7), (4, 6), false), None),
        (sizes(1, 2, (70, 70), (8, 8), true), None),
        (sizes(1, 1, (130, 33), (5, 3), true), None),
        (sizes(1, 1, (3, 90), (16, 8), true), None),
        (sizes(1, 2, (20, 300), (70, 33), false), None),
        (sizes(2, 2, (6, 9), (4, 4), false), Some(&mask[..])),
    ];
    for (sizes, mask) in cases {
        let what = format!("{sizes:?}");
        let nothing = vec![0.0; sizes.t * sizes.s];
        let added = mask.unwrap_or(&nothing);
        let ([q, k, v], d_o) = operands(&sizes);
        let result = run(&sizes, 2, [&q, &k, &v], &d_o, mask);
        let all = [double(&q), double(&k), double(&v)];
        close(&result.o, &reference(&sizes, &all[0], &all[1], &all[2], added), 1e-6, &what);
        for (i, x) in [&q, &k, &v].into_iter().enumerate() {
            let measured = slopes(x, |x| {
                let mut all = all.clone();
                all[i] = x.to_vec();
                let o = reference(&sizes, &all[0], &all[1], &all[2], added);
                o.iter().zip(&d_o).map(|(o, g)| o * f64::from(*g)).sum()
            });
            // Gradients that vanish (one key only) are nothing but rounding.
            if measured.iter().any(|(_, slope)| slope.abs() > 1e-6) {
                slopes_agree(&result.gradients[i], &measured, 1e-5, &format!("operand {i} of {what}"));
            }
        }
        for threads in [1, 3] {
            let other = run(&sizes, threads, [&q, &k, &v], &d_o, mask);
            assert_eq!(bits(&other.o), bits(&result.o), "{what}");
            assert!((0..3).all(|i| bits(&other.gradients[i]) == bits(&result.gradients[i])), "{what}");
        }
    }
}

#[test]
fn heads_may_be_columns_of_one_matrix() {
    let sizes = sizes(2, 3, (40, 40), (8, 8), true);
    let Attention { n, heads, t, d, .. } = sizes;
    let ([q, k, v], d_o) = operands(&sizes);
    let wanted = run(&sizes, 1, [&q, &k, &v], &d_o, None);
    let width = 3 * heads * d;
    let layout =
        |which: usize| HeadLayout { offset: which * heads * d, batch: t * width, head: d, row: width };
    let narrow = HeadLayout { offset: 0, batch: t * heads * d, head: d, row: heads * d };
    // Where an element of packed heads stands.
    let index = |layout: HeadLayout, i: usize| {
        let (head, row, column) = (i / (t * d), i / d % t, i % d);
        layout.at((head / heads, head % heads)) + row * layout.row + column
    };
    let mut all = vec![0.0; n * t * width];
    for (which, x) in [&q, &k, &v].into_iter().enumerate() {
        x.iter().enumerate().for_each(|(i, x)| all[index(layout(which), i)] = *x);
    }
    let mut rows = vec![0.0; d_o.len()];
    d_o.iter().enumerate().for_each(|(i, g)| rows[index(narrow, i)] = *g);
    let view = |which| HeadView { data: &all, layout: layout(which) };
    let operands = Operands { q: view(0), k: view(1), v: view(2), mask: None };
    let threads = Threads::new(2);
    let (mut o, mut lse, mut gradient) =
        (vec![0.0; d_o.len()], vec![0.0; n * heads * t], vec![f32::NAN; all.len()]);
    sizes.forward(&threads, operands, Out { data: SharedOutput::new(&mut o), layout: narrow }, &mut lse);
    let shared = SharedOutput::new(&mut gradient);
    let outs = [0, 1, 2].map(|which| Out { data: shared, layout: layout(which) });
    let results = Results { o: HeadView { data: &o, layout: narrow }, lse: &lse };
    sizes.backward(&threads, operands, results, HeadView { data: &rows, layout: narrow }, outs);
    assert!((0..o.len()).all(|i| wanted.o[i] == o[index(narrow, i)]));
    for (which, wanted) in wanted.gradients.iter().enumerate() {
        assert!((0..wanted.len()).all(|i| wanted[i] == gradient[index(layout(which), i)]), "operand {which}");
    }
}

#[test]
#[should_panic(expected = "overlap")]
fn gradients_that_overlap_are_refused() {
    let sizes = sizes(1, 2, (4, 4), (8, 8), false);
    let ([q, k, v], d_o) = operands(&sizes);
    let view = |data| HeadView { data, layout: packed(2, 4, 8) };
    let operands = Operands { q: view(&q), k: view(&k), v: view(&v), mask: None };
    let mut buffer = vec![0.0; 1000];
    let shared = SharedOutput::new(&mut buffer);
    let outs = [0, 8, 16]
        .map(|offset| Out { data: shared, layout: HeadLayout { offset, batch: 0, head: 8, row: 24 } });
    let results = Results { o: view(&d_o), lse: &[0.0; 8] };
    sizes.backward(&Threads::new(1), operands, results, view(&d_o), outs);
}
