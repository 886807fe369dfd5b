//! OpenMetrics text.

use std::fmt::Write;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that goes up and down.
    Gauge,
    /// A number that only grows while the process lives; its samples are named `…_total`.
    Counter,
}

/// A value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    pub labels: Vec<(&'static str, &'a str)>,
    pub value: f64,
}

impl From<f64> for Sample<'_> {
    fn from(value: f64) -> Self {
        Self { labels: Vec::new(), value }
    }
}

/// Metrics as a collector reads them.
#[derive(Debug, Default, PartialEq)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// Adds a metric with its samples; each name once. Names are lower-case letters, digits and underscores.
    pub fn add<'a, S: Into<Sample<'a>>>(
        &mut self,
        kind: Kind,
        name: &'static str,
        help: &str,
        samples: impl IntoIterator<Item = S>,
    ) {
        let (word, suffix) = match kind {
            Kind::Gauge => ("gauge", ""),
            Kind::Counter => ("counter", "_total"),
        };
        // Writing to a text does not fail.
        let _written = writeln!(self.text, "# TYPE {name} {word}\n# HELP {name} {}", escaped(help));
        for sample in samples {
            let Sample { labels, value } = sample.into();
            self.text.push_str(name);
            self.text.push_str(suffix);
            for (index, (label, text)) in labels.iter().enumerate() {
                let open = if index == 0 { '{' } else { ',' };
                let _written = write!(self.text, "{open}{label}=\"{}\"", escaped(text));
            }
            if !labels.is_empty() {
                self.text.push('}');
            }
            let _written = writeln!(self.text, " {}", number(value));
        }
    }

    /// One sample without labels.
    pub fn gauge(&mut self, name: &'static str, help: &str, value: f64) {
        self.add(Kind::Gauge, name, help, [value]);
    }

    /// One sample without labels.
    pub fn counter(&mut self, name: &'static str, help: &str, value: f64) {
        self.add(Kind::Counter, name, help, [value]);
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_type_help_labels_and_an_end() {
        let mut metrics = Exposition::default();
        metrics.counter("phalanx_steps", "Steps done", 12.0);
        let labels = vec![("state", "a\"b\\\n"), ("node", "n1")];
        metrics.add(Kind::Gauge, "phalanx_jobs", "Jobs", [Sample { labels, value: f64::NAN }]);
        assert_eq!(
            metrics.finish(),
            "# TYPE phalanx_steps counter\n# HELP phalanx_steps Steps done\nphalanx_steps_total 12\n\
             # TYPE phalanx_jobs gauge\n# HELP phalanx_jobs Jobs\n\
             phalanx_jobs{state=\"a\\\"b\\\\\\n\",node=\"n1\"} NaN\n# EOF\n"
        );
    }
}
