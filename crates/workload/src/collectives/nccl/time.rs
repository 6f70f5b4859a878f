//! How long a collective takes: launch, hops, pipeline filling, bytes.
//!
//! ```text
//! time = launch + (k - 1) · issue + channels · channel + base(protocol) + hops_in · hop_in(protocol) + hops_out · (hop_out(protocol) + wire) + fill + bytes
//! ```
//!
//! *bytes* is the slowest of the links passed: what a GPU sends over its scale-up links, and a domain over its NICs, each
//! over the rate of the sheet times the share of the protocol. A ring of n ranks sends 2 (n-1)/n of the buffer over every
//! link (all-reduce), (n-1)/n (all-gather, reduce-scatter) or all of it; double binary trees twice the buffer, or once
//! where they join two domains; a switch that sums, (n-1)/n. *fill* is what a tree costs before its last rank has its
//! first chunk: the depth, up and down, times what a chunk of one channel takes: a copy by its block of threads (`block`)
//! and, between domains, its way through a NIC. Measured times of a level do not depend on the number of channels, which
//! are at other levels meanwhile; a second chunk of Simple, and LL and LL128 always, have a message wait for the other
//! channels of its tree. A ring's steps are themselves the chunks, its hops are all that it pays. *issue* is the host's time for each further one of the k GPUs on which a process launches.
//!
//! Channels of a ring wait for their hops each by itself while the others send: of the lesser of *hops* and *bytes* only a
//! channel's part counts, the channels of a NIC sharing it. All of *bytes* and one wire are the least that it takes.
//!
//! Where the network's library has an `eager` limit, messages beyond it wait for their receivers: those of LL and LL128
//! `rendezvous` seconds a hop, and one after another `answer` at their NIC. Simple's are always beyond: a slice of a ring
//! takes its NIC `handshake` at least, up to `short_message` bytes what `share_short` of the rate makes of it. Where the
//! driver copies (`FI_HMEM_CUDA_USE_GDRCOPY=0`) a message costs `copy_launch` more, but not one of LL or LL128 that waits.
//!
//! What is sent unasked is copied at the receiver. Where the library states from which size on the receiver's NIC pulls a
//! message instead (`pulled`; libfabric, `fi_cxi(7)`: the rendezvous protocol, an RDMA get into the buffer that matches),
//! one of LL or LL128 beyond it moves as Simple's do: at Simple's share for its wire bytes, `handshake` at least.
//!
//! Where every NIC of a host hangs on a leaf of its own (rails) and one leaf lets out less than a NIC sends (`slow_leaf`),
//! grouped sends wait for the NIC behind it, which carries one rank's share whatever the others do. It gets ever less the
//! longer they send: half of the rate where the buffer has `sustained` bytes a peer, a third at twice as many. Rings and
//! trees put as much over every NIC, and all wait for that one.
//!
//! A job of more than [`GROUP`] hosts leaves its group of switches and shares what joins groups with others: whatever
//! messages of trees and exchanges take then grows by `crowd` for each doubling, by protocol. Of a ring one edge in so many
//! leaves the group, and measured rings keep their pace. A host's ranks have a proxy each, and a hop over the
//! network waits `proxy` for each of the others.
//!
//! Of grouped sends a peer has eight channels while ranks are few: NCCL halves them until four operations a channel are
//! enough for all ranks (`addP2pToPlan` in `enqueue.cc`). What one peer gets falls with them, to the power `peer_channels`.

mod tree;

use serde::Deserialize;
use smallvec::SmallVec;
use windtunnel_kernel::math;

use super::steps::chunk_of_sums;
use super::{Algorithm, Architecture, Choice, Communicator, Function, NcclError, Protocol, prior};
use crate::collectives::dispatcher;

/// What a system's measurements decide; priors are NCCL's own constants. Times in seconds, shares of a sheet's rate;
/// triples are LL, LL128, Simple.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constants {
    /// Of what takes tokens to experts in place of NCCL.
    pub dispatcher: dispatcher::Constants,
    /// Launch of a kernel, and of what runs beside it, until the first byte leaves.
    pub launch: f64,
    /// Launch on one GPU where one process launches on several.
    pub issue: f64,
    /// Each channel of a collective: work that the host enqueues and blocks that the GPU starts.
    pub channel: f64,
    /// More than `launch` that a protocol costs to start and end.
    pub base: [f64; 3],
    /// What a channel's block of threads moves, bytes per second: a chunk of a tree passes one at every rank.
    pub block: [f64; 3],
    /// A hop over a scale-up link.
    pub hop_scale_up: [f64; 3],
    /// A hop of a tree over the network: proxies and NICs, the wire apart.
    pub hop_tree: [f64; 3],
    /// A hop of a ring over the network, the wire apart.
    pub hop_ring: [f64; 3],
    /// Wire bytes up to which a message needs no answer from its receiver; 0 if there is no such limit.
    pub eager: f64,
    /// What a hop costs more beyond.
    pub rendezvous: f64,
    /// Wire bytes beyond which the receiver's NIC pulls a message into place; 0 if there is no such limit.
    pub pulled: f64,
    /// What a message of LL or LL128 beyond `eager` takes its NIC at least.
    pub answer: f64,
    /// What a message of Simple takes its NIC at least where there is such a limit, beyond `short_message`.
    pub handshake: f64,
    /// What a message costs more where the driver copies it out of the GPU's memory.
    pub copy_launch: f64,
    /// Bytes of a message of Simple up to which NICs give `share_short` of their rate; 0 if there is no such limit.
    pub short_message: f64,
    /// Share of the NICs' rate for short messages.
    pub share_short: f64,
    /// Share of the scale-up rate.
    pub share_scale_up: [f64; 3],
    /// Share of the NICs' rate.
    pub share_network: [f64; 3],
    /// Share of the scale-up rate where the switch sums.
    pub share_sums: f64,
    /// Start and end of a collective summed by a switch.
    pub base_sums: f64,
    /// Launch, start and end of grouped sends and receives.
    pub exchange: f64,
    /// Each peer inside the domain of grouped sends and receives.
    pub peer_scale_up: f64,
    /// Each peer beyond.
    pub peer_network: f64,
    /// Bytes up to which the network's library copies a grouped send into its command; 0 if it does not.
    pub inject: f64,
    /// What such a send takes more where the data are in a GPU's memory.
    pub peer_inject: f64,
    /// Share of the scale-up rate of grouped sends and receives.
    pub exchange_scale_up: f64,
    /// Share of the NICs' rate of grouped sends and receives.
    pub exchange_network: f64,
    /// Share of a NIC's rate that sends to one peer reach.
    pub exchange_single: f64,
    /// The same for sends of more than 4 MiB.
    pub exchange_long: f64,
    /// What a NIC gets out of a slow leaf, bytes per second one way; 0 if there is none.
    pub slow_leaf: f64,
    /// Bytes of the buffer a peer at which a slow leaf is down to half of its rate; 0 if it keeps it.
    pub sustained: f64,
    /// What messages of trees and exchanges between hosts take longer for each doubling of the hosts beyond [`GROUP`], as a
    /// share.
    pub crowd: [f64; 3],
    /// What a hop over the network waits for each further rank of its host.
    pub proxy: f64,
    /// Power of the channels of a peer by which what it gets falls.
    pub peer_channels: f64,
    /// Whether the tuner is taken to change no later than it pays, so that neither fewer bytes nor faster links ever take
    /// more time: where nobody has measured what it misjudges.
    pub even: bool,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            dispatcher: dispatcher::Constants::default(),
            launch: 6.6e-6,
            issue: 3.0e-6,
            channel: 0.05e-6,
            base: [0.0, 7.4e-6, 1.8e-6],
            block: [10.0e9, 20.0e9, 20.0e9],
            hop_scale_up: [0.6e-6, 1.9e-6, 3.4e-6],
            hop_tree: [5.0e-6, 8.5e-6, 14.0e-6],
            hop_ring: [2.7e-6, 4.0e-6, 14.0e-6],
            eager: 0.0,
            rendezvous: 5.0e-6,
            pulled: 0.0,
            answer: 10.0e-6,
            handshake: 10.0e-6,
            copy_launch: 7.0e-6,
            short_message: 0.0,
            share_short: 0.2,
            share_scale_up: [0.25, 0.92, 0.96],
            share_network: [0.25, 0.85, 0.92],
            share_sums: 0.85,
            base_sums: 25.0e-6,
            exchange: 21.6e-6,
            peer_scale_up: 1.0e-6,
            peer_network: 2.0e-6,
            inject: 0.0,
            peer_inject: 5.0e-6,
            exchange_scale_up: 0.93,
            exchange_network: 0.92,
            exchange_single: 0.85,
            exchange_long: 0.85,
            slow_leaf: 0.0,
            sustained: 0.0,
            crowd: [0.0; 3],
            proxy: 0.0,
            peer_channels: 0.45,
            even: false,
        }
    }
}

/// Bytes beyond which a send to a peer is long.
const LONG: f64 = 4194304.0;

/// Hosts whose traffic stays in one group of switches: about what hangs on the leaves of one group of a dragonfly or on a
/// leaf of a fat tree.
pub(super) const GROUP: f64 = 16.0;

/// Sizes up to this power of two are asked for what NCCL takes for more bytes, so many in each octave: what it takes for fewer
/// sizes than lie between two of them is not seen.
const LARGEST: u32 = 38;
const OCTAVE: u32 = 8;

/// Links are looked at down to a half to this power of their rates for what NCCL takes on slower ones.
const SLOWEST: u32 = 8;

/// Channels of a peer in grouped sends, and those of all peers together (`MAXCHANNELS`), at most.
const PEER_CHANNELS: u32 = 8;
const SEND_CHANNELS: u32 = 32;

/// Data of a step of a protocol in the default buffers: 32 KiB for LL, 15 of 16 parts of 600 KiB for LL128 and 512 KiB for
/// Simple (`calcCollChunking` in `enqueue.cc`, `device.h`: buffers of 8 steps).
pub(super) const fn step(protocol: Protocol, buffer: u64) -> u64 {
    match protocol {
        Protocol::LL => 32 << 10,
        Protocol::LL128 => (600 << 10) / 16 * 15,
        Protocol::Simple => buffer / 8,
    }
}

impl Communicator<'_> {
    /// What NCCL chooses for `bytes`, and the seconds it takes under `constants`.
    ///
    /// # Errors
    /// [`NcclError`] where the settings leave nothing.
    pub fn time(
        &self,
        function: Function,
        bytes: u64,
        constants: &Constants,
    ) -> Result<(Choice, f64), NcclError> {
        let choice = self.choose(function, bytes)?;
        let mut best = (choice, self.time_of(function, choice, bytes, constants));
        if constants.even && choice.algorithm != Algorithm::PointToPoint {
            for least in self.taken_for_more_or_on_slower_links(function, bytes) {
                // Sums in NVLink's switches have their own channels, all of them.
                let fixed = matches!(least.algorithm, Algorithm::Nvls | Algorithm::NvlsTree);
                let most = if fixed { least.channels } else { self.channels() };
                for channels in least.channels..=most {
                    let choice = Choice { channels, ..least };
                    let time = self.time_of(function, choice, bytes, constants);
                    if time < best.1 {
                        best = (choice, time);
                    }
                }
            }
        }
        Ok(best)
    }

    /// What NCCL takes for more bytes or on slower links it may take for these bytes on these links: each algorithm and
    /// protocol among them once, with the fewest channels.
    fn taken_for_more_or_on_slower_links(&self, function: Function, bytes: u64) -> SmallVec<[Choice; 8]> {
        let mut taken = SmallVec::<[Choice; 8]>::new();
        for halvings in 0..=SLOWEST {
            let hardware = self.hardware.slowed(1.0 / f64::from(1u32 << halvings));
            let slower = Communicator { hardware: &hardware, layout: self.layout, settings: self.settings };
            let beliefs = slower.beliefs(function);
            let parts = u64::from(OCTAVE);
            let larger = (0..LARGEST * OCTAVE)
                .map(|step| ((parts + u64::from(step % OCTAVE)) << (step / OCTAVE)) / parts)
                .filter(|&larger| larger > bytes);
            let mut last = None;
            for size in std::iter::once(bytes).chain(larger) {
                let Some((algorithm, protocol)) = slower.fastest(function, &beliefs, size) else { break };
                if last.replace((algorithm, protocol)) == Some((algorithm, protocol)) {
                    continue;
                }
                let channels = slower.channels_of(algorithm, protocol, bytes);
                match taken.iter_mut().find(|t| (t.algorithm, t.protocol) == (algorithm, protocol)) {
                    Some(known) => known.channels = known.channels.min(channels),
                    None => taken.push(Choice { algorithm, protocol, channels }),
                }
            }
        }
        taken
    }

    /// Seconds of `choice`.
    pub fn time_of(&self, function: Function, choice: Choice, bytes: u64, constants: &Constants) -> f64 {
        let issue = f64::from(self.layout.ranks_per_process.saturating_sub(1)) * constants.issue;
        let rest = match (function, choice.algorithm) {
            _ if self.layout.members() == 1 => 2.0 * bytes as f64 / self.hardware.memory,
            (_, Algorithm::PointToPoint) if function == Function::AllToAll => self.exchange(bytes, constants),
            (_, Algorithm::PointToPoint) => self.send_receive(bytes, constants),
            (_, Algorithm::Nvls | Algorithm::NvlsTree) => self.summed(function, choice, bytes, constants),
            (_, Algorithm::Ring | Algorithm::Pat) => self.ring(function, choice, bytes, constants),
            (_, Algorithm::Tree) => self.tree(choice, bytes, constants),
            (_, Algorithm::CollnetChain | Algorithm::CollnetDirect) => {
                self.network_summed(choice, bytes, constants)
            }
        };

        let start = if choice.algorithm == Algorithm::PointToPoint {
            constants.exchange
        } else {
            constants.launch + f64::from(choice.channels) * constants.channel
        };
        start + issue + rest
    }

    /// By how much messages between as many hosts take longer than within a group.
    fn crowded(&self, protocol: Protocol, message: f64, constants: &Constants) -> f64 {
        let pulled = Self::pulls(protocol, message, constants);
        let at = if pulled { Protocol::Simple } else { protocol } as usize;
        1.0 + constants.crowd[at] * math::log2(f64::from(self.layout.domains) / GROUP).max(0.0)
    }

    fn ring(&self, function: Function, choice: Choice, bytes: u64, constants: &Constants) -> f64 {
        let at = choice.protocol as usize;
        let (steps, _) = self.ring_steps(function);
        // Rounds of a small buffer over parallel aggregated trees: a logarithm of hops, the same bytes.
        let (inside, crossing) = if choice.algorithm == Algorithm::Pat {
            (0.0, f64::from(self.levels()))
        } else {
            let crossing = self.crossed(steps);
            (f64::from(steps - crossing), f64::from(crossing))
        };
        let wires = self.hardware.wire;
        let hop = if choice.algorithm == Algorithm::Pat { wires.tree } else { wires.ring };
        let (mut alone, mut wire) = (1.0, 0.0);
        let message = self.ring_message(function, choice, bytes);
        if self.layout.domains > 1 {
            alone = self.network() / (self.hardware.nic * f64::from(choice.channels));
            wire = hop;
        }
        let hops = inside * constants.hop_scale_up[at]
            + crossing
                * (constants.hop_ring[at] + self.beyond_eager(hop, choice.protocol, message, constants));
        let sent = self.ring_sent(function, choice, bytes, constants);
        let overlapped = hops.max(sent) + hops.min(sent) * alone.min(1.0);
        // Whatever overlaps, the last byte arrives a wire's time after it was sent.
        constants.base[at] + overlapped.max(sent + wire)
    }

    /// Seconds for which a ring's bytes keep the slowest of its links busy.
    pub(super) fn ring_sent(
        &self,
        function: Function,
        choice: Choice,
        bytes: u64,
        constants: &Constants,
    ) -> f64 {
        let at = choice.protocol as usize;
        let (steps, _) = self.ring_steps(function);
        let mut rate = self.scale_up() * constants.share_scale_up[at];
        if self.layout.domains > 1 {
            let message = self.ring_message(function, choice, bytes);
            rate = rate.min(self.carried_evenly(self.share(choice.protocol, message, constants), constants));
        }
        bytes as f64 * f64::from(steps) / f64::from(self.layout.members()) / rate
    }

    /// Data of a ring's message between hosts: of a channel's part at most a chunk, which is one step of LL or LL128 and four
    /// of Simple. That sends a chunk in two slices, of 32 KiB at least (`genericOp` in `prims_simple.h`). A broadcast or
    /// a reduction goes round in steps.
    fn ring_message(&self, function: Function, choice: Choice, bytes: u64) -> f64 {
        let step = step(choice.protocol, self.settings.buffer) as f64;
        let each = bytes as f64 / f64::from(choice.channels);
        if matches!(function, Function::Broadcast | Function::Reduce) {
            return each.min(step);
        }
        let part = each / f64::from(self.layout.members());
        if choice.protocol == Protocol::Simple {
            let chunk = part.min(4.0 * step);
            chunk.min((chunk / 2.0).max(step / 16.0))
        } else {
            part.min(step)
        }
    }

    /// How many of a ring's `steps` cross the network for the part that crosses most often. A domain of r ranks has one
    /// crossing in r edges, and a part that sets out just before one meets it again every r edges: steps / r, rounded up.
    /// The tuner counts the part that sets out behind one.
    fn crossed(&self, steps: u32) -> u32 {
        if self.layout.domains > 1 { steps.div_ceil(self.layout.ranks) } else { 0 }
    }

    /// Depth of a binary tree of all domains.
    fn levels(&self) -> u32 {
        self.layout.domains.next_power_of_two().ilog2()
    }

    /// Bytes on the wire of a message of so many bytes of data: low-latency protocols send flags beside them.
    fn wire_bytes(protocol: Protocol, message: f64) -> f64 {
        match protocol {
            Protocol::LL => 2.0 * message,
            Protocol::LL128 => message * 128.0 / 120.0,
            Protocol::Simple => message,
        }
    }

    /// Whether a low-latency message is longer than its sender may send unasked.
    fn waits(&self, protocol: Protocol, message: f64, constants: &Constants) -> bool {
        let eager =
            self.settings.copied_safely.map_or(constants.eager, |safe| constants.eager.max(safe as f64));
        protocol != Protocol::Simple && constants.eager > 0.0 && Self::wire_bytes(protocol, message) >= eager
    }

    /// Whether a low-latency message is long enough to be pulled by its receiver's NIC.
    fn pulls(protocol: Protocol, message: f64, constants: &Constants) -> bool {
        protocol != Protocol::Simple
            && constants.pulled > 0.0
            && Self::wire_bytes(protocol, message) > constants.pulled
    }

    /// Share of the NICs' rate for data of messages of so many bytes.
    fn carried(protocol: Protocol, message: f64, constants: &Constants) -> f64 {
        if Self::pulls(protocol, message, constants) {
            constants.share_network[Protocol::Simple as usize] * message / Self::wire_bytes(protocol, message)
        } else {
            constants.share_network[protocol as usize]
        }
    }

    /// What a hop over the network costs beside its latency: the wire, the proxies of its host's other ranks, the wait of a
    /// message beyond the eager limit, the driver's copy of one below.
    fn beyond_eager(&self, wire: f64, protocol: Protocol, message: f64, constants: &Constants) -> f64 {
        wire + f64::from(self.layout.ranks - 1) * constants.proxy
            + if self.waits(protocol, message, constants) || Self::pulls(protocol, message, constants) {
                constants.rendezvous
            } else if self.settings.driver_copies {
                constants.copy_launch
            } else {
                0.0
            }
    }

    /// Share of the NICs' rate that messages get which one after another keep their NIC busy at least so long, whatever
    /// their bytes.
    fn share(&self, protocol: Protocol, message: f64, constants: &Constants) -> f64 {
        let share = Self::carried(protocol, message, constants);
        let pulls = Self::pulls(protocol, message, constants);
        let waits = pulls || self.waits(protocol, message, constants);
        let mut busy = 0.0;
        if waits {
            busy += if pulls { constants.handshake } else { constants.answer };
        } else if protocol == Protocol::Simple && constants.eager > 0.0 {
            let safe = self.settings.copied_safely.unwrap_or(0) as f64;
            busy += if message <= constants.short_message && message > safe {
                message / (self.hardware.nic * constants.share_short)
            } else {
                constants.handshake
            };
        }
        if self.settings.driver_copies && !waits {
            busy += constants.copy_launch;
        }
        if busy > 0.0 { share.min(message / (busy * self.hardware.nic)) } else { share }
    }

    fn summed(&self, function: Function, choice: Choice, bytes: u64, constants: &Constants) -> f64 {
        let ranks = f64::from(self.layout.ranks);
        let size = bytes as f64;
        let part = (ranks - 1.0) / ranks;
        // Constants are those of Hopper: of a newer link NCCL expects less.
        let architecture = self.hardware.architecture;
        let kept = prior::nvls_efficiency(architecture) / prior::nvls_efficiency(Architecture::Hopper);
        let inside = self.scale_up() * constants.share_sums * kept;
        let sent = if function == Function::AllReduce { size / part } else { size * part };
        // A GPU copies its part to where switches read it, heads sum it and give it to all, and each copies it back: of a loop over
        // all channels and heads one stage begins when the one before has ended.
        let chunk = chunk_of_sums(choice, self.layout, bytes, step(choice.protocol, self.settings.buffer));
        let a_loop = (chunk * u64::from(choice.channels) * u64::from(self.layout.ranks)) as f64;
        let stages = if function == Function::AllReduce { 2.0 } else { 1.0 };
        let mut time = (sent + stages * a_loop.min(sent)) / inside;
        let mut hops = 0.0;
        if choice.algorithm == Algorithm::NvlsTree {
            let passes = if self.layout.domains == 2 { 1.0 } else { 2.0 };
            let crowded = self.crowded(Protocol::Simple, size, constants);
            let between = self.carried_evenly(constants.share_network[2], constants) / crowded;
            time = time.max(passes * size / between);
            let wire = self.hardware.wire.tree;
            let hop = constants.hop_tree[2] + self.beyond_eager(wire, Protocol::Simple, size, constants);
            hops = 2.0 * f64::from(self.levels()) * hop * crowded;
        }
        constants.base_sums + hops + time
    }

    fn network_summed(&self, choice: Choice, bytes: u64, constants: &Constants) -> f64 {
        let size = bytes as f64;
        let inside = size / (self.scale_up() * constants.share_scale_up[2]);
        let between = size / self.carried_evenly(constants.share_network[2], constants);
        let chain = if choice.algorithm == Algorithm::CollnetChain {
            2.0 * f64::from(self.layout.ranks - 1)
        } else {
            2.0
        };
        constants.base[2]
            + chain * constants.hop_scale_up[2]
            + 2.0 * (constants.hop_tree[2] + self.hardware.wire.far)
            + inside.max(between)
    }

    fn exchange(&self, bytes: u64, constants: &Constants) -> f64 {
        let (n, ranks) = (f64::from(self.layout.members()), f64::from(self.layout.ranks));
        let each = bytes as f64 / n;
        let beyond = n - ranks;
        let inside = each * (ranks - 1.0) / (self.scale_up() * constants.exchange_scale_up);
        let single = if each > LONG { constants.exchange_long } else { constants.exchange_single };
        let share = constants.exchange_network.min(beyond * single);
        let crowded = self.crowded(Protocol::Simple, each, constants);
        let between = (crowded * ranks * each * beyond / (self.network() * share)).max(if beyond > 0.0 {
            self.out_of_slow_leaf(each * beyond, bytes as f64 / beyond, constants)
        } else {
            0.0
        });
        (ranks - 1.0) * constants.peer_scale_up
            + beyond
                * (constants.peer_network * crowded
                    + if each <= constants.inject { constants.peer_inject } else { 0.0 })
            + if beyond > 0.0 { constants.hop_tree[2] + self.hardware.wire.far } else { 0.0 }
            + inside.max(between)
    }

    /// Channels that grouped sends have for a peer.
    pub(super) fn channels_of_peer(&self) -> u32 {
        let mut channels = PEER_CHANNELS;
        while channels * self.layout.members() > 4 * SEND_CHANNELS && channels > 1 {
            channels /= 2;
        }
        channels
    }

    /// Seconds that one NIC takes to send so many bytes out of a slow leaf, of buffers of so many bytes a peer.
    fn out_of_slow_leaf(&self, sent: f64, a_peer: f64, constants: &Constants) -> f64 {
        if !self.hardware.slow_leaf || constants.slow_leaf <= 0.0 {
            return 0.0;
        }
        let fallen = if constants.sustained > 0.0 { 1.0 + a_peer / constants.sustained } else { 1.0 };
        sent * fallen / constants.slow_leaf
    }

    /// What the NICs of a domain carry of rings and trees at this share of their rate.
    fn carried_evenly(&self, share: f64, constants: &Constants) -> f64 {
        let rate = self.network() * share;
        if self.hardware.slow_leaf && constants.slow_leaf > 0.0 {
            rate.min(constants.slow_leaf * self.nics() / self.hardware.nic)
        } else {
            rate
        }
    }

    fn send_receive(&self, bytes: u64, constants: &Constants) -> f64 {
        // Of the ranks in order, one a domain has its next one in another, over the NIC nearest to it; the others send
        // inside at the same time.
        let size = bytes as f64;
        let inside = size / (self.scale_up() * constants.exchange_scale_up);
        if self.layout.domains > 1 {
            let share = if size > LONG { constants.exchange_long } else { constants.exchange_single };
            let few = f64::from(self.channels_of_peer()) / f64::from(PEER_CHANNELS);
            let nic = self.network().min(self.hardware.nic) * share * math::pow(few, constants.peer_channels);
            let sent = (size / nic).max(self.out_of_slow_leaf(size, size, constants));
            let sent = if self.layout.ranks > 1 { sent.max(inside) } else { sent };
            constants.peer_network + constants.hop_tree[2] + self.hardware.wire.far + sent
        } else {
            constants.peer_scale_up + inside
        }
    }
}
