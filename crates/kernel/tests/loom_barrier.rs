//! The barrier and the mailboxes under a model checker (loom), in every interleaving of a bounded number of preemptions:
//! no wake is lost, mail is seen in the window after the one in which it was put, and once.
//!
//! A binary of its own: everything it links is built with `--cfg loom`, under which no other test runs.
//!
//! `make loom`, or `RUSTFLAGS="--cfg loom" cargo test -p windtunnel-kernel --release --test loom_barrier`; without the flag there is
//! nothing here.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use windtunnel_kernel::executor::barrier::Barrier;
use windtunnel_kernel::executor::mailbox::Mailboxes;

/// What a thread leaves for the leader, and what it has been told.
struct Shared {
    barrier: Barrier,
    mailboxes: Mailboxes<u64>,
    /// The window to do, or the end.
    window: AtomicU64,
    /// Of each thread: the windows it has done.
    done: Vec<AtomicU64>,
}

const END: u64 = u64::MAX;

impl Shared {
    /// A window as the executor does it: take the mail of the last, put mail for everybody.
    fn window(&self, thread: usize, window: u64) {
        self.take(thread, window);
        let threads = self.done.len();
        let mut mail: Vec<Vec<u64>> = (0..threads).map(|_| vec![window * 10 + thread as u64]).collect();
        self.mailboxes.put(window, thread, &mut mail);
        assert!(mail.iter().all(Vec::is_empty), "boxes come back empty");
        self.done[thread].store(window + 1, Relaxed);
    }

    fn take(&self, thread: usize, window: u64) {
        let mut mail = Vec::new();
        let Some(last) = window.checked_sub(1) else { return };
        self.mailboxes.take(last, thread, |put| mail.append(put));
        let expected: Vec<u64> = (0..self.done.len() as u64).map(|from| last * 10 + from).collect();
        assert_eq!(mail, expected, "window {window}");
    }
}

fn check(workers: usize, windows: u64, spins: u32, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let shared = Arc::new(Shared {
            barrier: Barrier::new(workers, spins),
            mailboxes: Mailboxes::new(workers + 1, workers + 1),
            window: AtomicU64::new(0),
            done: (0..=workers).map(|_| AtomicU64::new(0)).collect(),
        });
        let threads: Vec<_> = (1..=workers)
            .map(|thread| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    for round in 0.. {
                        shared.barrier.arrive();
                        shared.barrier.wait(round);
                        match shared.window.load(Relaxed) {
                            END => return shared.take(thread, windows),
                            window => shared.window(thread, window),
                        }
                    }
                })
            })
            .collect();
        shared.barrier.gather();
        for window in 0..windows {
            shared.window.store(window, Relaxed);
            shared.barrier.release();
            shared.window(0, window);
            shared.barrier.gather();
            for (thread, done) in shared.done.iter().enumerate() {
                assert_eq!(done.load(Relaxed), window + 1, "thread {thread}");
            }
        }
        shared.window.store(END, Relaxed);
        shared.barrier.release();
        shared.take(0, windows);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn two_threads_asleep_at_once() {
    check(1, 3, 0, 3);
}

#[test]
fn two_threads_that_spin_first() {
    check(1, 2, 1, 3);
}

#[test]
fn three_threads() {
    check(2, 2, 0, 2);
}
