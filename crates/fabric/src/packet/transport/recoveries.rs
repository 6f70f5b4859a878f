//! Ways of mending losses by name.

use windtunnel_kernel::registry::Entry;

use super::Recovery;

/// How lost packets are sent again, as a scenario chooses it.
#[derive(Clone, Copy, Debug)]
pub struct Mending {
    /// Its name and a line about it.
    pub entry: Entry,
    /// What it is, where so many later packets show a loss.
    pub recovery: fn(u32) -> Recovery,
}

impl PartialEq for Mending {
    fn eq(&self, other: &Self) -> bool {
        self.entry == other.entry
    }
}

const NONE: Mending = Mending { entry: Entry::new("none", "not at all"), recovery: |_| Recovery::None };

const GO_BACK_N: Mending = Mending {
    entry: Entry::new("go_back_n", "all from the first missing one on"),
    recovery: |_| Recovery::GoBackN,
};

/// The one that counts later packets.
pub const SELECTIVE: Mending = Mending {
    entry: Entry::new("selective", "the missing ones alone, once `reorder` later ones have arrived"),
    recovery: |reorder| Recovery::Selective { reorder },
};

const RACK: Mending = Mending {
    entry: Entry::new(
        "rack",
        "the missing ones alone, once something sent later has arrived and they are overdue (RACK, RFC 8985)",
    ),
    recovery: |_| Recovery::Rack,
};

const TIMER: Mending = Mending {
    entry: Entry::new(
        "timer",
        "the missing ones alone, once switches have told that they trimmed them, or after a time-out",
    ),
    recovery: |_| Recovery::TIMER,
};

/// The one that restores losses at the receiver, where a block has enough ([`crate::coding`]); what is left is sent again as
/// [`SELECTIVE`] or [`RACK`] has it.
pub const ERASURE: Mending = Mending {
    entry: Entry::new("erasure", "parity beside the data restores them; what it cannot is sent again"),
    recovery: |reorder| Recovery::Selective { reorder },
};

/// All, in the order in which they are listed.
pub const RECOVERIES: [&Mending; 6] = [&NONE, &GO_BACK_N, &SELECTIVE, &RACK, &TIMER, &ERASURE];

windtunnel_kernel::table! { Mending: "recovery", RECOVERIES }
