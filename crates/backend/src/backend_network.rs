//! A model of another library as a [`Network`].
//!
//! As in the packet model, what stays inside a scale-up domain is a flow, and the latency of both NICs is added to a
//! message's arrival.

use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::{
    Account, Arrival, CoupledId, Delivered, Departure, FlowRecord, Network, Observations, Trouble,
};
use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, Time};
use windtunnel_topology::{LinkId, LoadBalancer, PathClass, Route, Topology};

use crate::abi::{Link, Message, Setup};
use crate::library::{Library, LoadError, text};

/// Arrivals taken by one call.
const BATCH: usize = 256;

/// Calls at one instant in which nothing arrives and after which a model is taken to stand still.
const PATIENCE: u32 = 1 << 20;

/// Room for the words of a model that refuses to open.
const WORDS: usize = 1_024;

/// What a model may ask while it lives.
#[repr(C)]
struct World {
    /// First, so that a pointer to it is one to the whole.
    setup: Setup,
    topology: Arc<Topology>,
    _links: Vec<Link>,
    _parameters: CString,
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    from: EndpointId,
    to: EndpointId,
    bytes: Bytes,
    start: Time,
    class: u8,
    nic: NicId,
    entropy: u32,
}

/// A model of a loaded library under the hosts of a topology.
pub struct BackendNetwork {
    library: Library,
    model: *mut c_void,
    world: Box<World>,
    inside: FlowNetwork,
    nic_latency: Span,
    /// Messages under way, by the host model's name.
    flights: Vec<Option<Flight>>,
    /// Between the NIC and the host.
    handed: VecDeque<(Time, u32, Flight)>,
    clock: Time,
    /// What the model said last, unless it was called since.
    next: Option<Time>,
    idle_calls: u32,
    fault: Option<String>,
    calls: u64,
    /// What comes from outside scale-up domains.
    account: Account,
}

/// What a model is told beside the topology.
#[derive(Clone, Debug)]
pub struct BackendSettings {
    /// Seed of every choice and draw.
    pub seed: u64,
    /// Largest packet, its header included.
    pub mtu: Bytes,
    /// Header of a packet.
    pub header: Bytes,
    /// Parameters as JSON, without a zero byte.
    pub parameters: String,
    /// Latency of both NICs of a path together, added to a message's arrival.
    pub nic_latency: Span,
    /// Keep a record of each message.
    pub records: bool,
}

impl BackendNetwork {
    /// Opens a model of `library` on `topology`.
    ///
    /// # Errors
    /// [`LoadError::Refused`] with the model's words; [`LoadError::Inside`] for scale-up domains that cannot work.
    pub fn new(
        library: Library,
        topology: Arc<Topology>,
        settings: &BackendSettings,
    ) -> Result<Self, LoadError> {
        let inside = FlowNetwork::new(
            topology.clone(),
            FlowSettings::inside(settings.seed, settings.mtu, settings.header, settings.records),
        )?;
        let link = |number| {
            let link = topology.link(LinkId(number));
            Link { rate_bps: link.rate.bps(), latency_ps: link.latency.ps(), loss: link.loss }
        };
        let links: Vec<Link> = (0..topology.link_count() as u32).map(link).collect();
        let parameters = CString::new(settings.parameters.as_str()).unwrap_or_default();
        let setup = Setup {
            seed: settings.seed,
            mtu_bytes: settings.mtu.get(),
            header_bytes: settings.header.get(),
            endpoints: topology.endpoints(),
            endpoints_per_host: topology.endpoints_per_host(),
            nics: topology.nics(),
            link_count: links.len() as u32,
            links: links.as_ptr(),
            parameters: parameters.as_ptr(),
            route,
        };
        let world = Box::new(World { setup, topology, _links: links, _parameters: parameters });
        let mut words = [0u8; WORDS];
        // SAFETY: the setup lives in a box that is dropped after the model is closed; the buffer has the size told.
        let model =
            unsafe { (library.table.open)(setup_of(&world), words.as_mut_ptr().cast::<c_char>(), WORDS) };
        if model.is_null() {
            let end = words.iter().position(|byte| *byte == 0).unwrap_or(WORDS);
            let reason = match String::from_utf8_lossy(&words[..end]) {
                empty if empty.is_empty() => "no reason given".to_owned(),
                reason => reason.into_owned(),
            };
            return Err(LoadError::Refused { model: library.name().to_owned(), reason });
        }
        Ok(Self {
            library,
            model,
            world,
            inside,
            nic_latency: settings.nic_latency,
            flights: Vec::new(),
            handed: VecDeque::new(),
            clock: Time::ZERO,
            next: None,
            idle_calls: 0,
            fault: None,
            calls: 0,
            account: Account::new(settings.records),
        })
    }

    /// Instants to which the model was advanced.
    pub fn advances(&self) -> u64 {
        self.calls
    }

    /// What has arrived, also inside scale-up domains. Completion times are those of messages between them, from their
    /// departure to their arrival.
    pub fn delivered(&self) -> Delivered {
        self.account.delivered().clone().with_inside(self.inside.delivered())
    }

    fn fail(&mut self, what: &str) {
        let name = self.library.name();
        self.fault.get_or_insert_with(|| format!("the network model `{name}` {what}"));
        self.next = Some(Time::NEVER);
    }

    /// After a call that said -1.
    fn fail_by_itself(&mut self, call: &str) {
        // SAFETY: the model is open; by the header the answer is null or a text.
        let words = unsafe { text((self.library.table.failure)(self.model)) };
        let words = words.filter(|words| !words.is_empty()).unwrap_or_else(|| "no reason given".to_owned());
        self.fail(&format!("failed in `{call}` at {} ps: {words}", self.clock.ps()));
    }

    /// When the model has something to do.
    fn model_next(&mut self) -> Time {
        if let Some(next) = self.next {
            return next;
        }
        // SAFETY: the model is open.
        let next = Time::from_ps(unsafe { (self.library.table.next_time)(self.model) });
        self.next = Some(next);
        if next < self.clock {
            self.fail(&format!(
                "goes back in time: `next_time` is {} ps, but {} ps have passed",
                next.ps(),
                self.clock.ps()
            ));
            return Time::NEVER;
        }
        next
    }

    /// Advances the model to `to`, which it has just named.
    fn advance_model(&mut self, to: Time) {
        let mut arrived = [0u32; BATCH];
        let mut none = true;
        self.calls += 1;
        loop {
            // SAFETY: the model is open, and the buffer has the capacity told.
            let count = unsafe {
                (self.library.table.advance)(self.model, to.ps(), arrived.as_mut_ptr(), BATCH as u32)
            };
            self.next = None;
            let Ok(count) = usize::try_from(count) else { return self.fail_by_itself("advance") };
            if count > BATCH {
                let what = format!("says that {count} messages arrive, more than the {BATCH} asked for");
                return self.fail(&what);
            }
            for &message in &arrived[..count] {
                let flight = self.flights.get_mut(message as usize).and_then(Option::take);
                let Some(flight) = flight else {
                    return self.fail(&format!(
                        "says at {} ps that message {message} arrives, which is not under way",
                        to.ps()
                    ));
                };
                self.handed.push_back((to + self.nic_latency, message, flight));
            }
            none &= count == 0;
            if count < BATCH {
                break;
            }
        }
        self.idle_calls = if none && self.clock == to { self.idle_calls + 1 } else { 0 };
        if self.idle_calls > PATIENCE {
            self.fail(&format!("stands still: {PATIENCE} calls at {} ps, and nothing arrives", to.ps()));
        }
    }

    fn report(&mut self, at: Time, message: u32, flight: &Flight, arrivals: &mut Vec<Arrival>) {
        let Flight { from, to, bytes, start, class, nic, entropy } = *flight;
        self.account.message(bytes, Some(at.since(start)));
        let (topology, seed) = (&self.world.topology, self.world.setup.seed);
        self.account.record(|| {
            let mut route = Route::new();
            topology.route(LoadBalancer::Ecmp, seed, from, to, nic, entropy, &mut route);
            FlowRecord {
                source: from,
                destination: to,
                edges: 1,
                bytes,
                start,
                finish: at,
                class,
                path: topology.path_class(from, to),
                hops: route.links.len() as u16,
            }
        });
        arrivals.push(Arrival::Message { message });
    }
}

impl Drop for BackendNetwork {
    fn drop(&mut self) {
        // SAFETY: the model is open and not used again; the setup and the library outlive this call.
        unsafe { (self.library.table.close)(self.model) }
    }
}

impl std::fmt::Debug for BackendNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackendNetwork")
            .field("model", &self.library.name())
            .field("clock", &self.clock)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl Network for BackendNetwork {
    fn depart(&mut self, at: Time, departure: Departure) {
        let Departure { message, from, to, nic, bytes, class, entropy, line } = departure;
        if self.world.topology.path_class(from, to) <= PathClass::ScaleUp {
            self.inside.depart(at, departure);
            return;
        }
        if self.fault.is_some() {
            return;
        }
        let place = message as usize;
        if self.flights.len() <= place {
            self.flights.resize(place + 1, None);
        }
        self.flights[place] = Some(Flight { from, to, bytes, start: at, class, nic, entropy });
        self.clock = self.clock.max(at);
        let told = Message {
            bytes: bytes.get(),
            message,
            from: from.0,
            to: to.0,
            nic: u32::from(nic.0),
            entropy,
            class,
            ordered: u8::from(line > 0),
        };
        // SAFETY: the model is open; the message is read during the call only.
        let answer = unsafe { (self.library.table.depart)(self.model, at.ps(), &raw const told) };
        self.next = None;
        if answer < 0 {
            self.fail_by_itself("depart");
        }
    }

    /// Groups run inside scale-up domains only.
    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        self.inside.prepare_coupled(edges, entropy)
    }

    /// The library is not told of reductions: a scenario with one is refused.
    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.inside.prepare_reduction(members, entropy)
    }

    fn start_coupled(&mut self, at: Time, run: u32, group: CoupledId, bytes: Bytes, steps: u32, class: u8) {
        self.inside.start_coupled(at, run, group, bytes, steps, class);
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        self.inside.coupled_span(group, bytes, steps)
    }

    fn next_time(&mut self) -> Time {
        let handed = self.handed.front().map_or(Time::NEVER, |arrival| arrival.0);
        let inside = self.inside.next_time();
        self.model_next().min(inside).min(handed)
    }

    fn advance(&mut self, to: Time, arrivals: &mut Vec<Arrival>) {
        if self.model_next() == to && self.fault.is_none() {
            self.advance_model(to);
        }
        self.clock = self.clock.max(to);
        if self.inside.next_time() == to {
            self.inside.advance(to, arrivals);
        }
        while let Some(&(at, message, flight)) = self.handed.front()
            && at <= to
        {
            self.handed.pop_front();
            self.report(at, message, &flight, arrivals);
        }
    }

    /// What the model did wrong; it has been asked nothing since, and nothing arrives any more.
    fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn observe(&mut self, _: Time) -> Observations {
        let (delivered, trouble) = (Some(self.delivered()), self.fault.clone().map(Trouble::Fault));
        Observations { delivered, trouble, ..Observations::default() }
    }

    /// Those outside scale-up domains come first.
    fn take_records(&mut self, records: &mut Vec<FlowRecord>) {
        self.account.take_records(records);
        self.inside.account_mut().take_records(records);
    }
}

fn setup_of(world: &World) -> *const Setup {
    // Of the whole, not of its first field: `route` reads what stands behind it.
    std::ptr::from_ref(world).cast::<Setup>()
}

/// `wt_fabric_setup.route`.
///
/// # Safety
/// `setup` is the pointer given to `open`, and `links` has room for `capacity` numbers.
unsafe extern "C" fn route(
    setup: *const Setup,
    from: u32,
    to: u32,
    nic: u32,
    entropy: u32,
    links: *mut u32,
    capacity: u32,
) -> i32 {
    if setup.is_null() || (links.is_null() && capacity > 0) {
        return -1;
    }
    // SAFETY: `open` was given a pointer to a whole world, which lives until the model is closed.
    let world = unsafe { &*setup.cast::<World>() };
    let topology = &world.topology;
    let nics = topology.nics_per_endpoint();
    if from >= topology.endpoints() || to >= topology.endpoints() || nic >= nics {
        return -1;
    }
    let walk = || {
        let mut route = Route::new();
        let (from, to) = (EndpointId(from), EndpointId(to));
        topology.route(LoadBalancer::Ecmp, world.setup.seed, from, to, NicId(nic as u8), entropy, &mut route);
        route
    };
    // No panic may leave through C.
    let Ok(route) = catch_unwind(AssertUnwindSafe(walk)) else { return -1 };
    for (place, (link, _)) in route.links.iter().take(capacity as usize).enumerate() {
        // SAFETY: fewer than `capacity`.
        unsafe { links.add(place).write(link.0) };
    }
    i32::try_from(route.links.len()).unwrap_or(-1)
}
