use super::{Blend, Resize2d, backward, forward};
use crate::threads::Threads;
use phalanx_graph::{Coordinates, ResizeMode};

const RULES: [Coordinates; 3] = [Coordinates::HalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric];

fn resize(h: usize, w: usize, oh: usize, ow: usize, mode: ResizeMode, coordinates: Coordinates) -> Resize2d {
    let scale = (oh as f32 / h as f32, ow as f32 / w as f32);
    Resize2d { n: 2, h, w, c: 5, oh, ow, scale, mode, coordinates }
}

#[test]
fn positions_follow_the_rules() {
    let at = |mode, rule, input, output: usize| -> Vec<Blend> {
        let s = resize(input, 1, output, 1, mode, rule);
        (0..output).map(|i| s.row(i)).collect()
    };
    let near =
        |mode, rule, input, output| at(mode, rule, input, output).iter().map(|b| b.near).collect::<Vec<_>>();
    let value = |rule, input, output| -> Vec<f32> {
        at(ResizeMode::Linear, rule, input, output).iter().map(|b| b.near as f32 + b.weight).collect()
    };
    assert_eq!(near(ResizeMode::Nearest, Coordinates::Asymmetric, 3, 6), [0, 0, 1, 1, 2, 2]);
    assert_eq!(near(ResizeMode::Nearest, Coordinates::Asymmetric, 3, 7), [0, 0, 0, 1, 1, 2, 2]);
    assert_eq!(near(ResizeMode::Nearest, Coordinates::Asymmetric, 6, 3), [0, 2, 4]);
    assert_eq!(value(Coordinates::HalfPixel, 2, 4), [0.0, 0.25, 0.75, 1.0]);
    assert_eq!(value(Coordinates::AlignCorners, 3, 5), [0.0, 0.5, 1.0, 1.5, 2.0]);
    assert_eq!(value(Coordinates::AlignCorners, 3, 1), [0.0]);
    assert_eq!(value(Coordinates::Asymmetric, 2, 4), [0.0, 0.5, 1.0, 1.0]);
}

/// `y` as sums over all inputs: calls `visit(position in x, in y, share)`.
fn shares(s: &Resize2d, mut visit: impl FnMut(usize, usize, f32)) {
    for n in 0..s.n {
        for (i, j) in (0..s.oh).flat_map(|i| (0..s.ow).map(move |j| (i, j))) {
            let (row, col) = (s.row(i), s.column(j));
            for (y, down) in [(row.near, 1.0 - row.weight), (row.far, row.weight)] {
                for (x, across) in [(col.near, 1.0 - col.weight), (col.far, col.weight)] {
                    for c in 0..s.c {
                        let (x, y) =
                            (((n * s.h + y) * s.w + x) * s.c + c, ((n * s.oh + i) * s.ow + j) * s.c + c);
                        visit(x, y, down * across);
                    }
                }
            }
        }
    }
}

#[test]
fn resizes_agree_with_the_definition_whatever_the_team() {
    let teams = [Threads::new(1), Threads::new(2), Threads::new(3)];
    for mode in [ResizeMode::Nearest, ResizeMode::Linear] {
        for (rule, (h, w, oh, ow)) in RULES
            .iter()
            .flat_map(|r| [(3, 4, 6, 8), (5, 7, 3, 4), (1, 9, 1, 4), (40, 60, 90, 77)].map(|s| (*r, s)))
        {
            let s = resize(h, w, oh, ow, mode, rule);
            let x: Vec<f32> = (0..s.n * h * w * s.c).map(|i| (i * 37 % 101) as f32).collect();
            let dy: Vec<f32> = (0..s.n * oh * ow * s.c).map(|i| (i * 53 % 89) as f32).collect();
            let (mut want_y, mut want_dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            shares(&s, |i, j, share| {
                want_y[j] += x[i] * share;
                want_dx[i] += dy[j] * share;
            });
            let mut first = None;
            for threads in &teams {
                let (mut y, mut dx) = (vec![f32::NAN; dy.len()], vec![f32::NAN; x.len()]);
                forward(threads, &s, &x, &mut y);
                backward(threads, &s, &dy, &mut dx);
                let close = |a: &[f32], b: &[f32]| {
                    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs()))
                };
                assert!(close(&y, &want_y) && close(&dx, &want_dx), "{s:?}");
                assert_eq!(first.get_or_insert((y.clone(), dx.clone())), &(y, dx), "{s:?}");
            }
        }
    }
}
