//! Maps ONNX operators to their conversions.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::{Binary, Compare, Reduce, Unary};

impl Lower<'_> {
    pub(super) fn operator(&mut self, call: &Call) -> Result<Vec<Val>, OnnxError> {
        if !matches!(call.at.domain.as_str(), "" | "ai.onnx") {
            return Err(call.unsupported("operators of this domain are not known"));
        }
        match call.at.op.as_str() {
            "Split" => self.split(call),
            "LSTM" => self.lstm(call),
            "GRU" => self.gru(call),
            "If" => self.branch_if(call),
            _ => self.single(call).map(|made| vec![made]),
        }
    }

    /// Operators with one result, or whose other results are not supported.
    fn single(&mut self, call: &Call) -> Result<Val, OnnxError> {
        if let Some(op) = unary(call) {
            return self.unary(call, op);
        }
        if let Some(op) = compare(&call.at.op) {
            return self.compare(call, op);
        }
        match call.at.op.as_str() {
            "Add" | "Sum" => self.joined(call, Binary::Add),
            "Sub" => self.joined(call, Binary::Sub),
            "Mul" => self.joined(call, Binary::Mul),
            "Div" => self.joined(call, Binary::Div),
            "Pow" => self.joined(call, Binary::Pow),
            "Min" => self.joined(call, Binary::Min),
            "Max" => self.joined(call, Binary::Max),
            "And" => self.joined(call, Binary::And),
            "Or" => self.joined(call, Binary::Or),
            "Mean" => self.mean(call),
            "Mod" => self.modulo(call),
            "Where" => self.select(call),
            "Clip" => self.clip(call),
            "Gelu" => self.gelu(call),
            "Selu" => self.selu(call),
            "Celu" => self.celu(call),
            "Softsign" => self.softsign(call),
            "Mish" => self.mish(call),
            "ThresholdedRelu" => self.thresholded_relu(call),
            "PRelu" => self.prelu(call),
            "Ceil" => self.ceil(call),
            "Cast" => self.cast(call, None),
            "CastLike" => {
                let to = self.dtype(call.input(1)?).ok_or_else(|| call.unsupported("no type to cast to"))?;
                self.cast(call, Some(to))
            }
            "Identity" => call.input(0).cloned(),
            "IsNaN" => match call.input(0)? {
                Val::Graph(id) => Ok(Val::IsNan(*id)),
                _ => Err(call.unsupported("it looks for what is not a number")),
            },
            "Dropout" => self.dropout(call),
            _ => self.structural(call),
        }
    }

    fn structural(&mut self, call: &Call) -> Result<Val, OnnxError> {
        match call.at.op.as_str() {
            "MatMul" => self.matmul(call),
            "Gemm" => self.gemm(call),
            "Einsum" => self.einsum(call),
            "Conv" => self.conv(call),
            "ConvTranspose" => self.conv_transpose(call),
            "MaxPool" => self.max_pool(call),
            "AveragePool" => self.average_pool(call),
            "GlobalAveragePool" => self.global_average_pool(call),
            "GlobalMaxPool" => self.global_max_pool(call),
            "BatchNormalization" => self.batch_norm(call),
            "InstanceNormalization" => self.instance_norm(call),
            "LayerNormalization" => self.layer_norm(call),
            "RMSNormalization" => self.rms_norm(call),
            "GroupNormalization" => self.group_norm(call),
            "Softmax" => self.softmax(call, false),
            "LogSoftmax" => self.softmax(call, true),
            "Attention" => self.attention(call),
            "Resize" | "Upsample" => self.resize(call),
            "ReduceMean" => self.reduce(call, Reduce::Mean),
            "ReduceSum" => self.reduce(call, Reduce::Sum),
            "ReduceMax" => self.reduce(call, Reduce::Max),
            "ReduceMin" => self.reduce(call, Reduce::Min),
            "ReduceL1" => self.reduce_l1(call),
            "ReduceL2" => self.reduce_l2(call),
            "ReduceSumSquare" => self.reduce_sum_square(call),
            "ReduceLogSum" => self.reduce_log_sum(call),
            "ReduceLogSumExp" => self.reduce_log_sum_exp(call),
            "ReduceProd" => self.reduce_prod(call),
            _ => self.arranging(call),
        }
    }

    fn arranging(&mut self, call: &Call) -> Result<Val, OnnxError> {
        match call.at.op.as_str() {
            "Reshape" => self.reshape(call),
            "Flatten" => self.flatten(call),
            "Transpose" => self.transpose(call),
            "Squeeze" => self.squeeze(call),
            "Unsqueeze" => self.unsqueeze(call),
            "Concat" => self.concat(call),
            "Slice" => self.slice(call),
            "Gather" => self.gather(call),
            "GatherND" => self.gather_nd(call),
            "Expand" => self.expand(call),
            "Tile" => self.tile(call),
            "Pad" => self.pad(call),
            "DepthToSpace" => self.depth_to_space(call, false),
            "SpaceToDepth" => self.depth_to_space(call, true),
            "Constant" => self.constant_node(call),
            "Shape" => self.shape_node(call),
            "Size" => self.size_node(call),
            "ConstantOfShape" => self.constant_of_shape(call),
            "Range" => self.range_node(call),
            "NonZero" => self.non_zero(call),
            "Trilu" => self.trilu(call),
            "CumSum" => self.cum_sum(call),
            "OneHot" => self.one_hot(call),
            "SequenceConstruct" => Ok(Val::Seq(call.inputs.clone())),
            "SequenceEmpty" => Ok(Val::Seq(Vec::new())),
            "SequenceAt" => self.sequence_at(call),
            "SequenceLength" => self.sequence_length(call),
            "ConcatFromSequence" => self.concat_from_sequence(call),
            "SplitToSequence" => self.split_to_sequence(call),
            "RandomUniformLike" | "RandomUniform" => self.random(call),
            "Bernoulli" => self.bernoulli(call),
            _ => Err(call.unsupported("there is no such operator here")),
        }
    }
}

fn unary(call: &Call) -> Option<Unary> {
    let float = |name: &str, usual: f32| call.attributes.float(name).unwrap_or(usual);
    Some(match call.at.op.as_str() {
        "Neg" => Unary::Neg,
        "Sqrt" => Unary::Sqrt,
        "Exp" => Unary::Exp,
        "Log" => Unary::Log,
        "Abs" => Unary::Abs,
        "Reciprocal" => Unary::Reciprocal,
        "Erf" => Unary::Erf,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        "Floor" => Unary::Floor,
        "Sign" => Unary::Sign,
        "Not" => Unary::Not,
        "Relu" => Unary::Relu,
        "LeakyRelu" => Unary::LeakyRelu { slope: float("alpha", 0.01) },
        "Elu" => Unary::Elu { alpha: float("alpha", 1.0) },
        "Sigmoid" => Unary::Sigmoid,
        "Tanh" => Unary::Tanh,
        "HardSigmoid" => Unary::HardSigmoid { alpha: float("alpha", 0.2), beta: float("beta", 0.5) },
        "HardSwish" => Unary::HardSwish,
        "Softplus" => Unary::Softplus,
        _ => return None,
    })
}

fn compare(op: &str) -> Option<Compare> {
    Some(match op {
        "Equal" => Compare::Equal,
        "Less" => Compare::Less,
        "LessOrEqual" => Compare::LessOrEqual,
        "Greater" => Compare::Greater,
        "GreaterOrEqual" => Compare::GreaterOrEqual,
        _ => return None,
    })
}
