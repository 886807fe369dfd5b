//! Pixels that plotters draws on, with text from a bitmap font, and their PNG.

use crate::draw::{DrawError, draw};
use crate::{Chart, Scatter, Size, scatter};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontTransform,
};
use std::convert::Infallible;

const WEIGHT: FontWeight = FontWeight::Regular;
const HEIGHT: RasterHeight = RasterHeight::Size16;
/// Drawn for letters that the font lacks.
const MISSING: char = '?';

pub(crate) fn png(chart: &Chart, size: Size) -> Result<Vec<u8>, DrawError> {
    let mut pixels = Pixels::new(size);
    draw(chart, &mut pixels)?;
    encoded(&pixels)
}

pub(crate) fn scatter_png(scatter: &Scatter, size: Size) -> Result<Vec<u8>, DrawError> {
    let mut pixels = Pixels::new(size);
    scatter::draw(scatter, &mut pixels)?;
    encoded(&pixels)
}

fn encoded(pixels: &Pixels) -> Result<Vec<u8>, DrawError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, pixels.size.width, pixels.size.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels.rgb)?;
    writer.finish()?;
    Ok(file)
}

/// A picture in memory.
#[derive(Debug)]
struct Pixels {
    size: Size,
    /// Three bytes for each pixel, row by row.
    rgb: Vec<u8>,
}

impl Pixels {
    fn new(size: Size) -> Self {
        Self { size, rgb: vec![255; size.width as usize * size.height as usize * 3] }
    }

    /// Mixes a colour into a pixel; outside of the picture nothing happens.
    fn mix(&mut self, (x, y): (i32, i32), colour: BackendColor, share: f64) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if x >= self.size.width || y >= self.size.height {
            return;
        }
        let at = (y as usize * self.size.width as usize + x as usize) * 3;
        let share = (colour.alpha * share).clamp(0.0, 1.0);
        let (red, green, blue) = colour.rgb;
        for (pixel, new) in self.rgb[at..at + 3].iter_mut().zip([red, green, blue]) {
            *pixel = (f64::from(*pixel) * (1.0 - share) + f64::from(new) * share).round() as u8;
        }
    }
}

/// The size of a text, in pixels.
fn text_size(text: &str) -> (i32, i32) {
    let width = get_raster_width(WEIGHT, HEIGHT) * text.chars().count();
    (i32::try_from(width).unwrap_or(i32::MAX), HEIGHT.val() as i32)
}

impl DrawingBackend for &mut Pixels {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.size.width, self.size.height)
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn draw_pixel(
        &mut self,
        at: BackendCoord,
        colour: BackendColor,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        self.mix(at, colour, 1.0);
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (width, height) = text_size(text);
        let (width, height) = (width.unsigned_abs(), height.unsigned_abs());
        Ok(match style.transform() {
            FontTransform::None | FontTransform::Rotate180 => (width, height),
            FontTransform::Rotate90 | FontTransform::Rotate270 => (height, width),
        })
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let (width, height) = text_size(text);
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let top = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -height / 2,
            VPos::Bottom => -height,
        };
        let turn = style.transform();
        let colour = style.color();
        let mut at = left;
        for letter in text.chars() {
            let raster = get_raster(letter, WEIGHT, HEIGHT).or_else(|| get_raster(MISSING, WEIGHT, HEIGHT));
            let Some(raster) = raster else { continue };
            for (row, line) in raster.raster().iter().enumerate() {
                for (column, strength) in line.iter().enumerate() {
                    let (dx, dy) = turn.transform(at + column as i32, top + row as i32);
                    self.mix((x + dx, y + dy), colour, f64::from(*strength) / 255.0);
                }
            }
            at += raster.width() as i32;
        }
        Ok(())
    }
}
