//! Grouped sends and receives, and parallel aggregated trees.

use smallvec::SmallVec;

use super::{Step, Steps, cut, pieces};
use crate::collectives::CollectiveKind;
use crate::collectives::parts::{Part, Sink, log2_ceil};
use crate::collectives::pat;

impl Steps {
    /// What `from` has for `to`: where it lies in the input of the one and behind the input in the output of the other.
    fn block(&self, from: u32, to: u32) -> ((u64, u64), u64) {
        let n = self.members();
        let Some(matrix) = &self.matrix else {
            let (first, bytes) = cut(self.bytes, n, to);
            // Shares differ by a byte where the buffer is no multiple; each has room for the longest.
            return ((first, bytes), self.bytes + u64::from(from) * self.bytes.div_ceil(u64::from(n)));
        };
        let row = |from: u32| &matrix[from as usize * n as usize..][..n as usize];
        let before: u64 = row(from)[..to as usize].iter().sum();
        let longest = (0..n).map(|from| row(from).iter().sum::<u64>()).max().unwrap_or(0);
        let above: u64 = (0..from).map(|from| row(from)[to as usize]).sum();
        ((before, row(from)[to as usize]), longest + above)
    }

    /// To and from each other member at once: sends in a lane for each, receives in another.
    pub(super) fn exchange(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let n = self.members();
        for offset in 1..n {
            let (to, from) = ((index + offset) % n, (index + n - offset) % n);
            let part = |((first, bytes), output): ((u64, u64), u64), input: bool| {
                let (skipped, bytes) = cut(bytes, self.channels(), channel);
                (if input { first } else { output } + skipped, bytes)
            };
            for range in pieces(part(self.block(index, to), true), self.chunk) {
                tell(Step { lane: 2 * offset, ..Step::send(to, range) });
            }
            for range in pieces(part(self.block(from, index), false), self.chunk) {
                tell(Step { lane: 2 * offset + 1, ..Step::receive(from, range).kept() });
            }
        }
    }

    /// Round by round: several shares go to one peer as one, several come from another.
    pub(super) fn pat(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let n = self.members();
        let rounds = log2_ceil(n);
        let gathers = self.kind == CollectiveKind::AllGather;
        let longest = cut(cut(self.bytes, n, 0).1, self.channels(), channel).1;
        for number in 0..longest.div_ceil(self.chunk) {
            for round in 0..rounds {
                let mut sink = Ranges { steps: self, channel, number, send: None, receive: None };
                if gathers {
                    pat::all_gather(n, rounds, index, round, &mut sink);
                } else {
                    pat::reduce_scatter(n, index, round, &mut sink);
                }
                let (send, receive) = (sink.send, sink.receive);
                if let Some((to, ranges)) = send {
                    tell(Step { to: SmallVec::from_slice(&[to]), ranges, ..Step::default() });
                }
                if let Some((from, ranges)) = receive {
                    let step = Step { from: SmallVec::from_slice(&[from]), ranges, ..Step::default() }.kept();
                    tell(if gathers { step } else { step.reduced() });
                }
            }
        }
    }
}

type Message = (u32, SmallVec<[(u64, u64); 1]>);

/// The messages of a round as ranges of a channel's chunk of each share.
struct Ranges<'a> {
    steps: &'a Steps,
    channel: u32,
    number: u64,
    send: Option<Message>,
    receive: Option<Message>,
}

impl Ranges<'_> {
    fn of(&self, part: Part) -> SmallVec<[(u64, u64); 1]> {
        let (n, chunk) = (self.steps.members(), self.steps.chunk);
        let range = |number: u32| {
            let share = (u64::from(part.first) + u64::from(number) * u64::from(part.step)) % u64::from(n);
            let (first, bytes) = cut(self.steps.bytes, n, share as u32);
            let (skipped, bytes) = cut(bytes, self.steps.channels(), self.channel);
            let offset = (self.number * chunk).min(bytes);
            (first + skipped + offset, chunk.min(bytes - offset))
        };
        (0..part.count).map(range).collect()
    }
}

impl Sink for Ranges<'_> {
    fn send(&mut self, to: u32, part: Part) {
        self.send = Some((to, self.of(part)));
    }

    fn receive(&mut self, from: u32, part: Part) {
        self.receive = Some((from, self.of(part)));
    }
}
