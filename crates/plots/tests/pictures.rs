//! Pictures of charts: what they contain, whatever the names in them.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use phalanx_plots::{Cells, Chart, Dot, Line, Panel, Scatter, Size, StepLine, XAxis};

const SIZE: Size = Size { width: 800, height: 500 };

fn falling(label: &str, from: f64) -> Line {
    Line { label: label.to_owned(), points: (1..=500).map(|x| (f64::from(x), from / f64::from(x))).collect() }
}

fn chart(log: bool, lines: Vec<Line>) -> Chart {
    let panel = Panel { title: "loss".to_owned(), lines };
    Chart { title: "two runs".to_owned(), x: XAxis::Step, log, smoothing: 0.0, panels: vec![panel] }
}

/// The pixels of a PNG.
fn decoded(file: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

fn has_colour(pixels: &[u8], colour: [u8; 3]) -> usize {
    pixels.chunks(3).filter(|pixel| *pixel == colour).count()
}

#[test]
fn an_svg_has_text_a_curve_for_each_line_and_no_markup_from_names() {
    for log in [false, true] {
        let lines = vec![falling("first", 3.0), falling("<script>alert(1)</script>\u{1b}[2J", 2.0)];
        let svg = chart(log, lines).svg(SIZE).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("two runs") && svg.contains("loss") && svg.contains("first"));
        assert!(svg.contains("#0072B2") && svg.contains("#D55E00"), "both curves");
        assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "names are escaped");
        assert!(!svg.contains('\u{1b}'), "no control characters");
    }
}

#[test]
fn a_png_has_curves_and_text() {
    let (width, height, pixels) = decoded(&chart(false, vec![falling("first", 3.0)]).png(SIZE).unwrap());
    assert_eq!((width, height), (SIZE.width, SIZE.height));
    assert!(has_colour(&pixels, [0, 114, 178]) > 300, "the curve");
    // The title is the only thing in the upper left corner.
    let corner = (0..30).flat_map(|y| (0..120).map(move |x| (y * 800 + x) * 3));
    assert!(corner.filter(|at| pixels[*at] < 128).count() > 50, "the title");
}

#[test]
fn a_smoothed_curve_has_its_values_behind_it() {
    let noisy = (0..400).map(|x| (f64::from(x), f64::from(x % 2))).collect();
    let mut chart = chart(false, vec![Line { label: "noisy".to_owned(), points: noisy }]);
    let raw = chart.svg(SIZE).unwrap();
    chart.smoothing = 0.95;
    let smooth = chart.svg(SIZE).unwrap();
    assert_eq!(
        (raw.matches("<polyline").count() + 1).min(smooth.matches("<polyline").count()),
        raw.matches("<polyline").count() + 1
    );
    assert!(smooth.contains("opacity=\"0.25\""), "{smooth}");
}

#[test]
fn a_terminal_gets_a_picture_that_falls_within_its_width() {
    let text = chart(false, vec![falling("loss", 3.0)]).terminal(Cells { columns: 60, rows: 10 }, false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 10 + 2, "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{text}");
    let dots = |line: &str| line.chars().filter(|letter| ('\u{2801}'..='\u{28ff}').contains(letter)).count();
    assert!(dots(lines[1]) >= 1 && dots(lines[1]) < 5, "only the beginning is high:\n{text}");
    assert!(dots(lines[10]) > 40, "the rest is low:\n{text}");
    assert!(
        lines[1].trim_start().starts_with("3 ┤") && text.contains("step 500") && !text.contains('\u{1b}')
    );
}

#[test]
fn colours_are_used_when_asked_for_and_names_give_no_orders() {
    let chart = chart(false, vec![falling("a\u{1b}]0;owned\u{7}", 3.0), falling("b", 1.0)]);
    let plain = chart.terminal(Cells { columns: 70, rows: 8 }, false);
    assert!(!plain.contains(['\u{1b}', '\u{7}']), "{plain:?}");
    let coloured = chart.terminal(Cells { columns: 70, rows: 8 }, true);
    assert!(
        coloured.contains("\u{1b}[34m") && coloured.contains("\u{1b}[33m") && !coloured.contains('\u{7}')
    );
}

#[test]
fn strange_values_and_sizes_are_drawn_or_left_out() {
    let values = [
        vec![],
        vec![(1.0, f64::NAN)],
        vec![(1.0, 0.0)],
        vec![(0.0, f64::MAX), (1.0, f64::MIN)],
        vec![(1.0, 1e-300), (2.0, 1e300)],
        vec![(1.0, 1e-100), (2.0, 1e100)],
        vec![(1e18, 1e99), (1e18 + 256.0, 1e99 * (1.0 + f64::EPSILON))],
        vec![(f64::INFINITY, 1.0), (2.0, 3.0)],
        vec![(5.0, -1.0), (3.0, 2.0)],
    ];
    for points in values {
        for log in [false, true] {
            for size in [Size { width: 0, height: 0 }, Size { width: 130, height: 2000 }] {
                let chart = chart(log, vec![Line { label: String::new(), points: points.clone() }]);
                assert!(chart.svg(size).is_ok() && chart.png(size).is_ok(), "{points:?}");
                assert!(!chart.terminal(Cells { columns: 0, rows: 0 }, true).is_empty());
            }
        }
    }
}

fn scatter() -> Scatter {
    let dot = |at: u32| Dot {
        x: f64::from(at),
        y: f64::from(at * 7 % 11),
        shade: f64::from(at / 4),
        hollow: at.is_multiple_of(3),
    };
    let line = |shade: u32| StepLine {
        points: (0..4).map(|at| (f64::from(at * 2), f64::from(8 - at * 2 - shade))).collect(),
        shade: f64::from(shade),
    };
    Scatter {
        title: "front <b> & \"more\"\u{1b}[2J".to_owned(),
        x: "latency <ms>".to_owned(),
        y: "error".to_owned(),
        shade: "iteration".to_owned(),
        dots: (0..12).map(dot).collect(),
        steps: (0..3).map(line).collect(),
    }
}

/// Each start tag of an XML document without entities has its end, and signs of markup are escaped.
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    for part in xml.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap();
        assert!(!text.contains('>'), "{part}");
        for entity in text.split('&').skip(1) {
            assert!(
                ["lt;", "gt;", "amp;", "quot;", "apos;", "#"].iter().any(|known| entity.starts_with(known)),
                "{text}"
            );
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_scatter_plot_has_dots_lines_and_a_bar_of_colours() {
    let svg = scatter().svg(SIZE).unwrap();
    assert_well_formed(&svg);
    assert!(svg.contains("&lt;b&gt; &amp;") && !svg.contains("<b>") && !svg.contains('\u{1b}'), "{svg}");
    assert!(svg.contains("latency &lt;ms&gt;") && svg.contains("iteration") && svg.contains("error"));
    assert_eq!(svg.matches("<circle").count(), 12 + 3 * 4, "dots, and points of the lines");
    let unfilled = svg.lines().filter(|line| line.starts_with("<circle") && line.contains("fill=\"none\""));
    assert_eq!(unfilled.count(), 4, "hollow dots");
    let plain = svg.matches("<rect").count();
    let narrow = scatter().svg(Size { width: 300, height: 300 }).unwrap();
    assert!(plain >= narrow.matches("<rect").count() + 60, "a small picture has no bar: {plain}");

    let (width, height, pixels) = decoded(&scatter().png(SIZE).unwrap());
    assert_eq!((width, height), (SIZE.width, SIZE.height));
    assert!(has_colour(&pixels, [52, 24, 108]) > 100, "the first shade");
    assert!(has_colour(&pixels, [236, 172, 30]) > 100, "the last shade");
}

#[test]
fn a_terminal_shows_the_dots_and_the_last_line() {
    let text = scatter().terminal(Cells { columns: 60, rows: 12 }, false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 + 12 + 2, "{text}");
    assert!(text.contains("error over latency <ms>") && text.contains("latency <ms> 11"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{text}");
    let coloured = scatter().terminal(Cells { columns: 60, rows: 12 }, true);
    assert!(coloured.contains("\u{1b}[34m") && coloured.contains("\u{1b}[33m"), "{coloured:?}");
    let mut only_dots = scatter();
    only_dots.steps.clear();
    let dots = |text: &str| text.chars().filter(|letter| ('\u{2801}'..='\u{28ff}').contains(letter)).count();
    let without = only_dots.terminal(Cells { columns: 60, rows: 12 }, false);
    assert!(dots(&text) > dots(&without) && dots(&without) >= 12, "{without}");
}

#[test]
fn strange_scatter_plots_are_drawn() {
    let values = [f64::NAN, f64::INFINITY, f64::MAX, -1e100, 0.0, 1e-300, 5.0];
    for x in values {
        for y in values {
            for (dots, steps) in [(1, 0), (0, 1), (2, 2), (0, 0)] {
                let dot = Dot { x, y, shade: y, hollow: false };
                let line = StepLine { points: vec![(x, y), (1.0, 2.0), (y, x)], shade: x };
                let plot = Scatter { dots: vec![dot; dots], steps: vec![line; steps], ..scatter() };
                let size = Size { width: 640, height: 130 };
                assert!(plot.svg(size).is_ok() && plot.png(size).is_ok(), "{x} {y} {dots} {steps}");
                assert!(!plot.terminal(Cells { columns: 0, rows: 0 }, true).is_empty());
            }
        }
    }
}

#[test]
fn an_axis_may_count_other_things() {
    let mut chart = chart(false, vec![falling("loss", 3.0)]);
    chart.x = XAxis::Count("results");
    assert!(chart.svg(SIZE).unwrap().contains("results"));
    assert!(chart.terminal(Cells { columns: 60, rows: 10 }, false).contains("500 results"));
}
