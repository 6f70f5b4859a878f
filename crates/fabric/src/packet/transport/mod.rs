//! Transports behind one trait.
//!
//! **Who does what.** The engine owns sequence numbers, segmentation, bytes in flight, acknowledgements, retransmission and
//! its timer, for every transport alike, by the kind of [`Recovery`] that the endpoint names. An [`Endpoint`] is the rest of what NICs
//! do: how much may be in flight, how fast packets follow one another, what an acknowledgement, a loss or a notification
//! changes, and what the receiver answers beside acknowledgements. A [`SwitchPolicy`] is what switches do beside the settings:
//! admission, marks, the order of queues, the choice of port. A [`Transport`] is both, and a type parameter of the engine: calls
//! are resolved when the engine is compiled, and what nobody asks for is not there.
//!
//! **Calls.** For a queue pair, in order of time: [`Endpoint::open`] once at each end; at the sender
//! [`Endpoint::on_send`] as a transmission begins, then [`Endpoint::window`] and [`Endpoint::gap`] before the next;
//! [`Endpoint::on_ack`] for each acknowledgement (it may answer for several packets), [`Endpoint::on_loss`] for each
//! loss detected, [`Endpoint::on_notify`] for each notification; [`Endpoint::on_timer`] when the time that
//! [`Endpoint::timer`] last named has come. At the receiver [`Endpoint::on_data`] for every data packet that arrives.
//!
//! **State.** A value of the endpoint holds its parameters, the same for all queue pairs; [`Endpoint::Flow`] and
//! [`Endpoint::Peer`] hold what differs, and should stay within 64 bytes: every acknowledgement touches them.
//!
//! **More of the engine**, for those whose [`Uses`] ask: with telemetry acknowledgements bring what each hop told the packet that
//! caused them ([`Endpoint::on_hops`]); with credit a queue pair sends no more than its receiver grants ([`Credit`],
//! [`Endpoint::unasked`]). [`Endpoint::needs`] refuses fabrics that drop. Where switches trim, [`Endpoint::on_nack`] is called for
//! each packet that arrived without its payload. With probes it sends packets of its own ([`Probe`]), with planes a queue
//! pair takes all planes of its NIC, and with a memory something is kept of each pair of NICs ([`Endpoint::remember`]).

mod around;
mod balanced;
mod bbr;
mod built_in;
mod cubic;
mod dcpim;
mod dcqcn;
mod dcsim;
mod dctcp;
mod dispatch;
mod endpoint;
mod eqds;
mod expresspass;
mod feature;
mod homa;
mod hpcc;
mod mixed;
mod mprdma;
mod mrc;
mod ndp;
mod newreno;
mod none;
mod nscc;
mod patience;
mod pfabric;
mod phost;
mod policy;
mod probe;
mod profile;
mod rccc;
mod recent;
mod recoveries;
mod seen;
mod sird;
mod staged;
mod steered;
mod swift;
mod tcp;
mod tokens;
mod whole;

use windtunnel_kernel::Span;

pub use around::Around;
pub use balanced::{Balanced, Balancing, SwitchBalancer};
pub use bbr::{Bbr, BbrFlow};
pub use built_in::{BuiltIn, Parameter, Place, Unfit, Word};
pub use cubic::{Cubic, CubicFlow};
pub use dcpim::{DcPim, DcPimNic};
pub use dcqcn::{Dcqcn, DcqcnFlow, DcqcnPeer};
pub use dcsim::{Dcsim, DcsimNic};
pub use dctcp::{Dctcp, DctcpFlow};
pub use dispatch::{
    Bucket, Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Led, Line, LinePort,
    Lines, Load, MOST_LINES, NicFacts, Note, Order, Outbox, Parcel, SILENCE, Sent, Tally, Undispatched,
};
pub use endpoint::{
    Ack, Answer, Arrived, Credit, Demand, Endpoint, Loss, LossKind, MemoryOf, Nack, Need, News, PathChoice,
    PathFacts, Recovery, Restraint,
};
pub use eqds::{Eqds, EqdsFlow};
pub use expresspass::{ExpressPass, ExpressPassNic};
pub(super) use feature::Kept;
pub use feature::{Absent, Credited, Feature, Plain, Present, State, Told, Uses};
pub use homa::{Homa, HomaNic};
pub use hpcc::{Hpcc, HpccFlow};
pub use mprdma::{MpRdma, MpRdmaFlow};
pub use mrc::{Mrc, MrcFlow};
pub use ndp::{Ndp, NdpFlow};
pub use newreno::{NewReno, NewRenoFlow};
pub use none::NoTransport;
pub use nscc::{Nscc, NsccFlow};
pub use pfabric::{PFabric, PFabricNic};
pub use phost::{PHost, PHostNic};
pub use policy::{SwitchPolicy, Unasked};
pub use probe::{Lane, Own, Probe, Probed, Replied, Reply};
pub use profile::Profile;
pub use rccc::{Rccc, RcccFlow};
pub use recoveries::{ERASURE, Mending, RECOVERIES, SELECTIVE};
pub use seen::{
    BalancerPacket, BalancerPort, BalancerSwitch, StagePacket, StagePort, StageQueue, StageVerdict,
};
pub use sird::{Sird, SirdNic};
pub use staged::{Staged, Staging, SwitchStage};
pub use steered::{Choosing, PathChooser, Steered};
pub use swift::{Swift, SwiftFlow};
pub use whole::{Transport, With};

pub use super::telemetry::Hop;

/// Silence to wait for on a path: a setting, but never less than 4 round trips.
fn patience(least: Span, path: &PathFacts) -> Span {
    least.max(path.base_rtt * 4)
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::{BitRate, Time};

    use super::*;

    /// A path of 4 links with packets of 4,000 B.
    pub(super) fn path(gbps: u64, rtt_us: u64) -> PathFacts {
        let bdp = gbps * rtt_us * 125;
        PathFacts {
            rate: BitRate::from_gbps(gbps),
            base_rtt: Span::from_us(rtt_us),
            bdp,
            mtu: 4_000,
            hops: 4,
            planes: 1,
            queue: None,
        }
    }

    /// Of `packets`, the last of them seen after `rtt_us`, at `at_us`.
    pub(super) fn ack(at_us: u64, rtt_us: u64, packets: u32, marked: u32) -> Ack {
        Ack {
            now: Time::from_ps(at_us * 1_000_000),
            bytes: u64::from(packets) * 4_000,
            packets,
            marked,
            expected: packets,
            next: packets,
            rtt: Span::from_us(rtt_us),
            echo: marked > 0,
            path: 0,
            plane: 0,
            in_flight: 0,
        }
    }

    pub(super) fn gap(sequence: u32, next: u32) -> Loss {
        Loss { now: Time::ZERO, kind: LossKind::Gap, sequence, next, bytes: 4_000, again: false }
    }

    /// Defaults on 2 µs and on 10 ms, on 100 Gbps and on 1.6 Tbps: nothing is taken for lost within 4 round trips, and
    /// some window or pace lets the path be filled.
    #[test]
    fn defaults_scale() {
        fn holds<T: Endpoint>(transport: T) {
            for (gbps, rtt) in [(100, 2), (1_600, 2), (100, 10_000), (1_600, 10_000)] {
                let path = path(gbps, rtt);
                let mut flow = transport.open(&path);
                assert!(
                    transport.timeout(&flow).ps() >= path.base_rtt.ps() * 3,
                    "{} at {gbps} Gbps, {rtt} µs",
                    T::NAME
                );
                let rounds = 40 * (1 + path.bdp / 4_000 / 8);
                for round in 0..rounds.min(2_000_000) {
                    let now = 100 + round * rtt / 2;
                    let number = 4 * round as u32;
                    let heard = Ack {
                        expected: number,
                        next: number + 1,
                        in_flight: path.bdp,
                        ..ack(now, rtt, 4, 0)
                    };
                    transport.on_ack(&mut flow, &heard);
                }
                let window = transport.window(&flow);
                assert!(window >= path.bdp, "{} at {gbps} Gbps, {rtt} µs: {window} of {}", T::NAME, path.bdp);
                assert_eq!(transport.gap(&flow, 4_000), Span::ZERO);
            }
        }
        holds(Dcqcn::default());
        holds(Dctcp::default());
        holds(MpRdma::default());
        holds(NewReno::default());
        holds(Cubic::default());
        holds(Swift::default());
    }
}
