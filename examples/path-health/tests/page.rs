//! The page about endpoints shows code of the two examples as it is.

const PAGE: &str = include_str!("../../../docs/extend/transport.md");
const FILES: [&str; 2] = [include_str!("../src/lib.rs"), include_str!("../../probing-endpoint/src/lib.rs")];

#[test]
fn what_the_page_shows_is_what_is_built() {
    let blocks: Vec<&str> =
        PAGE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 7, "{} blocks", blocks.len());
    for block in blocks {
        assert!(FILES.iter().any(|file| file.contains(block)), "no example has\n{block}");
    }
}

/// What the page promises of their size.
#[test]
fn each_is_a_file_of_fewer_than_300_lines() {
    for file in FILES {
        assert!(file.lines().count() < 300, "{} lines", file.lines().count());
    }
}
