//! Scaling images to one size.

use super::image::Pixels;
use crate::error::Fault;
use crate::limit::{reserve, zeros};

/// Scales an image so that it covers `size`, and crops the excess on both sides.
///
/// Each pixel is the weighted mean of the pixels under it, with a triangle filter as wide as the scale.
pub(super) fn cover(pixels: &Pixels, size: [usize; 2]) -> Result<Pixels, Fault> {
    let (channels, [height, width]) = (pixels.channels, pixels.size);
    if pixels.size == size {
        let mut data = Vec::new();
        reserve(&mut data, pixels.data.len())?;
        data.extend_from_slice(&pixels.data);
        return Ok(Pixels { size, channels, data });
    }
    let scale = (height as f32 / size[0] as f32).min(width as f32 / size[1] as f32);
    let columns = taps(width, size[1], scale);
    let rows = taps(height, size[0], scale);
    // First every row is scaled to its width, then every column to its height.
    let mut narrow = zeros::<f32>(height * size[1] * channels)?;
    for (line, out) in
        pixels.data.chunks_exact(width * channels).zip(narrow.chunks_exact_mut(size[1] * channels))
    {
        for (taps, out) in columns.iter().zip(out.chunks_exact_mut(channels)) {
            for (tap, pixel) in taps.weights.iter().zip(line.chunks_exact(channels).skip(taps.first)) {
                for (out, value) in out.iter_mut().zip(pixel) {
                    *out += tap * f32::from(*value);
                }
            }
        }
    }
    let line = size[1] * channels;
    let mut data = Vec::new();
    reserve(&mut data, size[0] * line)?;
    let mut sum = vec![0.0; line];
    for taps in &rows {
        sum.fill(0.0);
        for (tap, values) in taps.weights.iter().zip(narrow.chunks_exact(line).skip(taps.first)) {
            for (sum, value) in sum.iter_mut().zip(values) {
                *sum += tap * value;
            }
        }
        data.extend(sum.iter().map(|v| v.round().clamp(0.0, 255.0) as u8));
    }
    Ok(Pixels { size, channels, data })
}

/// The most memory that scaling to `size` takes, besides the image itself.
pub(super) fn implied([height, width]: [usize; 2], size: [usize; 2]) -> u64 {
    /// Bytes of a pixel whose three channels are numbers.
    const NUMBERS: u64 = 12;
    let area = |height: usize, width: usize| (height as u64).saturating_mul(width as u64);
    let taps = (height as u64 + width as u64 + size[0] as u64 + size[1] as u64).saturating_mul(64);
    let narrow = area(height, size[1]).saturating_mul(NUMBERS);
    narrow.saturating_add(area(size[0], size[1]).saturating_mul(3)).saturating_add(taps)
}

/// The neighbours that make one pixel.
struct Taps {
    first: usize,
    weights: Vec<f32>,
}

/// The sources of each of `out` pixels among `len`, centred, at this scale.
fn taps(len: usize, out: usize, scale: f32) -> Vec<Taps> {
    let start = (len as f32 - out as f32 * scale) / 2.0;
    let reach = scale.max(1.0);
    (0..out)
        .map(|i| {
            let centre = start + (i as f32 + 0.5) * scale;
            let first = ((centre - reach).max(0.0) as usize).min(len.saturating_sub(1));
            let end = ((centre + reach).ceil().max(0.0) as usize).clamp(first + 1, len.max(first + 1));
            let weight = |at: usize| (1.0 - ((at as f32 + 0.5 - centre) / reach).abs()).max(0.0);
            let mut weights: Vec<f32> = (first..end).map(weight).collect();
            let total: f32 = weights.iter().sum();
            if total > 0.0 {
                weights.iter_mut().for_each(|w| *w /= total);
            } else if let Some(only) = weights.first_mut() {
                *only = 1.0;
            }
            Taps { first, weights }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_and_doubles() {
        let two = Pixels { size: [2, 2], channels: 1, data: vec![0, 100, 100, 200] };
        let cover = |pixels: &Pixels, size| cover(pixels, size).unwrap();
        assert_eq!(cover(&two, [1, 1]).data, [100]);
        assert_eq!(cover(&two, [2, 2]), two);
        let four = cover(&two, [4, 4]).data;
        assert_eq!((four[0], four[3], four[15]), (0, 100, 200));
    }

    #[test]
    fn a_flat_image_stays_flat_and_the_middle_is_kept() {
        let flat = Pixels { size: [7, 13], channels: 3, data: [10, 20, 30].repeat(7 * 13) };
        for size in [[3, 3], [20, 5], [1, 1], [7, 13], [13, 7]] {
            assert_eq!(
                super::cover(&flat, size).unwrap().data,
                [10, 20, 30].repeat(size[0] * size[1]),
                "{size:?}"
            );
        }
        let cover = |pixels: &Pixels, size| super::cover(pixels, size).unwrap();
        let wide = Pixels { size: [2, 6], channels: 1, data: [9, 9, 0, 0, 9, 9].repeat(2) };
        assert_eq!(cover(&wide, [2, 2]).data, [0; 4]);
    }
}
