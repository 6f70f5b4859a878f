//! Networks that are no formula: explicit graphs, how they are checked, and the shapes hidden in them.
//!
//! Life cycle: an importer (`crate::import`) or a caller makes a [`GraphSpec`], which is checked once; [`recognise()`]
//! finds the Clos or torus in it, if there is one, so that it is routed by rule. What is left is routed by tables.
//!
//! Invariants of a checked graph: ends of links exist and differ, rates are positive, names are unique, every host has
//! a link, and there is one connected part.

mod builder;
mod cut;
mod error;
mod fabric;
mod recognise;
mod spec;
mod tables;
mod unrolled;

pub use builder::Defaults;
pub use error::{GraphError, GraphProblem, Place};
pub use recognise::{ClosMap, ClosPlace, Recognised, TorusMap, recognise, recognise_clos, recognise_torus};
pub use spec::{GraphLink, GraphNode, GraphSpec, NodeKind};

pub(crate) use builder::{Cable, GraphBuilder, Repeats};
pub(crate) use fabric::{Graph, host_spec};
