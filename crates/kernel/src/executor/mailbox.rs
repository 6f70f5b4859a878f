//! Mail on its way between threads.
//!
//! For every window there is one box per (sending thread, receiving process); there are two sets of them, for even and
//! odd windows. In window w a thread puts its mail into the boxes of w and empties those of w − 1 that belong to the
//! processes it holds. The barrier between the two windows parts the two, so a box is never asked for by two threads at
//! once and its mutex is never waited for: it is there because it is how safe Rust hands over a vector. Two sets make
//! one barrier a window enough: the boxes of w − 1 are filled again in w + 1, behind another barrier.
//!
//! Boxes belong to processes and not to threads, so a process may change hands while its mail is on the way. Vectors are
//! swapped, not copied or freed: in the steady state nothing is allocated.
//!
//! Model-checked with the barrier: `tests/loom_barrier.rs`.

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;

/// The boxes of one sending thread for even or odd windows, by receiving process.
type Row<T> = Vec<Mutex<Vec<T>>>;

/// All boxes. See the module page.
#[derive(Debug)]
pub struct Mailboxes<T> {
    /// By parity of the window, then by sending thread.
    rows: [Vec<Row<T>>; 2],
}

impl<T> Mailboxes<T> {
    /// Boxes for `threads` senders and `processes` receivers.
    pub fn new(threads: usize, processes: usize) -> Self {
        let row = || std::iter::repeat_with(|| Mutex::new(Vec::new())).take(processes).collect();
        let rows = || std::iter::repeat_with(row).take(threads).collect();
        Self { rows: [rows(), rows()] }
    }

    /// Leaves the mail of `thread` in `window`, by receiving process; `mail` is left empty.
    pub fn put(&self, window: u64, thread: usize, mail: &mut [Vec<T>]) {
        let row = &self.rows[parity(window)][thread];
        for (mail, slot) in mail.iter_mut().zip(row).filter(|(mail, _)| !mail.is_empty()) {
            std::mem::swap(mail, &mut *slot.lock().expect("nothing panics under this mutex"));
        }
    }

    /// Shows what was put for `process` in `window` to `collect`, which empties it, in the order of sending threads.
    pub fn take(&self, window: u64, process: usize, mut collect: impl FnMut(&mut Vec<T>)) {
        for row in &self.rows[parity(window)] {
            collect(&mut row[process].lock().expect("nothing panics under this mutex"));
        }
    }
}

fn parity(window: u64) -> usize {
    (window & 1) as usize
}
