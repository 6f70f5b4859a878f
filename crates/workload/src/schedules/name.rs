//! Which schedules there are.

use std::fmt;
use std::str::FromStr;

use windtunnel_kernel::registry::Listed;

use super::error::ScheduleError;

windtunnel_kernel::named! {
    /// Which schedule.
    #[derive(Default, Hash)]
    pub enum ScheduleName: "schedule" {
        Gpipe = "gpipe" | "afab", "all forwards, then all backwards";
        #[default]
        OneForwardOneBackward = "1f1b", "one forward, one backward";
        Interleaved = "interleaved", "several chunks a rank in a loop (flexible when the run length is not the number of ranks)";
        ZbH1 = "zb-h1", "input and weight gradients apart, with the memory of 1F1B and one chunk a rank";
        Zb1p = "zb1p", "input and weight gradients apart, any number of chunks";
        ZbH2 = "zb-h2", "input and weight gradients apart, no rank idles between its first and last pass, twice the memory of 1F1B";
        Zb2p = "zb-2p", "input and weight gradients apart, the best order that a search with the passes' costs finds in `memory_cap`";
        Zbv = "zbv", "input and weight gradients apart, zero bubble on the V-shaped placement";
        DoraPp = "dorapp", "input and weight gradients apart, flexible";
        DualPipe = "dualpipe", "both directions at once";
        DualPipeV = "dualpipev", "both directions at once on the V-shaped placement, one copy of each stage";
    }
}

impl ScheduleName {
    /// Whether the backward pass is always split into its two gradients.
    pub const fn splits_backward(self) -> bool {
        matches!(self, Self::ZbH1 | Self::ZbH2 | Self::Zb1p | Self::Zb2p | Self::Zbv | Self::DoraPp)
    }

    /// Whether its stages go down the ranks and back.
    pub const fn is_v(self) -> bool {
        matches!(self, Self::Zbv | Self::DualPipeV)
    }

    /// Whether some forward and backward passes run interleaved.
    pub const fn overlaps(self) -> bool {
        matches!(self, Self::DualPipe | Self::DualPipeV)
    }

    /// Chunks a rank when the settings name none.
    pub(super) const fn default_chunks(self) -> u16 {
        match self {
            Self::Interleaved | Self::Zbv | Self::DoraPp | Self::DualPipe | Self::DualPipeV => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ScheduleName {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        Self::by_name(text).ok_or_else(|| ScheduleError::UnknownName { found: text.to_owned() })
    }
}
