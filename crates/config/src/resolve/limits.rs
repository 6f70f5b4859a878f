//! What no machine simulates, told before it is tried: fabrics and traffic that do not fit in memory, messages that take
//! longer than a network is followed, and those with more packets than are numbered.

use windtunnel_fabric::packet::too_long;
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_plan::error::InputError;
use windtunnel_plan::network_plan::NetworkPlan;
use windtunnel_topology::Topology;
use windtunnel_workload::OpKind;

use super::JobPlan;
use crate::budget::{self, Items};
use crate::schema::{Fidelity, FlowPattern, Jobs, Scenario};

/// Bytes of a GPU of a cluster: who has it.
const GPU: u64 = 8;

/// Bytes of a GPU with a network: clocks of its streams and NICs, and its matcher.
const ENDPOINT: u64 = 96;

/// Bytes of a link in the flow model: its rate, its load and the flows on it.
const LINK: u64 = 64;

/// Bytes of a port in the packet model, which has the flow model's links for scale-up domains besides.
const PORT: u64 = 128;

/// Bytes of a message of a workload: its line of the table, its send and its receive with what they depend on.
const MESSAGE: u64 = 32 + 2 * 64;

/// # Errors
/// [`InputError`] for a fabric whose links and GPUs alone do not fit in memory at this fidelity.
pub(super) fn fabric(scenario: &Scenario, topology: &Topology, source: &str) -> Result<(), InputError> {
    let timed = |jobs: &Jobs| jobs.list().iter().all(|job| job.workload.is_none());
    let simulates = !(scenario.fidelity == Fidelity::Job && timed(&scenario.jobs));
    let links = match scenario.fidelity {
        _ if !simulates => 0,
        Fidelity::Message => 0,
        Fidelity::Job | Fidelity::Flow => LINK,
        Fidelity::Packet => LINK + PORT,
    };
    let gpus = if simulates { ENDPOINT } else { GPU };
    let items = [
        Items { what: "GPUs", count: topology.endpoints().into(), each: gpus },
        Items { what: "links", count: topology.link_count() as u128, each: links },
    ];
    let hint = "fewer hosts; `fidelity: job` with given durations needs least, `message` less than `flow` and `packet`";
    budget::check(&format!("{source}: topology"), &items[..if links > 0 { 2 } else { 1 }], hint)
}

/// # Errors
/// [`InputError`] for a pattern whose messages do not fit in memory; `place` is that of the flows.
pub(super) fn pattern(pattern: FlowPattern, ranks: u32, place: &str) -> Result<(), InputError> {
    let ranks = u128::from(ranks);
    let count = match pattern {
        FlowPattern::AllToAll => ranks * ranks.saturating_sub(1),
        _ => ranks,
    };
    let hint = "fewer `ranks`; an all-to-all that is a `collective` has no list of its messages";
    budget::check(place, &[Items { what: "messages", count, each: MESSAGE }], hint)
}

/// # Errors
/// [`InputError`] for a job whose longest message, alone on the fastest cable there is, takes longer than a network is
/// followed, or has more packets than a queue pair numbers.
pub(super) fn messages(
    scenario: &Scenario,
    topology: &Topology,
    network: &NetworkPlan,
    plans: &[JobPlan],
    source: &str,
) -> Result<(), InputError> {
    let place = |index: usize| match &scenario.jobs {
        Jobs::List(_) => format!("{source}: jobs[{index}].workload"),
        Jobs::Source(_) => format!("{source}: jobs"),
    };
    if plans.iter().all(|plan| longest(plan) <= CHECKED) {
        return Ok(());
    }
    let fastest =
        (0..topology.link_count() as u32).map(|link| topology.link(windtunnel_topology::LinkId(link)).rate);
    // A NIC may send a message over all its ports at once.
    let fastest = fastest.max().map_or(u64::MAX, |rate| rate.bps().saturating_mul(topology.planes().into()));
    let fastest = BitRate::from_bps(fastest.max(1));
    for (index, plan) in plans.iter().enumerate() {
        let bytes = longest(plan);
        let span = fastest.serialise(bytes);
        if Time::ZERO + span > Time::HORIZON {
            let day = Span::from_us(86_400_000_000).ps();
            let message = format!(
                "a message of {} B takes {} days at {} Gbps, as fast as the fabric is anywhere, expected at most {}",
                bytes.get(),
                u128::from(bytes.get()) * 8 / u128::from(fastest.bps()) / 86_400,
                fastest.bps() as f64 / 1e9,
                Time::HORIZON.ps() / day
            );
            let hint = "is a rate or a size mistyped? Else send it in several iterations";
            return Err(InputError::new(place(index), message).hint(hint));
        }
        let settings = &network.packet.settings;
        let packets = settings.packets(bytes).div_ceil(u64::from(settings.queue_pairs));
        let packet = scenario.fidelity == Fidelity::Packet && network.backend.is_none();
        if packet && packets > u64::from(u32::MAX) {
            return Err(InputError::new(place(index), too_long(bytes, packets)));
        }
    }
    Ok(())
}

/// Messages up to here are not looked at: 1 GB takes less than 200 days even at a kilobit a second.
const CHECKED: Bytes = Bytes::new(1 << 30);

/// The longest message that a job's ranks send to one another by themselves; those of collectives are parts of theirs.
fn longest(plan: &JobPlan) -> Bytes {
    let of = |kind: &OpKind| match *kind {
        OpKind::Send { bytes, .. } => bytes,
        _ => Bytes::ZERO,
    };
    let programs = plan.works().flat_map(|work| &work.workload.programs);
    programs.flat_map(|program| &program.ops).map(|op| of(&op.kind)).max().unwrap_or(Bytes::ZERO)
}
