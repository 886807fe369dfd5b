//! Sorts names by similarity, for suggestions in errors.

/// All `names`, the most similar to `wanted` first.
pub(crate) fn nearest_first(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut names: Vec<(usize, String)> =
        names.into_iter().map(|name| (distance(wanted, &name), name)).collect();
    names.sort();
    names.into_iter().map(|(_, name)| name).collect()
}

/// The longest part of a name that is compared.
const COMPARED: usize = 64;

/// The Levenshtein distance, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let letters = |s: &str| s.chars().take(COMPARED).flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            left = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_comes_first() {
        let names = ["y_train", "x_test", "x_train", "X"].map(str::to_owned);
        assert_eq!(nearest_first("x_trian", names.clone()).first().unwrap(), "x_train");
        assert_eq!(nearest_first("x", names).first().unwrap(), "X");
    }

    #[test]
    fn the_distance_counts_edits() {
        for (a, b, edits) in [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("Same", "same", 0)] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }
}
