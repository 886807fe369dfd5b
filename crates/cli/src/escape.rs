//! Text from data as a terminal may show it: names, notes, reasons and output of jobs come from others.

use std::borrow::Cow;

/// A text of one line: a line break in it is shown as `\n`, too.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_obeyed)
}

/// A text that may have several lines.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_obeyed(c))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does something at this character, or shows what stands around it in another order or not at all.
fn is_obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    let ends_line = matches!(c, '\u{2028}' | '\u{2029}');
    let unseen = matches!(c, '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || turns || ends_line || unseen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let hostile = "a\u{1b}[31mred\u{1b}]8;;http://evil\u{7}\u{9b}2J\u{85}b\u{202e}c\u{2066}\u{200f}\r\t\u{0}\u{7f}\u{2028}";
        let shown = lines(hostile);
        assert!(shown.chars().all(|c| (' '..='~').contains(&c)), "{shown}");
        assert!(
            shown.starts_with(r"a\u{1b}[31mred\u{1b}]8;;http://evil\u{7}\u{9b}2J\u{85}b\u{202e}c"),
            "{shown}"
        );
        assert!(shown.contains(r"\r\t\u{0}\u{7f}\u{2028}"), "{shown}");
        assert_eq!((one_line("a\nb"), lines("a\nb")), (r"a\nb".into(), "a\nb".into()));
    }

    #[test]
    fn text_of_any_language_stays_as_it_is() {
        for text in ["", "val_acc = 97 %", "Größe, 模型, نموذج, 👩‍🔬, e\u{301}", r"C:\new"] {
            assert!(matches!(one_line(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    /// Every character by itself: what is shown never has one that a terminal obeys.
    #[test]
    fn no_character_slips_through() {
        for c in (0..=0x0010_ffff_u32).filter_map(char::from_u32) {
            let text = c.to_string();
            let shown = one_line(&text);
            assert!(!shown.chars().any(is_obeyed), "{c:?}");
            assert!(shown == text || shown.is_ascii(), "{c:?}");
        }
    }
}
