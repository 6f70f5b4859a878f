//! A storage service as a description in YAML: which roles there are, who asks whom, and what each does.
//!
//! A request is a list of steps. `{as, from, to, bytes}` sends a message of `data` (the request's bytes) or `control` bytes from each
//! sender to each receiver; `{work, takes}` works. A role stands for one rank of it, chosen by the request: by its `extent`, `device`, its
//! number (`request`), or always the `first`. `role[all]` are the ranks of all copies (the next ones), `role[others]` all but the first.
//! A rank goes on when all that it was sent in its last step has come; who was not reached cannot begin.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use windtunnel_kernel::units::{Dimension, parse_quantity};

use crate::error::ImportError;

/// Architectures that come along, by name.
const KNOWN: [(&str, &str); 2] = [
    ("replicated", include_str!("../../../../data/storage/replicated.yaml")),
    ("direct-drive", include_str!("../../../../data/storage/direct-drive.yaml")),
];

/// The role of those who ask.
pub(super) const CLIENT: &str = "client";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    extent: String,
    copies: u32,
    control: String,
    roles: BTreeMap<String, RoleFile>,
    #[serde(default)]
    open: Vec<StepFile>,
    read: Vec<StepFile>,
    write: Vec<StepFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleFile {
    #[serde(default)]
    ranks: u32,
    #[serde(default)]
    per_client: f64,
    #[serde(default)]
    plus: u32,
    by: By,
}

/// What of a request says which rank of a role it goes to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    Extent,
    Device,
    Request,
    First,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    #[serde(rename = "as", default)]
    label: Option<String>,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    bytes: Option<Payload>,
    #[serde(default)]
    work: Option<String>,
    #[serde(default)]
    takes: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Payload {
    Data,
    Control,
}

/// Which ranks of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    First,
    Others,
    All,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Send {
        label: String,
        from: (usize, Which),
        to: (usize, Which),
        payload: Payload,
    },
    /// For as many ns.
    Work {
        at: (usize, Which),
        nanoseconds: u64,
    },
}

/// A role; the first is the clients'.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Role {
    pub name: String,
    pub by: By,
    pub first: u32,
    pub ranks: u32,
}

/// An architecture for a number of clients.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Architecture {
    pub name: String,
    pub extent: u64,
    pub copies: u32,
    pub control: u64,
    pub roles: Vec<Role>,
    pub open: Vec<Step>,
    pub read: Vec<Step>,
    pub write: Vec<Step>,
}

impl Architecture {
    /// Reads the one called `name`, or the file of that name.
    pub(super) fn read(name: &str, clients: u32) -> Result<Self, ImportError> {
        if let Some((_, text)) = KNOWN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text, clients);
        }
        if !matches!(name.rsplit_once('.'), Some((_, "yaml" | "yml"))) {
            let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            let error = ImportError::new("--architecture", "a storage architecture", format!("`{name}`"));
            return Err(match windtunnel_kernel::nearest(name, names.iter().copied()) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint(format!("there are `{}`, or a file `NAME.yaml`", names.join("`, `"))),
            });
        }
        let text = std::fs::read_to_string(name).map_err(|error| ImportError::io(name, 0, &error))?;
        Self::parse(name, &text, clients)
    }

    pub(super) fn parse(file: &str, text: &str, clients: u32) -> Result<Self, ImportError> {
        let read: File = serde_saphyr::from_str(text).map_err(|error| {
            ImportError::new(file, "the description of a storage architecture", error.to_string())
        })?;
        let fault = |place: &str, expected: &str, found: &str| {
            ImportError::new(format!("{file}:{place}"), expected, format!("`{found}`"))
        };
        let size = |key: &str, text: &str| {
            parse_quantity(text, Dimension::Size)
                .ok()
                .filter(|&size| size > 0)
                .ok_or_else(|| fault(key, "a size such as `1 MiB`", text))
        };
        let mut roles = vec![Role { name: CLIENT.to_owned(), by: By::Device, first: 0, ranks: clients }];
        for (name, role) in &read.roles {
            if name == CLIENT {
                return Err(fault("roles", "roles of the service: clients are there already", name));
            }
            let place = format!("roles.{name}");
            if !(0.0..=1e4).contains(&role.per_client) {
                return Err(fault(&place, "`per_client` from 0 to 10,000", &role.per_client.to_string()));
            }
            let of_clients = (role.per_client * f64::from(clients)).ceil() as u32;
            let ranks = role.ranks.saturating_add(of_clients).saturating_add(role.plus);
            let first = roles.last().map_or(0, |role| role.first.saturating_add(role.ranks));
            crate::assemble::believable(first.saturating_add(ranks), file)?;
            if ranks == 0 {
                return Err(fault(&place, "`ranks`, `per_client` or `plus` above 0", "0"));
            }
            roles.push(Role { name: name.clone(), by: role.by, first, ranks });
        }
        let (extent, control) = (size("extent", &read.extent)?, size("control", &read.control)?);
        if read.copies == 0 {
            return Err(fault("copies", "at least 1", "0"));
        }
        let mut own = Self {
            name: read.name,
            extent,
            copies: read.copies,
            control,
            roles,
            open: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
        };
        own.open = own.steps(file, "open", &read.open)?;
        own.read = own.steps(file, "read", &read.read)?;
        own.write = own.steps(file, "write", &read.write)?;
        Ok(own)
    }

    fn steps(&self, file: &str, part: &str, steps: &[StepFile]) -> Result<Vec<Step>, ImportError> {
        let mut reached: BTreeSet<(usize, bool)> = [(0, false)].into();
        let mut found = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let place = format!("{file}:{part}[{at}]");
            let fault =
                |expected: &str, found: &str| ImportError::new(&place, expected, format!("`{found}`"));
            let begun = |(role, which): (usize, Which), reached: &BTreeSet<(usize, bool)>| {
                let others = which != Which::First;
                let own = which != Which::Others;
                if (own && !reached.contains(&(role, false))) || (others && !reached.contains(&(role, true)))
                {
                    let name = &self.roles[role].name;
                    return Err(fault("a rank that an earlier step has reached", name));
                }
                Ok(())
            };
            match step {
                StepFile {
                    from: Some(from),
                    to: Some(to),
                    bytes: Some(payload),
                    work: None,
                    takes: None,
                    label,
                } => {
                    let (from, to) = (self.place(&place, from)?, self.place(&place, to)?);
                    begun(from, &reached)?;
                    if from.1 != Which::First && to.1 != Which::First {
                        return Err(fault("one sender or one receiver", "several of both"));
                    }
                    reached.extend((to.1 != Which::Others).then_some((to.0, false)));
                    reached.extend((to.1 != Which::First).then_some((to.0, true)));
                    let label = label.clone().unwrap_or_else(|| part.to_owned());
                    found.push(Step::Send { label, from, to, payload: *payload });
                }
                StepFile {
                    work: Some(at), takes: Some(takes), from: None, to: None, bytes: None, ..
                } => {
                    let at = self.place(&place, at)?;
                    begun(at, &reached)?;
                    let picoseconds = parse_quantity(takes, Dimension::Time)
                        .map_err(|_| fault("a time such as `10 us`", takes))?;
                    found.push(Step::Work { at, nanoseconds: picoseconds / 1_000 });
                }
                _ => return Err(fault("`from`, `to` and `bytes`, or `work` and `takes`", "something else")),
            }
        }
        Ok(found)
    }

    /// `role`, `role[all]` or `role[others]`.
    fn place(&self, place: &str, text: &str) -> Result<(usize, Which), ImportError> {
        let (name, which) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((name, "all")) => (name, Which::All),
            Some((name, "others")) => (name, Which::Others),
            Some(_) => {
                return Err(ImportError::new(
                    place,
                    "`role`, `role[all]` or `role[others]`",
                    format!("`{text}`"),
                ));
            }
            None => (text, Which::First),
        };
        let role = self.roles.iter().position(|role| role.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.roles.iter().map(|role| &*role.name).collect();
            ImportError::new(place, format!("one of the roles `{}`", names.join("`, `")), format!("`{name}`"))
        })?;
        if which != Which::First && self.roles[role].ranks < self.copies {
            let expected = format!("at least {} ranks of `{name}`, one a copy", self.copies);
            return Err(ImportError::new(place, expected, self.roles[role].ranks.to_string()));
        }
        Ok((role, which))
    }

    /// Ranks of all roles together.
    pub(super) fn ranks(&self) -> u32 {
        self.roles.last().map_or(0, |role| role.first + role.ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "name: t\nextent: 1 MiB\ncopies: 2\ncontrol: 64 B\nroles: {server: {ranks: 3, by: extent}}\n";

    fn refused(steps: &str) -> String {
        Architecture::parse("t.yaml", &format!("{TEXT}{steps}"), 2).unwrap_err().to_string()
    }

    #[test]
    fn those_that_come_along_are_read() {
        for (name, ranks) in [("replicated", 4 + 6), ("direct-drive", 4 + 3 + 6 + 2 + 1 + 1)] {
            let found = Architecture::read(name, 4).unwrap();
            assert_eq!((found.name.as_str(), found.ranks()), (name, ranks));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let read = "read: [{from: client, to: server, bytes: control}]\n";
        let write = |steps: &str| format!("{read}write: [{steps}]\n");
        for (steps, said) in [
            (
                "{from: server, to: client, bytes: data}",
                "write[0]: expected a rank that an earlier step has reached",
            ),
            ("{from: client, to: disk, bytes: data}", "one of the roles `client`, `server`, found `disk`"),
            ("{from: client, to: 'server[some]', bytes: data}", "`role[all]`"),
            (
                "{from: client, to: server, bytes: data}, {work: server, takes: 5 GB}",
                "write[1]: expected a time",
            ),
            ("{from: client, to: server}", "`from`, `to` and `bytes`"),
            (
                "{from: client, to: 'client[all]', bytes: data}, {from: 'server[all]', to: client, bytes: data}",
                "reached",
            ),
        ] {
            let found = refused(&write(steps));
            assert!(found.contains(said), "{steps}: {found}");
        }
        assert!(refused("read: []\nwrit: []\n").contains("writ"));
        assert!(
            Architecture::read("direct-driv", 2)
                .unwrap_err()
                .to_string()
                .contains("did you mean `direct-drive`?")
        );
    }
}
