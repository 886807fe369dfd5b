//! Resizing images.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::{Coordinates, Dim, Op, Resize, ResizeMode};

impl Lower<'_> {
    pub(super) fn resize(&mut self, call: &Call) -> Result<Val, OnnxError> {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        if shape.rank() < 3 {
            return Err(call.malformed("its input has too few dimensions"));
        }
        let old = call.at.op == "Upsample";
        let (scales, sizes) = if old || call.opset < 11 { (1, usize::MAX) } else { (2, 3) };
        if call.attributes.ints("axes").is_some() {
            return Err(call.unsupported("only some of the axes are named"));
        }
        let spatial: Option<Vec<usize>> = shape.dims()[2..].iter().map(|d| d.fixed()).collect();
        let spatial = spatial.ok_or_else(|| call.unsupported("the batch is a spatial dimension"))?;
        let given = |i: usize| call.optional(i).filter(|v| self.lit(v).is_none_or(|l| l.len() > 0)).is_some();
        let (size, scale): (Vec<usize>, Vec<f32>) = if given(sizes) {
            let sizes = call.known_syms(sizes)?;
            let dims: Option<Vec<Dim>> = sizes.iter().map(|s| s.dim()).collect();
            let dims =
                dims.filter(|d| d.len() == shape.rank()).ok_or_else(|| call.malformed("sizes do not fit"))?;
            let size: Option<Vec<usize>> = dims[2..].iter().map(|d| d.fixed()).collect();
            let size = size.ok_or_else(|| call.unsupported("a size depends on the batch"))?;
            let scale = size.iter().zip(&spatial).map(|(n, m)| *n as f32 / (*m).max(1) as f32).collect();
            (size, scale)
        } else {
            let factors = match call.attributes.floats("scales") {
                Some(f) => f.iter().map(|x| f64::from(*x)).collect(),
                None => {
                    call.known(scales)?.floats().ok_or_else(|| call.malformed("scales are not numbers"))?
                }
            };
            if factors.len() != shape.rank() || factors[..2] != [1.0, 1.0] {
                return Err(call.unsupported("it scales more than the spatial dimensions"));
            }
            let grow = |(n, f): (&usize, &f64)| ((*n as f64 * f).floor()).clamp(0.0, 1e9) as usize;
            let size = spatial.iter().zip(&factors[2..]).map(grow).collect();
            (size, factors[2..].iter().map(|f| *f as f32).collect())
        };
        let mode = match call.attributes.text("mode").unwrap_or("nearest") {
            "nearest" => ResizeMode::Nearest,
            "linear" | "bilinear" => ResizeMode::Linear,
            _ => return Err(call.unsupported("a mode that is neither nearest nor linear")),
        };
        let usual = if old || call.opset < 11 { "asymmetric" } else { "half_pixel" };
        let coordinates = match call.attributes.text("coordinate_transformation_mode").unwrap_or(usual) {
            "half_pixel" => Coordinates::HalfPixel,
            // They differ only for outputs of one pixel.
            "pytorch_half_pixel" if size.iter().all(|n: &usize| *n > 1) => Coordinates::HalfPixel,
            "align_corners" => Coordinates::AlignCorners,
            "asymmetric" => Coordinates::Asymmetric,
            _ => return Err(call.unsupported("a coordinate_transformation_mode that is not supported")),
        };
        let (coordinates, whole) = self.nearest(call, mode, coordinates, &scale)?;
        if call.attributes.flag("antialias") && !whole {
            return Err(call.unsupported("antialias=1"));
        }
        self.apply(call, Op::Resize(Resize { size, scale, mode, coordinates }), &[x])
    }

    /// Ours takes the pixel at or before; accepts the ONNX rounding modes that give the same result.
    fn nearest(
        &self,
        call: &Call,
        mode: ResizeMode,
        coordinates: Coordinates,
        scale: &[f32],
    ) -> Result<(Coordinates, bool), OnnxError> {
        if mode != ResizeMode::Nearest {
            return Ok((coordinates, false));
        }
        let rounding = match call.opset {
            ..11 => "floor",
            _ => call.attributes.text("nearest_mode").unwrap_or("round_prefer_floor"),
        };
        let whole = scale.iter().all(|s| *s >= 1.0 && s.fract() == 0.0);
        match (coordinates, rounding) {
            (Coordinates::Asymmetric, "floor") => Ok((coordinates, whole)),
            // With integer factors, the nearest centre is that of the source pixel.
            (Coordinates::HalfPixel, "round_prefer_floor" | "round_prefer_ceil") if whole => {
                Ok((Coordinates::Asymmetric, whole))
            }
            _ => Err(call.unsupported("a nearest_mode that is not `floor` of asymmetric coordinates")),
        }
    }
}
