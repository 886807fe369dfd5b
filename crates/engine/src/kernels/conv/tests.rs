use super::{Conv2d, forward, grad_input, grad_weight};
use crate::threads::Threads;
use std::sync::Mutex;

/// A small generator, so that failures repeat.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn one_of(&mut self, of: &[usize]) -> usize {
        of[self.below(of.len())]
    }

    fn numbers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.below(2001) as f32 / 1000.0 - 1.0).collect()
    }
}

/// Calls `visit(position in x, in w, in y)` for every product of the convolution.
fn products(s: &Conv2d, mut visit: impl FnMut(usize, usize, usize)) {
    let (c, o) = (s.c / s.groups, s.o / s.groups);
    for n in 0..s.n {
        for (oy, ox) in (0..s.oh).flat_map(|y| (0..s.ow).map(move |x| (y, x))) {
            for (ky, kx) in (0..s.kh).flat_map(|y| (0..s.kw).map(move |x| (y, x))) {
                let y = (oy * s.stride.0 + ky * s.dilation.0).wrapping_sub(s.pad.0);
                let x = (ox * s.stride.1 + kx * s.dilation.1).wrapping_sub(s.pad.1);
                if y >= s.h || x >= s.w {
                    continue;
                }
                for (out, i) in (0..s.o).flat_map(|out| (0..c).map(move |i| (out, i))) {
                    visit(
                        ((n * s.h + y) * s.w + x) * s.c + out / o * c + i,
                        ((out * s.kh + ky) * s.kw + kx) * c + i,
                        ((n * s.oh + oy) * s.ow + ox) * s.o + out,
                    );
                }
            }
        }
    }
}

fn close(what: &str, s: &Conv2d, got: &[f32], want: &[f64]) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= 2e-4 * (1.0 + want.abs()), "{what} at {i}: {got} instead of {want} in {s:?}");
    }
}

fn check(s: &Conv2d, teams: &[Threads], dice: &mut Dice) {
    let x = dice.numbers(s.n * s.h * s.w * s.c);
    let w = dice.numbers(s.o * s.kh * s.kw * (s.c / s.groups));
    let dy = dice.numbers(s.n * s.oh * s.ow * s.o);
    let (mut want_y, mut want_dx, mut want_dw) =
        (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
    products(s, |i, j, k| {
        want_y[k] += f64::from(x[i]) * f64::from(w[j]);
        want_dx[i] += f64::from(dy[k]) * f64::from(w[j]);
        want_dw[j] += f64::from(dy[k]) * f64::from(x[i]);
    });
    let mut all = Vec::new();
    for threads in teams {
        let mut y = vec![f32::NAN; dy.len()];
        let (mut dx, mut dw) = (vec![f32::NAN; x.len()], vec![f32::NAN; w.len()]);
        let seen = Mutex::new(vec![0u8; s.n * s.oh * s.ow]);
        forward(threads, s, &x, &w, &mut y, |first, rows| {
            assert!(rows.iter().all(|v| v.is_finite()), "unfinished rows in {s:?}");
            seen.lock().unwrap()[first..first + rows.len() / s.o].iter_mut().for_each(|seen| *seen += 1);
        });
        assert!(seen.lock().unwrap().iter().all(|seen| *seen == 1), "every row is finished once: {s:?}");
        grad_input(threads, s, &dy, &w, &mut dx);
        grad_weight(threads, s, &x, &dy, &mut dw);
        close("output", s, &y, &want_y);
        close("gradient of the input", s, &dx, &want_dx);
        close("gradient of the weights", s, &dw, &want_dw);
        all.push((y, dx, dw));
    }
    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for other in &all[1..] {
        let same = bits(&all[0].0) == bits(&other.0)
            && bits(&all[0].1) == bits(&other.1)
            && bits(&all[0].2) == bits(&other.2);
        assert!(same, "the number of threads shows in {s:?}");
    }
}

fn teams() -> [Threads; 3] {
    [Threads::new(1), Threads::new(2), Threads::new(3)]
}

/// An output size at random, up to what the windows and some padding at the end allow.
fn random(dice: &mut Dice) -> Conv2d {
    let flat = dice.below(5) == 0;
    let (h, w) = if flat { (1, 1 + dice.below(30)) } else { (1 + dice.below(12), 1 + dice.below(12)) };
    let (kh, kw) = (if flat { 1 } else { dice.one_of(&[1, 2, 3, 3, 5]) }, dice.one_of(&[1, 2, 3, 3, 5, 7]));
    let stride = (dice.one_of(&[1, 1, 2, 3]), dice.one_of(&[1, 1, 2, 3]));
    let dilation = (dice.one_of(&[1, 1, 2, 3]), dice.one_of(&[1, 1, 2, 3]));
    let pad = (if flat { 0 } else { dice.below(4) }, dice.below(4));
    let fit = |size: usize, k: usize, s: usize, d: usize, p: usize| {
        (size + p).saturating_sub((k - 1) * d + 1) / s + 1
    };
    let oh = fit(h, kh, stride.0, dilation.0, pad.0 + dice.below(3));
    let ow = fit(w, kw, stride.1, dilation.1, pad.1 + dice.below(3));
    let (groups, c, o) = match dice.below(4) {
        0 => {
            let groups = dice.one_of(&[2, 3, 4]);
            (groups, groups * (1 + dice.below(6)), groups * (1 + dice.below(20)))
        }
        1 => {
            let groups = dice.one_of(&[1, 3, 16, 17, 33, 50, 64]);
            (groups, groups, groups * dice.one_of(&[1, 1, 1, 2]))
        }
        _ => {
            (1, dice.one_of(&[1, 2, 3, 5, 16, 19, 40]), dice.one_of(&[1, 3, 8, 16, 24, 33, 48, 64, 80, 100]))
        }
    };
    Conv2d { n: 1 + dice.below(3), h, w, c, o, kh, kw, stride, dilation, pad, oh, ow, groups }
}

#[test]
fn squares_agree_with_the_definition_whatever_the_padding() {
    let (teams, mut dice) = (teams(), Dice(17));
    for (h, w, oh, ow, pad) in [
        (8, 8, 6, 6, (0, 0)),
        (7, 9, 8, 10, (1, 2)),
        (6, 6, 8, 8, (2, 2)),
        (9, 8, 8, 9, (1, 1)),
        (11, 10, 6, 6, (0, 2)),
    ] {
        let s = Conv2d {
            n: 3,
            h,
            w,
            c: 32,
            o: 48,
            kh: 3,
            kw: 3,
            stride: (1, 1),
            dilation: (1, 1),
            pad,
            oh,
            ow,
            groups: 1,
        };
        check(&s, &teams, &mut dice);
    }
}

#[test]
fn every_shape_agrees_with_the_definition() {
    let (teams, mut dice) = (teams(), Dice(7));
    for _ in 0..250 {
        let s = random(&mut dice);
        check(&s, &teams, &mut dice);
    }
}

#[test]
fn common_shapes_agree_with_the_definition() {
    let (teams, mut dice) = (teams(), Dice(11));
    for (n, size, c, o, k, stride, groups) in [
        (5, 14, 3, 32, 3, 1, 1),
        (3, 16, 32, 64, 3, 1, 1),
        (5, 7, 48, 80, 3, 1, 1),
        (3, 9, 24, 1, 5, 1, 1),
        (3, 20, 17, 2, 3, 1, 1),
        (3, 20, 4, 40, 4, 2, 1),
        (2, 21, 1, 16, 3, 2, 1),
        (2, 9, 16, 4, 3, 2, 1),
        (2, 9, 64, 144, 3, 1, 1),
        (1, 33, 16, 64, 3, 1, 1),
        (2, 15, 3, 64, 7, 2, 1),
        (2, 14, 24, 144, 1, 1, 1),
        (2, 14, 64, 40, 1, 2, 1),
        (1, 4, 300, 150, 3, 1, 1),
        (9, 12, 48, 48, 3, 1, 48),
        (9, 13, 40, 40, 3, 2, 40),
        (4, 9, 40, 40, 5, 1, 40),
        (4, 9, 33, 33, 5, 2, 33),
        (64, 2, 16, 32, 3, 1, 1),
    ] {
        let pad = k / 2;
        let out = (size + 2 * pad - k) / stride + 1;
        let s = Conv2d {
            n,
            h: size,
            w: size,
            c,
            o,
            kh: k,
            kw: k,
            stride: (stride, stride),
            dilation: (1, 1),
            pad: (pad, pad),
            oh: out,
            ow: out,
            groups,
        };
        check(&s, &teams, &mut dice);
    }
}

#[test]
fn a_larger_input_than_the_windows_touch_gets_zeros() {
    let (teams, mut dice) = (teams(), Dice(13));
    for (stride, dilation, groups) in
        [(1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (1, 1, 18), (3, 1, 18), (4, 1, 18)]
    {
        let s = Conv2d {
            n: 2,
            h: 11,
            w: 12,
            c: 18,
            o: 18,
            kh: 2,
            kw: 2,
            stride: (stride, stride),
            dilation: (dilation, dilation),
            pad: (1, 0),
            oh: 2,
            ow: 2,
            groups,
        };
        check(&s, &teams, &mut dice);
    }
}
