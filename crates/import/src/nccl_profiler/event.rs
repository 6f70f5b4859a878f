//! An event of the plugin, and what the name of its file says.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// An event; the plugin's last one has nothing.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default)]
    pub(super) ph: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) cat: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) pid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) ts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) args: Option<&'a RawValue>,
}

/// What kind of thing an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Category {
    Group,
    /// A call of the API.
    Call,
    Launch,
    /// A collective or a message.
    Operation,
    /// A channel of a kernel.
    Kernel,
    Inside,
    Unknown,
}

/// The names of categories.
const CATEGORIES: [(&str, Category); 15] = [
    ("GROUP_API", Category::Group),
    ("GROUP", Category::Group),
    ("COLL_API", Category::Call),
    ("P2P_API", Category::Call),
    ("KERNEL_LAUNCH", Category::Launch),
    ("COLL", Category::Operation),
    ("P2P", Category::Operation),
    ("CE_COLL", Category::Operation),
    ("GPU", Category::Kernel),
    ("PROXY", Category::Inside),
    ("NET", Category::Inside),
    ("NET_IB", Category::Inside),
    ("NET_SOCK", Category::Inside),
    ("CE_SYNC", Category::Inside),
    ("CE_BATCH", Category::Inside),
];

impl Category {
    pub(super) fn of(name: &str) -> Self {
        let known = CATEGORIES.iter().find(|(known, _)| *known == name);
        known.map_or(Self::Unknown, |(_, category)| *category)
    }
}

/// Whether a file that begins with `head` is one of the plugin's: an array whose first event is of a category that it has, or that is
/// empty as the plugin leaves it.
pub(super) fn begins(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&head[..head.len().min(1 << 12)]);
    let Some(array) = text.trim_start().strip_prefix('[') else { return false };
    let Some((_, category)) = array.split_once("\"cat\"") else { return array.trim() == "{}]" };
    let category = category.trim_start().strip_prefix(':').map_or("", str::trim_start);
    let word = category.strip_prefix('"').and_then(|rest| rest.split_once('"')).map_or("", |(word, _)| word);
    // Other programs write arrays of Chrome's events too: theirs have other categories, and no begins of this form.
    Category::of(word) != Category::Unknown && array.contains("\"ph\"")
}

/// Arguments that are used; older and newer plugins write a number or a word.
#[derive(Default, Deserialize)]
pub(super) struct Arguments<'a> {
    #[serde(borrow, default, rename = "CommHash")]
    pub(super) communicator: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Rank")]
    pub(super) rank: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Peer")]
    pub(super) peer: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "SeqNum")]
    pub(super) sequence: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Count", alias = "count")]
    pub(super) count: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "Datatype", alias = "datatype")]
    datatype: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) root: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "StartGpuClk")]
    pub(super) start: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "StopGpuClk")]
    pub(super) stop: Option<&'a RawValue>,
}

impl<'a> Arguments<'a> {
    /// The arguments of an event; none where they are none that are known.
    pub(super) fn parse(args: Option<&'a RawValue>) -> Self {
        args.and_then(|args| serde_json::from_str(args.get()).ok()).unwrap_or_default()
    }

    /// A number among them.
    pub(super) fn number<T: std::str::FromStr>(
        &self,
        field: impl Fn(&Self) -> Option<&'a RawValue>,
    ) -> Option<T> {
        field(self)?.get().parse().ok()
    }

    /// Bytes of an element: `ncclDataType_t` by name, or before NCCL 2.24 by number.
    pub(super) fn element_bytes(&self) -> Option<u64> {
        let text = self.datatype?.get().trim_matches('"');
        Some(match text.strip_prefix("nccl").unwrap_or(text) {
            "Int8" | "Char" | "Uint8" | "Float8e4m3" | "Float8e5m2" | "0" | "1" | "10" | "11" => 1,
            "Float16" | "Half" | "Bfloat16" | "6" | "9" => 2,
            "Int32" | "Int" | "Uint32" | "Float32" | "Float" | "2" | "3" | "7" => 4,
            "Int64" | "Uint64" | "Float64" | "Double" | "4" | "5" | "8" => 8,
            _ => return None,
        })
    }
}

/// A text with quotes around words that are no JSON, as NCCL 2.28.3 writes types and addresses (`ncclFloat32`, `0x5020`, `(nil)`).
pub(super) fn with_quotes(text: &[u8]) -> Vec<u8> {
    let mut mended = Vec::with_capacity(text.len() + 16);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        if byte == b'"' {
            let mut end = 1;
            while end < rest.len() && rest[end] != b'"' {
                end += 1 + usize::from(rest[end] == b'\\');
            }
            let end = (end + 1).min(rest.len());
            mended.extend_from_slice(&rest[..end]);
            at += end;
            continue;
        }
        if b"{}[]:,".contains(&byte) || byte.is_ascii_whitespace() {
            mended.push(byte);
            at += 1;
            continue;
        }
        let ends = |byte: &u8| b"{}[]:,\"".contains(byte) || byte.is_ascii_whitespace();
        let word = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(word).is_ok();
        let quoted = !is_json && !word.contains(&b'\\');
        mended.extend(quoted.then_some(b'"'));
        mended.extend_from_slice(word);
        mended.extend(quoted.then_some(b'"'));
        at += word.len();
    }
    mended
}

/// What a file's name says: where its process ran, and of which communicator and rank it is.
///
/// `DUMP_HASH_RANK.json` says the latter, and the former where `DUMP` does; `DUMP-HOST-THREAD.txt` the former. Of another name the folder
/// is taken for the host.
pub(super) fn said_by_name(name: &str) -> (&str, Option<(u64, u32)>) {
    let stem = name.strip_suffix(".gz").unwrap_or(name);
    if let Some((dump, rank)) = stem.strip_suffix(".json").and_then(|stem| stem.rsplit_once('_'))
        && let Some((dump, hash)) = dump.rsplit_once('_')
        && let (Ok(hash), Ok(rank)) = (hash.parse(), rank.parse())
    {
        return (dump, Some((hash, rank)));
    }
    if let Some((dump, thread)) = stem.strip_suffix(".txt").and_then(|stem| stem.rsplit_once('-'))
        && thread.parse::<u64>().is_ok()
    {
        return (dump, None);
    }
    (stem.rsplit_once('/').map_or("", |(folder, _)| folder), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_say_host_communicator_and_rank() {
        assert_eq!(
            said_by_name("out/n1_1493613951195738943_12.json"),
            ("out/n1", Some((1_493_613_951_195_738_943, 12)))
        );
        assert_eq!(said_by_name("a.tar:n1_7_0.json.gz"), ("a.tar:n1", Some((7, 0))));
        assert_eq!(said_by_name("out/dump-node-3-4711.txt"), ("out/dump-node-3", None));
        assert_eq!(said_by_name("out/x.json"), ("out", None));
        assert_eq!(said_by_name("x"), ("", None));
    }

    #[test]
    fn words_get_quotes_and_nothing_else_does() {
        let mend = |text: &str| String::from_utf8(with_quotes(text.as_bytes())).unwrap();
        assert_eq!(
            mend(
                r#"{"a": ncclFloat32, "b": 0x5020000567d0, "c": (nil), "d": -1.5e3, "e":true, "f\"x y": [null]}"#
            ),
            r#"{"a": "ncclFloat32", "b": "0x5020000567d0", "c": "(nil)", "d": -1.5e3, "e":true, "f\"x y": [null]}"#
        );
        for odd in ["\"", "\"\\", "{a\\", "nan", ""] {
            let _ = mend(odd);
        }
    }

    #[test]
    fn files_are_known_by_their_first_event() {
        let event = r#"{"name": "Group", "cat": "GROUP", "ph": "b", "id": 0}"#;
        assert!(begins(format!("[\n{event},\n").as_bytes()));
        assert!(begins(b"[\n{}]\n") && begins(b" [{}]"));
        for other in ["{}", "[]", "", "[{\"cat\": \"kernel\", \"ph\": \"X\"}]", "[{\"cat\""] {
            assert!(!begins(other.as_bytes()), "{other}");
        }
    }
}
