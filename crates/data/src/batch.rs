use phalanx_types::ByteSize;

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
    ///
    /// # Errors
    /// How much is needed, if there is no such memory.
    pub(crate) fn resize(&mut self, len: usize, x_size: usize, y_size: usize) -> Result<(), ByteSize> {
        resize(&mut self.x, len, x_size)?;
        resize(&mut self.y, len, y_size)?;
        self.len = len;
        self.indices.clear();
        Ok(())
    }
}

fn resize(values: &mut Vec<f32>, len: usize, size: usize) -> Result<(), ByteSize> {
    let wanted = len.checked_mul(size).ok_or(ByteSize(u64::MAX))?;
    if let Some(more) = wanted.checked_sub(values.len()) {
        let needed = ByteSize((wanted as u64).saturating_mul(size_of::<f32>() as u64));
        values.try_reserve_exact(more).ok().ok_or(needed)?;
    }
    values.resize(wanted, 0.0);
    Ok(())
}
