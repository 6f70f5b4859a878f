//! PHOLD (Fujimoto, "Performance of Time Warp under synthetic workloads", 1990): a fixed population of events hops

//! between entities with random delays. Its digest must not know the processes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::executor::{Envelope, Outbox, Process};
use windtunnel_kernel::queue::EventKey;
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time, mix64};

/// Entities of the model.
pub const ENTITIES: u32 = 42;
/// Least delay between entities.
pub const LOOKAHEAD: Span = Span::from_ps(1_000);

/// One entity: what it has seen, in order, and how many events it has caused.
#[derive(Clone, Copy, Default)]
pub struct Entity {
    digest: u64,
    handled: u64,
    caused: u64,
}

/// Entities with their events. There is room for the state of all, only that of its own is used.
#[derive(Clone)]
pub struct Phold {
    pub own: Vec<u32>,
    entities: Vec<Entity>,
    events: BinaryHeap<Reverse<(EventKey, u64)>>,
    /// Stops early after as many events.
    pub budget: u64,
    /// Least delay, of events to other entities.
    pub delay: u64,
    /// Every event, with what its entity had seen then.
    pub log: EventDigest,
    /// End of the last window handled, and the last mail of this.
    horizon: Time,
    mail: Option<EventKey>,
}

impl Phold {
    pub fn new(own: Vec<u32>) -> Self {
        let start = |&entity: &u32| {
            let key = EventKey {
                time: Time::from_ps(u64::from(entity) * 10),
                receiver: entity,
                sender: entity,
                ..EventKey::default()
            };
            Reverse((key, mix64(u64::from(entity))))
        };
        let mut events: BinaryHeap<_> = own.iter().map(start).collect();
        // A second generation at one instant, told apart by class alone.
        events.extend(own.iter().map(|&entity| {
            let key =
                EventKey { time: Time::from_ps(500), class: 1, receiver: entity, sender: entity, count: 1 };
            Reverse((key, mix64(1000 + u64::from(entity))))
        }));
        let entities = vec![Entity { caused: 2, ..Entity::default() }; ENTITIES as usize];
        Self {
            own,
            entities,
            events,
            budget: u64::MAX,
            delay: LOOKAHEAD.ps(),
            log: EventDigest::new(),
            horizon: Time::ZERO,
            mail: None,
        }
    }
}

impl Phold {
    /// Another token for the first event of `entity`, if it lives here.
    #[allow(dead_code, reason = "not every test that has this model tampers with it")]
    pub fn tamper(&mut self, entity: u32) {
        let tampered = |Reverse((key, token)): Reverse<(EventKey, u64)>| {
            let own = key.receiver == entity && key.class == 0;
            Reverse((key, if own { token ^ 1 } else { token }))
        };
        self.events = std::mem::take(&mut self.events).into_iter().map(tampered).collect();
    }
}

impl Process for Phold {
    type Message = u64;

    fn entities(&self) -> Vec<u32> {
        self.own.clone()
    }

    fn next_time(&mut self) -> Time {
        // Asked between windows: what comes next is mail of the next.
        self.mail = None;
        self.events.peek().map_or(Time::NEVER, |Reverse((key, _))| key.time)
    }

    fn advance(&mut self, horizon: Time, outbox: &mut Outbox<u64>) -> u64 {
        assert!(horizon >= self.horizon, "time goes forward");
        self.horizon = horizon;
        let mut handled = 0;
        while self.next_time() < horizon && handled < self.budget {
            let Reverse((key, token)) = self.events.pop().unwrap();
            handled += 1;
            let entity = &mut self.entities[key.receiver as usize];
            entity.digest =
                combine(combine(combine(entity.digest, key.time.ps()), u64::from(key.sender)), token);
            entity.handled += 1;
            self.log.record(key, entity.digest);
            // What it has seen decides what it does: one event out of order changes everything after it.
            let draw = entity.digest;
            let receiver = if draw.is_multiple_of(4) { key.receiver } else { (draw >> 32) as u32 % ENTITIES };
            let least = if receiver == key.receiver { 0 } else { self.delay };
            // Coarse delays, so that many events fall on one instant.
            let time = key.time + Span::from_ps(least + 100 * (draw >> 8 & 15));
            let next = EventKey {
                time,
                class: (draw & 1) as u8,
                receiver,
                sender: key.receiver,
                count: entity.caused,
            };
            entity.caused += 1;
            if let Some(own) = outbox.post(key.time, Envelope { key: next, message: mix64(token) }) {
                self.events.push(Reverse((own.key, own.message)));
            }
        }
        handled
    }

    fn receive(&mut self, envelope: Envelope<u64>) {
        assert!(
            self.mail < Some(envelope.key),
            "mail comes in order: {:?}, then {:?}",
            self.mail,
            envelope.key
        );
        assert!(envelope.key.time >= self.horizon, "mail for a past window: {:?}", envelope.key);
        assert!(self.own.contains(&envelope.key.receiver));
        self.mail = Some(envelope.key);
        self.events.push(Reverse((envelope.key, envelope.message)));
    }
}

/// What all entities have seen.
pub fn digest(processes: &[Phold]) -> u64 {
    let mut entities = vec![Entity::default(); ENTITIES as usize];
    for process in processes {
        for &own in &process.own {
            entities[own as usize] = process.entities[own as usize];
        }
    }
    entities.iter().fold(0, |digest, entity| combine(combine(digest, entity.digest), entity.handled))
}

/// Entities dealt to `count` processes, these in the order of `rank`.
pub fn deal(count: u32, rank: impl Fn(u32) -> u64) -> Vec<Phold> {
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_by_key(|&process| rank(process));
    order
        .into_iter()
        .map(|process| Phold::new((0..ENTITIES).filter(|id| id * 5 % count == process).collect()))
        .collect()
}

/// The digest of all events of a run.
#[allow(dead_code, reason = "not every test that has this model asks")]
pub fn log(processes: &[Phold]) -> EventDigest {
    processes
        .iter()
        .map(|process| &process.log)
        .cloned()
        .reduce(|mut sum, log| {
            sum.merge(&log);
            sum
        })
        .unwrap_or_default()
}
