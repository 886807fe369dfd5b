//! Cropping and mirroring images.

use crate::draw::Draws;
use crate::error::TransformError;
use serde::{Deserialize, Serialize};

/// A crop of an image: at a random position in training, in the centre otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crop {
    /// The size of the crop; the size of the image if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Sides>,
    /// Zero padding added around the image before.
    #[serde(default)]
    pub pad: usize,
}

/// The size of a crop, written as one number or as `[height, width]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sides {
    Square(usize),
    Sides([usize; 2]),
}

impl Sides {
    fn sides(self) -> [usize; 2] {
        match self {
            Self::Square(side) => [side; 2],
            Self::Sides(sides) => sides,
        }
    }
}

/// The most padding around an image.
const MOST_PADDING: usize = 1 << 16;

/// How to crop and mirror images of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    channels: usize,
    /// Height and width before.
    from: [usize; 2],
    /// Height and width after.
    to: [usize; 2],
    pad: usize,
    flip: bool,
}

/// The position of a crop, and whether it is mirrored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pick {
    /// The first row and column of the crop in the padded image.
    corner: [usize; 2],
    flip: bool,
}

impl Cut {
    /// Crop and flip for samples of this shape; `None` if they change nothing.
    pub(crate) fn new(
        crop: Option<Crop>,
        flip: bool,
        shape: &[usize],
    ) -> Result<Option<Self>, TransformError> {
        let crop = match crop {
            Some(crop) => crop,
            None if flip => Crop::default(),
            None => return Ok(None),
        };
        let (channels, from) = match *shape {
            [height, width] => (1, [height, width]),
            [channels, height, width] => (channels, [height, width]),
            _ => return Err(TransformError::NotAnImage { shape: shape.to_vec() }),
        };
        let Crop { size, pad } = crop;
        let to = size.map_or(from, Sides::sides);
        let fits =
            |(to, from): (usize, usize)| to > 0 && to <= from.saturating_add(2 * pad.min(MOST_PADDING));
        if pad > MOST_PADDING || !fits((to[0], from[0])) || !fits((to[1], from[1])) {
            return Err(TransformError::CropTooLarge { size: to, image: from, pad });
        }
        Ok(Some(Self { channels, from, to, pad, flip }))
    }

    /// The shape of a sample of `shape` after it.
    pub(crate) fn shape(&self, shape: &[usize]) -> Vec<usize> {
        let mut shape = shape.to_vec();
        let axes = shape.len().saturating_sub(2);
        shape.truncate(axes);
        shape.extend(self.to);
        shape
    }

    pub(crate) fn size_before(&self) -> usize {
        self.channels * self.from[0] * self.from[1]
    }

    pub(crate) fn size_after(&self) -> usize {
        self.channels * self.to[0] * self.to[1]
    }

    /// Whether it changes nothing when nothing is random.
    pub(crate) fn is_idle(&self, random: bool) -> bool {
        self.from == self.to && !random
    }

    /// Writes the crop of `image` into `out`; the centre if there are no draws.
    pub(crate) fn apply(&self, image: &[f32], draws: Option<Draws>, out: &mut [f32]) {
        let pick = self.pick(draws);
        let [height, width] = self.from;
        let [rows, columns] = self.to;
        let planes = image.chunks_exact(height * width).zip(out.chunks_exact_mut(rows * columns));
        for (image, out) in planes {
            for (row, out) in out.chunks_exact_mut(columns).enumerate() {
                let source = (row + pick.corner[0]).checked_sub(self.pad).filter(|row| *row < height);
                match source.and_then(|row| image.get(row * width..(row + 1) * width)) {
                    Some(line) => copy_line(line, pick.corner[1], self.pad, out),
                    None => out.fill(0.0),
                }
                if pick.flip {
                    out.reverse();
                }
            }
        }
    }

    fn pick(&self, draws: Option<Draws>) -> Pick {
        let room = |side: usize| self.from[side] + 2 * self.pad - self.to[side];
        match draws {
            Some(mut draws) => {
                let mut place = |side| draws.below(room(side) as u64 + 1) as usize;
                let corner = [place(0), place(1)];
                Pick { corner, flip: self.flip && draws.below(2) == 1 }
            }
            None => Pick { corner: [room(0) / 2, room(1) / 2], flip: false },
        }
    }
}

/// Copies from a line that has `pad` zeros on both sides, beginning at `first`.
fn copy_line(line: &[f32], first: usize, pad: usize, out: &mut [f32]) {
    let before = pad.saturating_sub(first).min(out.len());
    let (zeros, rest) = out.split_at_mut(before);
    zeros.fill(0.0);
    let line = line.get(first.saturating_sub(pad)..).unwrap_or_default();
    let inside = line.len().min(rest.len());
    let (values, zeros) = rest.split_at_mut(inside);
    values.copy_from_slice(&line[..inside]);
    zeros.fill(0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(size: Option<Sides>, pad: usize, flip: bool, shape: &[usize]) -> Cut {
        Cut::new(Some(Crop { size, pad }), flip, shape).unwrap().unwrap()
    }

    /// What a pixel by pixel definition gives.
    fn slowly(cut: &Cut, pick: Pick, image: &[f32]) -> Vec<f32> {
        let mut out = Vec::new();
        for channel in 0..cut.channels {
            for row in 0..cut.to[0] {
                for column in 0..cut.to[1] {
                    let column = if pick.flip { cut.to[1] - 1 - column } else { column };
                    let y = (row + pick.corner[0]) as isize - cut.pad as isize;
                    let x = (column + pick.corner[1]) as isize - cut.pad as isize;
                    let inside =
                        (0..cut.from[0] as isize).contains(&y) && (0..cut.from[1] as isize).contains(&x);
                    let at = (channel * cut.from[0] + y.max(0) as usize) * cut.from[1] + x.max(0) as usize;
                    out.push(if inside { image[at] } else { 0.0 });
                }
            }
        }
        out
    }

    #[test]
    fn crops_match_the_definition() {
        let image: Vec<f32> = (1..=2 * 3 * 5).map(|v| v as f32).collect();
        for (size, pad) in [
            (None, 0),
            (None, 2),
            (Some(Sides::Square(2)), 0),
            (Some(Sides::Sides([1, 5])), 1),
            (Some(Sides::Square(7)), 2),
            (Some(Sides::Sides([3, 9])), 4),
        ] {
            let cut = cut(size, pad, true, &[2, 3, 5]);
            let mut out = vec![9.0; cut.size_after()];
            for sample in 0..50 {
                let draws = Draws::new(1, "augment", 0, sample);
                cut.apply(&image, Some(draws.clone()), &mut out);
                assert_eq!(out, slowly(&cut, cut.pick(Some(draws)), &image), "{size:?} {pad}");
            }
            cut.apply(&image, None, &mut out);
            assert_eq!(out, slowly(&cut, cut.pick(None), &image));
        }
    }

    #[test]
    fn the_middle_is_the_middle() {
        let image: Vec<f32> = (0..16).map(|v| v as f32).collect();
        let mut out = [0.0; 4];
        cut(Some(Sides::Square(2)), 0, true, &[4, 4]).apply(&image, None, &mut out);
        assert_eq!(out, [5.0, 6.0, 9.0, 10.0]);
        assert!(cut(None, 4, true, &[1, 4, 4]).is_idle(false));
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let new = |size, pad, shape: &[usize]| Cut::new(Some(Crop { size, pad }), false, shape);
        assert!(matches!(new(None, 0, &[10]), Err(TransformError::NotAnImage { .. })));
        for (size, pad) in [(Sides::Square(9), 2), (Sides::Square(0), 0), (Sides::Square(4), usize::MAX)] {
            let refused = new(Some(size), pad, &[4, 4]);
            assert!(matches!(refused, Err(TransformError::CropTooLarge { .. })), "{size:?}");
        }
        assert_eq!(Cut::new(None, false, &[10]), Ok(None));
    }

    #[test]
    fn flips_and_places_are_all_drawn() {
        let cut = cut(None, 1, true, &[3, 3]);
        let picks: Vec<Pick> = (0..2000).map(|i| cut.pick(Some(Draws::new(3, "augment", 1, i)))).collect();
        for row in 0..3 {
            for column in 0..3 {
                for flip in [false, true] {
                    assert!(picks.contains(&Pick { corner: [row, column], flip }));
                }
            }
        }
    }
}
