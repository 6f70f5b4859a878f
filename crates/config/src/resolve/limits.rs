//! What no machine simulates, told before it is tried: fabrics and traffic that do not fit in memory, paths and messages that take
//! longer than a network is followed, messages with more packets than are numbered, and more faults, time slices or samples than
//! anybody waits for.

use windtunnel_cluster::faults::Process;
use windtunnel_cluster::life::Lives;
use windtunnel_fabric::packet::too_long;
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_plan::error::InputError;
use windtunnel_plan::network_plan::NetworkPlan;
use windtunnel_plan::stream::JobStream;
use windtunnel_plan::upkeep::UpkeepPlan;
use windtunnel_topology::{LinkId, Topology};
use windtunnel_workload::OpKind;

use super::JobPlan;
use super::context::Context;
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

/// Bytes of a message of a pattern and of a rank, at least. Measured at the peak of patterns of messages that are all under way at
/// once, in hosts of one GPU and in one host of many, with what each takes before it is simulated (136 a message): per message 455 to
/// 475 at message fidelity, 714 to 770 of flows and where job fidelity simulates them as such, 1,258 to 1,293 of packets; per rank
/// 1,050, 3,800, 1,350 and 1,600.
const fn of_pattern(fidelity: Fidelity, timed: bool, scale_up: bool) -> (u64, u64) {
    match fidelity {
        Fidelity::Job if timed => (128, 256),
        Fidelity::Job => (640, 1_100),
        Fidelity::Message => (400, 900),
        Fidelity::Flow => (640, 3_200),
        // Inside a domain a message is a flow.
        Fidelity::Packet if scale_up => (640, 1_300),
        Fidelity::Packet => (1_100, 1_300),
    }
}

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
    budget::check(&format!("{source}: topology"), &items[..if links > 0 { 2 } else { 1 }], hint)?;
    if scenario.fidelity == Fidelity::Packet {
        check_round_trip(topology.summary().diameter_latency, source)?;
    }
    Ok(())
}

/// A sender waits for several round trips before it gives up, and a network is followed for 200 days.
const LONGEST_ROUND_TRIP: Span = Span::from_us(50 * DAY_US);

const DAY_US: u64 = 86_400_000_000;

fn check_round_trip(one_way: Span, source: &str) -> Result<(), InputError> {
    if one_way * 2 <= LONGEST_ROUND_TRIP {
        return Ok(());
    }
    let days = |span: Span| span.seconds() / 86_400.0;
    let message = format!(
        "expected paths that packets go there and back in 50 days, found one of {:.0} days",
        days(one_way) * 2.0
    );
    let hint = "is a length mistyped? `fidelity: flow` waits for no acknowledgement";
    Err(InputError::new(format!("{source}: topology"), message).hint(hint))
}

/// Samples during which a packet leaves the slowest port, at most.
const MOST_SAMPLES: u64 = 1_000_000;

/// # Errors
/// [`InputError`] for queues that are sampled so often that the run stands still between two events.
pub(super) fn samples(
    scenario: &Scenario,
    topology: &Topology,
    mtu: Bytes,
    source: &str,
) -> Result<(), InputError> {
    let Some(every) = scenario.results.queues.map(|every| every.0) else { return Ok(()) };
    let rates = (0..topology.link_count() as u32).map(|link| topology.link(LinkId(link)).rate);
    let packet = rates.min().map_or(Span::ZERO, |slowest| slowest.serialise(mtu));
    let least = Span::from_ns(1).max(Span::from_ps(packet.ps() / MOST_SAMPLES));
    if every >= least {
        return Ok(());
    }
    let message = format!("expected at least {least} from one sample to the next, found {every}");
    Err(InputError::new(format!("{source}: results.queues"), message)
        .hint("every sample looks at all ports; `10 us` shows queues well"))
}

/// # Errors
/// [`InputError`] for a pattern whose messages and ranks do not fit in memory; a `timed` job's are not simulated at job fidelity.
/// `place` is that of the flows.
pub(super) fn pattern(
    pattern: FlowPattern,
    ranks: u32,
    timed: bool,
    context: &Context<'_>,
    place: &str,
) -> Result<(), InputError> {
    let scale_up = context.fabric.topology.scale_up_size() > 1;
    let (message, rank) = of_pattern(context.scenario.fidelity, timed, scale_up);
    let ranks = u128::from(ranks);
    let count = match pattern {
        FlowPattern::AllToAll => ranks * ranks.saturating_sub(1),
        _ => ranks,
    };
    let hint = "fewer `ranks`; an all-to-all that is a `collective` has no list of its messages";
    let items =
        [Items { what: "messages", count, each: message }, Items { what: "ranks", count: ranks, each: rank }];
    budget::check(place, &items, hint)
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
    let fastest = (0..topology.link_count() as u32).map(|link| topology.link(LinkId(link)).rate);
    // A NIC may send a message over all its ports at once.
    let fastest = fastest.max().map_or(u64::MAX, |rate| rate.bps().saturating_mul(topology.planes().into()));
    let fastest = BitRate::from_bps(fastest.max(1));
    for (index, plan) in plans.iter().enumerate() {
        let bytes = longest(plan);
        let span = fastest.serialise(bytes);
        if Time::ZERO + span > Time::HORIZON {
            let day = Span::from_us(DAY_US).ps();
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

/// Faults that are expected in a run, at most: each is a row, a decision, and a start of what it interrupts.
const MOST_FAULTS: f64 = 10_000_000.0;

/// Time slices of a run, at most.
const MOST_SLICES: u128 = 100_000_000;

/// What is known of the length of a run before it is simulated: what jobs of given durations ask for, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// When the last of them is submitted.
    submitted: u64,
    /// The longest of them.
    longest: u64,
    /// When the last of them may end, at the earliest.
    until: u64,
    /// GPUs × nanoseconds of all.
    work: u128,
}

impl Asked {
    fn of(plans: &[JobPlan], stream: Option<&JobStream>) -> Self {
        let mut asked = Self::default();
        for plan in plans {
            let Some(duration) = plan.duration else { continue };
            // On more GPUs an elastic job is shorter.
            let alone = if plan.life.elastic.is_some() { 0 } else { duration.ns_ceil() };
            asked.add(plan.submit.ns(), duration.ns_ceil(), alone, plan.ranks() as u32);
        }
        let Some(stream) = stream else { return asked };
        let stiff = matches!(&stream.lives, Lives::Same(life) if life.elastic.is_none());
        for (job, &duration) in stream.jobs.iter().zip(&stream.durations) {
            asked.add(job.submit.ns(), duration, if stiff { duration } else { 0 }, job.gpus);
        }
        asked
    }

    fn add(&mut self, submit: u64, duration: u64, alone: u64, gpus: u32) {
        self.submitted = self.submitted.max(submit);
        self.longest = self.longest.max(duration);
        self.until = self.until.max(submit.saturating_add(alone));
        self.work += u128::from(duration) * u128::from(gpus);
    }

    /// How long all of them take together on so many GPUs, at least.
    fn span(&self, gpus: u32) -> u128 {
        (self.work / u128::from(gpus.max(1))).max(self.until.into())
    }
}

/// # Errors
/// [`InputError`] for jobs during which more parts are expected to fail, or more time slices to pass, than a run gets through.
pub(super) fn events(
    scenario: &Scenario,
    plans: &[JobPlan],
    stream: Option<&JobStream>,
    upkeep: Option<&UpkeepPlan>,
    gpus: u32,
    source: &str,
) -> Result<(), InputError> {
    let asked = Asked::of(plans, stream);
    let days = |ns: u128| ns as f64 / 1e3 / DAY_US as f64;
    let span = asked.span(gpus);
    let processes = || upkeep.iter().flat_map(|upkeep| &upkeep.processes);
    let expected = |process: &Process| {
        f64::from(process.count) * (span as f64 / (process.lifetime.mean() + process.repair.mean()))
    };
    let faults: f64 = processes().map(expected).sum();
    if faults > MOST_FAULTS {
        let most = processes().max_by(|a, b| expected(a).total_cmp(&expected(b)));
        let class = most.map_or("", |process| process.class.name());
        let message = format!(
            "expected at most {MOST_FAULTS:.0} faults in the {:.1} days that the jobs take at least, found {faults:.0}, most of class \
             {class}",
            days(span)
        );
        let hint = "is `mtbf` mistyped? It is of one part; every fault is a decision, and a start of what it interrupts";
        return Err(InputError::new(format!("{source}: cluster.faults"), message).hint(hint));
    }
    let cluster = &scenario.cluster;
    if cluster.scheduler.as_str() == "gang" && cluster.slice_rows > 1 {
        // Once all are submitted, slices pass until those that are left fit beside each other, which then end.
        let turns = (asked.work / u128::from(gpus.max(1)))
            .saturating_sub(asked.submitted.into())
            .saturating_sub(asked.longest.into());
        let slices = turns / u128::from(cluster.slice.0.ns_ceil().max(1));
        if slices > MOST_SLICES {
            let message = format!(
                "expected at most {MOST_SLICES} time slices, found {slices} in the {:.1} days in which jobs take turns at least",
                days(turns)
            );
            let hint = "every slice is a decision; a longer one lasts for some iterations too";
            return Err(InputError::new(format!("{source}: cluster.slice"), message).hint(hint));
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
