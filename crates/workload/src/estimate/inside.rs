//! Passes whose exchanges of tensor, context and expert parallelism meet others on links.
//!
//! How long such an exchange takes is known only when it is under way. So a pass is a list of [`Point`]s, one for each of its steps
//! that is more than a computation: an exchange is asked for, awaited, the host launches. Life cycle: [`followed`] makes the list
//! once for a stage; a [walk](super::crowded) goes along it for each pass.
//!
//! Invariants: an exchange in line is asked for and awaited; what nobody awaits is awaited at the end of its pass, so none outlives
//! it. Exchanges are numbered from 0 in each pass.

use smallvec::SmallVec;
use windtunnel_kernel::{Bytes, Span};

use super::pass::{Point, Tolls, entered, left};
use super::shares::Of;
use crate::generate::emit::share;
use crate::generate::passes::{Exchange, Pass, Step};
use crate::generate::{ChunkWork, Layout, Role};

/// The class of exchanges of `role` inside a pass.
const fn class(role: Role) -> Of {
    match role {
        Role::Tp => Of::Tp,
        Role::Cp => Of::Cp,
        Role::Ep => Of::Ep,
        _ => Of::Shard,
    }
}

/// A list under way.
struct List<'a> {
    tolls: &'a dyn Tolls,
    found: Vec<(f64, Point)>,
    /// Computation since the last point.
    after: f64,
    asked: u32,
    /// What steps have issued under an id of theirs.
    issued: SmallVec<[(u32, u32); 4]>,
    launched: bool,
}

impl List<'_> {
    fn push(&mut self, point: Point) {
        self.found.push((std::mem::take(&mut self.after), point));
    }

    fn calc(&mut self, duration: Span) {
        self.after += duration.ps() as f64;
    }

    fn ask(&mut self, exchange: &Exchange, bytes: Bytes) -> u32 {
        let part = self.tolls.inside(exchange.role, exchange.kind, bytes, exchange.routing);
        let number = self.asked;
        self.asked += 1;
        self.push(Point::Ask { of: class(exchange.role), part, number });
        number
    }

    fn split(&mut self, before: Option<(Exchange, u32)>, duration: Span, after: Option<(Exchange, u32)>) {
        let chunks = |side: Option<(Exchange, u32)>| side.map_or(1, |(_, chunks)| chunks);
        let parts = chunks(before).max(chunks(after));
        let mut incoming: SmallVec<[u32; 8]> = SmallVec::new();
        if let Some((exchange, chunks)) = before {
            for chunk in 0..chunks {
                let bytes = Bytes::new(share(exchange.bytes.get(), chunk, chunks));
                incoming.push(self.ask(&exchange, bytes));
            }
        }
        let (mut outgoing, mut sent) = (0, None);
        for part in 0..parts {
            if !incoming.is_empty() {
                let needed = ((part + 1) * incoming.len() as u32).div_ceil(parts) - 1;
                self.push(Point::Await(incoming[needed as usize]));
            }
            self.calc(Span::from_ps(share(duration.ps(), part, parts)));
            if let Some((exchange, chunks)) = after {
                while outgoing < chunks && ((outgoing + 1) * parts).div_ceil(chunks) <= part + 1 {
                    let bytes = Bytes::new(share(exchange.bytes.get(), outgoing, chunks));
                    sent = Some(self.ask(&exchange, bytes));
                    outgoing += 1;
                }
            }
        }
        if let Some(number) = sent {
            self.push(Point::Await(number));
        }
    }
}

/// What happens in `pass`, each as long after what comes before it as the first says; and how many exchanges it asks for.
pub(super) fn followed(
    layout: &Layout,
    work: &ChunkWork,
    pass: &Pass,
    tolls: &dyn Tolls,
) -> (Vec<(f64, Point)>, u32) {
    let mut list =
        List { tolls, found: Vec::new(), after: 0.0, asked: 0, issued: SmallVec::new(), launched: false };
    for step in &pass.steps {
        match step {
            Step::Calc { duration, .. } => list.calc(*duration),
            Step::Inline(exchange) => {
                let number = list.ask(exchange, exchange.bytes);
                list.push(Point::Await(number));
            }
            Step::Split { before, duration, after, .. } => list.split(*before, *duration, *after),
            Step::Issue(id, exchange) => {
                let number = list.ask(exchange, exchange.bytes);
                list.issued.push((*id, number));
            }
            Step::Wait(id) => {
                if let Some(position) = list.issued.iter().position(|(known, _)| known == id) {
                    let (_, number) = list.issued.remove(position);
                    list.push(Point::Await(number));
                }
            }
            Step::Launch { span, waits } => {
                let gated = *waits || layout.blocking_exchange && !list.launched;
                list.launched = true;
                list.push(Point::Launch { span: span.ps() as f64, gated });
            }
            Step::Enter(units) => list.push(entered(work, units, tolls)),
            Step::Leave(units) => list.push(left(layout, work, units, tolls)),
        }
    }
    for (_, number) in std::mem::take(&mut list.issued) {
        list.push(Point::Await(number));
    }
    list.push(Point::End);
    (list.found, list.asked)
}
