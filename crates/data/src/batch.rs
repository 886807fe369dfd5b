/// Samples copied out of a dataset, one after the other.
///
/// Meant to be reused: after the first use its vectors have their final capacity.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// `len` samples in row-major order.
    pub x: Vec<f32>,
    /// `len` labels: class indices, values, or nothing.
    pub y: Vec<f32>,
    /// The number of samples.
    pub len: usize,
    /// The index of each sample in the dataset.
    pub indices: Vec<u64>,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `len` samples of `x_size` and `y_size` elements.
    pub(crate) fn resize(&mut self, len: usize, x_size: usize, y_size: usize) {
        self.len = len;
        self.x.resize(len * x_size, 0.0);
        self.y.resize(len * y_size, 0.0);
        self.indices.clear();
    }
}
