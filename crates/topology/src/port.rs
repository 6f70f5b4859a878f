//! Switches and their ports: what a next hop is made of.

use smallvec::SmallVec;
use windtunnel_kernel::define_id;

define_id! {
    /// A switch, or whatever else forwards (a router of a torus, a BCube server), dense from 0 over all planes.
    pub struct SwitchId;
}

/// What is at the other end of a port's cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A port of another switch.
    Switch {
        /// Which.
        switch: SwitchId,
        /// Its port.
        port: u32,
    },
    /// The port of a NIC into a plane.
    Nic {
        /// Counted over all hosts, host-major.
        nic: u32,
        /// Copy of the fabric.
        plane: u32,
    },
}

/// Where a packet is to go: a NIC's port into one plane, with the switch that it hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Counted over all hosts, host-major.
    pub nic: u32,
    /// Copy of the fabric.
    pub plane: u32,
    /// The last switch of every path.
    pub switch: SwitchId,
    /// Its port to the NIC.
    pub port: u32,
}

/// What a packet carries beside its destination: the switch that it must visit first, chosen where it enters the
/// fabric by rules that leave the shortest path on purpose (Valiant, UGAL-L, one detour).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Itinerary(u32);

impl Itinerary {
    /// Straight to the destination.
    pub const DIRECT: Self = Self(0);

    /// By way of `switch`.
    pub const fn via(switch: SwitchId) -> Self {
        Self(switch.0 + 1)
    }

    /// The switch still to be visited.
    pub const fn waypoint(self) -> Option<SwitchId> {
        match self.0 {
            0 => None,
            next => Some(SwitchId(next - 1)),
        }
    }
}

/// Consecutive ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    count: u32,
}

/// Ports of one switch in the order in which the load balancer counts them: runs of consecutive ports, mostly one.
///
/// Does not allocate for up to six runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSet {
    runs: SmallVec<[Run; 6]>,
    len: u32,
}

impl PortSet {
    /// No port.
    pub fn new() -> Self {
        Self::default()
    }

    /// One port.
    pub fn one(port: u32) -> Self {
        let mut set = Self::new();
        set.push(port);
        set
    }

    /// Empties the set and keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.runs.clear();
        self.len = 0;
    }

    /// Becomes equal to another, in the memory that there is.
    #[inline]
    pub(crate) fn copy(&mut self, other: &Self) {
        self.runs.clear();
        self.runs.extend_from_slice(&other.runs);
        self.len = other.len;
    }

    /// Adds a port at the end.
    #[inline]
    pub fn push(&mut self, port: u32) {
        self.push_run(port, 1);
    }

    /// Adds `count` ports from `first` on at the end.
    #[inline]
    pub fn push_run(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        self.len += count;
        if let Some(last) = self.runs.last_mut()
            && last.first + last.count == first
        {
            last.count += count;
            return;
        }
        self.runs.push(Run { first, count });
    }

    /// How many.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Port number `index` of the set.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn nth(&self, index: u32) -> u32 {
        let mut left = index;
        for run in &self.runs {
            if left < run.count {
                return run.first + left;
            }
            left -= run.count;
        }
        panic!("expected a port below {}, found {index}", self.len)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|run| run.first..run.first + run.count)
    }

    /// Keeps the ports that `keep` accepts, in order.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        let runs = std::mem::take(&mut self.runs);
        self.len = 0;
        for port in runs.iter().flat_map(|run| run.first..run.first + run.count) {
            if keep(port) {
                self.push(port);
            }
        }
    }
}

impl FromIterator<u32> for PortSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ports: I) -> Self {
        let mut set = Self::new();
        ports.into_iter().for_each(|port| set.push(port));
        set
    }
}

/// The place of bit number `index` of those set, if there are no more than `MOST`; as many steps whatever the index is,
/// for a loop that ends early is mispredicted.
#[inline]
pub(crate) fn nth_bit<const MOST: u32>(mut bits: u64, index: u32) -> u32 {
    for passed in 1..MOST {
        let rest = bits & bits.wrapping_sub(1);
        bits = if passed <= index { rest } else { bits };
    }
    bits.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_ports_join_and_keep_their_order() {
        let mut set: PortSet = [4, 5, 6, 9, 2, 3].into_iter().collect();
        assert_eq!((set.runs.len(), set.len()), (3, 6));
        assert_eq!(set.iter().collect::<Vec<_>>(), [4, 5, 6, 9, 2, 3]);
        assert_eq!((0..6).map(|index| set.nth(index)).collect::<Vec<_>>(), [4, 5, 6, 9, 2, 3]);
        set.retain(|port| port != 5 && port != 9);
        assert_eq!(set.iter().collect::<Vec<_>>(), [4, 6, 2, 3]);
    }

    #[test]
    fn bits_are_counted_from_the_lowest() {
        assert_eq!([0, 1, 2, 3].map(|index| nth_bit::<4>(0b1011_0100, index)), [2, 4, 5, 7]);
    }

    #[test]
    fn an_itinerary_remembers_switch_0() {
        assert_eq!(Itinerary::default().waypoint(), None);
        assert_eq!(Itinerary::via(SwitchId(0)).waypoint(), Some(SwitchId(0)));
    }
}
