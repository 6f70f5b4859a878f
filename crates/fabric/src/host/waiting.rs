//! Where blocked operations wait: one queue per set of resources, of which only the head is in the global queue.

use windtunnel_kernel::Time;
use windtunnel_kernel::queue::{EventOrder, EventQueue};

use super::operations::NONE;

/// An insertion number as a key: all at one instant.
#[derive(Clone, Copy, Debug)]
struct Number(u64);

impl EventOrder for Number {
    #[inline]
    fn time(self) -> Time {
        Time::ZERO
    }

    #[inline]
    fn before(self, other: Self) -> bool {
        self.0 < other.0
    }
}

/// One waiting queue, ordered by insertion number. Without a head it is on the free list.
#[derive(Clone, Debug)]
struct Line {
    head: u32,
    number: u64,
    /// When the head's event in the global queue is due.
    due: Time,
    rest: EventQueue<u32, Number>,
}

/// The waiting queues of all groups; a group without waiters costs four bytes.
#[derive(Clone, Debug)]
pub struct Waiting {
    line_of: Vec<u32>,
    lines: Vec<Line>,
    free: Vec<u32>,
}

impl Waiting {
    /// For `groups` groups.
    pub fn new(groups: usize) -> Self {
        Self { line_of: vec![NONE; groups], lines: Vec::new(), free: Vec::new() }
    }

    /// Whether an operation of the group waits.
    #[inline]
    pub fn any(&self, group: u32) -> bool {
        self.line_of[group as usize] != NONE
    }

    /// Lets `operation` wait until the group's resources are free at `due`. Returns whether it is the head, which then
    /// needs an event at (`due`, `number`).
    #[inline]
    pub fn join(&mut self, group: u32, number: u64, operation: u32, due: Time) -> bool {
        let slot = self.line_of[group as usize];
        if slot == NONE {
            self.line_of[group as usize] = self.free.pop().unwrap_or_else(|| {
                self.lines.push(Line { head: NONE, number: 0, due: Time::ZERO, rest: EventQueue::new() });
                (self.lines.len() - 1) as u32
            });
            let line = &mut self.lines[self.line_of[group as usize] as usize];
            (line.head, line.number, line.due) = (operation, number, due);
            return true;
        }
        let line = &mut self.lines[slot as usize];
        if number > line.number {
            line.rest.push(Number(number), operation);
            return false;
        }
        line.rest.push(Number(line.number), line.head);
        (line.head, line.number, line.due) = (operation, number, due);
        true
    }

    /// The head, if the event (`time`, `number`) is the one it waits for; `None` if the event is out of date.
    #[inline]
    pub fn head(&self, group: u32, time: Time, number: u64) -> Option<u32> {
        let line = self.lines.get(self.line_of[group as usize] as usize)?;
        ((line.due, line.number) == (time, number)).then_some(line.head)
    }

    /// Notes that the head's event is now due at `time`.
    #[inline]
    pub fn put_off(&mut self, group: u32, time: Time) {
        self.lines[self.line_of[group as usize] as usize].due = time;
    }

    /// Takes the head off; returns the insertion number of the next, whose event will be due at `due`.
    #[inline]
    pub fn take(&mut self, group: u32, due: Time) -> Option<u64> {
        let slot = self.line_of[group as usize];
        let line = &mut self.lines[slot as usize];
        if let Some((Number(number), operation)) = line.rest.pop() {
            (line.head, line.number, line.due) = (operation, number, due);
            return Some(number);
        }
        line.head = NONE;
        self.free.push(slot);
        self.line_of[group as usize] = NONE;
        None
    }
}
