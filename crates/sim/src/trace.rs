use phalanx_types::Time;
use std::fmt::{Arguments, Write as _};

/// What happened, one line per event and command, and a hash that is kept even without the text.
#[derive(Debug)]
pub(crate) struct Trace {
    text: Option<String>,
    hash: u64,
}

impl Trace {
    pub(crate) fn new(keep_text: bool) -> Self {
        Self { text: keep_text.then(String::new), hash: 0xcbf2_9ce4_8422_2325 }
    }

    pub(crate) fn line(&mut self, now: Time, line: Arguments<'_>) {
        if let Some(text) = &mut self.text {
            writeln!(text, "{now} {line}").expect("a string takes all text");
        }
    }

    /// Mixes a number into the hash, FNV-1a by words.
    pub(crate) fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Mixes a message into the hash.
    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn take_text(&mut self) -> Option<String> {
        self.text.take()
    }
}
