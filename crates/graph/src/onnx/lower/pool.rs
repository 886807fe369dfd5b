//! Pooling.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::{Op, Pool, Reduce};

type Made = Result<Val, OnnxError>;

impl Lower<'_> {
    fn pool_settings(&self, call: &Call) -> Result<(Val, Pool), OnnxError> {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let w = call.window(&shape, None)?;
        let ceil = call.attributes.flag("ceil_mode");
        Ok((x, Pool { kernel: w.kernel, stride: w.stride, dilation: w.dilation, pad: w.pad, ceil }))
    }

    pub(super) fn max_pool(&mut self, call: &Call) -> Made {
        let (x, pool) = self.pool_settings(call)?;
        if call.attributes.flag("storage_order") {
            return Err(call.unsupported("storage_order=1"));
        }
        self.apply(call, Op::MaxPool(pool), &[x])
    }

    pub(super) fn average_pool(&mut self, call: &Call) -> Made {
        let (x, pool) = self.pool_settings(call)?;
        let count_padding = call.attributes.flag("count_include_pad");
        self.apply(call, Op::AveragePool { pool, count_padding }, &[x])
    }

    pub(super) fn global_average_pool(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let axes = (2..self.shape(call, &x)?.rank()).collect();
        self.apply(call, Op::Reduce { kind: Reduce::Mean, axes, keep: true }, &[x])
    }

    /// As one window over all positions: among equal values the first wins, as in PyTorch.
    pub(super) fn global_max_pool(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let kernel: Option<Vec<usize>> = shape.dims().iter().skip(2).map(|d| d.fixed()).collect();
        let kernel = kernel.ok_or_else(|| call.unsupported("the batch is a spatial dimension"))?;
        let n = kernel.len();
        let pool =
            Pool { stride: kernel.clone(), kernel, dilation: vec![1; n], pad: vec![(0, 0); n], ceil: false };
        self.apply(call, Op::MaxPool(pool), &[x])
    }
}
