//! How deep queues may grow before they mark: as published, and deeper where the longest path holds more.
//!
//! **The rule.** A sender that cuts its window by a share b when marks come keeps its path full if what is left still fills it:
//! (1 − b)(BDP + K) ≥ BDP, so K ≥ BDP · b/(1 − b). DCTCP cuts by less the fewer packets are marked and needs K > BDP/7 (Alizadeh et
//! al., "Data center TCP (DCTCP)", SIGCOMM 2010, equation 13), Reno halves and needs a whole BDP (Villamizar and Song, "High
//! performance TCP in ANSNET", CCR 1994), Cubic cuts by 0.3 and needs 3/7. K is the depth at which one packet in 200 is marked: of a
//! ramp that rises to 1% its middle, of steeper ones its beginning. BDP is that of the longest path's idle round trip.
//!
//! **At least two packets.** A flow alone has a packet on the wire and the next one behind it. Thresholds in proportion to the rate are
//! less than that at slow ports (`standard` at 10 Gbps: 3,750 B), which would mark every packet of an idle path.
//!
//! Published thresholds hold as long as they are that deep; beyond, all of a profile's grow by one factor, up to what a port's share
//! of the buffer holds. Thresholds that a scenario writes are never changed.

use std::collections::BTreeSet;

use windtunnel_fabric::packet::{BufferSettings, EcnSettings};
use windtunnel_kernel::{BitRate, Bytes, Span};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_topology::{LinkId, LinkTier, Topology};

use super::network::transport;
use crate::ecn_profiles::EcnProfile;
use crate::schema::{Ecn, Network};

/// What the longest path asks of marking.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    /// Of a full packet there and its acknowledgement back, idle.
    pub round_trip: Span,
    /// Of the bandwidth–delay product, that a queue must hold before marks count.
    pub share: f64,
    /// Of two full packets at the slowest port.
    pub two_packets: Span,
    /// Bytes that a port may hold alone at the least, and the rate of that port; `None` without a limit.
    pub room: Option<(u64, BitRate)>,
}

/// Share of marked packets from which marks count.
const COUNTS: f64 = 0.005;

/// How much of a bandwidth–delay product the queue must hold for a transport to keep its path full; `None` for those whose rate
/// does not follow marks.
fn share_of(transport: &str) -> Option<f64> {
    match transport {
        "newreno" => Some(1.0),
        "cubic" => Some(3.0 / 7.0),
        "none" | "bbr" | "swift" | "hpcc" | "ndp" | "eqds" | "rccc" => None,
        _ => Some(1.0 / 7.0),
    }
}

impl Marks {
    /// Of `topology` and what sends over it.
    pub fn new(network: &Network, topology: &Topology, buffers: &[BufferSettings]) -> Self {
        let summary = topology.summary();
        let rates = || summary.tiers.iter().flat_map(|tier| [Some(tier.rate_down), tier.rate_up]).flatten();
        let slowest = rates().min().unwrap_or(BitRate::from_gbps(400));
        let fastest = rates().max().unwrap_or(slowest);
        let packets = slowest.serialise(network.mtu.0) + slowest.serialise(network.control.0);
        let round_trip = summary.diameter_latency * 2 + packets * u64::from(summary.diameter_links);
        let transport = transport::law_of(network);
        // x = α (size − x).
        let alone =
            |buffer: &BufferSettings| (buffer.size.get() as f64 * buffer.alpha / (1.0 + buffer.alpha)) as u64;
        let room = buffers.iter().map(alone).min().map(|bytes| (bytes, fastest));
        let two_packets = slowest.serialise(network.mtu.0) * 2;
        Self { round_trip, share: share_of(transport).unwrap_or(1.0 / 7.0), two_packets, room }
    }

    /// Bytes that a queue of a port of `rate` must hold before marks count.
    pub fn needed(&self, rate: BitRate) -> f64 {
        self.held_s() * rate.bps() as f64 / 8.0
    }

    /// The same in seconds of any port.
    fn held_s(&self) -> f64 {
        (self.share * self.round_trip.seconds()).max(self.two_packets.seconds())
    }

    /// By what the thresholds of a profile grow, of which marks count from `reach` bytes on and all are made from `kmax` on at a port
    /// of `rate`: 1 or more.
    pub fn growth(&self, rate: BitRate, reach: f64, kmax: Bytes) -> f64 {
        let most = self.room.map_or(f64::INFINITY, |(room, fastest)| {
            room as f64 / (kmax.get().max(1) as f64 * fastest.bps() as f64 / rate.bps().max(1) as f64)
        });
        (self.needed(rate) / reach.max(1.0)).min(most).max(1.0)
    }
}

/// Marking as the model has it, on a fabric whose longest path asks for `marks`.
pub fn marking(ecn: &Ecn, marks: &Marks) -> EcnSettings {
    let EcnProfile { gbps, kmin, kmax, pmax, .. } = *ecn.profile.0;
    let rate = ecn.rate.map_or(BitRate::from_gbps(gbps), |rate| rate.0);
    let pmax = ecn.pmax.unwrap_or(pmax);
    let (kmin, kmax) = match (ecn.kmin, ecn.kmax) {
        (None, None) => {
            let (kmin, kmax) = (Bytes::new(kmin), Bytes::new(kmax));
            let growth = marks.growth(rate, reach(kmin, kmax, pmax), kmax);
            let grown = |size: Bytes| Bytes::new((size.get() as f64 * growth) as u64);
            (grown(kmin), grown(kmax))
        }
        (from, to) => {
            (from.map_or(Bytes::new(kmin), |size| size.0), to.map_or(Bytes::new(kmax), |size| size.0))
        }
    };
    EcnSettings { rate, kmin, kmax, pmax, at: ecn.at.0 }
}

/// The tiers of links that `network.ecn_on` names.
///
/// # Errors
/// [`InputError`] for a tier that the fabric does not have.
pub fn marked_tiers(
    names: &[String],
    topology: &Topology,
    source: &str,
) -> Result<Vec<LinkTier>, InputError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let of_switch = |link: &LinkId| topology.link_source(*link).is_some();
    let tiers: BTreeSet<LinkTier> = (0..topology.link_count() as u32)
        .map(LinkId)
        .filter(of_switch)
        .map(|link| topology.link(link).tier)
        .collect();
    let found = |(index, name): (usize, &String)| {
        tiers.iter().copied().find(|tier| tier.name() == name.trim()).ok_or_else(|| {
            let known: Vec<String> = tiers.iter().map(|tier| tier.name().into_owned()).collect();
            let place = format!("{source}: network.ecn_on[{index}]");
            InputError::new(place, format!("no tier of queues `{name}`"))
                .hint(format!("tiers of queues are `{}`", known.join("`, `")))
        })
    };
    names.iter().enumerate().map(found).collect()
}

/// Depth at which one packet in 200 is marked.
fn reach(kmin: Bytes, kmax: Bytes, pmax: f64) -> f64 {
    let part = if pmax > COUNTS { COUNTS / pmax } else { 1.0 };
    kmin.get() as f64 + part * kmax.get().saturating_sub(kmin.get()) as f64
}

/// Says on what thresholds a run rests, and warns of those that keep a path from being filled.
pub fn tell(network: &Network, marks: &Marks, evidence: &mut EvidenceList) -> Vec<String> {
    let transport = transport::law_of(network);
    let own = network
        .queues
        .iter()
        .filter_map(|queue| Some((format!("queues[{}].ecn", queue.name), queue.ecn.as_ref()?)));
    let all: Vec<(String, &Ecn)> = std::iter::once(("ecn".to_owned(), &network.ecn)).chain(own).collect();
    let mut warnings = Vec::new();
    for (place, ecn) in all {
        let set = marking(ecn, marks);
        let (found, needed) = (reach(set.kmin, set.kmax, set.pmax), marks.needed(set.rate));
        let (gbps, us) = (set.rate.bps() as f64 / 1e9, marks.round_trip.seconds() * 1e6);
        let published = marking(ecn, &Marks::default());
        if published != set {
            let grown = format!(
                "published ones times {:.1}, so that a queue holds {:.2} us: {:.2} of the {us:.1} us that the longest path takes and \
                 back, and two packets at least",
                set.kmin.get() as f64 / published.kmin.get().max(1) as f64,
                marks.held_s() * 1e6,
                marks.share,
            );
            evidence.add(
                &format!("{place}: {} to {} B at {gbps} Gbps", set.kmin.get(), set.kmax.get()),
                "inferred",
                &grown,
            );
        }
        if share_of(transport).is_some() && found < needed * 0.999 {
            let why = if ecn.kmin.is_some() || ecn.kmax.is_some() {
                "leave `kmin` and `kmax` out, and they follow the path"
            } else {
                "`buffers` hold no more"
            };
            warnings.push(format!(
                "network.{place}: marks count from {found:.0} B at {gbps} Gbps on, but `{transport}` fills the longest path ({us:.0} us \
                 there and back) only with {needed:.0} B or more; {why}"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Scenario;
    use windtunnel_topology::EcmpHash;

    fn ecn(keys: &str) -> Ecn {
        serde_json::from_str(keys).expect("marking")
    }

    fn marks(us: u64, share: f64) -> Marks {
        Marks { round_trip: Span::from_us(us), share, two_packets: Span::ZERO, room: None }
    }

    /// Up to the round trip for which a profile is deep enough nothing changes; beyond, the depth at which marks count is the share
    /// of the bandwidth–delay product that the rule asks for, at the rate of any port.
    #[test]
    fn thresholds_follow_the_longest_path_and_no_shorter_one() {
        for (profile, enough_us) in [("standard", 21.2), ("dcqcn", 143.5), ("hpcc", 240.8), ("dctcp", 546.0)]
        {
            let ecn = ecn(&format!(r#"{{"profile": "{profile}"}}"#));
            let published = marking(&ecn, &Marks::default());
            for us in [1, 5, 10, 20, 50, 200, 500, 1_000, 10_000, 100_000] {
                let marks = marks(us, 1.0 / 7.0);
                let set = marking(&ecn, &marks);
                if (us as f64) < enough_us {
                    assert_eq!(set, published, "{profile}, {us} us");
                    continue;
                }
                let found = reach(set.kmin, set.kmax, set.pmax);
                let needed = us as f64 * 1e-6 * set.rate.bps() as f64 / 8.0 / 7.0;
                assert!(
                    (found / needed - 1.0).abs() < 1e-4,
                    "{profile}, {us} us: {found}, expected {needed}"
                );
                let ratio = |settings: &EcnSettings| settings.kmax.get() as f64 / settings.kmin.get() as f64;
                assert!((ratio(&set) / ratio(&published) - 1.0).abs() < 1e-3, "both by one factor");
            }
        }
    }

    /// At 10 Gbps `standard` is 3,750 B, less than a packet.
    #[test]
    fn thresholds_hold_two_packets_of_the_slowest_port() {
        let gbps = BitRate::from_gbps;
        let slow = |g| Marks { two_packets: gbps(g).serialise(Bytes::new(4_150)) * 2, ..marks(5, 1.0 / 7.0) };
        let at = |marks: &Marks, g: u64| marking(&ecn("{}"), marks).kmin.get() as f64 * g as f64 / 400.0;
        assert!((at(&slow(10), 10) / 8_300.0 - 1.0).abs() < 0.02, "{}", at(&slow(10), 10));
        assert_eq!(marking(&ecn("{}"), &slow(25)), marking(&ecn("{}"), &Marks::default()), "9,375 B there");
    }

    /// What a scenario writes stands.
    #[test]
    fn written_thresholds_are_not_changed() {
        for keys in [
            r#"{"kmin": "10 KB"}"#,
            r#"{"kmax": "1 MB"}"#,
            r#"{"kmin": "10 KB", "kmax": "20 KB", "rate": "100 Gbps"}"#,
        ] {
            let ecn = ecn(keys);
            assert_eq!(marking(&ecn, &marks(10_000, 1.0)), marking(&ecn, &Marks::default()), "{keys}");
        }
        let grown = marking(&ecn(r#"{"pmax": 0.5}"#), &marks(10_000, 1.0));
        assert!(grown.kmin.get() > 100_000_000 && grown.pmax == 0.5, "{grown:?}");
    }

    /// Marks begin before a port drops: kmax is at most what it may hold alone, where the published one is.
    #[test]
    fn thresholds_stay_within_the_buffer() {
        let gbps = BitRate::from_gbps;
        let bounded = Marks { room: Some((4_500_000, gbps(800))), ..marks(10_000, 1.0) };
        let set = marking(&ecn("{}"), &bounded);
        assert_eq!(
            (set.kmin, set.kmax),
            (Bytes::new(750_000), Bytes::new(2_250_000)),
            "half of the room at half the rate"
        );
        let small = Marks { room: Some((1_000, gbps(800))), ..marks(10_000, 1.0) };
        assert_eq!(
            marking(&ecn("{}"), &small),
            marking(&ecn("{}"), &Marks::default()),
            "never below the published"
        );
    }

    fn told(network: &str) -> (Marks, Vec<String>, usize) {
        let text = format!(
            "{{\"windtunnel\": 1, \"name\": \"x\", \"fidelity\": \"packet\", \"jobs\": [], \"topology\": {{\"shape\": \"clos\", \"hosts\": 2, \
             \"tiers\": [{{\"ports_down\": 2, \"rate\": \"100 Gbps\", \"length\": \"500 km\"}}], \"host\": {{\"gpus\": 1, \"nics\": 1}}}}, \
             \"network\": {network}}}"
        );
        let scenario: Scenario = serde_json::from_str(&text).expect("a scenario");
        let mut evidence = EvidenceList::default();
        let written = super::super::fabric::resolve(
            &scenario.topology,
            "x",
            "topology",
            &windtunnel_plan::inputs::Inputs::of(std::path::Path::new(".")),
        )
        .expect("keys");
        let fabric =
            super::super::fabric::fabric(&written, EcmpHash::default(), &mut evidence).expect("a fabric");
        let marks = Marks::new(&scenario.network, &fabric.topology, &[]);
        let before = evidence.rows().len();
        let warnings = tell(&scenario.network, &marks, &mut evidence);
        (marks, warnings, evidence.rows().len() - before)
    }

    /// Two cables of 500 km and a switch of 500 ns: 10.001 ms there and back, and what the packets take.
    #[test]
    fn low_thresholds_of_long_paths_are_warned_of() {
        let (marks, warnings, grown) = told("{}");
        let packets = (4_150.0 + 64.0) * 2.0 * 8.0 / 100e9;
        assert!((marks.round_trip.seconds() - (0.010_001 + packets)).abs() < 1e-9, "{:?}", marks.round_trip);
        assert_eq!((warnings, grown, marks.share), (Vec::new(), 1, 1.0 / 7.0));
        let low = r#""ecn": {"kmin": "150 KB", "kmax": "450 KB"}"#;
        for (transport, warned) in [("dctcp", 1), ("dcqcn", 1), ("newreno", 1), ("swift", 0), ("ndp", 0)] {
            let (_, warnings, grown) = told(&format!("{{\"transport\": \"{transport}\", {low}}}"));
            assert_eq!((warnings.len(), grown), (warned, 0), "{transport}: {warnings:?}");
        }
        let (_, warnings, _) = told(&format!("{{\"transport\": \"cubic\", {low}}}"));
        assert!(warnings[0].contains("`cubic` fills the longest path (10002 us"), "{warnings:?}");
        assert!(warnings[0].contains("with 21432"), "3/7 of 500 MB at 400 Gbps: {warnings:?}");
        assert_eq!(told(r#"{"transport": "newreno"}"#).0.share, 1.0);
    }

    #[test]
    fn marking_starts_from_a_profile() {
        let ecn = |keys: &str| marking(&ecn(keys), &Marks::default());
        let hpcc = ecn(r#"{"profile": "hpcc"}"#);
        assert_eq!((hpcc.rate, hpcc.kmin, hpcc.pmax), (BitRate::from_gbps(25), Bytes::new(100_000), 0.2));
        let own = ecn(r#"{"profile": "dcqcn", "kmax": "100 KB"}"#);
        assert_eq!((own.kmin, own.kmax, own.pmax), (Bytes::new(5_000), Bytes::new(100_000), 0.01));
        assert_eq!(ecn("{}").kmax, Bytes::new(450_000));
    }
}
