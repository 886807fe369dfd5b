//! Random numbers, shapes and small networks; every failure repeats.

use phalanx_graph::{Builder, Graph, Init, Op, Range, Shape, ValueId, Weights};
use phalanx_types::{DType, Tensor};

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(crate) fn float(&mut self, low: f32, high: f32) -> f32 {
        let unit = (self.draw() >> 11) as f64 / (1u64 << 53) as f64;
        low + (high - low) * unit as f32
    }

    pub(crate) fn floats(&mut self, count: usize, (low, high): (f32, f32)) -> Vec<f32> {
        (0..count).map(|_| self.float(low, high)).collect()
    }

    pub(crate) fn shape(&mut self, rank: usize, most: usize) -> Vec<usize> {
        (0..rank).map(|_| self.between(1, most)).collect()
    }

    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut perm: Vec<usize> = (0..n).collect();
        (1..n).for_each(|i| perm.swap(i, self.below(i + 1)));
        perm
    }
}

/// A graph in the making, with the values of its inputs and parameters.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) b: Builder,
    pub(crate) dice: Dice,
    pub(crate) inputs: Vec<Vec<f32>>,
    pub(crate) weights: Weights,
    names: usize,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        let dice = Dice(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
        Self { b: Builder::new("random"), dice, inputs: Vec::new(), weights: Weights::new(), names: 0 }
    }

    pub(crate) fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    pub(crate) fn op(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let name = self.name();
        self.b.op(name, op, inputs)
    }

    pub(crate) fn shape(&self, x: ValueId) -> Vec<usize> {
        self.b.shape(x).at(1)
    }

    pub(crate) fn input(&mut self, shape: &[usize], range: (f32, f32)) -> ValueId {
        let data = self.dice.floats(shape.iter().product(), range);
        self.inputs.push(data);
        let name = self.name();
        self.b.input_of(&name, DType::F32, Shape::fixed(shape))
    }

    pub(crate) fn parameter(&mut self, shape: &[usize], range: (f32, f32)) -> ValueId {
        let data = self.dice.floats(shape.iter().product(), range);
        let name = self.name();
        self.weights.insert(name.clone(), tensor(shape, &data));
        self.b.parameter(name, shape, Init::Given)
    }

    pub(crate) fn constant(&mut self, shape: &[usize], range: (f32, f32)) -> ValueId {
        let data = self.dice.floats(shape.iter().product(), range);
        let name = self.name();
        self.b.constant(name, tensor(shape, &data))
    }

    /// Something that has a gradient.
    pub(crate) fn leaf(&mut self, shape: &[usize], range: (f32, f32)) -> ValueId {
        if self.dice.flag() { self.input(shape, range) } else { self.parameter(shape, range) }
    }

    /// A value of this shape that lies in memory in one of many ways.
    pub(crate) fn operand(&mut self, shape: &[usize], range: (f32, f32)) -> ValueId {
        match self.dice.below(8) {
            0 | 1 => self.leaf(shape, range),
            2 => self.turned(shape, range, Self::leaf),
            3 => self.part(shape, range, 1),
            4 => self.turned(shape, range, |net, shape, range| net.part(shape, range, 1)),
            5 => {
                let step = self.dice.one_of(&[-2, -1, 2, 3]);
                self.part(shape, range, step)
            }
            6 => {
                let flat = self.leaf(&[shape.iter().product()], range);
                self.op(Op::Reshape { to: Shape::fixed(shape) }, &[flat])
            }
            _ => {
                let (x, one) = (self.turned(shape, range, Self::leaf), self.constant(&[1], (1.0, 1.0)));
                self.op(Op::Binary(phalanx_graph::Binary::Mul), &[x, one])
            }
        }
    }

    /// The transpose of what `make` makes.
    pub(crate) fn turned(
        &mut self,
        shape: &[usize],
        range: (f32, f32),
        make: impl FnOnce(&mut Self, &[usize], (f32, f32)) -> ValueId,
    ) -> ValueId {
        let perm = self.dice.permutation(shape.len());
        let mut from = vec![0; shape.len()];
        perm.iter().zip(shape).for_each(|(p, n)| from[*p] = *n);
        let x = make(self, &from, range);
        self.op(Op::Transpose { perm }, &[x])
    }

    /// Part of something larger; `step` is that of one axis.
    fn part(&mut self, shape: &[usize], range: (f32, f32), step: i64) -> ValueId {
        let stepped = if shape.is_empty() { 0 } else { self.dice.below(shape.len()) };
        let mut from = Vec::new();
        let mut ranges = Vec::new();
        for (axis, n) in shape.iter().enumerate() {
            let step = if axis == stepped { step } else { 1 };
            let reach = (n - 1) * step.unsigned_abs() as usize;
            let (before, after) = (self.dice.below(3), self.dice.below(3));
            from.push(before + reach + 1 + after);
            let start = if step < 0 { before + reach } else { before };
            ranges.push(Range { start, len: Some(*n), step });
        }
        let x = self.leaf(&from, range);
        self.op(Op::Slice { ranges }, &[x])
    }

    /// # Panics
    /// The graph is wrong.
    pub(crate) fn finish(self) -> (Graph, Vec<Vec<f32>>, Weights) {
        let graph = self.b.finish().unwrap_or_else(|e| panic!("the test builds a wrong graph: {e}"));
        (graph, self.inputs, self.weights)
    }
}

pub(crate) fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
    let shape = shape.iter().map(|d| *d as u64).collect();
    Tensor::from_f32(shape, data).unwrap_or_else(|e| panic!("the test makes a wrong tensor: {e}"))
}

/// Shapes of two operands that broadcast to `shape`: dimensions are dropped in front or are 1.
pub(crate) fn broadcastable(dice: &mut Dice, shape: &[usize]) -> Vec<usize> {
    let skip = if dice.below(3) == 0 { dice.below(shape.len() + 1) } else { 0 };
    shape[skip..].iter().map(|n| if dice.below(3) == 0 { 1 } else { *n }).collect()
}
