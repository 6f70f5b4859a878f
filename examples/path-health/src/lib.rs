//! An endpoint whose queue pair spreads over all planes of its NIC and over many paths of each, and keeps the health of every path.
//!
//! Every packet takes the next path number in turn, on whichever plane has a port free. A path on which packets are lost is left out
//! for a while, twice as long each time; then it gets one packet, and if that arrives it is as good as any. A plane most of whose paths
//! are out is refused, as long as another is not. What is known of paths belongs to the pair of NICs: the next queue pair between
//! them begins with it.
//!
//! Which path lost a packet shows by time. The receiver acknowledges every packet, and an acknowledgement says by which path its packet
//! came, and when that was sent; so what was sent on a path and is not acknowledged is known by path. When the engine tells of a
//! loss, packets that are overdue were lost where they went.
//!
//! `docs/extend/transport.md` goes through this file; `tests/` holds it to what it promises.

use std::collections::VecDeque;

use windtunnel_fabric::packet::transport::{
    Absent, Ack, Answer, Arrived, Endpoint, News, PathChoice, PathFacts, Present, Recovery, Uses,
};
use windtunnel_kernel::{Span, Time};
use windtunnel_scenario::modules::{Modules, Parameters};

/// Parameters, the same for all queue pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathHealth {
    /// How long a path is left out for its first loss; [`Span::ZERO`]: losses are not heeded.
    pub out: Span,
}

impl Default for PathHealth {
    /// 100 µs.
    fn default() -> Self {
        Self { out: Span::from_us(100) }
    }
}

/// What it asks of the engine: all planes of a NIC, and a memory of each pair of NICs.
#[derive(Clone, Copy, Debug)]
pub struct Asks;

impl Uses for Asks {
    type Credit = Absent;
    type Telemetry = Absent;
    type Probes = Absent;
    type Planes = Present;
    type Memory = Paths;
}

/// Doublings of the time that a path is left out.
const MOST: u8 = 8;

/// A path of a plane.
#[derive(Clone, Debug, Default)]
struct Path {
    /// When the packets on it were sent, in order.
    under_way: VecDeque<Time>,
    /// It is left out until then.
    out: Time,
    /// Times in a row that it was.
    losses: u8,
}

impl Path {
    /// Whether it is left out: its time is not over, or a packet is on trial on it.
    fn is_out(&self, now: Time) -> bool {
        self.out > now || (self.losses > 0 && !self.under_way.is_empty())
    }
}

/// What is known of the paths between two NICs.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    planes: u32,
    /// By plane, then path number, as far as any were taken.
    each: Vec<Vec<Path>>,
    /// The last round trip.
    rtt: Span,
}

impl Paths {
    fn of(&mut self, plane: u32, number: u16) -> &mut Path {
        let plane = &mut self.each[plane as usize];
        let places = plane.len().max(usize::from(number) + 1);
        plane.resize(places, Path::default());
        &mut plane[usize::from(number)]
    }

    fn is_out(&self, plane: u32, number: u16, now: Time) -> bool {
        self.each[plane as usize].get(usize::from(number)).is_some_and(|path| path.is_out(now))
    }

    /// Whether more than half of the paths of a plane are out.
    fn is_plane_out(&self, plane: u32, now: Time) -> bool {
        let paths = &self.each[plane as usize];
        2 * paths.iter().filter(|path| path.is_out(now)).count() > paths.len()
    }

    /// A packet that was sent at `sent` has arrived by a path.
    fn arrived(&mut self, plane: u32, number: u16, sent: Time) {
        let path = self.of(plane, number);
        if let Ok(place) = path.under_way.binary_search(&sent) {
            path.under_way.remove(place);
        }
        if sent >= path.out {
            // It was sent after the path had been let in again.
            path.losses = 0;
        }
    }

    /// Something was lost: what has been under way for more than one and a half round trips.
    fn lost(&mut self, now: Time, out: Span) {
        let patience = Span::from_ps(self.rtt.ps() * 3 / 2);
        for path in self.each.iter_mut().flatten() {
            let before = path.under_way.len();
            while path.under_way.pop_front_if(|sent| *sent + patience <= now).is_some() {}
            if path.under_way.len() < before && path.out <= now {
                path.out = now + out * (1 << path.losses);
                path.losses = (path.losses + 1).min(MOST);
            }
        }
    }
}

/// State of a sending half.
#[derive(Clone, Copy, Debug)]
pub struct HealthFlow {
    window: u64,
    base_rtt: Span,
    turn: u32,
}

impl Endpoint for PathHealth {
    type Flow = HealthFlow;
    type Peer = ();
    type Uses = Asks;

    const NAME: &'static str = "path_health";

    fn recovery(&self) -> Recovery {
        Recovery::Rack
    }

    fn open(&self, path: &PathFacts) -> HealthFlow {
        let window = (path.bdp + path.bdp / 4 + u64::from(path.mtu)) * u64::from(path.planes);
        HealthFlow { window, base_rtt: path.base_rtt, turn: 0 }
    }

    fn window(&self, flow: &HealthFlow) -> u64 {
        flow.window
    }

    fn timeout(&self, flow: &HealthFlow) -> Span {
        Span::from_us(50).max(flow.base_rtt * 8)
    }

    fn on_ack(&self, _: &mut HealthFlow, _: &Ack) {}

    /// Every packet is acknowledged, so that every path is heard of.
    fn on_data(&self, (): &mut (), _: &Arrived) -> Answer {
        Answer { acknowledge: true, notify: false }
    }

    fn remember(&self, paths: &mut Paths, _: &mut HealthFlow, news: &News<'_>) {
        match *news {
            News::Opened(facts) => {
                paths.planes = facts.planes;
                paths.each.resize(paths.each.len().max(facts.planes as usize), Vec::new());
                paths.rtt = paths.rtt.max(facts.base_rtt);
            }
            News::Acked(ack) => {
                paths.rtt = ack.rtt;
                paths.arrived(ack.plane, ack.path, Time::from_ps(ack.now.ps() - ack.rtt.ps()));
            }
            News::Lost(loss) if self.out > Span::ZERO => paths.lost(loss.now, self.out),
            News::Lost(_) | News::Trimmed(_) | News::Replied(_) => {}
        }
    }

    /// The next path number in turn that is not out; where all are, the next in turn.
    fn path_by(&self, paths: &mut Paths, flow: &mut HealthFlow, choice: &PathChoice) -> Option<u16> {
        let mut number = choice.in_turn(flow.turn);
        flow.turn = flow.turn.wrapping_add(1);
        for _ in 1..choice.paths {
            if !paths.is_out(choice.plane, number, choice.now) {
                break;
            }
            number = choice.in_turn(flow.turn);
            flow.turn = flow.turn.wrapping_add(1);
        }
        let path = paths.of(choice.plane, number);
        // In order: all queue pairs of the NICs take turns at the plane's port.
        path.under_way.push_back(choice.now);
        Some(number)
    }

    fn takes_plane(&self, paths: &mut Paths, _: &mut HealthFlow, plane: u32, now: Time) -> bool {
        !paths.is_plane_out(plane, now) || (0..paths.planes).all(|other| paths.is_plane_out(other, now))
    }
}

/// What this crate brings along: scenarios say `network: {transport: path_health, load_balancer: spray}`.
pub fn modules() -> Modules {
    Modules::default().transport("takes all planes, and leaves out paths that lose packets", path_health)
}

/// The endpoint with a scenario's `network.parameters`.
fn path_health(parameters: &Parameters) -> Result<PathHealth, String> {
    let mut health = PathHealth::default();
    for (key, value) in parameters {
        match (key.as_str(), value.as_u64()) {
            ("out_us", Some(out)) if out < 1 << 40 => health.out = Span::from_us(out),
            ("out_us", _) => return Err(format!("`out_us` is {value}, expected microseconds")),
            _ => return Err(format!("unknown parameter `{key}`, expected `out_us`")),
        }
    }
    Ok(health)
}
