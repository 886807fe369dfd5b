//! The part of the input that a block of output rows covers, and the offset of each output pixel's window in it.

use super::axis::ConvAxis;

/// Some output rows (all columns) of a stack of images, and the images they cover.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageBlock {
    pub(super) rows: ConvAxis,
    pub(super) cols: ConvAxis,
    /// Channels of the input images.
    pub(super) c: usize,
    /// Elements from an output pixel to the next.
    pub(super) out_c: usize,
    /// Rows of the output, counted through all images.
    pub(super) first: usize,
    pub(super) end: usize,
}

/// A run of the block's rows within one image: the image, and which of the axis' positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) image: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

impl ImageBlock {
    /// Whether the input must be copied with zero padding.
    pub(super) fn copies(&self) -> bool {
        self.rows.overhangs() || self.cols.overhangs()
    }

    /// The block, image by image.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> + use<> {
        let (rows, first, end) = (self.rows, self.first, self.end);
        let h = rows.output;
        (first / h..end.div_ceil(h)).map(move |image| {
            let (from, to) = (first.max(image * h) - image * h, end.min((image + 1) * h) - image * h);
            Span { image, from: rows.before(from), to: rows.before(to) }
        })
    }

    /// How many pixels the block has.
    pub(super) fn pixels(&self) -> usize {
        let cols = self.cols.count();
        self.spans().map(|span| (span.to - span.from) * cols).sum()
    }

    /// Elements from one row to the next in the memory that [`ImageBlock::begin`] refers to.
    pub(super) fn pitch(&self) -> usize {
        if self.copies() { self.cols.span(self.cols.count()) * self.c } else { self.cols.input * self.c }
    }

    /// Elements of the copy.
    pub(super) fn room(&self) -> usize {
        if !self.copies() {
            return 0;
        }
        let pitch = self.pitch();
        self.spans().map(|span| self.rows.span(span.to - span.from) * pitch).sum()
    }

    /// Copies the input of the block, with zeros outside the image.
    pub(super) fn copy(&self, x: &[f32], window: &mut [f32]) {
        let pitch = self.pitch();
        if pitch == 0 {
            return;
        }
        let (c, h, w) = (self.c, self.rows.input, self.cols.input);
        let left = ((-self.cols.first).max(0) as usize * c).min(pitch);
        let skip = self.cols.first.max(0) as usize;
        let width = (w.saturating_sub(skip) * c).min(pitch - left);
        let mut lines = window.chunks_exact_mut(pitch);
        for span in self.spans() {
            let top = (span.from * self.rows.stride) as isize + self.rows.first;
            for (i, line) in lines.by_ref().take(self.rows.span(span.to - span.from)).enumerate() {
                let row = top + i as isize;
                if row < 0 || row as usize >= h || width == 0 {
                    line.fill(0.0);
                    continue;
                }
                let from = ((span.image * h + row as usize) * w + skip) * c;
                line[..left].fill(0.0);
                line[left..left + width].copy_from_slice(&x[from..from + width]);
                line[left + width..].fill(0.0);
            }
        }
    }

    /// Where each row of output pixels begins: in the copy, or else in the input from [`ImageBlock::base`] on.
    pub(super) fn begin(&self) -> impl Iterator<Item = usize> + use<> {
        let (rows, pitch) = (self.rows, self.pitch());
        let copies = self.copies();
        let skip = if copies { 0 } else { self.cols.first as usize * self.c };
        let base = self.base();
        let h = rows.input;
        let mut copied = 0;
        self.spans().flat_map(move |span| {
            let top = if copies { copied } else { (span.image * h).wrapping_add_signed(rows.first) };
            copied += rows.span(span.to - span.from);
            (span.from..span.to).map(move |i| {
                let row = if copies { (i - span.from) * rows.stride } else { i * rows.stride };
                (top + row) * pitch + skip - base
            })
        })
    }

    /// The offset of the block's images in the input, so that offsets within it are small.
    pub(super) fn base(&self) -> usize {
        if self.copies() {
            0
        } else {
            self.first / self.rows.output * self.rows.input * self.cols.input * self.c
        }
    }

    /// Lists the offset of each pixel in its input, and in the output rows of the block.
    pub(super) fn pixels_into(&self, source: &mut [u32], target: &mut [u32]) {
        let columns = self.cols.count();
        let (ahead, aside) = (self.cols.stride * self.c, self.cols.out_step * self.out_c);
        let lines = self.spans().flat_map(|span| (span.from..span.to).map(move |i| (span.image, i)));
        let places = source.chunks_exact_mut(columns.max(1)).zip(target.chunks_exact_mut(columns.max(1)));
        for ((begin, (image, i)), (source, target)) in self.begin().zip(lines).zip(places) {
            let row = image * self.rows.output + self.rows.out_first + i * self.rows.out_step - self.first;
            let to = (row * self.cols.output + self.cols.out_first) * self.out_c;
            for (j, (source, target)) in source.iter_mut().zip(target).enumerate() {
                *source = (begin + j * ahead) as u32;
                *target = (to + j * aside) as u32;
            }
        }
    }
}
