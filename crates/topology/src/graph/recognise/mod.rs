//! Regular shapes hidden in a graph, so that it is routed by rule.
//!
//! A shape is proposed from a few local facts (distances from the hosts, the lines through one router), every node gets
//! its coordinates, and then every cable is checked against the shape's formula: what is returned is proven, and what
//! cannot be proven is `None`. The work is linear in the cables but for factors of the number of tiers and ports.

mod clos;
mod torus;

use windtunnel_kernel::{BitRate, Span};

pub use clos::{ClosMap, ClosPlace, recognise_clos};
pub use torus::{TorusDims, TorusMap, recognise_torus};

use super::spec::{GraphLink, GraphSpec};
use crate::spec::ClosSpec;

/// A regular shape and which of its nodes each node of the graph is.
#[derive(Clone, Debug, PartialEq)]
pub enum Recognised {
    /// A folded Clos, fat trees among them.
    Clos(ClosSpec, ClosMap),
    /// A torus or mesh.
    Torus(TorusDims, TorusMap),
}

/// The regular shape that a graph is, if it is a Clos, a torus or a mesh.
pub fn recognise(graph: &GraphSpec) -> Option<Recognised> {
    let clos = recognise_clos(graph).map(|(spec, map)| Recognised::Clos(spec, map));
    clos.or_else(|| recognise_torus(graph).map(|(dims, map)| Recognised::Torus(dims, map)))
}

impl Recognised {
    /// In words: `8-ary fat tree`, `3-tier clos`, `4 x 4 x 2 torus`.
    pub fn describe(&self) -> String {
        match self {
            Self::Clos(spec, _) => clos::describe(spec),
            Self::Torus(dims, _) => dims.describe(),
        }
    }
}

/// Rate and latency of the cables of one kind, which must be equal and lossless.
#[derive(Clone, Copy, Debug, Default)]
struct Uniform(Option<(BitRate, Span)>);

impl Uniform {
    fn agrees(&mut self, link: &GraphLink) -> bool {
        let properties = (link.rate, link.latency);
        link.loss == 0.0 && *self.0.get_or_insert(properties) == properties
    }
}
