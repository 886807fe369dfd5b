//! A chart as text: curves of braille dots, 2 × 4 in a cell.

use crate::prepare::{Bounds, Prepared, bounds, bounds_of, is_drawn, number, prepare, seconds};
use crate::scatter::stairs;
use crate::{Chart, Panel, Scatter, XAxis, printable};

/// The size of a picture, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cells {
    pub columns: usize,
    pub rows: usize,
}

impl Cells {
    /// No terminal is larger; less has no room for axes.
    fn bounded(self) -> Self {
        Self { columns: self.columns.clamp(24, 1000), rows: self.rows.clamp(3, 400) }
    }
}

/// Colours of curves, as numbers of ANSI's.
const COLOURS: [u8; 6] = [34, 33, 32, 35, 36, 31];
const BRAILLE: u32 = 0x2800;
/// The bits of a cell's dots, by column and row.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// The dots of all curves; the last curve through a cell gives it its colour.
struct Canvas {
    columns: usize,
    cells: Vec<(u8, usize)>,
}

impl Canvas {
    fn dot(&mut self, x: usize, y: usize, line: usize) {
        let (column, row) = (x / 2, y / 4);
        if column < self.columns
            && let Some(cell) = self.cells.get_mut(row * self.columns + column)
        {
            cell.0 |= DOTS[x % 2][y % 4];
            cell.1 = line;
        }
    }

    /// All dots between two.
    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), line: usize) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
        for step in 0..=steps as usize {
            let part = step as f64 / steps;
            let at = |a: f64, b: f64| (a + (b - a) * part).round().max(0.0) as usize;
            self.dot(at(from.0, to.0), at(from.1, to.1), line);
        }
    }
}

pub(crate) fn draw(chart: &Chart, size: Cells, colour: bool) -> String {
    let size = size.bounded();
    let mut text = String::new();
    for panel in &chart.panels {
        if !text.is_empty() {
            text.push('\n');
        }
        draw_panel(chart, panel, size, colour, &mut text);
    }
    text
}

fn draw_panel(chart: &Chart, panel: &Panel, size: Cells, colour: bool, text: &mut String) {
    // Room for the numbers of the y axis is taken from the picture's columns.
    let lines = prepare(chart, &panel.lines, size.columns * 2);
    let title = printable(&panel.title);
    let Some(bounds) = visible(&lines, chart.log) else {
        text.push_str(&format!("{title}: no values\n"));
        return;
    };
    text.push_str(&heading(&title, &lines, colour));
    let axis = match chart.x {
        XAxis::Step => (number(bounds.x.0), format!("step {}", number(bounds.x.1))),
        XAxis::Seconds => {
            let span = bounds.x.1 - bounds.x.0;
            (seconds(bounds.x.0, span), seconds(bounds.x.1, span))
        }
        XAxis::Count(what) => (number(bounds.x.0), format!("{} {what}", number(bounds.x.1))),
    };
    draw_picture(&Picture { lines: &lines, bounds, log: chart.log, axis }, size, colour, text);
}

/// All dots, and the last step line over them.
pub(crate) fn draw_scatter(scatter: &Scatter, size: Cells, colour: bool) -> String {
    let size = size.bounded();
    let title = printable(&scatter.title);
    let drawn = |point: &(f64, f64)| is_drawn(*point);
    let Some(bounds) = bounds_of(scatter.points().filter(drawn), false) else {
        return format!("{title}: no values\n");
    };
    let dots = scatter.dots.iter().map(|dot| (dot.x, dot.y)).filter(drawn).map(|dot| vec![dot]).collect();
    let last: &[(f64, f64)] = scatter.steps.last().map_or(&[], |line| &line.points);
    let front = last.split(|point| !is_drawn(*point)).map(stairs).filter(|piece| !piece.is_empty()).collect();
    let line = |label: &str, pieces| Prepared { label: label.to_owned(), pieces, behind: Vec::new() };
    let lines = [line("all", dots), line("front", front)];
    let mut text = format!("{title}\n");
    let names = [format!("⣀ {} over {}", printable(&scatter.y), printable(&scatter.x)), "⣀ front".to_owned()];
    for (index, name) in names.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "  " });
        text.push_str(&painted(name, index, colour));
    }
    text.push('\n');
    let right = format!("{} {}", printable(&scatter.x), number(bounds.x.1));
    let axis = (number(bounds.x.0), right);
    draw_picture(&Picture { lines: &lines, bounds, log: false, axis }, size, colour, &mut text);
    text
}

/// Curves and what their axes show.
struct Picture<'a> {
    lines: &'a [Prepared],
    bounds: Bounds,
    log: bool,
    /// The labels of the ends of the x axis.
    axis: (String, String),
}

fn draw_picture(picture: &Picture<'_>, size: Cells, colour: bool, text: &mut String) {
    let Picture { lines, bounds, log, axis: (left, right) } = picture;
    let labels = [bounds.y.1, middle(bounds.y, *log), bounds.y.0].map(number);
    let margin = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let columns = size.columns.saturating_sub(margin + 2).max(8);
    let canvas = plot(lines, *bounds, *log, Cells { columns, ..size });
    for row in 0..size.rows {
        let label = match row {
            0 => &labels[0],
            row if row == size.rows - 1 => &labels[2],
            row if row == size.rows / 2 => &labels[1],
            _ => "",
        };
        let axis = if label.is_empty() { '│' } else { '┤' };
        let cells = &canvas.cells[row * columns..(row + 1) * columns];
        text.push_str(&format!("{label:>margin$} {axis}{}\n", cells_as_text(cells, colour).trim_end()));
    }
    let space = columns.saturating_sub(left.chars().count());
    text.push_str(&format!("{:margin$} └{}\n", "", "─".repeat(columns)));
    text.push_str(&format!("{:margin$}  {left}{right:>space$}\n", ""));
}

/// Where the curves lie that a terminal shows: only the smoothed ones.
fn visible(lines: &[Prepared], log: bool) -> Option<Bounds> {
    let front = |line: &Prepared| Prepared { behind: Vec::new(), ..line.clone() };
    bounds(&lines.iter().map(front).collect::<Vec<_>>(), log)
}

fn middle((low, high): (f64, f64), log: bool) -> f64 {
    if log { (low * high).sqrt() } else { (low + high) / 2.0 }
}

fn heading(title: &str, lines: &[Prepared], colour: bool) -> String {
    let mut heading = title.to_owned();
    if lines.len() > 1 || lines.iter().any(|line| line.label != title) {
        for (index, line) in lines.iter().enumerate() {
            let last = line.pieces.last().and_then(|piece| piece.last()).map(|(_, y)| number(*y));
            let label = format!("{} ({})", line.label, last.as_deref().unwrap_or("no values"));
            heading.push_str("  ");
            heading.push_str(&painted(&format!("⣀ {label}"), index, colour));
        }
    }
    heading.push('\n');
    heading
}

fn plot(lines: &[Prepared], bounds: Bounds, log: bool, size: Cells) -> Canvas {
    let mut canvas = Canvas { columns: size.columns, cells: vec![(0, 0); size.columns * size.rows] };
    let scale = |value: f64| if log { value.ln() } else { value };
    let (low, high) = (scale(bounds.y.0), scale(bounds.y.1));
    let (width, height) = ((size.columns * 2 - 1) as f64, (size.rows * 4 - 1) as f64);
    let at = |(x, y): (f64, f64)| {
        let right = (x - bounds.x.0) / (bounds.x.1 - bounds.x.0) * width;
        let up = (scale(y) - low) / (high - low);
        (right.clamp(0.0, width), ((1.0 - up) * height).clamp(0.0, height))
    };
    for (index, line) in lines.iter().enumerate() {
        for piece in &line.pieces {
            if let [only] = piece[..] {
                canvas.stroke(at(only), at(only), index);
            }
            for ends in piece.windows(2) {
                canvas.stroke(at(ends[0]), at(ends[1]), index);
            }
        }
    }
    canvas
}

fn cells_as_text(cells: &[(u8, usize)], colour: bool) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(|a, b| (a.0 == 0) == (b.0 == 0) && a.1 == b.1) {
        let is_empty = run.iter().all(|(dots, _)| *dots == 0);
        let letter = |(dots, _): &(u8, usize)| match dots {
            0 => ' ',
            dots => char::from_u32(BRAILLE + u32::from(*dots)).unwrap_or(' '),
        };
        let letters: String = run.iter().map(letter).collect();
        text.push_str(&painted(&letters, run[0].1, colour && !is_empty));
    }
    text
}

fn painted(text: &str, line: usize, colour: bool) -> String {
    if colour { format!("\x1b[{}m{text}\x1b[0m", COLOURS[line % COLOURS.len()]) } else { text.to_owned() }
}
