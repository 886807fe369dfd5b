//! An array whose first axis counts samples, mapped from a file or in memory.

use crate::element::convert;
use crate::error::{DataError, Fault, Origin};
use crate::map::Watch;
use crate::spec::Format;
use bytes::Bytes;
use phalanx_types::DType;

/// The layout of an array in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) dtype: DType,
    pub(crate) big_endian: bool,
    /// Whether the first index varies fastest.
    pub(crate) fortran: bool,
    /// Including the axis of samples.
    pub(crate) shape: Vec<usize>,
}

impl Layout {
    pub(crate) fn row_major(dtype: DType, shape: Vec<usize>) -> Self {
        Self { dtype, big_endian: false, fortran: false, shape }
    }

    /// The bytes of the array.
    pub(crate) fn byte_len(&self) -> Result<usize, Fault> {
        let len = self.shape.iter().try_fold(self.dtype.size(), |n, d| n.checked_mul(*d));
        // No slice is longer than isize::MAX.
        len.filter(|len| isize::try_from(*len).is_ok())
            .ok_or_else(|| Fault::Overflow { shape: self.shape.clone() })
    }

    /// The bytes of the array, if `available` bytes can hold it; `available` may be more.
    pub(crate) fn fits(&self, available: u64) -> Result<usize, Fault> {
        let len = self.byte_len()?;
        if len as u64 > available {
            return Err(Fault::Short { shape: self.shape.clone(), needed: len as u64, have: available });
        }
        Ok(len)
    }
}

/// An array of samples: mapped or in memory, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) origin: Origin,
    pub(crate) dtype: DType,
    pub(crate) rows: usize,
    /// The shape of one sample.
    pub(crate) shape: Vec<usize>,
    big_endian: bool,
    fortran: bool,
    /// The elements of one sample.
    size: usize,
    data: Bytes,
    /// The file behind the data, if they are mapped.
    watch: Option<Watch>,
}

impl Array {
    /// Takes `data` to be laid out so.
    pub(crate) fn new(
        origin: Origin,
        format: Format,
        layout: Layout,
        data: Bytes,
    ) -> Result<Self, DataError> {
        let checked = layout.fits(data.len() as u64).and_then(|needed| match data.len() - needed {
            0 => Ok(()),
            extra => Err(Fault::Trailing { extra: extra as u64 }),
        });
        if let Err(fault) = checked {
            return Err(DataError::Malformed { format, fault, origin });
        }
        let Layout { dtype, big_endian, fortran, shape } = layout;
        let Some((&rows, sample)) = shape.split_first() else {
            return Err(DataError::NoSampleAxis { origin });
        };
        if data.is_empty() {
            return Err(DataError::Empty { origin });
        }
        let size = sample.iter().product();
        let fortran = fortran && !sample.is_empty();
        let watch = Watch::of(&data);
        Ok(Self { origin, dtype, rows, shape: sample.to_vec(), big_endian, fortran, size, data, watch })
    }

    /// Copies one sample into `out`, which must have its size.
    pub(crate) fn read(&self, row: usize, out: &mut [f32]) -> Result<(), DataError> {
        if row >= self.rows {
            return Err(DataError::Index { index: row, len: self.rows, origin: self.origin.clone() });
        }
        let read = if self.fortran { self.gather(row, out) } else { self.copy(row, out) };
        read.map_err(|value| DataError::TooLarge { value, row: row as u64, origin: self.origin.clone() })
    }

    /// Copies the samples of all `rows` into `out`, one after the other.
    pub(crate) fn read_all(&self, rows: &[usize], out: &mut [f32]) -> Result<(), DataError> {
        let mut samples = rows.iter().zip(out.chunks_exact_mut(self.size));
        let read = samples.try_for_each(|(row, out)| self.read(*row, out));
        // Before anything that was found in the samples: what is missing of a file reads as zeros.
        if self.watch.as_ref().is_some_and(|watch| !watch.intact()) {
            return Err(DataError::Shortened { origin: self.origin.clone() });
        }
        read
    }

    fn copy(&self, row: usize, out: &mut [f32]) -> Result<(), i128> {
        let bytes = self.size * self.dtype.size();
        let data = self.data.get(row * bytes..(row + 1) * bytes).unwrap_or_default();
        convert(self.dtype, self.big_endian, data, out).map_err(|inexact| inexact.value)
    }

    /// Picks the elements of a sample one by one: they are interleaved with those of other samples.
    fn gather(&self, row: usize, out: &mut [f32]) -> Result<(), i128> {
        let width = self.dtype.size();
        let mut index = vec![0; self.shape.len()];
        for out in out.iter_mut() {
            let mut stride = self.rows;
            let mut offset = row;
            for (i, d) in index.iter().zip(&self.shape) {
                offset += i * stride;
                stride *= d;
            }
            let data = self.data.get(offset * width..(offset + 1) * width).unwrap_or_default();
            convert(self.dtype, self.big_endian, data, std::slice::from_mut(out))
                .map_err(|inexact| inexact.value)?;
            for (i, d) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < *d {
                    break;
                }
                *i = 0;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(layout: Layout, values: &[u8]) -> Result<Array, DataError> {
        Array::new(Origin::default(), Format::Npy, layout, Bytes::copy_from_slice(values))
    }

    #[test]
    fn fortran_order_gives_the_same_samples() {
        // Element (i, j, k) of shape [2, 3, 2] is 6i + 2j + k.
        let layout = Layout { fortran: true, ..Layout::row_major(DType::U8, vec![2, 3, 2]) };
        let fortran = array(layout, &[0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]).unwrap();
        let c = array(Layout::row_major(DType::U8, vec![2, 3, 2]), &(0..12).collect::<Vec<_>>()).unwrap();
        for row in 0..2 {
            let (mut a, mut b) = ([0.0; 6], [1.0; 6]);
            fortran.read(row, &mut a).unwrap();
            c.read(row, &mut b).unwrap();
            assert_eq!(a, b);
        }
        assert!(matches!(c.read(2, &mut [0.0; 6]), Err(DataError::Index { index: 2, len: 2, .. })));
    }

    #[test]
    fn shapes_that_the_bytes_do_not_bear_out_are_refused() {
        let fault = |shape: &[usize], values: &[u8]| match array(
            Layout::row_major(DType::F64, shape.to_vec()),
            values,
        ) {
            Err(DataError::Malformed { fault, .. }) => fault,
            other => panic!("{other:?}"),
        };
        assert!(matches!(fault(&[usize::MAX, 2], &[]), Fault::Overflow { .. }));
        assert!(matches!(fault(&[usize::MAX / 16], &[]), Fault::Short { .. }));
        assert_eq!(fault(&[1], &[0; 9]), Fault::Trailing { extra: 1 });
        assert!(matches!(
            array(Layout::row_major(DType::U8, vec![]), &[0]),
            Err(DataError::NoSampleAxis { .. })
        ));
        assert!(matches!(array(Layout::row_major(DType::U8, vec![0, 3]), &[]), Err(DataError::Empty { .. })));
        assert!(matches!(array(Layout::row_major(DType::U8, vec![3, 0]), &[]), Err(DataError::Empty { .. })));
    }
}
