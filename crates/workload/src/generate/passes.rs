//! Pieces compiled once per stage into steps: merged, split and bounded by units.

use smallvec::SmallVec;
use windtunnel_kernel::{Bytes, Span};

use super::grid::Role;
use super::{GenerateError, Overlap, Piece};
use crate::collectives::CollectiveKind;
use crate::collectives::dispatcher::Routing;
use crate::program::Dimension;

/// A collective of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub role: Role,
    pub dimension: Dimension,
    pub kind: CollectiveKind,
    pub bytes: Bytes,
    pub routing: Option<Routing>,
    pub label: &'static str,
}

/// Units that begin or end at one place.
pub(crate) type Units = SmallVec<[u32; 2]>;

/// One step of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The parameters of these units are read from here on.
    Enter(Units),
    /// Computation; the label is empty where pieces of several names were merged.
    Calc { duration: Span, label: &'static str },
    /// A collective in line.
    Inline(Exchange),
    /// A computation split with the collective before it, after it or both, each with its number of chunks.
    Split {
        before: Option<(Exchange, u32)>,
        duration: Span,
        label: &'static str,
        after: Option<(Exchange, u32)>,
    },
    /// A collective issued under an id.
    Issue(u32, Exchange),
    /// Waits for the collective of an id.
    Wait(u32),
    /// The host launches what follows, perhaps when the lane has come here.
    Launch { span: Span, waits: bool },
    /// The gradients of these units are complete.
    Leave(Units),
}

/// A compiled pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    pub steps: Vec<Step>,
    /// Computation up to each step, and in total at the end.
    pub progress: Vec<Span>,
}

/// What compiling needs to know.
pub(crate) struct Compiler<'a> {
    /// Stage, for messages.
    pub stage: u32,
    /// Units of the stage.
    pub units: u32,
    /// Whether a dimension has groups of more than one.
    pub active: &'a dyn Fn(Dimension) -> bool,
    /// Slow-down of computation beside a collective.
    pub slowdown: f64,
}

impl Compiler<'_> {
    /// Compiles `pieces`, called `pass` in messages, with computation scaled by `scale`.
    pub(crate) fn compile(
        &self,
        pieces: &[Piece],
        pass: &'static str,
        scale: f64,
    ) -> Result<Pass, GenerateError> {
        let segments = self.segments(pieces, pass)?;
        let marked = |unit: u32| segments.iter().any(|(_, units)| units.contains(&unit));
        let unmarked: Units = (0..self.units).filter(|&unit| !marked(unit)).collect();
        let last = segments.len() - 1;
        let mut steps = Vec::with_capacity(pieces.len() + 2);
        let mut issued: SmallVec<[(u32, bool); 4]> = SmallVec::new();
        for (index, (pieces, units)) in segments.iter().enumerate() {
            let with_unmarked = |yes: bool| -> Units {
                units.iter().copied().chain(unmarked.iter().copied().filter(|_| yes)).collect()
            };
            let (enter, leave) = (with_unmarked(index == 0), with_unmarked(index == last));
            if !enter.is_empty() {
                steps.push(Step::Enter(enter));
            }
            self.segment(pieces, pass, scale, &mut issued, &mut steps)?;
            if !leave.is_empty() {
                steps.push(Step::Leave(leave));
            }
        }
        let mut total = Span::ZERO;
        let mut progress = Vec::with_capacity(steps.len() + 1);
        for step in &steps {
            progress.push(total);
            if let Step::Calc { duration, .. } | Step::Split { duration, .. } = step {
                total += *duration;
            }
        }
        progress.push(total);
        Ok(Pass { steps, progress })
    }

    /// The stretches between unit markers, with the units that end each; at least one.
    fn segments(
        &self,
        pieces: &[Piece],
        pass: &'static str,
    ) -> Result<Vec<(Vec<Piece>, Units)>, GenerateError> {
        let mut segments: Vec<(Vec<Piece>, Units)> = vec![(Vec::new(), Units::new())];
        let mut seen = vec![false; self.units as usize];
        for &piece in pieces {
            let current = segments.last_mut().expect("there is always one segment");
            match piece {
                Piece::UnitDone(unit) => {
                    let doubled = seen.get(unit as usize).copied();
                    if doubled != Some(false) {
                        let (stage, units) = (self.stage, self.units);
                        return Err(GenerateError::Unit {
                            stage,
                            pass,
                            unit,
                            units,
                            doubled: doubled.is_some(),
                        });
                    }
                    seen[unit as usize] = true;
                    current.1.push(unit);
                }
                _ if current.1.is_empty() => current.0.push(piece),
                _ => segments.push((vec![piece], Units::new())),
            }
        }
        Ok(segments)
    }

    fn segment(
        &self,
        pieces: &[Piece],
        pass: &'static str,
        scale: f64,
        issued: &mut SmallVec<[(u32, bool); 4]>,
        steps: &mut Vec<Step>,
    ) -> Result<(), GenerateError> {
        let is_active = |piece: &&Piece| match piece {
            Piece::Collective { axis, overlap, .. } => {
                matches!(overlap, Overlap::Async(_)) || (self.active)(*axis)
            }
            _ => true,
        };
        let pieces: Vec<Piece> = pieces.iter().filter(is_active).copied().collect();
        let exchange = |piece: &Piece| -> Option<(Exchange, Overlap)> {
            let Piece::Collective { axis, kind, bytes, routing, label, overlap } = *piece else {
                return None;
            };
            Some((Exchange { role: role(axis), dimension: axis, kind, bytes, routing, label }, overlap))
        };
        let is_calc = |piece: Option<&Piece>| matches!(piece, Some(Piece::Calc { .. }));
        for (index, piece) in pieces.iter().enumerate() {
            let previous = index.checked_sub(1).map(|index| &pieces[index]);
            let next = pieces.get(index + 1);
            match *piece {
                Piece::Calc { duration, label } => {
                    let before = previous.and_then(exchange).and_then(|(exchange, overlap)| match overlap {
                        Overlap::WithNext { chunks } => Some((exchange, chunks.max(1))),
                        _ => None,
                    });
                    let after = next.and_then(exchange).and_then(|(exchange, overlap)| match overlap {
                        Overlap::WithPrevious { chunks } => Some((exchange, chunks.max(1))),
                        _ => None,
                    });
                    let beside =
                        before.is_some() || after.is_some() || issued.iter().any(|&(_, in_flight)| in_flight);
                    let slow = if beside { 1.0 + self.slowdown } else { 1.0 };
                    let duration = duration.scaled(scale * slow);
                    match steps.last_mut() {
                        _ if before.is_some() || after.is_some() => {
                            steps.push(Step::Split { before, duration, label, after });
                        }
                        Some(Step::Calc { duration: merged, label: name }) => {
                            *merged += duration;
                            if *name != label {
                                *name = "";
                            }
                        }
                        _ => steps.push(Step::Calc { duration, label }),
                    }
                }
                Piece::Collective { kind: CollectiveKind::AllToAllV, .. } => {
                    return Err(GenerateError::Matrix { stage: self.stage, pass });
                }
                Piece::Collective { axis: axis @ (Dimension::Pp | Dimension::Other), .. } => {
                    return Err(GenerateError::Axis { stage: self.stage, pass, axis: axis.name() });
                }
                Piece::Collective { axis, overlap, .. } => {
                    let (exchange, _) = exchange(piece).expect("it is a collective");
                    match overlap {
                        // A split neighbour has it.
                        Overlap::WithNext { .. } if is_calc(next) => {}
                        Overlap::WithPrevious { .. } if is_calc(previous) => {}
                        Overlap::Async(id) => {
                            if issued.iter().any(|&(known, _)| known == id) {
                                return Err(GenerateError::Async {
                                    stage: self.stage,
                                    pass,
                                    id,
                                    doubled: true,
                                });
                            }
                            let active = (self.active)(axis);
                            issued.push((id, active));
                            if active {
                                steps.push(Step::Issue(id, exchange));
                            }
                        }
                        _ => steps.push(Step::Inline(exchange)),
                    }
                }
                Piece::Wait(id) => {
                    let Some(found) = issued.iter_mut().find(|(known, _)| *known == id) else {
                        return Err(GenerateError::Async { stage: self.stage, pass, id, doubled: false });
                    };
                    if found.1 {
                        steps.push(Step::Wait(id));
                        found.1 = false;
                    }
                }
                Piece::Launch { span, waits } => steps.push(Step::Launch { span, waits }),
                Piece::UnitDone(_) => unreachable!("markers end segments"),
            }
        }
        Ok(())
    }
}

/// The group of an axis inside a pipeline rank.
fn role(axis: Dimension) -> Role {
    match axis {
        Dimension::Tp => Role::Tp,
        Dimension::Cp => Role::Cp,
        Dimension::Ep => Role::Ep,
        Dimension::Pp | Dimension::Dp | Dimension::Other => Role::Data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calc(ps: u64, label: &'static str) -> Piece {
        Piece::Calc { duration: Span::from_ps(ps), label }
    }

    fn gather(axis: Dimension, overlap: Overlap) -> Piece {
        let kind = CollectiveKind::AllGather;
        Piece::Collective { axis, kind, bytes: Bytes::new(8), routing: None, label: "g", overlap }
    }

    fn compile(pieces: &[Piece], units: u32) -> Result<Vec<Step>, GenerateError> {
        let active = |dimension| dimension == Dimension::Tp;
        let compiler = Compiler { stage: 3, units, active: &active, slowdown: 0.5 };
        compiler.compile(pieces, "forward", 2.0).map(|pass| pass.steps)
    }

    #[test]
    fn computations_merge_across_groups_of_one() {
        let pieces = [calc(1, "a"), gather(Dimension::Cp, Overlap::None), calc(2, "a"), calc(3, "b")];
        assert_eq!(compile(&pieces, 0).unwrap(), [Step::Calc { duration: Span::from_ps(12), label: "" }]);
    }

    #[test]
    fn a_split_takes_its_neighbours_and_slows_down() {
        let pieces = [
            calc(10, "a"),
            gather(Dimension::Tp, Overlap::WithNext { chunks: 4 }),
            calc(10, "b"),
            gather(Dimension::Tp, Overlap::WithPrevious { chunks: 2 }),
            gather(Dimension::Tp, Overlap::WithPrevious { chunks: 2 }),
        ];
        let steps = compile(&pieces, 0).unwrap();
        assert_eq!(steps.len(), 3);
        assert!(matches!(
            steps[1],
            Step::Split { before: Some((_, 4)), after: Some((_, 2)), duration, label: "b" }
                if duration == Span::from_ps(30)
        ));
        // Without a computation beside it a collective runs in line.
        assert!(matches!(steps[2], Step::Inline(_)));
    }

    #[test]
    fn units_bound_their_pieces_and_unmarked_ones_take_all() {
        let pieces = [calc(1, "a"), Piece::UnitDone(2), Piece::UnitDone(1), calc(1, "b")];
        let units = |units: &[u32]| Units::from_slice(units);
        assert_eq!(
            compile(&pieces, 3).unwrap(),
            [
                Step::Enter(units(&[2, 1, 0])),
                Step::Calc { duration: Span::from_ps(2), label: "a" },
                Step::Leave(units(&[2, 1])),
                Step::Calc { duration: Span::from_ps(2), label: "b" },
                Step::Leave(units(&[0])),
            ]
        );
        let error = compile(&pieces, 2).unwrap_err();
        assert_eq!(error.to_string().trim_end(), "the `forward` pass of stage 3 marks unit 2 of 2");
        let twice = [Piece::UnitDone(0), Piece::UnitDone(0)];
        assert!(compile(&twice, 1).unwrap_err().to_string().ends_with("twice"));
    }

    #[test]
    fn waits_need_an_issue() {
        let pieces = [
            gather(Dimension::Tp, Overlap::Async(7)),
            gather(Dimension::Cp, Overlap::Async(8)),
            calc(1, "a"),
            Piece::Wait(8),
            Piece::Wait(7),
        ];
        let steps = compile(&pieces, 0).unwrap();
        assert!(
            matches!(
                steps[..],
                [Step::Issue(7, _), Step::Calc { duration, .. }, Step::Wait(7)] if duration == Span::from_ps(3)
            ),
            "{steps:?}"
        );
        assert_eq!(
            compile(&[Piece::Wait(1)], 0).unwrap_err().to_string(),
            "the `forward` pass of stage 3 waits for a collective never issued under id 1"
        );
    }
}
