//! Curves of runs as pictures: SVG, PNG, and text for a terminal.
//!
//! ```text
//!   Chart ──► Prepared (smoothed, reduced to what the picture can show) ──► plotters ──► SVG, or pixels ──► PNG
//!                                                                       └─► braille dots ──► text
//! ```
//! Everything here is a function of the chart: nothing is read and nothing is written. Text in a PNG is drawn with a
//! bitmap font that is part of the program; an SVG has text elements.

mod draw;
mod prepare;
mod raster;
mod scatter;
mod terminal;

pub use draw::DrawError;
pub use prepare::smoothed;
pub use terminal::Cells;

/// What the x axis shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XAxis {
    Step,
    /// Seconds since a run began.
    Seconds,
    /// A number of these.
    Count(&'static str),
}

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub label: String,
    /// Points with rising x. A point that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
}

/// Curves that share their axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    pub title: String,
    pub lines: Vec<Line>,
}

/// Panels, one below the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub title: String,
    pub x: XAxis,
    /// Whether y axes are logarithmic; values of zero and less are left out then.
    pub log: bool,
    /// The weight of what was before in the exponential mean, from 0 (none) to below 1. The values themselves are drawn
    /// faintly behind.
    pub smoothing: f64,
    pub panels: Vec<Panel>,
}

/// A dot of a [`Scatter`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dot {
    pub x: f64,
    pub y: f64,
    /// What gives it its colour.
    pub shade: f64,
    /// Drawn as a circle.
    pub hollow: bool,
}

/// A line of a [`Scatter`] that is level from each point to the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct StepLine {
    /// Points with rising x, or with falling x.
    pub points: Vec<(f64, f64)>,
    pub shade: f64,
}

/// Dots and step lines over two axes, in colours that stand for a number. What is not finite is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter {
    pub title: String,
    /// The names of the axes.
    pub x: String,
    pub y: String,
    /// The name of what the colours stand for.
    pub shade: String,
    pub dots: Vec<Dot>,
    /// Drawn in this order; the last one is the current one.
    pub steps: Vec<StepLine>,
}

impl Scatter {
    /// The plot as an SVG document.
    ///
    /// # Errors
    /// The plot cannot be drawn.
    pub fn svg(&self, size: Size) -> Result<String, DrawError> {
        scatter::svg(self, size.bounded())
    }

    /// The plot as a PNG file.
    ///
    /// # Errors
    /// The plot cannot be drawn.
    pub fn png(&self, size: Size) -> Result<Vec<u8>, DrawError> {
        raster::scatter_png(self, size.bounded())
    }

    /// All dots and the last step line as lines of text; in colours, if the terminal has some.
    pub fn terminal(&self, size: Cells, colour: bool) -> String {
        terminal::draw_scatter(self, size, colour)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let dots = self.dots.iter().map(|dot| (dot.x, dot.y));
        dots.chain(self.steps.iter().flat_map(|line| line.points.iter().copied()))
    }
}

/// The size of a picture, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl Size {
    /// Larger pictures are drawn at this size: they take memory in proportion.
    const MOST: u32 = 10_000;
    /// Below this axes and labels have no room.
    const LEAST: u32 = 120;

    fn bounded(self) -> Self {
        let bound = |side: u32| side.clamp(Self::LEAST, Self::MOST);
        Self { width: bound(self.width), height: bound(self.height) }
    }
}

impl Chart {
    /// The chart as an SVG document.
    ///
    /// # Errors
    /// The chart cannot be drawn.
    pub fn svg(&self, size: Size) -> Result<String, DrawError> {
        draw::svg(self, size.bounded())
    }

    /// The chart as a PNG file.
    ///
    /// # Errors
    /// The chart cannot be drawn.
    pub fn png(&self, size: Size) -> Result<Vec<u8>, DrawError> {
        raster::png(self, size.bounded())
    }

    /// The chart as lines of text, each panel of this size; in colours, if the terminal has some.
    pub fn terminal(&self, panel: Cells, colour: bool) -> String {
        terminal::draw(self, panel, colour)
    }
}

/// A text without control characters, which a terminal would obey and an XML document may not contain.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_shown(letter) { letter } else { '\u{fffd}' }).collect()
}

fn is_shown(letter: char) -> bool {
    // Marks that change the direction of writing can make a text look like another.
    let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !letter.is_control() && !turns && !matches!(letter, '\u{fffe}' | '\u{ffff}')
}
