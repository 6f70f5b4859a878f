//! Sorting few words without a branch that depends on them.

/// The most words that are sorted by a network.
pub(super) const FEW: usize = 16;

/// Comparators, the larger to the second place, that sort four words, then two lots of them into eight, then those into
/// sixteen: Batcher's odd-even merge sort ("Sorting networks and their applications", AFIPS 1968).
const FOUR: [(usize, usize); 5] = [(0, 1), (2, 3), (0, 2), (1, 3), (1, 2)];
const EIGHT: [(usize, usize); 9] = [(0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6)];
#[rustfmt::skip]
const SIXTEEN: [(usize, usize); 25] = [
    (0, 8), (1, 9), (2, 10), (3, 11), (4, 12), (5, 13), (6, 14), (7, 15),
    (4, 8), (5, 9), (6, 10), (7, 11),
    (2, 4), (3, 5), (6, 8), (7, 9), (10, 12), (11, 13),
    (1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14),
];

/// Appends the first `count` of a bucket's words, sorted, to the line; the others are larger than any. No branch depends
/// on who is earlier: in a sort of random words none would be predicted.
#[inline]
pub(super) fn sort(few: &mut [u64; FEW], count: usize, line: &mut Vec<u64>) {
    let old = line.len();
    // Copies of known size are no calls.
    if count <= 1 {
        line.push(few[0]);
        return;
    }
    run(few, 0, &FOUR);
    if count <= 4 {
        line.extend_from_slice(&few[..4]);
    } else {
        run(few, 4, &FOUR);
        run(few, 0, &EIGHT);
        if count <= 8 {
            line.extend_from_slice(&few[..8]);
        } else {
            run(few, 8, &FOUR);
            run(few, 12, &FOUR);
            run(few, 8, &EIGHT);
            run(few, 0, &SIXTEEN);
            line.extend_from_slice(&few[..]);
        }
    }
    line.truncate(old + count);
}

#[inline]
fn run<const N: usize>(words: &mut [u64; FEW], from: usize, network: &[(usize, usize); N]) {
    for &(a, b) in network {
        let (a, b) = (from + a, from + b);
        (words[a], words[b]) = (words[a].min(words[b]), words[a].max(words[b]));
    }
}
