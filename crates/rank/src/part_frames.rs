//! What a part of the model takes from its neighbours and gives to them.

use super::frame::Frame;
use super::part::{Carried, Part, pack, packed_len, unpack};
use crate::error::RankError;
use phalanx_collective::Compression;
use phalanx_engine::Pass;
use phalanx_train::Ready;

impl Part {
    pub(super) fn unpack_inputs(
        &mut self,
        compression: Compression,
        len: usize,
        frame: &Frame,
    ) -> Result<(), RankError> {
        let one = |value: &Carried| packed_len(compression, value.floats, value.elements(len));
        frame.expect_bytes(self.inputs.iter().map(one))?;
        let mut rest = &frame.values[..];
        self.received.resize(self.inputs.len(), Vec::new());
        for (value, into) in self.inputs.iter().zip(&mut self.received) {
            into.resize(value.elements(len), 0.0);
            rest = unpack(compression, value.floats, rest, into)?;
        }
        Ok(())
    }

    /// Runs forward what was unpacked.
    pub(super) fn forward_received(&mut self, slot: usize, len: usize, pass: Pass) -> Result<(), RankError> {
        let inputs: Vec<&[f32]> = self.received.iter().map(Vec::as_slice).collect();
        match pass.training {
            true => Ok(self.stepper.forward(slot, len, &inputs, pass)?),
            false => Ok(self.stepper.model.forward(slot, len, &inputs, pass)?),
        }
    }

    pub(super) fn pack_outputs(&mut self, compression: Compression, slot: usize, bytes: &mut Vec<u8>) {
        for (index, value) in self.outputs.iter().enumerate() {
            pack(compression, value.floats, self.stepper.model.output(slot, index), bytes);
        }
    }

    pub(super) fn backward_received(
        &mut self,
        compression: Compression,
        slot: usize,
        len: usize,
        frame: &Frame,
        of: (usize, usize),
        ready: &mut Ready<'_>,
    ) -> Result<(), RankError> {
        let learns = self.outputs.iter().filter(|value| value.learns);
        frame.expect_bytes(learns.map(|value| packed_len(compression, true, value.elements(len))))?;
        let mut rest = &frame.values[..];
        self.given.resize(self.outputs.len(), Vec::new());
        for (value, into) in self.outputs.iter().zip(&mut self.given) {
            into.resize(value.elements(len), 0.0);
            if value.learns {
                rest = unpack(compression, true, rest, into)?;
            }
        }
        let gradients: Vec<&[f32]> = self.given.iter().map(Vec::as_slice).collect();
        Ok(self.stepper.backward(slot, Some(&gradients), of, ready)?)
    }

    pub(super) fn pack_input_gradients(
        &mut self,
        compression: Compression,
        slot: usize,
        len: usize,
        bytes: &mut Vec<u8>,
    ) {
        for (index, value) in self.inputs.iter().enumerate().filter(|(_, value)| value.learns) {
            match self.stepper.model.input_gradient(slot, index) {
                Some(gradient) => pack(compression, true, gradient, bytes),
                None => pack(compression, true, &vec![0.0; value.elements(len)], bytes),
            }
        }
    }
}
