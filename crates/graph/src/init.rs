//! Initial values of parameters and buffers.
//!
//! Every value has its own random stream, derived from the seed and its name, so a stage of a model gets the same
//! numbers as the whole model; `libm` makes them the same on every machine.

use crate::{Graph, Init, Value, ValueKind, Weights};
use phalanx_types::{DType, Seed, Tensor};

impl Graph {
    /// Initialises every parameter and buffer, except those whose values come with the model ([`Init::Given`]), and
    /// those that this machine has no memory for: [`weights::check`](crate::weights::check) names the missing ones.
    pub fn initialise(&self, seed: Seed) -> Weights {
        let made = self.values.iter().filter_map(|v| match v.kind {
            ValueKind::Parameter(init) | ValueKind::Buffer(init) => {
                Some((v.name.clone(), first_value(v, init, seed)?))
            }
            _ => None,
        });
        made.collect()
    }
}

fn first_value(value: &Value, init: Init, seed: Seed) -> Option<Tensor> {
    let dims: Vec<u64> = value.shape.as_fixed()?.into_iter().map(|d| d as u64).collect();
    let count = value.shape.count()?.factor;
    let mut stream = SplitMix64(seed.derive(&value.name).0);
    if init == Init::Given {
        return None;
    }
    let mut data = Vec::new();
    data.try_reserve_exact(count.checked_mul(value.dtype.size())?).ok()?;
    for _ in 0..count {
        let x = match init {
            Init::Given => return None,
            Init::Zeros => 0.0,
            Init::Ones => 1.0,
            Init::Uniform(bound) => (2.0 * stream.unit() - 1.0) * f64::from(bound),
            Init::Normal { std } => stream.normal() * f64::from(std),
        };
        put(&mut data, value.dtype, x);
    }
    Tensor::new(value.dtype, dims, data.into()).ok()
}

/// Appends a number as an element of this type.
pub(crate) fn put(data: &mut Vec<u8>, dtype: DType, x: f64) {
    match dtype {
        DType::F32 => data.extend_from_slice(&(x as f32).to_le_bytes()),
        DType::F64 => data.extend_from_slice(&x.to_le_bytes()),
        DType::Bf16 => data.extend_from_slice(&bf16(x as f32).to_le_bytes()),
        DType::F16 => data.extend_from_slice(&f16(x as f32).to_le_bytes()),
        DType::I8 => data.extend_from_slice(&(x as i8).to_le_bytes()),
        DType::I16 => data.extend_from_slice(&(x as i16).to_le_bytes()),
        DType::I32 => data.extend_from_slice(&(x as i32).to_le_bytes()),
        DType::I64 => data.extend_from_slice(&(x as i64).to_le_bytes()),
        DType::U8 => data.push(x as u8),
        DType::Bool => data.push(u8::from(x != 0.0)),
        DType::U16 => data.extend_from_slice(&(x as u16).to_le_bytes()),
        DType::U32 => data.extend_from_slice(&(x as u32).to_le_bytes()),
        DType::U64 => data.extend_from_slice(&(x as u64).to_le_bytes()),
    }
}

/// The nearest bfloat16, ties to even.
fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() { (bits >> 16) as u16 | 0x40 } else { ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16 }
}

/// The nearest half-precision number, ties to even.
fn f16(x: f32) -> u16 {
    let sign = ((x.to_bits() >> 16) & 0x8000) as u16;
    let size = x.abs();
    if x.is_nan() {
        return sign | 0x7e00;
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    if size < 6.103_515_6e-5 {
        // Adding 0.5 aligns the last bit of the sum with the smallest subnormal, and the addition rounds to even.
        return sign | ((size + 0.5).to_bits() - 0.5f32.to_bits()) as u16;
    }
    let bits = size.to_bits();
    let rounded = bits + 0xfff + ((bits >> 13) & 1);
    sign | ((rounded >> 13) - (112 << 10)) as u16
}

/// SplitMix64.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, by the Box-Muller method.
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.unit()));
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Shape, zoo};

    #[test]
    fn a_value_begins_the_same_in_any_graph() {
        let whole = zoo::build("mlp", &zoo::ZooOptions::default()).unwrap().initialise(Seed(7));
        let mut b = Builder::new("part");
        let x = b.input("h", &[256]);
        let y = b.linear("fc2", x, 128);
        b.output(y);
        let part = b.finish().unwrap().initialise(Seed(7));
        assert_eq!(part["fc2.weight"], whole["fc2.weight"]);
        assert_ne!(part["fc2.weight"], b_of(8)["fc2.weight"]);
    }

    fn b_of(seed: u64) -> Weights {
        zoo::build("mlp", &zoo::ZooOptions::default()).unwrap().initialise(Seed(seed))
    }

    #[test]
    fn distributions_have_their_moments() {
        let value = |name: &str| Value {
            name: name.into(),
            dtype: DType::F32,
            shape: Shape::fixed(&[100, 200]),
            kind: ValueKind::Computed,
        };
        for (init, std) in [(Init::Uniform(0.3), 0.3 / 3f64.sqrt()), (Init::Normal { std: 0.02 }, 0.02)] {
            let x = first_value(&value("w"), init, Seed(1)).unwrap().to_f32().unwrap();
            let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64;
            let var = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / x.len() as f64;
            assert!(mean.abs() < 0.03 * std && (var.sqrt() / std - 1.0).abs() < 0.03, "{mean} {var}");
        }
    }

    #[test]
    fn narrow_floats_round_to_the_nearest() {
        assert_eq!([f16(1.0), f16(-2.0), f16(65504.0), f16(1e9)], [0x3c00, 0xc000, 0x7bff, 0x7c00]);
        assert_eq!([f16(5.960_464_5e-8), f16(1.000_488_3), f16(1.001_464_8)], [0x0001, 0x3c00, 0x3c02]);
        assert_eq!([bf16(1.0), bf16(-3.5)], [0x3f80, 0xc060]);
    }
}
