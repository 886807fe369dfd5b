/// Whether a text matches a pattern with `*`, `?`, `[a-z]`, `[^a]` and `\`, as in Redis.
///
/// Takes time in proportion to the product of the lengths at most, whatever the pattern.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (pattern, text);
    // Where to go on when what follows the last star does not fit: only the last star needs to move.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = p {
            retry = Some((rest, t));
            p = rest;
            continue;
        }
        match (single(p, t), retry) {
            (Step::Done, _) => return true,
            (Step::On(next_p, next_t), _) => (p, t) = (next_p, next_t),
            (Step::No, Some((after, [_, later @ ..]))) => {
                retry = Some((after, later));
                (p, t) = (after, later);
            }
            (Step::No, _) => return false,
        }
    }
}

enum Step<'a> {
    Done,
    On(&'a [u8], &'a [u8]),
    No,
}

/// Matches one character.
fn single<'a>(pattern: &'a [u8], text: &'a [u8]) -> Step<'a> {
    let Some((byte, rest)) = text.split_first() else {
        return if pattern.is_empty() { Step::Done } else { Step::No };
    };
    let (fits, after): (bool, &[u8]) = match pattern {
        [] => return Step::No,
        [b'?', after @ ..] => (true, after),
        [b'[', set @ ..] => class(set, *byte),
        [b'\\', wanted, after @ ..] | [wanted, after @ ..] => (wanted == byte, after),
    };
    if fits { Step::On(after, rest) } else { Step::No }
}

/// Looks a character up in a set, and finds where the set ends.
fn class(set: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match set {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    let mut found = false;
    loop {
        match rest {
            [] => return (found != negated, rest),
            [b']', after @ ..] => return (found != negated, after),
            [b'\\', wanted, after @ ..] => {
                found |= *wanted == byte;
                rest = after;
            }
            [from, b'-', to, after @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = after;
            }
            [wanted, after @ ..] => {
                found |= *wanted == byte;
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            (r"h\*llo", "h*llo", true),
            (r"h\*llo", "hello", false),
            ("*a*b*c", "xxaxxbxxbc", true),
            ("*a*b*c", "xxaxxbxxb", false),
            ("user:*:name", "user:12:name", true),
            ("[abc", "a", true),
            ("", "a", false),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(1000) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(10_000).as_bytes()));
    }
}
