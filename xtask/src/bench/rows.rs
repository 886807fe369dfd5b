//! What was measured, as a table and as lines of JSON.

use super::say;
use serde_json::{Value, json};

/// How two numbers are compared, and what is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bar {
    /// How many times better than the peer; at least this.
    TimesBetter(Option<f64>),
    /// Which share of the peer's time is taken; at most this.
    ShareOfTime(Option<f64>),
    /// No more than this, whatever others do.
    AtMost(f64),
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) part: &'static str,
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) ours: f64,
    /// The name of the peer and its number, unless there is only a limit.
    pub(super) peer: Option<(&'static str, f64)>,
    /// For rates: more is better. For times it is less.
    pub(super) more_is_better: bool,
    pub(super) bar: Bar,
}

impl Row {
    /// The number that is compared with the bar: a ratio, or our own number where there is no peer.
    fn ratio(&self) -> Option<f64> {
        let (_, theirs) = self.peer?;
        Some(match self.bar {
            Bar::ShareOfTime(_) => self.ours / theirs,
            Bar::TimesBetter(_) | Bar::AtMost(_) if self.more_is_better => self.ours / theirs,
            Bar::TimesBetter(_) | Bar::AtMost(_) => theirs / self.ours,
        })
    }

    fn wanted(&self) -> Option<f64> {
        match self.bar {
            Bar::TimesBetter(wanted) | Bar::ShareOfTime(wanted) => wanted,
            Bar::AtMost(most) => Some(most),
        }
    }

    fn is_met(&self) -> Option<bool> {
        match self.bar {
            Bar::TimesBetter(least) => Some(self.ratio()? >= least?),
            Bar::ShareOfTime(most) => Some(self.ratio()? <= most?),
            Bar::AtMost(most) => Some(self.ours <= most),
        }
    }

    /// Its keys are read by others.
    pub(super) fn line(&self) -> Value {
        json!({
            "part": self.part,
            "what": self.what,
            "unit": self.unit,
            "phalanx": self.ours,
            "peer": self.peer.map(|(name, _)| name),
            "peer_value": self.peer.map(|(_, theirs)| theirs),
            "ratio": self.ratio(),
            "bar": self.wanted(),
            "met": self.is_met(),
        })
    }

    fn cells(&self) -> [String; 7] {
        let (peer, theirs) = self
            .peer
            .map_or((String::new(), String::new()), |(name, theirs)| (name.to_owned(), short(theirs)));
        let ratio = self.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let wanted = self.wanted().map_or(String::new(), |wanted| match self.bar {
            Bar::TimesBetter(_) => format!("≥ {wanted}"),
            Bar::ShareOfTime(_) | Bar::AtMost(_) => format!("≤ {wanted}"),
        });
        let met = self.is_met().map_or("", |met| if met { "met" } else { "MISSED" });
        let what = format!("{}, {}", self.what, self.unit);
        [what, short(self.ours), peer, theirs, ratio, wanted, met.to_owned()]
    }
}

/// Enough digits to compare.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middling if middling >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The table for a reader.
pub(super) fn print(rows: &[Row]) {
    let titles = ["", "phalanx", "peer", "", "ratio", "bar", ""].map(str::to_owned);
    for [what, ours, peer, theirs, ratio, wanted, met] in
        std::iter::once(titles).chain(rows.iter().map(Row::cells))
    {
        say(&format!("{what:<44}{ours:>11}  {peer:<14}{theirs:>11}{ratio:>8}{wanted:>9}  {met}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, theirs: Option<f64>, more_is_better: bool, bar: Bar) -> Row {
        let peer = theirs.map(|theirs| ("peer", theirs));
        Row { part: "calls", what: "calls".to_owned(), unit: "1/s", ours, peer, more_is_better, bar }
    }

    #[test]
    fn a_bar_is_met_at_its_value() {
        let cases = [
            (row(20.0, Some(2.0), true, Bar::TimesBetter(Some(10.0))), Some(10.0), Some(true)),
            (row(2.0, Some(20.0), false, Bar::TimesBetter(Some(11.0))), Some(10.0), Some(false)),
            (row(2.0, Some(20.0), false, Bar::TimesBetter(None)), Some(10.0), None),
            (row(9.0, Some(10.0), false, Bar::ShareOfTime(Some(0.9))), Some(0.9), Some(true)),
            (row(51.0, None, false, Bar::AtMost(50.0)), None, Some(false)),
        ];
        for (row, ratio, met) in cases {
            assert_eq!((row.ratio(), row.is_met()), (ratio, met), "{row:?}");
        }
    }
}
