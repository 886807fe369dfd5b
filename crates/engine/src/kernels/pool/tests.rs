use super::{Pool2d, average_backward, average_forward, max_backward, max_backward_from, max_forward};
use crate::threads::Threads;

/// A small generator, so that failures repeat.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

fn random(dice: &mut Dice) -> Pool2d {
    let (kh, kw) = (1 + dice.below(3), 1 + dice.below(4));
    let dilation = (1 + dice.below(2), 1 + dice.below(2));
    let stride = (1 + dice.below(3), 1 + dice.below(3));
    let pad = (dice.below(kh / 2 + 1), dice.below(kw / 2 + 1));
    let pad_after = (dice.below(kh / 2 + 1), dice.below(kw / 2 + 1));
    let (h, w) = (dilation.0 * (kh - 1) + 1 + dice.below(8), dilation.1 * (kw - 1) + 1 + dice.below(8));
    let fit = |size: usize, span: usize, stride: usize, ceil: bool| {
        let free = size - span;
        (if ceil { free.div_ceil(stride) } else { free / stride }) + 1
    };
    let ceil = dice.below(2) == 1;
    // A window must begin within the input or the padding before it.
    let out = |size: usize, pad: usize, after: usize, span: usize, stride: usize| {
        let out = fit(size + pad + after, span, stride, ceil);
        if (out - 1) * stride >= size + pad { out - 1 } else { out }
    };
    let oh = out(h, pad.0, pad_after.0, dilation.0 * (kh - 1) + 1, stride.0);
    let ow = out(w, pad.1, pad_after.1, dilation.1 * (kw - 1) + 1, stride.1);
    let c = [1, 3, 4, 7, 16, 21, 32, 55][dice.below(8)];
    Pool2d { n: 1 + dice.below(3), h, w, c, kh, kw, stride, dilation, pad, pad_after, oh, ow }
}

/// For every output: the taps that are there, as (tap, position in x), and how many count with padding.
fn outputs(s: &Pool2d) -> Vec<(Vec<(usize, usize)>, usize)> {
    let mut all = Vec::new();
    for at in 0..s.n * s.oh * s.ow * s.c {
        let (c, j, i, n) = (at % s.c, at / s.c % s.ow, at / s.c / s.ow % s.oh, at / s.c / s.ow / s.oh);
        let (mut here, mut counted) = (Vec::new(), 0);
        for tap in 0..s.kh * s.kw {
            let y = (i * s.stride.0 + tap / s.kw * s.dilation.0) as isize - s.pad.0 as isize;
            let x = (j * s.stride.1 + tap % s.kw * s.dilation.1) as isize - s.pad.1 as isize;
            counted += usize::from(y < (s.h + s.pad_after.0) as isize && x < (s.w + s.pad_after.1) as isize);
            if (0..s.h as isize).contains(&y) && (0..s.w as isize).contains(&x) {
                here.push((tap, ((n * s.h + y as usize) * s.w + x as usize) * s.c + c));
            }
        }
        all.push((here, counted));
    }
    all
}

fn close(got: &[f32], want: &[f32], s: &Pool2d) {
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= 1e-5 * (1.0 + want.abs()), "{got} instead of {want} in {s:?}");
    }
}

#[test]
fn pools_agree_with_the_definition_whatever_the_team() {
    let teams = [Threads::new(1), Threads::new(2), Threads::new(3)];
    let mut dice = Dice(5);
    for _ in 0..200 {
        let s = random(&mut dice);
        // Few values, so that there are ties.
        let x: Vec<f32> = (0..s.n * s.h * s.w * s.c).map(|_| dice.below(7) as f32 - 3.0).collect();
        let dy: Vec<f32> = (0..s.n * s.oh * s.ow * s.c).map(|_| dice.below(100) as f32 - 50.0).collect();
        let outputs = outputs(&s);
        let (mut want_index, mut want_dx) = (Vec::new(), vec![0.0; x.len()]);
        for ((taps, _), dy) in outputs.iter().zip(&dy) {
            let best = taps.iter().copied().reduce(|a, b| if x[b.1] > x[a.1] { b } else { a }).unwrap();
            want_index.push(best.0 as u8);
            want_dx[best.1] += dy;
        }
        for threads in &teams {
            let (mut y, mut index) = (vec![f32::NAN; dy.len()], vec![0; dy.len()]);
            max_forward(threads, &s, &x, &mut y, Some(&mut index));
            assert_eq!(index, want_index, "{s:?}");
            let mut again = vec![f32::NAN; dy.len()];
            max_forward(threads, &s, &x, &mut again, None);
            assert_eq!(y, again);
            for (y, (taps, _)) in y.iter().zip(&outputs) {
                assert_eq!(*y, taps.iter().map(|(_, at)| x[*at]).fold(f32::NEG_INFINITY, f32::max));
            }
            let mut dx = vec![f32::NAN; x.len()];
            max_backward(threads, &s, &dy, &index, &mut dx);
            assert_eq!(dx, want_dx, "{s:?}");
            dx.fill(f32::NAN);
            max_backward_from(threads, &s, &x, &dy, &mut dx);
            assert_eq!(dx, want_dx, "{s:?}");
        }
        for count_padding in [false, true] {
            averages_agree(&s, &teams, &outputs, &x, &dy, count_padding);
        }
    }
}

fn averages_agree(
    s: &Pool2d,
    teams: &[Threads],
    outputs: &[(Vec<(usize, usize)>, usize)],
    x: &[f32],
    dy: &[f32],
    count_padding: bool,
) {
    let (mut want_y, mut want_dx) = (Vec::new(), vec![0.0; x.len()]);
    for ((taps, counted), dy) in outputs.iter().zip(dy) {
        let share = 1.0 / if count_padding { *counted } else { taps.len() } as f32;
        want_y.push(taps.iter().map(|(_, at)| x[*at] * share).sum());
        taps.iter().for_each(|(_, at)| want_dx[*at] += dy * share);
    }
    for threads in teams {
        let (mut y, mut dx) = (vec![f32::NAN; dy.len()], vec![f32::NAN; x.len()]);
        average_forward(threads, s, count_padding, x, &mut y);
        average_backward(threads, s, count_padding, dy, &mut dx);
        close(&y, &want_y, s);
        close(&dx, &want_dx, s);
    }
}

#[test]
fn what_is_not_a_number_wins() {
    let s = Pool2d {
        n: 1,
        h: 1,
        w: 3,
        c: 2,
        kh: 1,
        kw: 3,
        stride: (1, 1),
        dilation: (1, 1),
        pad: (0, 0),
        pad_after: (0, 0),
        oh: 1,
        ow: 1,
    };
    let x = [1.0, f32::NEG_INFINITY, f32::NAN, f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY];
    let (mut y, mut index) = ([0.0; 2], [9; 2]);
    max_forward(&Threads::new(1), &s, &x, &mut y, Some(&mut index));
    assert!(y[0].is_nan() && y[1] == f32::NEG_INFINITY);
    assert_eq!(index, [1, 0]);
}
