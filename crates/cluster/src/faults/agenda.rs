//! Faults, repairs and maintenance in order of time.
//!
//! A heap with the next fault or repair of every component, and the known ones. Within an instant what ends goes before
//! what begins. Memory: some 40 bytes a component that can fail.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windtunnel_kernel::RandomStream;
use windtunnel_kernel::random::combine;

use super::{Class, Component, Upkeep};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A component fails until `until`.
    Fails {
        /// What.
        component: Component,
        /// End of its repair.
        until: u64,
    },
    /// It has been repaired.
    Repaired {
        /// What.
        component: Component,
    },
    /// Notice is given of maintenance number `window`.
    Noticed {
        /// Its place in the list.
        window: u32,
    },
    /// It begins.
    Begins {
        /// Its place in the list.
        window: u32,
    },
    /// It ends.
    Ends {
        /// Its place in the list.
        window: u32,
    },
    /// A cold spare is up.
    Ready {
        /// The host.
        host: u32,
    },
}

/// In the order of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Repaired,
    KnownRepaired,
    Ends,
    Ready,
    Noticed,
    Begins,
    KnownFails,
    Fails,
}

/// When, what, of which process or list, which component or entry, how many faults it had.
type Entry = (u64, Kind, u32, u32, u32);

/// See the module page.
pub struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    seed: u64,
}

impl Agenda {
    /// All that `upkeep` has in store from 0 on.
    pub fn new(upkeep: &Upkeep<'_>, seed: u64) -> Self {
        let mut agenda = Self { heap: BinaryHeap::new(), seed };
        let mut entries: Vec<Reverse<Entry>> = Vec::new();
        for (number, process) in upkeep.processes.iter().enumerate() {
            for index in 0..process.count {
                let at = agenda.draw(upkeep, number, index, 0).0;
                entries.push(Reverse((at, Kind::Fails, number as u32, index, 0)));
            }
        }
        for (number, fault) in upkeep.known.iter().enumerate() {
            entries.push(Reverse((fault.at, Kind::KnownFails, 0, number as u32, 0)));
        }
        for (number, window) in upkeep.maintenance.iter().enumerate() {
            let notice = window.at.saturating_sub(window.notice);
            entries.push(Reverse((notice, Kind::Noticed, 0, number as u32, 0)));
            entries.push(Reverse((window.at, Kind::Begins, 0, number as u32, 0)));
            entries.push(Reverse((window.end(), Kind::Ends, 0, number as u32, 0)));
        }
        agenda.heap = BinaryHeap::from(entries);
        agenda
    }

    /// Life and repair time of component `index` of a process after `count` faults.
    fn draw(&self, upkeep: &Upkeep<'_>, process: usize, index: u32, count: u32) -> (u64, u64) {
        let process = &upkeep.processes[process];
        let entity = combine(u64::from(process.number) << 32 | u64::from(index), u64::from(count));
        let mut stream = RandomStream::new(self.seed, process.class.domain(), entity);
        (process.lifetime.draw(&mut stream), process.repair.draw(&mut stream))
    }

    /// When something happens next.
    pub fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.0)
    }

    /// A cold spare will be up at `at`.
    pub fn call(&mut self, host: u32, at: u64) {
        self.heap.push(Reverse((at, Kind::Ready, 0, host, 0)));
    }

    /// What happens next, if by `now`.
    pub fn pop(&mut self, upkeep: &Upkeep<'_>, now: u64) -> Option<Event> {
        let &Reverse((at, kind, process, index, count)) =
            self.heap.peek().filter(|Reverse(entry)| entry.0 <= now)?;
        self.heap.pop();
        let class = |process: u32| upkeep.processes[process as usize].class;
        let again = |agenda: &mut Self, from: u64| {
            let count = count + 1;
            let life = agenda.draw(upkeep, process as usize, index, count).0;
            let next = from.saturating_add(life);
            agenda.heap.push(Reverse((next, Kind::Fails, process, index, count)));
        };
        Some(match kind {
            Kind::Fails => {
                let component = Component { class: class(process), index };
                let until = at.saturating_add(self.draw(upkeep, process as usize, index, count).1);
                if until == at || component.class == Class::Software {
                    again(self, until);
                } else {
                    self.heap.push(Reverse((until, Kind::Repaired, process, index, count)));
                }
                Event::Fails { component, until }
            }
            Kind::Repaired => {
                again(self, at);
                Event::Repaired { component: Component { class: class(process), index } }
            }
            Kind::KnownFails => {
                let fault = &upkeep.known[index as usize];
                let until = at.saturating_add(fault.repair);
                if until > at && fault.component.class != Class::Software {
                    self.heap.push(Reverse((until, Kind::KnownRepaired, 0, index, 0)));
                }
                Event::Fails { component: fault.component, until }
            }
            Kind::KnownRepaired => Event::Repaired { component: upkeep.known[index as usize].component },
            Kind::Noticed => Event::Noticed { window: index },
            Kind::Begins => Event::Begins { window: index },
            Kind::Ends => Event::Ends { window: index },
            Kind::Ready => Event::Ready { host: index },
        })
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::EndpointId;

    use super::*;
    use crate::faults::{Lifetime, Plant, Process, Repair, Spares};

    struct Bare;

    impl Plant for Bare {
        fn count(&self, _: Class) -> u32 {
            64
        }

        fn gpus(&self, component: Component, to: &mut Vec<EndpointId>) {
            to.push(EndpointId(component.index));
        }

        fn cut_off(&self, _: &[Component]) -> Vec<EndpointId> {
            Vec::new()
        }
    }

    fn of(processes: Vec<Process>) -> Upkeep<'static> {
        Upkeep {
            plant: &Bare,
            processes,
            known: Vec::new(),
            maintenance: Vec::new(),
            spares: Spares::default(),
        }
    }

    fn gpus(mean: f64, number: u32) -> Process {
        let lifetime = Lifetime::Exponential { mean };
        Process { class: Class::Gpu, count: 64, number, lifetime, repair: Repair::Fixed(10) }
    }

    /// Times of faults by component, up to `until`.
    fn faults(upkeep: &Upkeep<'_>, until: u64) -> Vec<(u32, u64)> {
        let mut agenda = Agenda::new(upkeep, 5);
        let mut found = Vec::new();
        while let Some(at) = agenda.next().filter(|&at| at <= until) {
            if let Some(Event::Fails { component, until }) = agenda.pop(upkeep, at) {
                assert_eq!(until, at + 10);
                found.push((component.index, at));
            }
        }
        found
    }

    #[test]
    fn a_component_fails_when_it_does_whoever_else_does() {
        let all = faults(&of(vec![gpus(1e5, 0)]), 1_000_000);
        let few = faults(&of(vec![Process { count: 3, ..gpus(1e5, 0) }, gpus(2e5, 1)]), 1_000_000);
        let first: Vec<_> = all.iter().filter(|fault| fault.0 < 3).collect();
        assert!(first.len() > 10 && first.iter().all(|fault| few.contains(fault)));
        assert!(all.is_sorted_by_key(|fault| fault.1));
    }

    #[test]
    fn counts_are_those_of_a_poisson_process() {
        let count = faults(&of(vec![gpus(1e6, 0)]), 100_000_000).len() as f64;
        // 64 components × 10^8 ns / (10^6 + 10) ns each.
        let expected = 64.0 * 1e8 / (1e6 + 10.0);
        let bound = 4.0 * windtunnel_kernel::math::sqrt(expected);
        assert!((count - expected).abs() < bound, "{count} of {expected}");
    }
}
