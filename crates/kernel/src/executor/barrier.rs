//! Where threads meet between windows: workers arrive, the leader looks and decides, and lets them go on.
//!
//! **Life cycle** of a round: every worker calls [`Barrier::arrive`]; the leader returns from [`Barrier::gather`] when
//! all have, reads what they left, writes what they need, and calls [`Barrier::release`]; every worker returns from
//! [`Barrier::wait`]. What a thread wrote before it arrived is seen by the leader after `gather`; what the leader wrote,
//! and so what any thread wrote, is seen by all after `wait`.
//!
//! A waiting thread spins for a while and then sleeps, so that more threads than cores, or a core lent to somebody else,
//! cost time and never the run. Sleep is guarded by a mutex that every waker takes: a sleeper looks a last time under the
//! mutex, so no wake is lost. (A waker that only took it when it saw a sleeper would need sequentially consistent
//! fences; an uncontended mutex costs as much as one of these.)
//!
//! Model-checked: `tests/loom_barrier.rs`.

#[cfg(loom)]
use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};
#[cfg(not(loom))]
use std::{
    hint::spin_loop,
    sync::atomic::{AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
};

/// Who sleeps.
#[derive(Debug, Default)]
struct Sleepers {
    leader: bool,
    workers: usize,
}

/// A barrier for one leader and a number of workers. See the module page.
#[derive(Debug)]
pub struct Barrier {
    workers: usize,
    /// Looks at the flag before a waiting thread sleeps.
    spins: u32,
    arrived: AtomicUsize,
    /// Rounds released.
    round: AtomicUsize,
    sleepers: Mutex<Sleepers>,
    all_arrived: Condvar,
    released: Condvar,
}

impl Barrier {
    /// A barrier for a leader and `workers` others. `spins` of 0 is right where threads outnumber cores.
    pub fn new(workers: usize, spins: u32) -> Self {
        Self {
            workers,
            spins,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            sleepers: Mutex::new(Sleepers::default()),
            all_arrived: Condvar::new(),
            released: Condvar::new(),
        }
    }

    /// A worker has done its part of the round.
    pub fn arrive(&self) {
        // Release: my part is before the leader's look. Acquire is the chain through the workers before me.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.workers && self.sleepers().leader {
            self.all_arrived.notify_one();
        }
    }

    /// The leader waits until all workers have arrived.
    pub fn gather(&self) {
        let all = || self.arrived.load(Ordering::Acquire) == self.workers;
        if self.spin(all) {
            return;
        }
        let mut sleepers = self.sleepers();
        sleepers.leader = true;
        while !all() {
            sleepers = self.all_arrived.wait(sleepers).expect("nothing panics under this mutex");
        }
        sleepers.leader = false;
    }

    /// The leader ends the round that it has gathered.
    pub fn release(&self) {
        // No worker arrives again before it has seen the new round.
        self.arrived.store(0, Ordering::Relaxed);
        let sleepers = self.sleepers();
        self.round.fetch_add(1, Ordering::Release);
        if sleepers.workers > 0 {
            self.released.notify_all();
        }
    }

    /// A worker that has taken part in `rounds` rounds waits for the next to be released.
    pub fn wait(&self, rounds: usize) {
        let released = || self.round.load(Ordering::Acquire) != rounds;
        if self.spin(released) {
            return;
        }
        let mut sleepers = self.sleepers();
        sleepers.workers += 1;
        while !released() {
            sleepers = self.released.wait(sleepers).expect("nothing panics under this mutex");
        }
        sleepers.workers -= 1;
    }

    fn spin(&self, done: impl Fn() -> bool) -> bool {
        for _ in 0..self.spins {
            if done() {
                return true;
            }
            spin_loop();
        }
        done()
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().expect("nothing panics under this mutex")
    }
}
