//! The order of samples in a pass.

use crate::draw::Draws;

/// The order of one pass: a seeded shuffle, or as in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    len: usize,
    places: Places,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Places {
    AsInTheFile,
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Order {
    /// The order of pass number `pass` through `len` samples, shuffled if there is a seed.
    pub fn new(len: usize, shuffle: Option<u64>, pass: u64) -> Self {
        let Some(seed) = shuffle else { return Self { len, places: Places::AsInTheFile } };
        let mut draws = Draws::new(seed, "order", pass, 0);
        let places = if let Ok(len) = u32::try_from(len) {
            Places::Narrow(shuffled((0..len).collect(), &mut draws))
        } else {
            Places::Wide(shuffled((0..len as u64).collect(), &mut draws))
        };
        Self { len, places }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index of the sample at this position.
    ///
    /// # Panics
    /// The position is not below the length.
    pub fn get(&self, position: usize) -> usize {
        assert!(position < self.len, "position {position} of an order of {}", self.len);
        match &self.places {
            Places::AsInTheFile => position,
            Places::Narrow(places) => places[position] as usize,
            Places::Wide(places) => places[position] as usize,
        }
    }
}

/// The Fisher-Yates shuffle.
fn shuffled<T>(mut places: Vec<T>, draws: &mut Draws) -> Vec<T> {
    for last in (1..places.len()).rev() {
        places.swap(last, draws.below(last as u64 + 1) as usize);
    }
    places
}
