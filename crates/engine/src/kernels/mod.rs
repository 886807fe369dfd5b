//! The kernels. Images have channels last: `[N, H, W, C]`; weights of convolutions are `[O, H, W, C]`.
//!
//! A kernel overwrites its outputs completely, divides its work by the shape alone, and gets all it needs as arguments.

pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod eval;
pub(crate) mod few_rows;
pub(crate) mod gemm;
pub(crate) mod linear;
pub(crate) mod map;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod resize;
pub(crate) mod softmax;
