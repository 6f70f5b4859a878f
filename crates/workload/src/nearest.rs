//! The nearest right name for a wrong one, for hints.

/// The candidate with the smallest edit distance to `word`, if it is near enough to be a slip: at most a third of the
/// longer word, and at least one. Ties go to the earlier candidate.
pub(crate) fn nearest<'a, I>(word: &str, candidates: I) -> Option<&'a str>
where
    I: IntoIterator<Item = &'a str>,
{
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let limit = (word.len().max(candidate.len()) / 3).max(1);
        if word.len().abs_diff(candidate.len()) > limit {
            continue;
        }
        let distance = edit_distance(word.as_bytes(), candidate.as_bytes());
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string alignment), on
/// lower-cased bytes.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = a[i - 1].eq_ignore_ascii_case(&b[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + usize::from(!same));
            let swapped = i > 1
                && j > 1
                && a[i - 1].eq_ignore_ascii_case(&b[j - 2])
                && a[i - 2].eq_ignore_ascii_case(&b[j - 1]);
            if swapped {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_word_and_strangers_do_not() {
        let words = ["send", "recv", "calc", "requires", "irequires"];
        assert_eq!(nearest("sned", words), Some("send"));
        assert_eq!(nearest("receive", words), None);
        assert_eq!(nearest("require", words), Some("requires"));
        assert_eq!(nearest("CALC", words), Some("calc"));
        assert_eq!(nearest("x", words), None);
        assert_eq!(nearest("l12", ["l1", "l2", "l12x"]), Some("l1"));
    }
}
