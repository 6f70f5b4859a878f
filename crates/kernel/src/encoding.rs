//! Whether a file is text in UTF-8, as all that is read here, and what it is instead.

/// What the file that begins so is instead of UTF-8, and what to do; `None` if nothing speaks against it. Only the way its
/// first bytes go is looked at: comments of old logs are in any encoding.
pub fn not_utf8(begin: &[u8]) -> Option<(&'static str, &'static str)> {
    const AGAIN: &str = "`iconv -f UTF-16 -t UTF-8 FILE` writes it so (PowerShell's `>` writes UTF-16)";
    let (first, rest) = begin.split_at(begin.len().min(4));
    match first {
        [0xff, 0xfe, 0, 0] | [0, 0, 0xfe, 0xff] => {
            Some(("the file is in UTF-32, expected UTF-8", "`iconv -f UTF-32 -t UTF-8 FILE` writes it so"))
        }
        // With a mark of the order of bytes, or without: letters and digits have one byte of two.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(("the file is in UTF-16, expected UTF-8", AGAIN)),
        [a, 0, b, 0] | [0, a, 0, b] if *a > 0 && *b > 0 => {
            Some(("the file is in UTF-16, expected UTF-8", AGAIN))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => {
            Some(("the file is compressed by zstd, expected text or gzip", "`zstd -d FILE` unpacks it"))
        }
        [0xfd, b'7', b'z', b'X'] if rest.first() == Some(&b'Z') => {
            Some(("the file is compressed by xz, expected text or gzip", "`xz -d FILE` unpacks it"))
        }
        [b'P', b'K', 3, 4] => {
            Some(("the file is a zip archive, expected text or gzip", "`unzip FILE` unpacks it"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_utf8_is_named() {
        let utf16 = |text: &str, little: bool| -> Vec<u8> {
            let bytes = |unit: u16| if little { unit.to_le_bytes() } else { unit.to_be_bytes() };
            text.encode_utf16().flat_map(bytes).collect()
        };
        for text in ["JobID|Submit", "\u{feff}timestamp", "\u{feff}", "12 3"] {
            for little in [true, false] {
                let what = not_utf8(&utf16(text, little)).expect("it is UTF-16").0;
                assert!(what.starts_with("the file is in UTF-16"), "{text:?}");
            }
        }
        for text in ["", "J", "JobID|Submit", "\u{feff}timestamp,duration", "; Universit\u{e9}", "\0\0\0\0\0"]
        {
            assert_eq!(not_utf8(text.as_bytes()), None, "{text:?}");
        }
        assert!(not_utf8(&[0xff, 0xfe, 0, 0, 65, 0, 0, 0]).expect("it is not").0.contains("UTF-32"));
        assert!(not_utf8(b"PK\x03\x04").is_some() && not_utf8(b"\xfd7zXZ\0").is_some());
    }
}
