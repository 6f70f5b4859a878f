//! The nearest right name for a wrong one, for the hints of messages.

/// Fewest letters of which a name is told to begin another.
const SHORTENED: usize = 3;

/// The name of `known` nearest to `found`, if it is near enough to be a slip: no more than a third of the letters of the longer
/// of the two are wrong, or one. A letter too many, too few, another letter, and two neighbours that changed places
/// count one each (optimal string alignment distance); upper and lower case are alike. If none is near, a name that begins with
/// `found` or with which `found` begins, from three letters on: what was shortened or written out. Of names equally near
/// the first is given.
pub fn nearest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.to_lowercase();
    let length = found.chars().count();
    let mut best: Option<(usize, &str)> = None;
    let mut begins: Option<&str> = None;
    for name in known {
        let lower = name.to_lowercase();
        let other = lower.chars().count();
        if length.min(other) >= SHORTENED && (lower.starts_with(&found) || found.starts_with(&lower)) {
            begins.get_or_insert(name);
        }
        let limit = (length.max(other) / 3).max(1);
        // A difference of lengths is a distance at least, and costs less to see.
        if length.abs_diff(other) > limit {
            continue;
        }
        let distance = strsim::osa_distance(&found, &lower);
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name).or(begins)
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
        assert_eq!(nearest("l12", ["l2", "l1", "l12x"]), Some("l2"));
        let known = ["fidelity", "topology", "jobs"];
        assert_eq!(nearest("fidelty", known), Some("fidelity"));
        assert_eq!(nearest("Topolgy", known), Some("topology"));
        assert_eq!(nearest("weather", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn what_is_shortened_or_written_out_is_found_where_nothing_is_nearer() {
        assert_eq!(nearest("maximum", ["min", "max"]), Some("max"));
        assert_eq!(nearest("iter", ["jobs", "iterations"]), Some("iterations"));
        assert_eq!(nearest("ringed", ["ring", "ringer"]), Some("ringer"));
        assert_eq!(nearest("tp", ["tpx-dimension"]), None);
    }

    /// Letters count, and not the bytes that they take.
    #[test]
    fn letters_beyond_ascii_are_one_each() {
        assert_eq!(nearest("größe", ["grösse", "größer"]), Some("größer"));
        assert_eq!(nearest("ÄPFEL", ["äpfel"]), Some("äpfel"));
    }

    /// Against a search over all single slips of short words: each finds its word, and what two slips make of three letters
    /// finds none.
    #[test]
    fn every_single_slip_is_found() {
        for word in ["tp", "ring", "dcqcn", "flow"] {
            let letters: Vec<char> = word.chars().collect();
            let text = |letters: &[char]| letters.iter().collect::<String>();
            for at in 0..letters.len() {
                let mut without = letters.clone();
                without.remove(at);
                let (mut with, mut other, mut swapped) = (letters.clone(), letters.clone(), letters.clone());
                with.insert(at, 'z');
                other[at] = 'z';
                swapped.swap(at, (at + 1) % letters.len());
                let wrong = [text(&without), text(&with), text(&other)];
                for slip in wrong.iter().chain((at + 1 < letters.len()).then_some(&text(&swapped))) {
                    assert_eq!(nearest(slip, [word]), Some(word), "{slip}");
                }
            }
        }
        assert_eq!(nearest("abc", ["xyc"]), None);
    }
}
