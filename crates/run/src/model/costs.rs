//! What the message model is told: parameters for each class of path, from the topology and the data sheets.

use std::sync::Arc;

use windtunnel_fabric::coding::Coding;
use windtunnel_fabric::host::{Costs, HostSpec, LogGops, Receiver, SharedNics};
use windtunnel_fabric::reroute::{SharedRerouter, lock};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, NicId, Span};
use windtunnel_plan::Plan;
use windtunnel_topology::{LinkId, LoadBalancer, PathClass, Route, Topology};

use super::nics_of_a_message;

/// Messages of every size are sent without waiting for their receiver, as NCCL's and RDMA writes are.
const EAGER: Bytes = Bytes::MAX;

/// Hosts that cost a message nothing.
pub(super) fn free() -> Costs {
    Costs::uniform(LogGops { eager_limit: EAGER, ..LogGops::default() })
}

/// `network.loggops` for all pairs, or parameters per class of path, around what has failed.
pub(super) fn of(plan: &Plan, spec: HostSpec, rerouter: Option<&SharedRerouter>) -> Costs {
    let told = &plan.network;
    let costs = match told.message.loggops {
        Some(given) => Costs::uniform(given),
        None => {
            let slow = SlowNics::of(plan, &told.packet.settings.slow_links);
            with_nics(
                by_class(plan, spec, rerouter, told.balancer, plan.network.coding, &slow),
                &plan.fabric.topology,
                spec,
            )
        }
    };
    costs.with_receiver(told.message.receiver)
}

/// Where no link inside the fabric is slower than NICs and all NICs are as fast as their sheet says, hosts cost a message nothing, and
/// go on while bytes come in.
pub(super) fn in_turn(plan: &Plan, spec: HostSpec) -> Costs {
    let free = |class: &LogGops| LogGops { overhead: Span::ZERO, gap: Span::ZERO, ..*class };
    // Parity behind the last packet of data holds nobody up.
    let costs = by_class(plan, spec, None, LoadBalancer::Ideal, None, &SlowNics::of(plan, &[])).map(free);
    with_nics(costs, &plan.fabric.topology, spec).with_receiver(Receiver::Aside)
}

/// `costs` of hosts whose GPUs may share NICs.
fn with_nics(costs: Costs, topology: &Topology, spec: HostSpec) -> Costs {
    match shared_nics(topology, spec.nics) {
        Some(shared) => costs.with_shared_nics(shared),
        None => costs,
    }
}

/// Whether GPUs of a host share NICs.
pub(crate) fn shares_nics(topology: &Topology) -> bool {
    topology.nics_per_host() < topology.endpoints_per_host()
}

/// Which NIC each GPU has, of `nics` that its programs name, where GPUs share them; the paths beyond the scale-up domain use it.
fn shared_nics(topology: &Topology, nics: u16) -> Option<SharedNics> {
    let of = |gpu: u32| (0..nics).map(move |nic| topology.nic(EndpointId(gpu), NicId(nic as u8)));
    shares_nics(topology).then(|| SharedNics {
        from_class: 1 + topology.scale_ups().len() as u8,
        count: topology.hosts() * topology.nics_per_host(),
        of: (0..topology.endpoints()).flat_map(of).collect(),
    })
}

/// Classes of path that [`Costs`] tells apart at most.
const CLASSES: usize = 256;

/// Latencies that are told apart beyond the scale-up domain at most, where NICs have so many rates; the rest are taken as the next
/// longer one.
const fn latencies(rates: usize) -> usize {
    (CLASSES - 16) / rates
}

/// Pairs of hosts that are looked at to learn which latencies there are.
const SAMPLED: u32 = 1 << 14;

/// One parameter set per kind of path: L is the path's latency, G the time per byte, with its header, of the slowest link on it.
///
/// With `slow` NICs every kind of path beyond the scale-up domain is one for each rate of theirs.
///
/// In a Clos a [`PathClass`] is a kind. Elsewhere paths of one class differ in length (the hops of a torus, the distances
/// of buildings), and with faults in every shape: there every latency is a kind of its own.
fn by_class(
    plan: &Plan,
    spec: HostSpec,
    rerouter: Option<&SharedRerouter>,
    balancer: LoadBalancer,
    coding: Option<Coding>,
    slow: &SlowNics,
) -> Costs {
    let (parts, seed) = (&plan.fabric, plan.seed);
    let topology = &parts.topology;
    let (mtu, header) = (plan.network.mtu.get(), plan.network.header.get());
    let inside = |sample: Option<Sample>| LogGops {
        latency: sample.map_or(Span::ZERO, |sample| sample.latency),
        gap_per_byte: sample.map_or(0, |sample| femtoseconds_per_byte(sample.rate, 1, 1)),
        eager_limit: EAGER,
        ..LogGops::default()
    };
    // Its parts leave by several NICs at once.
    let nics = u64::from(nics_of_a_message(topology, spec));
    // Of a long message: a block's bytes on the wire, and its payload.
    let [data, parity] = coding.map_or([1, 0], |coding| coding.sizes().map(u64::from));
    let (wire, payload) = (mtu * (data + parity), (mtu - header) * data);
    let per_byte = |rate| femtoseconds_per_byte(rate, wire, payload).div_ceil(nics);
    let outside = |sample: Option<Sample>| LogGops {
        latency: sample.map_or(Span::ZERO, |sample| sample.latency) + parts.nic_latency,
        overhead: parts.overhead,
        gap: parts.gap,
        gap_per_byte: sample.map_or(0, |sample| per_byte(parts.handed_over(sample.rate))),
        overhead_per_byte: 0,
        eager_limit: EAGER,
    };
    let samples = samples(topology, balancer);
    // A class that no path from endpoint 0 is of costs as much as the furthest that one is.
    let furthest =
        samples.iter().skip(PathClass::SameLeaf as usize).flatten().max_by_key(|sample| sample.latency);
    let beyond = |class: PathClass| outside(samples[class as usize].or(furthest.copied()));
    if rerouter.is_none() && topology.shape_name() == "clos" {
        let classes = vec![
            inside(None),
            inside(samples[PathClass::ScaleUp as usize]),
            beyond(PathClass::SameLeaf),
            beyond(PathClass::SamePod),
            beyond(PathClass::Beyond),
            beyond(PathClass::OtherBuilding),
        ];
        let shape = topology.clone();
        return slow.costs(classes, 2, per_byte, move |from, to| shape.path_class(from, to) as usize);
    }
    let router = Router { topology: topology.clone(), seed, rerouter: rerouter.cloned() };
    let latencies = router.latencies(latencies(slow.rates.len() + 1));
    let rate = samples.iter().skip(PathClass::SameLeaf as usize).flatten().map(|sample| sample.rate).min();
    // Without a NIC: a GPU with itself, and scale-up domains of each kind.
    let mut classes = vec![inside(None)];
    let scale_ups = topology.scale_ups();
    match scale_ups.as_slice() {
        [_] => classes.push(inside(samples[PathClass::ScaleUp as usize])),
        _ => classes.extend(scale_ups.iter().map(|&(rate, latency)| inside(Some(Sample { latency, rate })))),
    }
    let within = classes.len();
    let beyond = |&latency: &Span| outside(rate.map(|rate| Sample { latency, rate }));
    classes.extend(latencies.iter().map(beyond));
    let class_of = move |from, to| match router.path(from, to) {
        None | Some((PathClass::Local, _)) => 0,
        Some((PathClass::ScaleUp, _)) if scale_ups.len() > 1 => {
            let own = router.topology.scale_up_of(from);
            1 + scale_ups.iter().position(|known| *known == own).unwrap_or(0)
        }
        Some((PathClass::ScaleUp, _)) => 1,
        Some((_, latency)) => {
            within + latencies.partition_point(|known| *known < latency).min(latencies.len() - 1)
        }
    };
    slow.costs(classes, within, per_byte, class_of)
}

/// Rates of slow NICs that are told apart at most; the rest are taken as the next slower one.
const SLOW_RATES: usize = 7;

/// NICs that run at a part of their rate. A message does not say at which NIC of its GPU it waits: of a GPU with several the slowest
/// counts.
struct SlowNics {
    /// Their rates, from slow to fast.
    rates: Vec<BitRate>,
    /// Of each GPU the place of its NIC's rate in these, counted from 1; 0: it is not slow. Empty if none is.
    of: Vec<u8>,
}

impl SlowNics {
    /// Those whose links upwards are among `slow`, with the part of their rate that is left. What joins every NIC to its host is no
    /// reason to be one of them.
    fn of(plan: &Plan, slow: &[(LinkId, f64)]) -> Self {
        let topology = &plan.fabric.topology;
        let part = |link: LinkId| slow.binary_search_by_key(&link, |&(link, _)| link).map(|at| slow[at].1);
        let rate = |gpu: u32, nic: u32| {
            let nic = topology.nic(EndpointId(gpu), NicId(nic as u8));
            let of = |plane: u32| {
                let link = topology.nic_link(nic, plane);
                let rate = topology.link(link).rate;
                let slow = part(link).ok()? * rate.bps() as f64;
                // A part of a rate is rounded.
                let whole = plan.fabric.handed_over(rate).bps() as f64 * 0.999_999;
                (slow < whole).then(|| BitRate::from_bps((slow as u64).max(1)))
            };
            (0..topology.planes()).filter_map(of).min()
        };
        if slow.is_empty() {
            return Self { rates: Vec::new(), of: Vec::new() };
        }
        let of_gpu = |gpu: u32| (0..topology.nics_per_endpoint()).filter_map(|nic| rate(gpu, nic)).min();
        let found: Vec<Option<BitRate>> = (0..topology.endpoints()).map(of_gpu).collect();
        let mut rates: Vec<BitRate> = found.iter().flatten().copied().collect();
        rates.sort_unstable();
        rates.dedup();
        let step = rates.len().div_ceil(SLOW_RATES).max(1);
        let rates: Vec<BitRate> = rates.into_iter().step_by(step).collect();
        let place = |rate: &Option<BitRate>| match rate {
            Some(rate) => rates.partition_point(|known| known <= rate) as u8,
            None => 0,
        };
        Self { of: found.iter().map(place).collect(), rates }
    }

    /// `classes` of paths, the first `inside` without NICs, each of the others once more for each rate of these NICs, at which a byte
    /// takes `per_byte`.
    fn costs(
        &self,
        mut classes: Vec<LogGops>,
        inside: usize,
        per_byte: impl Fn(BitRate) -> u64,
        class_of: impl Fn(EndpointId, EndpointId) -> usize + Send + Sync + 'static,
    ) -> Costs {
        if self.rates.is_empty() {
            return Costs::by_class(classes, Arc::new(class_of));
        }
        let beyond = classes[inside..].to_vec();
        for &rate in &self.rates {
            let slower =
                |class: &LogGops| LogGops { gap_per_byte: class.gap_per_byte.max(per_byte(rate)), ..*class };
            classes.extend(beyond.iter().map(slower));
        }
        let (of, many) = (self.of.clone(), beyond.len());
        // The slower of both ends: a place that is lower, unless it is 0.
        let level = move |from: EndpointId, to: EndpointId| match (of[from.0 as usize], of[to.0 as usize]) {
            (0, other) | (other, 0) => other,
            (from, to) => from.min(to),
        };
        Costs::by_class(
            classes,
            Arc::new(move |from, to| match class_of(from, to) {
                class if class < inside => class,
                class => class + usize::from(level(from, to)) * many,
            }),
        )
    }
}

/// Asks for the paths of pairs, around what has failed.
struct Router {
    topology: Arc<Topology>,
    seed: u64,
    rerouter: Option<SharedRerouter>,
}

impl Router {
    /// Class and latency of a pair's path; `None` if there is none.
    fn path(&self, from: EndpointId, to: EndpointId) -> Option<(PathClass, Span)> {
        let mut route = Route::new();
        match &self.rerouter {
            None => self.topology.route(LoadBalancer::Ecmp, self.seed, from, to, NicId(0), 0, &mut route),
            Some(rerouter) => {
                let mut rerouter = lock(rerouter);
                rerouter.route(LoadBalancer::Ecmp, self.seed, from, to, NicId(0), 0, &mut route)?;
            }
        }
        Some((route.class, route.latency))
    }

    /// The latencies of paths beyond the scale-up domain in ascending order: of all pairs of hosts if there are few, else
    /// of pairs at every distance in host numbers. `most` of them, and never none.
    fn latencies(&self, most: usize) -> Vec<Span> {
        let (hosts, per_host) = (self.topology.hosts(), self.topology.endpoints_per_host());
        // Asking here is no use of a pair: the account starts when the run does.
        let asked = self.rerouter.as_ref().map(|rerouter| lock(rerouter).clone());
        let froms = (SAMPLED / hosts.max(1)).clamp(1, hosts);
        let mut found: Vec<Span> = Vec::new();
        for from in (0..froms).map(|index| (u64::from(index) * u64::from(hosts) / u64::from(froms)) as u32) {
            let step = (hosts / SAMPLED).max(1);
            for to in (0..hosts).step_by(step as usize) {
                // Every GPU of a host in turn, so that paths from rail to rail are among them.
                let gpu = (from + to) % per_host;
                let (from, to) = (EndpointId(from * per_host), EndpointId(to * per_host + gpu));
                let path = self.path(from, to).filter(|(class, _)| *class > PathClass::ScaleUp);
                found.extend(path.map(|(_, latency)| latency));
            }
            found.sort_unstable();
            found.dedup();
        }
        if let (Some(rerouter), Some(asked)) = (&self.rerouter, asked) {
            *lock(rerouter) = asked;
        }
        if found.is_empty() {
            found.push(Span::ZERO);
        }
        // Of too many every so many-th, the longest always among them.
        let step = found.len().div_ceil(most);
        let kept = found.iter().rev().step_by(step).rev().copied();
        kept.collect()
    }
}

/// A path of a class.
#[derive(Clone, Copy, Debug)]
struct Sample {
    latency: Span,
    rate: BitRate,
}

/// The longest latency and the rate of the slowest link, under `balancer`, seen of each class, from endpoint 0 to its own host, and to every GPU of each power of
/// two of hosts and of the last one: with rails a GPU's class of path is that of its number too.
fn samples(topology: &Topology, balancer: LoadBalancer) -> [Option<Sample>; 6] {
    let mut found: [Option<Sample>; 6] = [None; 6];
    let per_host = topology.endpoints_per_host();
    let near = 1..per_host;
    let far = (0..32).map(|power| 1u32 << power).take_while(|host| *host < topology.hosts());
    let last = topology.hosts().saturating_sub(1);
    let gpus = |host: u32| (0..per_host).map(move |gpu| host * per_host + gpu);
    let hosts = far.chain([last]).flat_map(gpus);
    let mut route = Route::new();
    for to in near.chain(hosts).filter(|&to| to > 0) {
        let (from, to) = (EndpointId(0), EndpointId(to));
        // A link behind the NIC, where messages take one path or parts of all, may be slower than it.
        topology.route(balancer, 0, from, to, NicId(0), 0, &mut route);
        let part = |&(link, share): &(LinkId, f64)| {
            topology.link(link).rate.bps() as f64 / share.max(f64::MIN_POSITIVE)
        };
        let behind = route.links.iter().map(part).fold(f64::INFINITY, f64::min);
        topology.route(LoadBalancer::Ideal, 0, from, to, NicId(0), 0, &mut route);
        let Some(rate) = route.links.iter().map(|&(link, _)| topology.link(link).rate).min() else {
            continue;
        };
        let rate = if behind < rate.bps() as f64 { BitRate::from_bps(behind as u64) } else { rate };
        let class = &mut found[route.class as usize];
        let longer = class.is_none_or(|known| route.latency > known.latency);
        if longer {
            *class = Some(Sample { latency: route.latency, rate });
        }
    }
    found
}

/// Time per payload byte at `rate` when `wire` bytes carry `payload`.
fn femtoseconds_per_byte(rate: BitRate, wire: u64, payload: u64) -> u64 {
    let numerator = 8 * 1_000_000_000_000_000u128 * u128::from(wire);
    numerator.div_ceil(u128::from(rate.bps()) * u128::from(payload)) as u64
}
