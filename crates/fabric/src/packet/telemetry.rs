//! In-band telemetry: what switches write into packets that ask for it, and receivers send back.
//!
//! Li et al., "HPCC: High Precision Congestion Control", SIGCOMM'19, §4: each switch on the way adds the egress port's
//! queue length, bytes sent so far, time and rate as the packet's transmission begins. A record takes [`RECORD`] bytes on the
//! wire from the port's queue on (the paper's 64 bits a hop; its 2 bytes of hop count and path are part of `header`), and an
//! acknowledgement as many as it echoes.
//!
//! Records stand in tables beside the packets, by the packets' places, which are empty where no transport asks.

use windtunnel_kernel::{BitRate, Time};

/// Bytes of a record on the wire.
pub(super) const RECORD: u16 = 8;

/// What one egress port told a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Which port, by a number of its own.
    pub port: u32,
    /// Bytes that wait behind the packet.
    pub queue: u32,
    /// Bytes that it has sent, this packet included.
    pub sent: u64,
    /// When the packet's transmission began.
    pub at: Time,
    /// Of the link.
    pub rate: BitRate,
}

/// Records of all packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Telemetry {
    /// Of each packet's place, in the order of its way.
    packets: Vec<Vec<Hop>>,
    /// What each sending half was told last, and what before.
    told: Vec<[Vec<Hop>; 2]>,
    /// Of the packet in hand, whose place may be another's already.
    aside: Vec<Hop>,
}

impl Telemetry {
    /// A new packet, which has met no switch.
    pub(super) fn begin(&mut self, id: u32) {
        let places = self.packets.len().max(id as usize + 1);
        self.packets.resize(places, Vec::new());
        self.packets[id as usize].clear();
    }

    pub(super) fn push(&mut self, id: u32, hop: Hop) {
        self.packets[id as usize].push(hop);
    }

    pub(super) fn exchange(&mut self, one: u32, other: u32) {
        self.packets.swap(one as usize, other as usize);
    }

    /// Bytes that the records of a packet take.
    pub(super) fn wire_of(&self, id: u32) -> u64 {
        self.packets.get(id as usize).map_or(0, |hops| hops.len() as u64 * u64::from(RECORD))
    }

    /// Takes the records of a packet that leaves for another process.
    pub(super) fn take(&mut self, id: u32) -> Vec<Hop> {
        self.packets.get_mut(id as usize).map_or_else(Vec::new, std::mem::take)
    }

    /// Puts down those of a packet that has come from one.
    pub(super) fn put(&mut self, id: u32, hops: Vec<Hop>) {
        self.begin(id);
        self.packets[id as usize] = hops;
    }

    /// Takes the records of a packet in hand.
    pub(super) fn set_aside(&mut self, id: u32) {
        std::mem::swap(&mut self.aside, &mut self.packets[id as usize]);
    }

    /// Bytes that the records of the packet in hand take.
    pub(super) fn wire(&self) -> u16 {
        self.aside.len() as u16 * RECORD
    }

    /// An acknowledgement takes over the records of the packet in hand.
    pub(super) fn echo(&mut self, id: u32) {
        self.begin(id);
        std::mem::swap(&mut self.aside, &mut self.packets[id as usize]);
    }

    /// A sending half that has been told nothing.
    pub(super) fn open(&mut self, flow: u32) {
        let places = self.told.len().max(flow as usize + 1);
        self.told.resize(places, [Vec::new(), Vec::new()]);
        self.told[flow as usize].iter_mut().for_each(Vec::clear);
    }

    /// The acknowledgement in hand tells its sending half.
    pub(super) fn read(&mut self, flow: u32) {
        let [last, before] = &mut self.told[flow as usize];
        std::mem::swap(last, before);
        std::mem::swap(last, &mut self.aside);
    }

    /// What a sending half was told before the last time, and then.
    pub(super) fn told(&self, flow: u32) -> (&[Hop], &[Hop]) {
        let [last, before] = &self.told[flow as usize];
        (before, last)
    }
}
