//! What scenarios choose by name: each thing is described once, beside what it is, and everybody who shows, reads or refuses
//! its name asks here.
//!
//! A thing has an [`Entry`]. Things of a kind are [`Listed`]: as an enum that [`named!`](crate::named) declares, or as a table of
//! descriptions ([`table!`](crate::table)), each with a constructor of its own. A new one is a line of either.

/// What is said of a thing that scenarios choose by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in a scenario.
    pub name: &'static str,
    /// Other names under which it is known.
    pub aliases: &'static [&'static str],
    /// What it is: in lower case where its first word is, and without a full stop at the end.
    pub summary: &'static str,
}

impl Entry {
    /// Without other names.
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        Self { name, aliases: &[], summary }
    }

    /// Whether it is called so.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// The summary as a sentence.
    pub fn sentence(&self) -> String {
        let mut letters = self.summary.chars();
        let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
        format!("{first}{}.", letters.as_str())
    }
}

/// Things of one kind that have names.
pub trait Listed: Copy + 'static {
    /// What one of them is called in messages: `scheduler`.
    const WHAT: &'static str;
    /// All, in the order in which they are listed.
    const ALL: &'static [Self];
    /// Their names, in the same order, each with its other names behind it.
    const NAMES: &'static [&'static str];

    /// What is said of it.
    fn entry(self) -> &'static Entry;

    /// The one of this name, or of this other name.
    fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|listed| listed.entry().is_called(name))
    }

    /// Names and summaries, in the order in which they are listed.
    fn lines() -> Vec<(String, String)> {
        let line = |entry: &Entry| (entry.name.to_owned(), entry.summary.to_owned());
        Self::ALL.iter().map(|listed| line(listed.entry())).collect()
    }
}

/// Declares an enum without fields whose members scenarios choose by name: `Member = "name", "summary";` with `| "other name"`
/// behind the name where there is one. The summary is the member's documentation.
///
/// ```
/// use windtunnel_kernel::{named, registry::Listed};
///
/// named! {
///     /// Which queue goes next.
///     #[derive(Default)]
///     pub enum Discipline: "discipline" {
///         #[default]
///         Fifo = "fifo", "the queue whose first packet came first";
///         Strict = "strict" | "sp", "the queue listed first";
///     }
/// }
/// assert_eq!(Discipline::by_name("sp"), Some(Discipline::Strict));
/// assert_eq!(Discipline::NAMES, ["fifo", "strict", "sp"]);
/// assert_eq!(Discipline::Strict.entry().sentence(), "The queue listed first.");
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])*
        $visible:vis enum $type:ident: $what:literal {
            $($(#[$attribute:meta])* $member:ident = $name:literal $(| $alias:literal)*, $summary:literal;)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $type {
            $(#[doc = concat!($summary, ".")] $(#[$attribute])* $member,)+
        }

        impl $type {
            /// All, in the order in which they are listed.
            $visible const ALL: [Self; [$($name),+].len()] = [$(Self::$member),+];

            /// Its name in a scenario.
            $visible const fn name(self) -> &'static str {
                match self {
                    $(Self::$member => $name,)+
                }
            }
        }

        impl $crate::registry::Listed for $type {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = &Self::ALL;
            const NAMES: &'static [&'static str] = &[$($name, $($alias,)*)+];

            fn entry(self) -> &'static $crate::registry::Entry {
                match self {
                    $(Self::$member => &$crate::registry::Entry {
                        name: $name,
                        aliases: &[$($alias),*],
                        summary: $summary,
                    },)+
                }
            }
        }
    };
}

/// Makes the members of a table [`Listed`]: `table! { Description: "what", TABLE }`, where `TABLE` is a constant array of
/// references to descriptions, each with a field `entry`. Members of a table have no other names.
#[macro_export]
macro_rules! table {
    ($type:ty: $what:literal, $table:path) => {
        impl $crate::registry::Listed for &'static $type {
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = &$table;
            const NAMES: &'static [&'static str] = &{
                let mut names = [""; $table.len()];
                let mut place = 0;
                while place < names.len() {
                    names[place] = $table[place].entry.name;
                    place += 1;
                }
                names
            };

            fn entry(self) -> &'static $crate::registry::Entry {
                &self.entry
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Made {
        entry: Entry,
        number: u32,
    }

    const ONE: Made = Made { entry: Entry::new("one", "NVIDIA's"), number: 1 };
    const TWO: Made = Made { entry: Entry::new("two", "ärger"), number: 2 };
    const TABLE: [&Made; 2] = [&ONE, &TWO];

    table! { Made: "number", TABLE }

    #[test]
    fn a_table_finds_its_members_by_their_names() {
        for (name, number) in [("one", Some(1)), ("two", Some(2)), ("three", None)] {
            assert_eq!(<&Made>::by_name(name).map(|made| made.number), number, "{name}");
        }
        assert_eq!(<&Made as Listed>::NAMES, ["one", "two"]);
        let sentences: Vec<String> = TABLE.iter().map(|made| made.entry.sentence()).collect();
        assert_eq!(sentences, ["NVIDIA's.", "Ärger."]);
        assert_eq!(<&Made>::lines()[1], ("two".to_owned(), "ärger".to_owned()));
    }
}
