//! Operators on images, held with channels last. One spatial dimension is an image of height one.

use super::Lowering;
use crate::kernels::conv::Conv2d;
use crate::kernels::map::{Code, Src};
use crate::kernels::pool::Pool2d;
use crate::kernels::resize::Resize2d;
use crate::tape::{Kernel, Norm, V};
use crate::view::View;
use phalanx_graph::{Binary, Conv, Pool, Resize, Unary};

/// Batch, height, width and channels of `[N, C, L]` or `[N, C, H, W]`; also of `[N, C]`.
fn image(shape: &[usize]) -> (usize, usize, usize, usize) {
    match *shape {
        [n, c, h, w] => (n, h, w, c),
        [n, c, w] => (n, 1, w, c),
        [n, c] => (n, 1, 1, c),
        _ => (shape[0], 1, shape[2..].iter().product(), shape[1]),
    }
}

/// Channels behind everything else.
pub(super) fn channels_last(rank: usize) -> Vec<usize> {
    std::iter::once(0).chain(2..rank).chain(std::iter::once(1)).collect()
}

/// Extends a setting for one or two spatial dimensions to two.
fn pair<T: Copy>(settings: &[T], missing: T) -> (T, T) {
    match *settings {
        [a, b] => (a, b),
        [b] => (missing, b),
        _ => (missing, missing),
    }
}

fn conv2d(c: &Conv, x: &[usize], y: &[usize], w: &[usize]) -> Conv2d {
    let (n, h, wide, channels) = image(x);
    let (_, oh, ow, o) = image(y);
    let (kh, kw) = pair(&w[2..], 1);
    let (top, left) = pair(&c.pad, (0, 0));
    Conv2d {
        n,
        h,
        w: wide,
        c: channels,
        o,
        kh,
        kw,
        stride: pair(&c.stride, 1),
        dilation: pair(&c.dilation, 1),
        pad: (top.0, left.0),
        oh,
        ow,
        groups: c.groups,
    }
}

fn pool2d(p: &Pool, x: &[usize], y: &[usize]) -> Pool2d {
    let (n, h, w, c) = image(x);
    let (_, oh, ow, _) = image(y);
    let (kh, kw) = pair(&p.kernel, 1);
    let (v, s) = pair(&p.pad, (0, 0));
    Pool2d {
        n,
        h,
        w,
        c,
        kh,
        kw,
        stride: pair(&p.stride, 1),
        dilation: pair(&p.dilation, 1),
        pad: (v.0, s.0),
        pad_after: (v.1, s.1),
        oh,
        ow,
    }
}

impl Lowering<'_> {
    fn image(&mut self, x: &View) -> V {
        self.in_order(x, &channels_last(x.rank()))
    }

    fn as_image(v: V, shape: &[usize]) -> View {
        Self::from_order(v, shape, &channels_last(shape.len()))
    }

    pub(super) fn conv(&mut self, c: &Conv, ins: &[View], shape: &[usize]) -> View {
        let spec = conv2d(c, &ins[0].shape, shape, &ins[1].shape);
        let mut args = vec![self.image(&ins[0]), self.image(&ins[1])];
        let bias = ins.get(2).map(|b| self.dense(b).base);
        args.extend(bias);
        let kernel = Kernel::Conv { spec, bias: bias.is_some(), epilogue: None };
        let y = self.call1(kernel, args, shape.iter().product());
        Self::as_image(y, shape)
    }

    /// A transposed convolution is the gradient of a convolution from `shape` to the input.
    pub(super) fn conv_transpose(&mut self, c: &Conv, ins: &[View], shape: &[usize]) -> View {
        let spec = conv2d(c, shape, &ins[0].shape, &ins[1].shape);
        let args = vec![self.image(&ins[0]), self.image(&ins[1])];
        let y = self.call1(Kernel::ConvGradX(spec), args, shape.iter().product());
        let y = Self::as_image(y, shape);
        let Some(bias) = ins.get(2) else { return y };
        let mut channel = vec![1; shape.len()];
        channel[1] = shape[1];
        let bias = self.dense(bias);
        let bias = View::dense(bias.base, &channel);
        self.map(&[y, bias], shape, false, &[Code::Binary(Binary::Add, Src::Operand(0), Src::Operand(1))])
    }

    pub(super) fn max_pool(&mut self, p: &Pool, x: &View, shape: &[usize]) -> View {
        let spec = pool2d(p, &x.shape, shape);
        let n: usize = shape.iter().product();
        let args = vec![self.image(x)];
        // One byte holds the index of the maximum in the window.
        let y = self.call(Kernel::MaxPool(spec), args, &[n, n.div_ceil(4)])[0];
        Self::as_image(y, shape)
    }

    pub(super) fn average_pool(&mut self, p: &Pool, count_padding: bool, x: &View, shape: &[usize]) -> View {
        let spec = pool2d(p, &x.shape, shape);
        let args = vec![self.image(x)];
        let y = self.call1(Kernel::AveragePool { spec, count_padding }, args, shape.iter().product());
        Self::as_image(y, shape)
    }

    pub(super) fn resize(&mut self, r: &Resize, x: &View, shape: &[usize]) -> View {
        let (n, h, w, c) = image(&x.shape);
        let (_, oh, ow, _) = image(shape);
        let scale = pair(&r.scale, 1.0);
        let spec = Resize2d { n, h, w, c, oh, ow, scale, mode: r.mode, coordinates: r.coordinates };
        let args = vec![self.image(x)];
        let y = self.call1(Kernel::Resize(spec), args, shape.iter().product());
        Self::as_image(y, shape)
    }

    pub(super) fn batch_norm(&mut self, eps: f32, momentum: f32, ins: &[View]) -> View {
        let shape = ins[0].shape.clone();
        let v = self.image(&ins[0]);
        let x = Self::as_image(v, &shape);
        let (c, n) = (shape[1], x.len());
        if !self.training {
            return self.batch_norm_eval(eps, &x, &ins[1..]);
        }
        let norm = Norm {
            n: 1,
            rows: n / c.max(1),
            c,
            groups: c,
            eps,
            affine: 2,
            clip: None,
            momentum: Some(momentum),
            track: true,
        };
        self.norm(norm, v, &ins[1..], &shape)
    }

    fn norm(&mut self, norm: Norm, x: V, weights: &[View], shape: &[usize]) -> View {
        let mut args = vec![x];
        for w in weights {
            args.push(self.dense(w).base);
        }
        let groups = norm.n * norm.groups;
        let y = self.call(Kernel::Norm(norm), args, &[shape.iter().product(), groups, groups, groups])[0];
        Self::as_image(y, shape)
    }

    /// One factor and one addend per channel.
    fn batch_norm_eval(&mut self, eps: f32, x: &View, ins: &[View]) -> View {
        let [w, b, mean, var] = ins else { unreachable!("batch norm has five operands") };
        let (operand, step) = (Src::Operand, Src::Step);
        let factor = [
            Code::Binary(Binary::Add, operand(1), Src::Const(eps)),
            Code::Unary(Unary::Sqrt, step(0)),
            Code::Binary(Binary::Div, operand(0), step(1)),
        ];
        let channels = w.shape.clone();
        let factor = self.map(&[w.clone(), var.clone()], &channels, false, &factor);
        let addend = [
            Code::Binary(Binary::Mul, operand(1), operand(2)),
            Code::Binary(Binary::Sub, operand(0), step(0)),
        ];
        let addend = self.map(&[b.clone(), mean.clone(), factor.clone()], &channels, false, &addend);
        let mut channel = vec![1; x.rank()];
        channel[1] = channels[0];
        let per_channel = |v: View| View::dense(v.base, &channel);
        let apply = [
            Code::Binary(Binary::Mul, operand(0), operand(1)),
            Code::Binary(Binary::Add, step(0), operand(2)),
        ];
        self.map(&[x.clone(), per_channel(factor), per_channel(addend)], &x.shape, false, &apply)
    }

    pub(super) fn group_norm(&mut self, groups: usize, eps: f32, ins: &[View]) -> View {
        let shape = ins[0].shape.clone();
        let (n, h, w, c) = image(&shape);
        let x = self.image(&ins[0]);
        let norm = Norm {
            n,
            rows: h * w,
            c,
            groups,
            eps,
            affine: ins.len() - 1,
            clip: None,
            momentum: None,
            track: false,
        };
        self.norm(norm, x, &ins[1..], &shape)
    }
}
