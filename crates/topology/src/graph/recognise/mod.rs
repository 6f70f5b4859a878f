//! Regular shapes hidden in a graph, so that it is routed by rule.
//!
//! A shape is proposed from a few local facts (distances from the hosts, the lines through one router), every node gets
//! its coordinates, and then every cable is checked against the shape's formula: what is returned is proven, and what
//! cannot be proven is `None`. The work is linear in the cables but for factors of the number of tiers and ports.

mod clos;
mod torus;

use windtunnel_kernel::{BitRate, Span};

pub use clos::{ClosMap, ClosPlace, recognise_clos};
pub use torus::{TorusMap, recognise_torus};

use super::spec::{GraphLink, GraphSpec};
use crate::spec::{CableSpec, ClosSpec, DEFAULT_PROPAGATION_PS_PER_M, TopologySpec, TorusSpec};

/// A regular shape and which of its nodes each node of the graph is.
#[derive(Clone, Debug, PartialEq)]
pub enum Recognised {
    /// A folded Clos, fat trees among them.
    Clos(ClosSpec, ClosMap),
    /// A torus or mesh.
    Torus(TorusSpec, TorusMap),
}

/// The regular shape that a graph is, if it is a Clos, a torus or a mesh.
pub fn recognise(graph: &GraphSpec) -> Option<Recognised> {
    let clos = recognise_clos(graph).map(|(spec, map)| Recognised::Clos(spec, map));
    clos.or_else(|| recognise_torus(graph).map(|(spec, map)| Recognised::Torus(spec, map)))
}

impl Recognised {
    /// What to route it by.
    pub fn spec(&self) -> TopologySpec {
        match self {
            Self::Clos(spec, _) => TopologySpec::Clos(spec.clone()),
            Self::Torus(spec, _) => TopologySpec::Torus(spec.clone()),
        }
    }

    /// In words: `8-ary fat tree`, `3-tier clos`, `4 x 4 x 2 torus`.
    pub fn describe(&self) -> String {
        match self {
            Self::Clos(spec, _) => clos::describe(spec),
            Self::Torus(spec, _) => torus::describe(spec),
        }
    }
}

/// Properties that cables of one kind share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kind {
    rate: BitRate,
    latency: Span,
    loss: f64,
}

impl Kind {
    fn spec(&self, length: impl Fn(Span) -> u64) -> CableSpec {
        CableSpec { rate: self.rate, length_mm: length(self.latency), loss: self.loss }
    }
}

/// The kind of cables that must all be of one.
#[derive(Clone, Copy, Debug, Default)]
struct Uniform(Option<Kind>);

impl Uniform {
    fn agrees(&mut self, link: &GraphLink) -> bool {
        let kind = Kind { rate: link.rate, latency: link.latency, loss: link.loss };
        *self.0.get_or_insert(kind) == kind
    }
}

/// Propagation in ps a metre at which all latencies are those of whole millimetres, and the length of a latency.
fn propagation(mut latencies: impl Iterator<Item = Span>) -> (u64, impl Fn(Span) -> u64) {
    let default = latencies.all(|latency| latency.ps().is_multiple_of(DEFAULT_PROPAGATION_PS_PER_M / 1_000));
    let ps_per_m = if default { DEFAULT_PROPAGATION_PS_PER_M } else { 1_000 };
    (ps_per_m, move |latency: Span| latency.ps() / (ps_per_m / 1_000))
}
