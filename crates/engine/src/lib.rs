//! Computes graphs: forward, backward, losses, optimizers.

mod bench;
mod buffer;
mod clip;
mod cpu;
mod engine;
mod error;
mod fuse;
mod grad;
mod kernels;
mod loss;
mod lower;
mod metric;
mod named;
mod optimizer;
mod plan;
mod program;
mod run;
mod schedule;
mod simd;
mod tape;
mod threads;
mod view;

pub use bench::time_gemm;
pub use clip::{Clip, GradNorm, clip_factor, clip_value, grad_norm, scale};
pub use cpu::CpuEngine;
pub use engine::{CompileOptions, Engine, Model, OpTime, Parameter, Pass, Slot, SumOver, Visit};
pub use error::{CompileError, DiagnoseReport, RunError, WeightsError};
pub use loss::{Loss, LossError, Target};
pub use metric::{Metric, MetricSum};
pub use optimizer::{Adagrad, Adam, AdamW, Optimizer, OptimizerSpec, RmsProp, Sgd, StateError};
pub use schedule::Schedule;
pub use threads::Threads;
