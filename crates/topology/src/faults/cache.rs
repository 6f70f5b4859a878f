//! Fields of next hops by destination, in bounded memory.
//!
//! Few different sets of ports occur in a fabric (in a torus of three dimensions not a hundred), so each is kept once,
//! and a field is a code for every switch: one byte while there are no more than 256 sets. 4,096 fields of 4,096
//! routers are 16 MB.
//!
//! Invariant: what is found in a field does not depend on the fields built before; only its codes do. The oldest field
//! makes room for a new one.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::dead::Dead;
use super::field::{Search, Way, ports_of};
use crate::port::PortSet;
use crate::shape::Shape;

/// Bytes of fields at most (but always one field).
const MOST_BYTES: usize = 192 << 20;

/// Sets of ports beyond which everything begins anew: a field may add as many as there are switches.
const MOST_SETS: usize = 1 << 16;

/// Codes of the switches of a field, as wide as they need be.
#[derive(Clone, Debug, Default)]
enum Codes {
    #[default]
    None,
    Bytes(Box<[u8]>),
    Words(Box<[u16]>),
    Long(Box<[u32]>),
}

impl Codes {
    fn new(codes: &[u32]) -> Self {
        match codes.iter().max() {
            Some(&most) if most > u32::from(u16::MAX) => Self::Long(codes.into()),
            Some(&most) if most > u32::from(u8::MAX) => {
                Self::Words(codes.iter().map(|&code| code as u16).collect())
            }
            _ => Self::Bytes(codes.iter().map(|&code| code as u8).collect()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(codes) => size_of_val(&**codes),
            Self::Words(codes) => size_of_val(&**codes),
            Self::Long(codes) => size_of_val(&**codes),
        }
    }
}

/// What there is from a switch to a destination.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) ports: PortSet,
    pub(crate) way: Way,
}

/// See the module page.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    most_bytes: usize,
    /// By destination.
    fields: Vec<Codes>,
    /// Destinations with a field, the oldest first.
    order: VecDeque<u32>,
    bytes: usize,
    /// By code.
    steps: Vec<Step>,
    /// The codes of masks of ports with the kind of way as the last word.
    codes: FxHashMap<Box<[u64]>, u32>,
    search: Search,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            most_bytes: MOST_BYTES,
            fields: Vec::new(),
            order: VecDeque::new(),
            bytes: 0,
            steps: Vec::new(),
            codes: FxHashMap::default(),
            search: Search::default(),
        }
    }
}

impl Cache {
    /// From `at` to `to`, if there is a field for it.
    #[inline]
    pub(crate) fn get(&self, at: u32, to: u32) -> Option<&Step> {
        let at = at as usize;
        let code = match self.fields.get(to as usize)? {
            Codes::None => return None,
            Codes::Bytes(codes) => usize::from(codes[at]),
            Codes::Words(codes) => usize::from(codes[at]),
            Codes::Long(codes) => codes[at] as usize,
        };
        Some(&self.steps[code])
    }

    /// Searches a field for `to` if there is none.
    #[cold]
    pub(crate) fn build<S: Shape>(&mut self, shape: &S, dead: &Dead, to: u32) {
        if self.steps.len() > MOST_SETS {
            *self = Self { most_bytes: self.most_bytes, ..Self::default() };
        }
        if self.fields.is_empty() {
            self.fields = vec![Codes::None; shape.switches() as usize];
            self.search = Search::new(shape);
        }
        if !matches!(self.fields[to as usize], Codes::None) {
            return;
        }
        self.search.run(shape, dead, to);
        let field = Codes::new(&self.encode());
        self.bytes += field.bytes();
        self.fields[to as usize] = field;
        while self.bytes > self.most_bytes
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= std::mem::take(&mut self.fields[oldest as usize]).bytes();
        }
        self.order.push_back(to);
    }

    /// Codes of what the search has found, with new ones where there are none yet.
    fn encode(&mut self) -> Vec<u32> {
        let (mut key, mut code) = (Vec::new(), 0);
        let (steps, codes) = (&mut self.steps, &mut self.codes);
        let each = |(mask, way): (&[u64], Way)| {
            // Neighbours often have the same.
            if key.split_last() != Some((&(way as u64), mask)) {
                key.clear();
                key.extend_from_slice(mask);
                key.push(way as u64);
                code = match codes.get(key.as_slice()) {
                    Some(&code) => code,
                    None => {
                        let code = steps.len() as u32;
                        codes.insert(key.as_slice().into(), code);
                        steps.push(Step { ports: ports_of(mask), way });
                        code
                    }
                };
            }
            code
        };
        self.search.found().map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any_shape::each;
    use crate::port::SwitchId;
    use crate::spec::{CableSpec, Dimension, DirectSpec, TopologySpec, TorusSpec};
    use crate::topology::Topology;
    use windtunnel_kernel::BitRate;

    #[test]
    fn the_oldest_field_makes_room_and_answers_stay() {
        let rate = BitRate::from_gbps(100);
        let dimension = Dimension { size: 6, wrap: true, links: 1, cable: CableSpec::new(rate) };
        let spec = TorusSpec {
            direct: DirectSpec::new(rate),
            dimensions: vec![dimension; 2],
            routing: crate::spec::TorusRouting::MinimalAdaptive,
        };
        let topology = Topology::new(&TopologySpec::Torus(spec)).expect("a valid spec");
        let mut dead = Dead::default();
        for switch in [0, 7, 20] {
            let link = topology.out_link(SwitchId(switch), 0).expect("a torus has no end");
            dead.set_cable(&topology, link, true);
        }
        // A byte for each of 36 routers: room for three fields.
        let mut small = Cache { most_bytes: 3 * 36 + 35, ..Cache::default() };
        let mut large = Cache::default();
        each!(&topology.shape, shape => {
            for to in (0..36).chain([5, 35, 34]) {
                small.build(shape, &dead, to);
                large.build(shape, &dead, to);
                for at in 0..36 {
                    let (a, b) = (small.get(at, to).expect("just built"), large.get(at, to).expect("kept"));
                    assert_eq!((&a.ports, a.way), (&b.ports, b.way), "from {at} to {to}");
                }
                assert!(small.bytes <= small.most_bytes && small.order.len() <= 3);
            }
        });
        // What is there already is not built again.
        assert_eq!(small.order, [34, 35, 5]);
        assert!(small.get(0, 33).is_none());
        assert_eq!((large.order.len(), large.bytes), (36, 36 * 36));
    }
}
