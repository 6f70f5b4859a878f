//! How long a double binary tree takes: hops, the first chunk's way up and down, and the bytes behind it.
//!
//! A level takes a chunk's copy by its channel's block of threads and its way through a NIC, whatever the number of channels.

use super::super::{Choice, Communicator, Protocol};
use super::{Constants, step};

impl Communicator<'_> {
    /// Seconds of a tree beside launch and issue.
    pub(super) fn tree(&self, choice: Choice, bytes: u64, constants: &Constants) -> f64 {
        let at = choice.protocol as usize;
        let (domains, ranks) = (self.layout.domains, self.layout.ranks);
        let channels = f64::from(choice.channels);
        let (levels, wire) = (f64::from(self.levels()), self.hardware.wire.tree);
        let inside = self.scale_up() * constants.share_scale_up[at];
        let size = bytes as f64;
        let chunk = self.tree_chunk(choice, bytes);
        let crowded = self.crowded(choice.protocol, chunk, constants);
        let mut time = if ranks > 1 { 2.0 * size / inside } else { 0.0 };
        if domains > 1 {
            let passes = if domains == 2 { 1.0 } else { 2.0 };
            let waiting =
                self.carried_evenly(self.share(choice.protocol, chunk, constants), constants) / crowded;
            time = time.max(passes * size / waiting);
        }
        let hops = 2.0
            * (f64::from(ranks - 1) * constants.hop_scale_up[at]
                + levels
                    * (constants.hop_tree[at] + self.beyond_eager(wire, choice.protocol, chunk, constants))
                    * crowded);
        // A channel passes a chunk on when it is there: copied by its block, then sent by its NIC. The first of Simple find
        // it free, since the channels of a NIC are at other levels; those of a second one, and short messages that leave
        // as soon as they are written, wait for the other channels of their tree.
        let copied = chunk / constants.block[at];
        let chunks = size / (chunk * channels);
        let sent = if domains > 1 {
            let nics = self.nics() / self.hardware.nic;
            let takes = |share| chunk * nics * crowded / self.carried_evenly(share, constants);
            let moved = takes(Self::carried(choice.protocol, chunk, constants));
            let others = (channels / nics / 2.0 - 1.0).max(0.0);
            if choice.protocol == Protocol::Simple {
                moved * (1.0 + others * (chunks - 1.0).clamp(0.0, 1.0))
            } else {
                let busy = takes(self.share(choice.protocol, chunk, constants));
                // The driver's copy of its own is part of the hop, the wait for an answer is not.
                let own = if self.waits(choice.protocol, chunk, constants) { busy } else { moved };
                own + others * busy
            }
        } else {
            0.0
        };
        let fill = 2.0 * (f64::from(ranks - 1) * copied + levels * (copied + sent));
        // The first chunk of every channel is what fills the tree; those behind it keep its links busy.
        let first = (1.0 / chunks).min(1.0);
        constants.base[at] + hops + fill.max(first * time) + (1.0 - first) * time
    }

    /// Chunk in which a tree passes on a buffer: a step of the protocol, under LL128 halved while the chunks of a channel
    /// are few for its depth (`calcCollChunking` in `enqueue.cc`).
    pub(in crate::collectives::nccl) fn tree_chunk(&self, choice: Choice, bytes: u64) -> f64 {
        let each = bytes / u64::from(choice.channels);
        let mut chunk = step(choice.protocol, self.settings.buffer).max(1);
        if choice.protocol == Protocol::LL128 {
            let ranks = f64::from(self.layout.ranks.max(1));
            let steps = 1.0 + f64::from(self.layout.domains.ilog2()) + 0.1 * ranks;
            for (times, least) in [(64.0, 128 << 10), (16.0, 32 << 10)] {
                while ((each / chunk) as f64) < steps * times / ranks && chunk > least {
                    chunk /= 2;
                }
            }
        }
        chunk.min(each.max(1)) as f64
    }
}
