//! A chart drawn with plotters, on any backend.

use crate::prepare::{self, Bounds, Prepared, bounds, prepare};
use crate::{Chart, Panel, Size, XAxis, printable};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters_backend::DrawingErrorKind;

/// The colours of curves, told apart by colour-blind people, too.
pub(crate) const COLOURS: [(u8, u8, u8); 8] = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (230, 159, 0),
    (110, 110, 110),
    (0, 0, 0),
];
pub(crate) const FONT: &str = "monospace";
pub(crate) const FONT_PX: u32 = 16;
pub(crate) const TITLE_PX: u32 = 32;

/// Why a chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrawError {
    /// What the plotting library said.
    #[error("could not draw the chart: {0}")]
    Backend(String),
    #[error("could not encode the picture")]
    Png(#[from] png::EncodingError),
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for DrawError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Backend(error.to_string())
    }
}

impl<E: std::error::Error + Send + Sync> From<DrawingErrorKind<E>> for DrawError {
    fn from(error: DrawingErrorKind<E>) -> Self {
        Self::Backend(error.to_string())
    }
}

pub(crate) fn svg(chart: &Chart, size: Size) -> Result<String, DrawError> {
    let mut document = String::new();
    draw(chart, SVGBackend::with_string(&mut document, (size.width, size.height)))?;
    Ok(document)
}

/// Draws all panels one below the other, under the title.
pub(crate) fn draw<B: DrawingBackend>(chart: &Chart, backend: B) -> Result<(), DrawError> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let (width, height) = root.dim_in_pixel();
    let title_px = TITLE_PX.min(height / 4);
    let (head, body) = root.split_vertically(title_px);
    if !chart.title.is_empty() {
        head.draw(&Text::new(printable(&chart.title), (12, 9), (FONT, FONT_PX).into_font()))?;
    }
    for (area, panel) in body.split_evenly((chart.panels.len().max(1), 1)).iter().zip(&chart.panels) {
        draw_panel(chart, panel, area, width)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel<B: DrawingBackend>(
    chart: &Chart,
    panel: &Panel,
    area: &DrawingArea<B, plotters::coord::Shift>,
    width: u32,
) -> Result<(), DrawError> {
    let lines = prepare(chart, &panel.lines, width as usize);
    let Some(Bounds { x, y }) = bounds(&lines, chart.log) else {
        let text = format!("{}: no values", printable(&panel.title));
        area.draw(&Text::new(text, (12, 12), (FONT, FONT_PX).into_font()))?;
        return Ok(());
    };
    let frame = Frame { x: chart.x, title: &panel.title, lines: &lines };
    if chart.log {
        frame.draw(area, x, (y.0..y.1).log_scale())
    } else {
        let room = (y.1 - y.0) * 0.04;
        frame.draw(area, x, y.0 - room..y.1 + room)
    }
}

/// What a panel shows, whatever the scale of its y axis.
struct Frame<'a> {
    x: XAxis,
    title: &'a str,
    lines: &'a [Prepared],
}

impl Frame<'_> {
    /// The names stand on the right, where curves that rise are high and others are low.
    fn place_of_names(&self) -> SeriesLabelPosition {
        let ends = self
            .lines
            .iter()
            .filter_map(|line| Some((line.pieces.first()?.first()?, line.pieces.last()?.last()?)));
        let rise: f64 = ends.map(|(first, last)| last.1 - first.1).sum();
        if rise > 0.0 { SeriesLabelPosition::LowerRight } else { SeriesLabelPosition::UpperRight }
    }

    fn draw<B, Y>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
        x: (f64, f64),
        y: Y,
    ) -> Result<(), DrawError>
    where
        B: DrawingBackend,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .caption(printable(self.title), (FONT, FONT_PX))
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(x.0..x.1, y)?;
        let span = x.1 - x.0;
        let in_steps = |value: &f64| prepare::number(*value);
        let in_seconds = |value: &f64| prepare::seconds(*value, span);
        let (x_name, x_label): (&str, &dyn Fn(&f64) -> String) = match self.x {
            XAxis::Step => ("step", &in_steps),
            XAxis::Seconds => ("time", &in_seconds),
            XAxis::Count(what) => (what, &in_steps),
        };
        chart
            .configure_mesh()
            .light_line_style(RGBColor(244, 244, 244))
            .bold_line_style(RGBColor(222, 222, 222))
            .axis_style(RGBColor(90, 90, 90))
            .label_style((FONT, FONT_PX))
            .x_desc(x_name)
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(x_label)
            .y_label_formatter(&in_steps)
            .draw()?;
        for (index, line) in self.lines.iter().enumerate() {
            let (red, green, blue) = COLOURS[index % COLOURS.len()];
            let colour = RGBColor(red, green, blue);
            for piece in &line.behind {
                chart.draw_series(LineSeries::new(piece.iter().copied(), colour.mix(0.25)))?;
            }
            for piece in &line.pieces {
                chart.draw_series(LineSeries::new(piece.iter().copied(), colour.stroke_width(2)))?;
                if let [(x, y)] = piece[..] {
                    chart.draw_series([Circle::new((x, y), 3, colour.filled())])?;
                }
            }
            // An empty series that only names the curve.
            let named = chart.draw_series(std::iter::empty::<PathElement<(f64, f64)>>())?;
            let legend = move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(2));
            named.label(&line.label).legend(legend);
        }
        chart
            .configure_series_labels()
            .position(self.place_of_names())
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .label_font((FONT, FONT_PX))
            .draw()?;
        Ok(())
    }
}
