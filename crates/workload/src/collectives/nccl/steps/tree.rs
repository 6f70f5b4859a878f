//! Double binary trees over domains, chains inside them.
//!
//! Of each domain one member, another on each channel, stands in the tree; the others hang behind it in a chain. Even channels use
//! the one tree and odd ones its complement. Up and down go beside each other (`runTreeSplit`): the root's step, which ends the way
//! up, begins the way down.

use smallvec::SmallVec;

use super::{Step, Steps, cut, pieces};
use crate::collectives::tree::relatives;

/// Way up, and way down.
const UP: u32 = 0;
const DOWN: u32 = 1;

impl Steps {
    /// Whom `index` hangs on, and who hang on it.
    fn tree_of(&self, index: u32, channel: u32) -> (Option<u32>, SmallVec<[u32; 3]>) {
        let (domains, ranks) = (self.layout.domains, self.layout.ranks);
        let (domain, local) = (index / ranks, index % ranks);
        let head = channel % ranks;
        let along = (local + ranks - head) % ranks;
        let at = |domain: u32, along: u32| domain * ranks + (head + along) % ranks;
        let mut below: SmallVec<[u32; 3]> = SmallVec::new();
        if along + 1 < ranks {
            below.push(at(domain, along + 1));
        }
        if along > 0 {
            return (Some(at(domain, along - 1)), below);
        }
        let (parent, children) = relatives(domains, channel % 2, domain);
        below.extend(children.into_iter().flatten().map(|child| at(child, 0)));
        (parent.map(|parent| at(parent, 0)), below)
    }

    pub(super) fn tree(&self, index: u32, channel: u32, tell: &mut dyn FnMut(Step)) {
        let (parent, children) = self.tree_of(index, channel);
        for range in pieces(cut(self.bytes, self.channels(), channel), self.chunk) {
            let ranges = SmallVec::from_slice(&[range]);
            let reduce = !children.is_empty();
            let up = Step { lane: UP, from: children.clone(), ranges, reduce, ..Step::default() };
            match parent {
                Some(parent) => {
                    tell(up.and_send(parent));
                    let down = Step { lane: DOWN, ..Step::receive(parent, range).kept() };
                    tell(Step { to: children.clone(), ..down });
                }
                None => tell(Step { to: children.clone(), ..up.kept() }),
            }
        }
    }
}
