//! CSV (RFC 4180) as pandas and spreadsheets read it.

/// A table in the making.
#[derive(Debug, Default)]
pub(super) struct CsvText {
    text: String,
    in_line: bool,
}

impl CsvText {
    /// A table with these columns.
    pub(super) fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        let mut table = Self::default();
        columns.into_iter().for_each(|column| table.text(column));
        table.end_line();
        table
    }

    /// Adds a text, in quotes if it needs them. A spreadsheet takes a field with one of the signs `=+-@` at its
    /// beginning for a formula: it gets an apostrophe before it.
    pub(super) fn text(&mut self, text: &str) {
        self.separate();
        let sign = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
        if text.contains(['"', ',', '\n', '\r']) {
            self.text.push_str(&format!("\"{sign}{}\"", text.replace('"', "\"\"")));
        } else {
            self.text.push_str(sign);
            self.text.push_str(text);
        }
    }

    /// Adds a number in a form that reads back as the same number; nothing of `None`.
    pub(super) fn number(&mut self, number: Option<f64>) {
        self.separate();
        let Some(number) = number else { return };
        let is_plain = number == 0.0 || (1e-5..1e16).contains(&number.abs()) || !number.is_finite();
        self.text.push_str(&if is_plain { number.to_string() } else { format!("{number:e}") });
    }

    pub(super) fn whole(&mut self, number: Option<u64>) {
        self.separate();
        self.text.push_str(&number.map(|number| number.to_string()).unwrap_or_default());
    }

    /// As pandas writes truth.
    pub(super) fn truth(&mut self, truth: bool) {
        self.separate();
        self.text.push_str(if truth { "True" } else { "False" });
    }

    fn separate(&mut self) {
        if self.in_line {
            self.text.push(',');
        }
        self.in_line = true;
    }

    pub(super) fn end_line(&mut self) {
        self.text.push('\n');
        self.in_line = false;
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let texts = ["(1, 3, 32)", "plain", "", "\"quoted\"", "two\nlines\r", "=1+1", "ä, ö"];
        let numbers = [0.1, 1e-300, 1e300, -3.0, 0.0, 123_456_789.25, 1.0 / 3.0, f64::MAX, f64::MIN_POSITIVE];
        let mut table = CsvText::new(texts);
        for number in numbers {
            table.text("(1, 3)");
            table.number(Some(number));
            table.number(None);
            table.whole(Some(u64::MAX));
            table.whole(None);
            table.truth(true);
            table.truth(false);
            table.end_line();
        }
        let text = table.finish();
        let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let lines: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let expected = texts.map(|text| if text == "=1+1" { "'=1+1" } else { text });
        assert_eq!(lines[0], expected.to_vec());
        for (line, number) in lines[1..].iter().zip(numbers) {
            assert_eq!(line[1].parse::<f64>().unwrap().to_bits(), number.to_bits());
            assert_eq!(
                [&line[0], &line[2], &line[4], &line[5], &line[6]],
                ["(1, 3)", "", "", "True", "False"]
            );
            assert_eq!(line[3].parse(), Ok(u64::MAX));
        }
    }
}
