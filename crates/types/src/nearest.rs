//! Finds the most similar known word.

/// The candidate with the fewest edits to `word`, if few enough that it may be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A hostile word must not cost quadratic time.
    let word: Vec<char> = word.chars().take(64).map(|c| c.to_ascii_lowercase()).collect();
    let scored = candidates.into_iter().map(|c| (distance(&word, &c.chars().collect::<Vec<_>>()), c));
    scored.min_by_key(|(d, _)| *d).filter(|(d, c)| *d <= 1 + c.len() / 3).map(|(_, c)| c)
}

fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let words = ["conv1d", "conv2d", "linear"];
        assert_eq!(nearest("conv2", words), Some("conv2d"));
        assert_eq!(nearest("Linaer", words), Some("linear"));
        assert_eq!(nearest("zebra-stripes", words), None);
    }
}
