//! What every shape answers. [`any_shape`](crate::any_shape) is the branch that tells shapes apart.
//!
//! A [`Shape`] knows the switches of a fabric, their ports and the cables between them, and the ports of one switch that
//! lie on a shortest legal path to another. It knows neither hosts' insides (`hosts`) nor the links between NICs and
//! switches (`edge`); what can be said of every shape alike (routes, faults, checks, drawings) is written once, above
//! this trait. Everything is a pure function of the numbers given, computed in a few instructions.
//!
//! A rule is its set of legal paths. [`Shape::may_follow`] says of a single hop whether a legal path from here on may
//! begin with it; [`Shape::shortest`] is the set of the hops that begin a shortest legal path, and equals what a
//! breadth-first search over the legal hops finds (tested for every shape on random instances). Every suffix of a
//! legal path is legal from where it begins, so that the answer needs no memory of where a packet came from; the one
//! exception, paths that are longer on purpose, is an [`Itinerary`](crate::Itinerary): first to a waypoint, then on,
//! each leg by the shortest rule.
//!
//! Invariants, tested for every shape: peers are symmetric; links are dense and `link_source` inverts `link`; switch →
//! coordinates → switch and host → site → host are the identity.

use smallvec::SmallVec;
use windtunnel_kernel::{BitRate, Span};

use crate::choose::choose_hashed;
use crate::faults::Dead;
use crate::link::{LinkTier, PathClass};
use crate::port::PortSet;

/// A cable between two ports, or between a switch and a NIC; both directions alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cable {
    /// Per direction.
    pub(crate) rate: BitRate,
    pub(crate) propagation: Span,
    /// Share of packets lost at random, 0 to 1.
    pub(crate) loss: f64,
    /// Its length, for counts by class; 0 where unknown.
    pub(crate) length_mm: u64,
}

/// The far end of a port, in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Far {
    Switch { switch: u32, port: u32 },
    Nic { nic: u32, plane: u32 },
}

/// Digits of a switch's address; what they stand for is the shape's [`Shape::axes`].
pub type Coordinates = SmallVec<[u32; 6]>;

/// Where a host stands: the address of its first NIC without the host's insides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Site {
    pub(crate) region: u32,
    pub(crate) building: u32,
    pub(crate) pod: u32,
    pub(crate) rack: u32,
    /// Within its rack.
    pub(crate) slot: u32,
}

/// See the module page. Switches, hosts and NICs passed in exist; ports too.
pub(crate) trait Shape {
    /// Name of the shape: `clos`, `torus`, …
    fn name(&self) -> &'static str;

    /// Switches of all planes.
    fn switches(&self) -> u32;

    /// Ports of a switch, cabled or not.
    fn ports(&self, switch: u32) -> u32;

    /// The other end of a port's cable; `None` without one.
    fn peer(&self, switch: u32, port: u32) -> Option<Far>;

    /// Switch and port of a NIC in a plane.
    fn attachment(&self, nic: u32, plane: u32) -> (u32, u32);

    /// The cable of a port that has one.
    fn cable(&self, switch: u32, port: u32) -> Cable;

    /// Where the link that leaves a port stands.
    fn link_tier(&self, switch: u32, port: u32) -> LinkTier;

    /// Pipeline delay of a switch.
    fn delay(&self, switch: u32) -> Span;

    /// Directed links between switches.
    fn fabric_links(&self) -> u32;

    /// Number, from 0, of the directed link that leaves a port towards a switch.
    fn link(&self, switch: u32, port: u32) -> u32;

    /// The port that a directed link between switches leaves.
    fn link_source(&self, link: u32) -> (u32, u32);

    /// Which of several cables between the same two switches a port has; `None` if it is the only one.
    fn parallel(&self, switch: u32, port: u32) -> Option<u32>;

    /// Appends the ports of `at` that begin a shortest legal path to the switch `to` ≠ `at`, of the same plane, in
    /// ascending order: a [field](crate::faults) of the same destination lists them alike. Where no legal path is, those
    /// of a detour: a packet may be left there by faults that are over.
    fn shortest(&self, at: u32, to: u32, ports: &mut PortSet);

    /// The choice among [`Self::shortest`] for a flow of the given [`crate::flow_hash`].
    #[inline]
    fn pick(&self, at: u32, to: u32, flow_hash: u64) -> u32 {
        let mut ports = PortSet::new();
        self.shortest(at, to, &mut ports);
        ports.nth(choose_hashed(flow_hash, u64::from(at), ports.len()))
    }

    /// Whether a legal path from `at` to the switch `to` ≠ `at` may begin with `port`, whose peer is a switch.
    fn may_follow(&self, at: u32, port: u32, to: u32) -> bool;

    /// The waypoint that a packet entering at `from` for `to` ≠ `from` takes; `None` is the shortest way. `hash` is
    /// the flow's; `queue` the bytes waiting at a port of `from`.
    fn waypoint(&self, from: u32, to: u32, hash: u64, queue: impl Fn(u32) -> u64) -> Option<u32>;

    /// Whether [`Self::waypoint`] may ever choose one.
    fn leaves_shortest(&self) -> bool;

    /// Whether [`Self::surviving`] is answered by arithmetic on the dead ports. Otherwise a field of distances is kept
    /// for every destination that needs one.
    fn repairs_by_rule(&self) -> bool {
        false
    }

    /// Counts of dead ports that its repairs ask for again and again, made once whenever the known faults change; read
    /// back from [`Dead::part`].
    fn tally(&self, dead: &Dead) -> Vec<u32> {
        let _ = dead;
        Vec::new()
    }

    /// With faults, for shapes that [`Self::repairs_by_rule`]: appends the ports of `at` that begin a shortest legal
    /// path to `to` ≠ `at` over living cables, each with the number of such paths if `weights` is given. None where
    /// there is no such path.
    fn surviving(&self, dead: &Dead, at: u32, to: u32, ports: &mut PortSet, weights: Option<&mut Vec<u64>>) {
        let _ = (dead, at, to, ports, weights);
    }

    /// The choice among [`Self::surviving`], all ports alike, for a flow of the given [`crate::flow_hash`]; `None`
    /// where there is none.
    #[inline]
    fn pick_surviving(&self, dead: &Dead, at: u32, to: u32, flow_hash: u64) -> Option<u32> {
        let mut ports = PortSet::new();
        self.surviving(dead, at, to, &mut ports, None);
        let index = choose_hashed(flow_hash, u64::from(at), ports.len());
        (!ports.is_empty()).then(|| ports.nth(index))
    }

    /// Whether there is a legal path from `at` to `to` ≠ `at`, and no shortest one meets a dead port: then
    /// [`Self::shortest`] holds. May be cautious and say no where something is dead.
    fn is_clear(&self, dead: &Dead, at: u32, to: u32) -> bool {
        let _ = (at, to);
        dead.is_empty()
    }

    /// How far apart the switches of two NICs are.
    fn class(&self, a: u32, b: u32) -> PathClass;

    /// Tier of a switch, from 0 at the hosts; shapes without tiers have one.
    fn tier(&self, switch: u32) -> u8;

    /// What switches of a tier are called: `leaf`, `router`, …
    fn tier_name(&self, tier: u8) -> String;

    /// A readable name, unique among switches.
    fn switch_name(&self, switch: u32) -> String;

    /// What the digits of [`Self::coordinates`] stand for, outermost first.
    fn axes(&self) -> Vec<String>;

    /// The hierarchical address of a switch.
    fn coordinates(&self, switch: u32) -> Coordinates;

    /// The switch of an address; `None` if there is none.
    fn switch_at(&self, coordinates: &[u32]) -> Option<u32>;

    /// Where a host stands.
    fn site(&self, host: u32) -> Site;

    /// The host of a place; `None` if there is none.
    fn host_at(&self, site: Site) -> Option<u32>;

    /// Rate per direction between the two halves of the hosts, cut where the shape's definition says.
    fn bisection(&self) -> BitRate;

    /// Hops between switches on the longest of the shortest legal paths between two NICs.
    fn diameter(&self) -> u32;

    /// Latency of the slowest of the shortest legal paths, from its first switch, whose delay does not count, to its
    /// last; `slowest` is that of the slowest hop of the fabric. A bound unless all hops are alike.
    fn longest(&self, slowest: Span) -> Span {
        slowest * u64::from(self.diameter())
    }
}
