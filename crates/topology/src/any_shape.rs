//! The shapes that there are, and the branch that tells them apart.

use crate::bcube::BCube;
use crate::clos::Clos;
use crate::dragonfly::{Dragonfly, DragonflyPlus};
use crate::hamming::HammingMesh;
use crate::mesh::FullMesh;
use crate::regions::Regions;
use crate::torus::Torus;

/// The shapes. They are told apart by a branch, not by a table of functions, so that a hop is inlined.
#[derive(Clone, Debug)]
pub(crate) enum AnyShape {
    Clos(Clos),
    Torus(Torus),
    Dragonfly(Dragonfly),
    DragonflyPlus(DragonflyPlus),
    Graph(Box<crate::graph::Graph>),
    BCube(BCube),
    HammingMesh(HammingMesh),
    FullMesh(FullMesh),
    Regions(Regions),
}

/// Evaluates an expression for the shape that there is.
macro_rules! each {
    ($any:expr, $shape:ident => $body:expr) => {
        match $any {
            $crate::any_shape::AnyShape::Clos($shape) => $body,
            $crate::any_shape::AnyShape::Torus($shape) => $body,
            $crate::any_shape::AnyShape::Dragonfly($shape) => $body,
            $crate::any_shape::AnyShape::DragonflyPlus($shape) => $body,
            $crate::any_shape::AnyShape::Graph($shape) => {
                let $shape = &**$shape;
                $body
            }
            $crate::any_shape::AnyShape::BCube($shape) => $body,
            $crate::any_shape::AnyShape::HammingMesh($shape) => $body,
            $crate::any_shape::AnyShape::FullMesh($shape) => $body,
            $crate::any_shape::AnyShape::Regions($shape) => $body,
        }
    };
}
pub(crate) use each;
