//! Convolutions.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::{Conv, ConvTranspose, Op, Shape};

type Made = Result<Val, OnnxError>;

/// How a window moves, one entry per spatial dimension.
pub(super) struct Window {
    pub kernel: Vec<usize>,
    pub stride: Vec<usize>,
    pub dilation: Vec<usize>,
    pub pad: Vec<(usize, usize)>,
}

impl Call {
    /// The settings of a window; `kernel` is the default.
    pub(super) fn window(&self, x: &Shape, kernel: Option<Vec<usize>>) -> Result<Window, OnnxError> {
        let n = x.rank().checked_sub(2).ok_or_else(|| self.malformed("its input has too few dimensions"))?;
        let list = |name: &str, usual: i64| {
            let ints = self.attributes.ints(name).map_or_else(|| vec![usual; n], <[i64]>::to_vec);
            if ints.len() != n || (usual == 1 && ints.contains(&0)) {
                return Err(self.malformed("settings for another number of dimensions"));
            }
            self.sizes(&ints)
        };
        let kernel = match (self.attributes.ints("kernel_shape"), kernel) {
            (Some(k), _) if k.len() == n => self.sizes(k)?,
            (None, Some(k)) if k.len() == n => k,
            _ => return Err(self.malformed("no kernel for each spatial dimension")),
        };
        let (stride, dilation) = (list("strides", 1)?, list("dilations", 1)?);
        let auto = self.attributes.text("auto_pad").unwrap_or("NOTSET");
        let pad = match auto {
            "VALID" => vec![(0, 0); n],
            "SAME_UPPER" | "SAME_LOWER" => {
                let mut pad = Vec::with_capacity(n);
                for d in 0..n {
                    let size = x[d + 2]
                        .fixed()
                        .ok_or_else(|| self.unsupported("the batch is a spatial dimension"))?;
                    let reach =
                        (kernel[d].max(1) - 1).checked_mul(dilation[d]).and_then(|r| r.checked_add(1));
                    let span = (size.div_ceil(stride[d]).max(1) - 1).checked_mul(stride[d]);
                    let needed = span.zip(reach).and_then(|(s, r)| s.checked_add(r));
                    let total =
                        needed.ok_or_else(|| self.malformed("a window too large"))?.saturating_sub(size);
                    let less = total / 2;
                    pad.push(if auto == "SAME_UPPER" { (less, total - less) } else { (total - less, less) });
                }
                pad
            }
            "NOTSET" | "" => {
                let pads = self.attributes.ints("pads").map_or_else(|| vec![0; 2 * n], <[i64]>::to_vec);
                if pads.len() != 2 * n {
                    return Err(self.malformed("pads for another number of dimensions"));
                }
                let pads = self.sizes(&pads)?;
                (0..n).map(|d| (pads[d], pads[n + d])).collect()
            }
            _ => return Err(self.malformed("an unknown auto_pad")),
        };
        Ok(Window { kernel, stride, dilation, pad })
    }

    fn groups(&self) -> Result<usize, OnnxError> {
        usize::try_from(self.attributes.int("group").unwrap_or(1))
            .ok()
            .ok_or_else(|| self.malformed("a negative group"))
    }

    /// The spatial part of a weight's shape.
    fn kernel_of(&self, weight: &Shape) -> Result<Option<Vec<usize>>, OnnxError> {
        let tail =
            weight.dims().get(2..).ok_or_else(|| self.malformed("the weight has too few dimensions"))?;
        Ok(tail.iter().map(|d| d.fixed()).collect())
    }
}

impl Lower<'_> {
    pub(super) fn conv(&mut self, call: &Call) -> Made {
        let (x, w) = (call.input(0)?.clone(), call.input(1)?.clone());
        let kernel = call.kernel_of(&self.shape(call, &w)?)?;
        let window = call.window(&self.shape(call, &x)?, kernel)?;
        let conv = Conv {
            stride: window.stride,
            dilation: window.dilation,
            pad: window.pad,
            groups: call.groups()?,
        };
        let inputs: Vec<Val> = [x, w].into_iter().chain(call.optional(2).cloned()).collect();
        self.apply(call, Op::Conv(conv), &inputs)
    }

    pub(super) fn conv_transpose(&mut self, call: &Call) -> Made {
        let (x, w) = (call.input(0)?.clone(), call.input(1)?.clone());
        let shape = self.shape(call, &x)?;
        let kernel = call.kernel_of(&self.shape(call, &w)?)?;
        let mut window = call.window(&shape, kernel)?;
        let n = window.stride.len();
        let output_padding = match call.attributes.ints("output_padding") {
            Some(p) if p.len() == n => call.sizes(p)?,
            None => vec![0; n],
            Some(_) => return Err(call.malformed("output_padding for another number of dimensions")),
        };
        let auto = call.attributes.text("auto_pad").unwrap_or("NOTSET");
        let wanted = match (call.attributes.ints("output_shape"), auto) {
            (Some(s), _) if s.len() >= n => Some(call.sizes(&s[s.len() - n..])?),
            (Some(_), _) => return Err(call.malformed("output_shape for another number of dimensions")),
            (None, "SAME_UPPER" | "SAME_LOWER") => {
                let sizes = (0..n).map(|d| shape[d + 2].fixed()?.checked_mul(window.stride[d]));
                Some(
                    sizes
                        .collect::<Option<Vec<_>>>()
                        .ok_or_else(|| call.unsupported("a size that is not known"))?,
                )
            }
            _ => None,
        };
        if let Some(wanted) = wanted {
            for d in 0..n {
                let full = (|| {
                    let spread = shape[d + 2].fixed()?.checked_sub(1)?.checked_mul(window.stride[d])?;
                    let reach =
                        window.kernel[d].checked_sub(1)?.checked_mul(window.dilation[d])?.checked_add(1)?;
                    spread.checked_add(reach)?.checked_add(output_padding[d])?.checked_sub(wanted[d])
                })();
                let total =
                    full.ok_or_else(|| call.unsupported("an output larger than the operator makes"))?;
                let less = total / 2;
                window.pad[d] =
                    if auto == "SAME_UPPER" { (less, total - less) } else { (total - less, less) };
            }
        }
        let conv = Conv {
            stride: window.stride,
            dilation: window.dilation,
            pad: window.pad,
            groups: call.groups()?,
        };
        let inputs: Vec<Val> = [x, w].into_iter().chain(call.optional(2).cloned()).collect();
        self.apply(call, Op::ConvTranspose(ConvTranspose { conv, output_padding }), &inputs)
    }
}
