//! Dots and step lines whose colour is a number, with a bar that explains the colours.

use crate::draw::{DrawError, FONT, FONT_PX, TITLE_PX};
use crate::prepare::{self, Bounds, bounds_of, is_drawn};
use crate::{Scatter, Size, printable};
use plotters::coord::Shift;
use plotters::prelude::*;

/// From dark to light, so that the order is seen without colours, too; the lightest is still seen on white.
const SHADES: [(u8, u8, u8); 5] =
    [(52, 24, 108), (110, 36, 140), (186, 62, 110), (226, 112, 54), (236, 172, 30)];
/// How many steps of colour the bar shows.
const BAR_STEPS: u32 = 64;
const BAR_PX: u32 = 130;

/// The colour at a place between the least shade (0) and the greatest (1); what is no number is the least.
fn colour(part: f64) -> RGBColor {
    let part = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
    let place = part * (SHADES.len() - 1) as f64;
    let low = (place as usize).min(SHADES.len() - 2);
    let (from, to) = (SHADES[low], SHADES[low + 1]);
    let mix = |from: u8, to: u8| {
        (f64::from(from) + (f64::from(to) - f64::from(from)) * (place - low as f64)).round() as u8
    };
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

/// What can be drawn of a scatter plot.
struct Shown<'a> {
    scatter: &'a Scatter,
    bounds: Bounds,
    shades: (f64, f64),
}

impl Shown<'_> {
    fn colour(&self, shade: f64) -> RGBColor {
        let (low, high) = self.shades;
        // A single shade is that of the newest.
        colour(if high > low { (shade - low) / (high - low) } else { 0.0 })
    }
}

pub(crate) fn svg(scatter: &Scatter, size: Size) -> Result<String, DrawError> {
    let mut document = String::new();
    draw(scatter, SVGBackend::with_string(&mut document, (size.width, size.height)))?;
    Ok(document)
}

pub(crate) fn draw<B: DrawingBackend>(scatter: &Scatter, backend: B) -> Result<(), DrawError> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let (width, height) = root.dim_in_pixel();
    let (head, body) = root.split_vertically(TITLE_PX.min(height / 4));
    if !scatter.title.is_empty() {
        head.draw(&Text::new(printable(&scatter.title), (12, 9), (FONT, FONT_PX).into_font()))?;
    }
    match shown(scatter) {
        None => body.draw(&Text::new("no values", (12, 12), (FONT, FONT_PX).into_font()))?,
        // Without room for it, the colour bar is left out.
        Some(shown) if width < 4 * BAR_PX => draw_plot(&shown, &body)?,
        Some(shown) => {
            let (plot, bar) = body.split_horizontally(width - BAR_PX);
            draw_plot(&shown, &plot)?;
            draw_bar(&shown, &bar)?;
        }
    }
    root.present()?;
    Ok(())
}

fn shown(scatter: &Scatter) -> Option<Shown<'_>> {
    let points = || scatter.points().filter(|point| is_drawn(*point));
    let shades = scatter.dots.iter().map(|dot| dot.shade).chain(scatter.steps.iter().map(|line| line.shade));
    let finite = shades.filter(|shade| is_drawn((*shade, 0.0)));
    let shades = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), s| (low.min(s), high.max(s)));
    Some(Shown { scatter, bounds: bounds_of(points(), false)?, shades })
}

fn draw_plot<B: DrawingBackend>(shown: &Shown<'_>, area: &DrawingArea<B, Shift>) -> Result<(), DrawError> {
    let Bounds { x, y } = shown.bounds;
    let room = |(low, high): (f64, f64)| {
        let room = (high - low) * 0.04;
        low - room..high + room
    };
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(84)
        .build_cartesian_2d(room(x), room(y))?;
    let number = |value: &f64| prepare::number(*value);
    chart
        .configure_mesh()
        .light_line_style(RGBColor(244, 244, 244))
        .bold_line_style(RGBColor(222, 222, 222))
        .axis_style(RGBColor(90, 90, 90))
        .label_style((FONT, FONT_PX))
        .x_desc(printable(&shown.scatter.x))
        .y_desc(printable(&shown.scatter.y))
        .x_labels(8)
        .y_labels(6)
        .x_label_formatter(&number)
        .y_label_formatter(&number)
        .draw()?;
    let visible = |dot: &&crate::Dot| is_drawn((dot.x, dot.y));
    for dot in shown.scatter.dots.iter().filter(visible) {
        let colour = shown.colour(dot.shade);
        let style = if dot.hollow { colour.stroke_width(1) } else { colour.mix(0.7).filled() };
        chart.draw_series([Circle::new((dot.x, dot.y), 4, style)])?;
    }
    for line in &shown.scatter.steps {
        let colour = shown.colour(line.shade);
        for piece in line.points.split(|point| !is_drawn(*point)) {
            chart.draw_series(LineSeries::new(stairs(piece), colour.stroke_width(2)))?;
            chart.draw_series(piece.iter().map(|point| Circle::new(*point, 5, colour.filled())))?;
        }
    }
    Ok(())
}

/// The corners of a step line: it goes on level to the next point, then up or down.
pub(crate) fn stairs(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corner = |ends: &[(f64, f64)]| [ends[0], (ends[1].0, ends[0].1)];
    points.windows(2).flat_map(corner).chain(points.last().copied()).collect()
}

fn draw_bar<B: DrawingBackend>(shown: &Shown<'_>, area: &DrawingArea<B, Shift>) -> Result<(), DrawError> {
    let (low, high) = if shown.shades.1 > shown.shades.0 {
        shown.shades
    } else {
        (shown.shades.0 - 0.5, shown.shades.0 + 0.5)
    };
    if !low.is_finite() || !high.is_finite() {
        return Ok(());
    }
    let mut bar = ChartBuilder::on(area)
        .margin_top(10)
        .margin_bottom(54)
        .right_y_label_area_size(90)
        .build_cartesian_2d(0.0..1.0, low..high)?;
    let step = (high - low) / f64::from(BAR_STEPS);
    // Between whole numbers there are no ticks.
    let most =
        if low.fract() == 0.0 && high.fract() == 0.0 { (high - low + 1.0).min(6.0) as usize } else { 6 };
    bar.draw_series((0..BAR_STEPS).map(|index| {
        let from = low + step * f64::from(index);
        let colour = shown.colour(from + step / 2.0);
        Rectangle::new([(0.0, from), (1.0, from + step)], colour.filled())
    }))?;
    bar.configure_mesh()
        .disable_mesh()
        .disable_x_axis()
        .axis_style(RGBColor(90, 90, 90))
        .label_style((FONT, FONT_PX))
        .y_labels(most)
        .y_label_formatter(&|value: &f64| prepare::number(*value))
        .y_desc(printable(&shown.scatter.shade))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_rise_from_dark_to_light() {
        let light = |part: f64| {
            let RGBColor(red, green, blue) = colour(part);
            0.3 * f64::from(red) + 0.6 * f64::from(green) + 0.1 * f64::from(blue)
        };
        for step in 0..50 {
            let part = f64::from(step) / 50.0;
            assert!(light(part) < light(part + 0.02), "{part}");
        }
        assert_eq!((colour(-1.0), colour(f64::NAN)), (colour(0.0), colour(0.0)));
    }

    #[test]
    fn a_step_line_is_level_up_to_the_next_point() {
        assert_eq!(stairs(&[(1.0, 5.0), (2.0, 3.0)]), [(1.0, 5.0), (2.0, 5.0), (2.0, 3.0)]);
        assert_eq!(stairs(&[(1.0, 5.0)]), [(1.0, 5.0)]);
        assert_eq!(stairs(&[]), []);
    }
}
