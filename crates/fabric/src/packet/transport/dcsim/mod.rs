//! DCSIM: Straussman, Keslassy, Shpiner and Liss, "Simulate before sending: rethinking transport in datacenter networks", NINeS 2026.
//!
//! **Life of a packet.** A flow with packets that wait ([`flow`]) has a SIM sent for it, a probe of 64 B by a path drawn at random. Every
//! port, the NIC's included, keeps SIM > SIM-ACK > DATA-ACK > DATA by strict priority (§2.3), and lets a SIM go for each token of a bucket
//! that has one each (α + 2.1) ℓ / C, so that SIMs and DATA alternate (theorem 1). A SIM that finds B others at a port is dropped. One that
//! reaches its destination is answered; the answer binds the first packet that waits to the SIM, and RTT_max after the SIM that packet
//! leaves by the SIM's path (§2.4). A SIM without an answer by then has been lost, and another one is sent.
//!
//! **Invariants.** For each flow SIMs under way ≤ packets that wait (equation 3), those in the NIC's SIM line counted. Each SIM-ACK that is
//! used sends one DATA (or up to `data_per_sim`). RTT_max is at least any SIM's round trip on a fabric whose links run at line rate
//! (theorem 2), so there no SIM-ACK is late.
//!
//! **Failure modes.** DATA may be lost all the same (§3.1): a SIM that was dropped behind another leaves the other's DATA early. A DATA that
//! is not acknowledged in `data_timeout` is sent again, with a SIM of its own.
//!
//! Where the paper leaves a choice it is a field of [`Dcsim`]; `docs/transports/dcsim.md` has the reasons.

mod counts;
mod flow;
mod nic;
mod watch;

use windtunnel_kernel::{Span, Time};

use super::Recovery;
use super::dispatch::{
    Bucket, Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines,
    Load, NicFacts, Outbox, Sent, Tally,
};
pub use nic::DcsimNic;

/// Lines, the highest priority first.
const SIM: u8 = 0;
const SIM_ACK: u8 = 1;
const DATA_ACK: u8 = 2;
const DATA: u8 = 3;
/// Data sent without a SIM.
const BLIND: u8 = 4;

/// The buffer below which B shrinks with it (§4.1), and B above.
const FULL_BUFFER: u32 = 250_000;
const FULL_B: u32 = 12;

/// Parameters: what the paper sets, and what it leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dcsim {
    /// B: SIMs, SIM-ACKs and DATA-ACKs that a port keeps waiting, each. 12, and in proportion below 250 KB of buffer.
    pub sim_buffer: Option<u32>,
    /// Depth of the token bucket; B.
    pub bucket: Option<u32>,
    /// DATA that a port keeps waiting, in packets; what the buffer leaves.
    pub data_buffer: Option<u32>,
    /// Buffer of a switch's port in bytes, the packet on the wire left out; where `network.buffers` is not given.
    pub port_buffer: u32,
    /// What SIM, SIM-ACK and DATA-ACK of one DATA take, in SIMs: 2.1 of equation 2.
    pub control_share: f64,
    /// RTT_max; theorem 2.
    pub rtt_max: Option<Span>,
    /// DATA leaves so much of RTT_max after its SIM, or as its SIM-ACK comes if that is later.
    pub fraction: f64,
    /// DATA leaves as its SIM-ACK comes.
    pub asynchronous: bool,
    /// DATA that a SIM stands for.
    pub data_per_sim: u32,
    /// Time without a DATA-ACK after which a DATA is sent again, in RTT_max.
    pub data_timeout: f64,
    /// DATA that one DATA-ACK answers.
    pub data_ack_every: u32,
    /// Longest wait of a DATA for its DATA-ACK, in propagation round trips.
    pub data_ack_delay: f64,
    /// Messages of at most so many packets leave without SIMs, by the lowest priority.
    pub blind_packets: Option<u32>,
    /// Clocks of hosts differ by up to so many parts in a million: how long each takes for RTT_max is drawn once.
    pub drift_ppm: f64,
    /// Whether a SIM-ACK that comes after RTT_max is used after all.
    pub late_sim_acks: bool,
    /// Whether a packet is chosen as its DATA leaves, not as its SIM-ACK comes.
    pub binds_late: bool,
    /// A NIC port, counted from 1, at which arrivals of SIMs and DATA are kept, to tell how they go together.
    pub watched_host: Option<u32>,
    /// Whether flows that begin together take their turns in an order drawn at each NIC.
    pub shuffle: bool,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// Least time after which a DATA is sent again.
    pub timeout: Span,
}

impl Default for Dcsim {
    fn default() -> Self {
        Self {
            sim_buffer: None,
            bucket: None,
            data_buffer: None,
            port_buffer: 500_000,
            control_share: 2.1,
            rtt_max: None,
            fraction: 1.0,
            asynchronous: false,
            data_per_sim: 1,
            data_timeout: 10.0,
            data_ack_every: 16,
            data_ack_delay: 3.0,
            blind_packets: None,
            drift_ppm: 0.0,
            late_sim_acks: false,
            binds_late: false,
            watched_host: None,
            shuffle: true,
            recovery: Recovery::TIMER,
            timeout: Span::from_ps(1),
        }
    }
}

super::built_in::built_in! {
    Dcsim: "probes a random path for each packet, which follows by the same path at a fixed time (DCSIM)",
    recovery: recovery, timeout: timeout,
    parameters: {
        "sim_buffer" => Packets(sim_buffer), "B, the SIMs that wait at a port; left out: 12, in proportion below 250 KB";
        "bucket" => Packets(bucket), "depth of the token bucket in SIMs; left out: B";
        "data_buffer" => Packets(data_buffer), "DATA that wait at a port; left out: what the buffer leaves";
        "port_buffer" => Count(port_buffer), "bytes of a port's buffer where `network.buffers` is not given";
        "control_share" => Any(control_share), "SIM, SIM-ACK and DATA-ACK of a DATA, in SIMs";
        "rtt_max" => Given(rtt_max), "from a SIM to its DATA; left out: the bound of theorem 2";
        "fraction" => Part(fraction), "of that time after which DATA leaves, if its SIM-ACK has come";
        "asynchronous" => Flag(asynchronous), "DATA leaves as its SIM-ACK comes";
        "data_per_sim" => Count(data_per_sim), "DATA that a SIM stands for";
        "data_timeout" => Positive(data_timeout), "time to a DATA-ACK in RTT_max, after which DATA is sent again";
        "data_ack_every" => Count(data_ack_every), "DATA that a DATA-ACK answers";
        "data_ack_delay" => Positive(data_ack_delay), "longest wait for a DATA-ACK in propagation round trips";
        "blind_packets" => Packets(blind_packets), "messages of at most so many packets leave without SIMs, by the lowest priority";
        "drift_ppm" => Any(drift_ppm), "parts in a million by which hosts' clocks differ";
        "late_sim_acks" => Flag(late_sim_acks), "whether a SIM-ACK after RTT_max is used";
        "binds_late" => Flag(binds_late), "whether a DATA is chosen as it leaves, not as its SIM-ACK comes";
        "watched_host" => Packets(watched_host), "a NIC port, counted from 1, whose arrivals of SIMs and DATA are correlated";
        "shuffle" => Flag(shuffle), "whether flows that begin together take turns in a drawn order";
    }
    check: |dcsim| {
        if dcsim.asynchronous && dcsim.fraction < 1.0 {
            let message = "with `asynchronous: true` DATA leaves as its SIM-ACK comes, whatever the fraction: expected one of both";
            return Err(super::Unfit { key: "fraction", message: message.to_owned() });
        }
        Ok(())
    },
}

crate::dispatched!(Dcsim);

impl Dcsim {
    /// Bytes of a port's buffer on this fabric.
    fn buffer(&self, fabric: &FabricFacts) -> u32 {
        fabric.buffer.unwrap_or(self.port_buffer)
    }

    /// B on this fabric.
    pub fn sims(&self, fabric: &FabricFacts) -> u32 {
        self.sim_buffer.unwrap_or_else(|| {
            let part = u64::from(FULL_B) * u64::from(self.buffer(fabric).min(FULL_BUFFER));
            // Rounded half up.
            ((2 * part + u64::from(FULL_BUFFER)) / (2 * u64::from(FULL_BUFFER))).max(1) as u32
        })
    }

    /// DATA that a port of a switch keeps waiting.
    pub fn data_packets(&self, fabric: &FabricFacts) -> u32 {
        self.data_buffer.unwrap_or_else(|| {
            let small = 3 * u64::from(self.sims(fabric)) * u64::from(fabric.control);
            (u64::from(self.buffer(fabric)).saturating_sub(small) / u64::from(fabric.mtu)) as u32
        })
    }

    /// Theorem 2: RTT_p + 2 H ℓ / C ((B + 1) α + 2.1 B + 1), where of a SIM that stands for k DATA the bucket gives one in k times the time.
    pub fn bound(&self, fabric: &FabricFacts) -> Span {
        let (sims, control, data) =
            (f64::from(self.sims(fabric)), f64::from(fabric.control), f64::from(fabric.mtu));
        let each = f64::from(self.data_per_sim) * data + self.control_share * control;
        let bytes = sims * each + data + control;
        let hops = f64::from(2 * fabric.hops) * bytes * 8e12 / fabric.rate.bps() as f64;
        Span::from_ps(fabric.propagation.ps() + hops.round() as u64)
    }

    /// RTT_max on this fabric.
    pub fn rtt(&self, fabric: &FabricFacts) -> Span {
        self.rtt_max.unwrap_or_else(|| self.bound(fabric))
    }

    /// Time of a token at a port of `rate`: (α + 2.1) ℓ / C.
    pub fn token(&self, fabric: &FabricFacts, rate: windtunnel_kernel::BitRate) -> Span {
        let bytes = f64::from(self.data_per_sim) * f64::from(fabric.mtu)
            + self.control_share * f64::from(fabric.control);
        Span::from_ps(((bytes * 8e12 / rate.bps() as f64).round() as u64).max(1))
    }
}

impl Dispatcher for Dcsim {
    type Used = Dispatching;
    type Nic = DcsimNic;
    const NAME: &'static str = "dcsim";
    const DRAWS_PATHS: bool = true;
    const SPRAYS: bool = true;
    const PULLS: bool = false;

    fn check(&self, fabric: &FabricFacts) -> Result<(), String> {
        if (1..4).contains(&fabric.priorities) {
            return Err(format!(
                "`network.queues` has {} priorities, expected 4: SIM, SIM-ACK, DATA-ACK and DATA; without `network.queues` its \
                 ports have them",
                fabric.priorities
            ));
        }
        let (sims, buffer) = (self.sims(fabric), self.buffer(fabric));
        let small = 3 * u64::from(sims) * u64::from(fabric.control);
        if small + u64::from(fabric.mtu) > u64::from(buffer) && self.data_buffer.is_none() {
            return Err(format!(
                "`sim_buffer` is {sims}, whose SIMs and acknowledgements and one DATA take {} B, expected at most the port's \
                 buffer: {buffer} B",
                small + u64::from(fabric.mtu)
            ));
        }
        if self.sim_buffer.is_some() && self.data_packets(fabric) < sims && self.data_buffer.is_none() {
            return Err(format!(
                "`sim_buffer` is {sims}, but the port's buffer of {buffer} B holds {} DATA, expected room for as many; \
                 `data_buffer` says that this is meant",
                self.data_packets(fabric)
            ));
        }
        let (rtt, least) = (self.rtt(fabric), least_rtt(fabric));
        if rtt < least {
            return Err(format!(
                "`rtt_max` is {rtt}, but a SIM and its SIM-ACK that meet one DATA at each port take {least} (of which the propagation \
                 is {}), and SIMs that take longer are taken for lost: expected at least that; left out, it is {}",
                fabric.propagation,
                self.bound(fabric)
            ));
        }
        if let Some(host) = self.watched_host.filter(|&host| host > fabric.nic_ports) {
            return Err(format!(
                "`watched_host` is {host}, expected at most {}: the NIC ports that there are",
                fabric.nic_ports
            ));
        }
        Ok(())
    }

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let sims = self.sims(fabric);
        let small = Line { packets: if port.nic { u32::MAX } else { sims }, ..Line::default() };
        let depth = self.bucket.unwrap_or(sims).max(1);
        let bucket = Some(Bucket { interval: self.token(fabric, port.rate), depth });
        let all = self.data_packets(fabric);
        let blind = if self.blind_packets.is_some() { all / 4 } else { 0 };
        let data = |packets: u32| Line {
            bytes: if port.nic { u32::MAX } else { packets.saturating_mul(fabric.mtu) },
            ..Line::default()
        };
        Lines {
            lines: vec![Line { bucket, ..small }, small, small, data(all - blind), data(blind)],
            shared: None,
        }
    }

    fn open_nic(&self, nic: &mut DcsimNic, facts: &NicFacts) {
        nic.open(self, facts);
    }

    fn open(&self, nic: &mut DcsimNic, _: &FlowFacts) {
        nic.add_flow();
    }

    fn accept(&self, nic: &mut DcsimNic, _: &FlowFacts) {
        nic.add_peer();
    }

    fn abandon(&self, nic: &mut DcsimNic, flow: u32, back: bool) {
        nic.abandon(flow, back);
    }

    fn on_message(&self, nic: &mut DcsimNic, message: &Joined, out: &mut Outbox) {
        nic.message(self, message, out);
    }

    #[inline]
    fn foresee(&self, nic: &DcsimNic, flow: u32, back: bool, load: &Load) {
        nic.foresee(flow, back, load);
    }

    fn on_note(&self, nic: &mut DcsimNic, heard: &Heard, out: &mut Outbox) {
        match heard.note.kind {
            SIM => {
                nic.watch(heard.now, false);
                nic.answer_sim(heard, out);
            }
            SIM_ACK => nic.sim_acked(self, heard, out),
            _ => nic.data_acked(heard, out),
        }
    }

    fn on_data(&self, nic: &mut DcsimNic, data: &Landed, out: &mut Outbox) {
        nic.landed(self, data, out);
    }

    fn on_sent(&self, nic: &mut DcsimNic, sent: &Sent, out: &mut Outbox) {
        nic.sent(self, sent, out);
    }

    fn timer(&self, nic: &DcsimNic) -> Option<Time> {
        nic.due()
    }

    fn on_timer(&self, nic: &mut DcsimNic, now: Time, out: &mut Outbox) {
        nic.tick(self, now, out);
    }

    fn tell(&self, nic: &DcsimNic, tally: &mut Tally) {
        nic.tell(tally);
    }
}

/// What a SIM and its SIM-ACK take there and back where one DATA is on its way out of each port as they come.
fn least_rtt(fabric: &FabricFacts) -> Span {
    let bytes = u64::from(2 * fabric.hops) * u64::from(fabric.mtu + fabric.control);
    fabric.propagation + fabric.rate.serialise(windtunnel_kernel::Bytes::new(bytes))
}

/// A span times a number.
fn times(span: Span, factor: f64) -> u64 {
    (span.ps() as f64 * factor).round() as u64
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::BitRate;

    use super::*;

    fn fabric(mtu: u32) -> FabricFacts {
        FabricFacts {
            rate: BitRate::from_gbps(800),
            mtu,
            header: 40,
            control: 64,
            propagation: Span::from_ns(7_800),
            hops: 6,
            buffer: None,
            paths: 1 << 16,
            priorities: 0,
            nic_ports: 128,
        }
    }

    /// §2.5: 10.3 µs for 1.5 KB, 1.32 RTT_p; equation 5 gives 22.04 µs for 9 KB and 14.24 µs for 4 KB.
    #[test]
    fn the_bound_is_that_of_theorem_2() {
        let dcsim = Dcsim::default();
        let found = [1_500, 9_000, 4_000].map(|mtu| dcsim.bound(&fabric(mtu)).ps() / 10_000);
        assert_eq!(found, [1_034, 2_204, 1_424]);
        let share = dcsim.bound(&fabric(1_500)).ps() as f64 / 7_800_000.0;
        assert!((share - 1.32).abs() < 0.01, "{share}");
        let packets = [1_500, 9_000].map(|mtu| fabric(mtu).bdp_packets());
        assert_eq!(packets, [520, 87]);
        // 7.8 µs, six packets of 90 ns and six notes of 0.64 ns are 92.7 packets.
        assert_eq!(fabric(9_000).loop_packets(), 93);
    }

    /// (9,000 + 2.1 · 64) B at 800 Gbps; a port at 1% has 1% of the tokens.
    #[test]
    fn a_token_takes_a_data_and_its_notes() {
        let (dcsim, fabric) = (Dcsim::default(), fabric(9_000));
        let token = |rate| dcsim.token(&fabric, rate).ps();
        assert_eq!((token(BitRate::from_gbps(800)), token(BitRate::from_gbps(8))), (91_344, 9_134_400));
    }

    /// 500 KB less three times 12 notes of 64 B hold 55 packets of 9 KB; B falls with the buffer below 250 KB.
    #[test]
    fn buffers_are_divided() {
        let dcsim = Dcsim::default();
        let at = |buffer| FabricFacts { buffer: Some(buffer), ..fabric(9_000) };
        assert_eq!([500_000, 250_000, 125_000, 30_000].map(|size| dcsim.sims(&at(size))), [12, 12, 6, 1]);
        assert_eq!([500_000, 250_000, 30_000].map(|size| dcsim.data_packets(&at(size))), [55, 27, 3]);
    }

    #[test]
    fn bad_settings_are_refused() {
        let refused = |dcsim: Dcsim, fabric: FabricFacts| dcsim.check(&fabric).expect_err("refused");
        let dcsim = Dcsim::default();
        let short = Dcsim { rtt_max: Some(Span::from_us(5)), ..dcsim };
        assert!(refused(short, fabric(9_000)).contains("`rtt_max` is 5 us"));
        // 7.8 µs and twelve times 9,064 B.
        let at = |ns| Dcsim { rtt_max: Some(Span::from_ns(ns)), ..dcsim };
        assert!(refused(at(8_887), fabric(9_000)).contains("take 8.88768 us"));
        assert_eq!(at(8_888).check(&fabric(9_000)), Ok(()));
        let nobody = Dcsim { watched_host: Some(129), ..dcsim };
        assert!(refused(nobody, fabric(9_000)).contains("expected at most 128"));
        let wide = Dcsim { sim_buffer: Some(60), ..dcsim };
        assert!(refused(wide, fabric(9_000)).contains("holds 54 DATA"));
        let huge = Dcsim { sim_buffer: Some(3_000), ..dcsim };
        assert!(refused(huge, fabric(9_000)).contains("`sim_buffer` is 3000"));
        let few = FabricFacts { priorities: 2, ..fabric(9_000) };
        assert!(refused(dcsim, few).contains("2 priorities"));
        assert_eq!(dcsim.check(&fabric(9_000)), Ok(()));
    }
}
