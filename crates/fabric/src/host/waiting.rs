//! Where blocked operations wait: one queue per set of resources, of which only the head is in the global queue.

use smallvec::SmallVec;
use windtunnel_kernel::queue::{EventOrder, EventQueue};
use windtunnel_kernel::{EndpointId, Time};

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

/// What waits together: operations of one endpoint that need the same resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Whose resources.
    pub endpoint: EndpointId,
    /// Kind (and whether its NIC is shared), stream and NIC.
    pub needs: [u8; 3],
}

/// The needs of a group and its line.
type Entry = ([u8; 3], u32);

/// One waiting queue, ordered by insertion number. Without a head it is on the free list.
#[derive(Clone, Debug)]
struct Line {
    head: u32,
    number: u64,
    /// When the head's event in the global queue is due.
    due: Time,
    group: Group,
    rest: EventQueue<u32, Number>,
}

/// The lines of all endpoints. An endpoint has a handful of lines at most, so they are found by looking through them.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    lines_of: Vec<SmallVec<[Entry; 2]>>,
    lines: Vec<Line>,
    free: Vec<u32>,
}

impl Waiting {
    /// For `endpoints` endpoints.
    pub(super) fn new(endpoints: usize) -> Self {
        Self { lines_of: vec![SmallVec::new(); endpoints], lines: Vec::new(), free: Vec::new() }
    }

    /// The line of the group, if an operation of it waits.
    #[inline]
    pub(super) fn line(&self, group: Group) -> Option<u32> {
        let lines = &self.lines_of[group.endpoint.0 as usize];
        lines.iter().find(|(needs, _)| *needs == group.needs).map(|&(_, line)| line)
    }

    /// Lets `operation` wait until the group's resources are free at `due`. If it is now the head of its line, that is
    /// returned and needs an event at (`due`, `number`).
    #[inline]
    pub(super) fn join(&mut self, group: Group, number: u64, operation: u32, due: Time) -> Option<u32> {
        let Some(id) = self.line(group) else {
            let id = self.free.pop().unwrap_or_else(|| {
                let (due, rest) = (Time::ZERO, EventQueue::new());
                self.lines.push(Line { head: NONE, number: 0, due, group, rest });
                (self.lines.len() - 1) as u32
            });
            self.lines_of[group.endpoint.0 as usize].push((group.needs, id));
            let line = &mut self.lines[id as usize];
            (line.head, line.number, line.due, line.group) = (operation, number, due, group);
            return Some(id);
        };
        let line = &mut self.lines[id as usize];
        if number > line.number {
            line.rest.push(Number(number), operation);
            return None;
        }
        line.rest.push(Number(line.number), line.head);
        (line.head, line.number, line.due) = (operation, number, due);
        Some(id)
    }

    /// The head, if the event (`time`, `number`) is the one it waits for; `None` if the event is out of date. Numbers are
    /// unique, so that an event of an earlier use of the line is out of date too.
    #[inline]
    pub(super) fn head(&self, line: u32, time: Time, number: u64) -> Option<u32> {
        let line = &self.lines[line as usize];
        (line.head != NONE && (line.due, line.number) == (time, number)).then_some(line.head)
    }

    /// Notes that the head's event is now due at `time`.
    #[inline]
    pub(super) fn put_off(&mut self, line: u32, time: Time) {
        self.lines[line as usize].due = time;
    }

    /// Forgets all that waits for resources of `endpoint`, and calls `lost` for each.
    pub(super) fn clear(&mut self, endpoint: EndpointId, mut lost: impl FnMut(u32)) {
        for (_, id) in std::mem::take(&mut self.lines_of[endpoint.0 as usize]) {
            let line = &mut self.lines[id as usize];
            lost(std::mem::replace(&mut line.head, NONE));
            while let Some((_, operation)) = line.rest.pop() {
                lost(operation);
            }
            self.free.push(id);
        }
    }

    /// Takes the head off; returns the insertion number of the next, whose event will be due at `due`.
    #[inline]
    pub(super) fn take(&mut self, id: u32, due: Time) -> Option<u64> {
        let line = &mut self.lines[id as usize];
        if let Some((Number(number), operation)) = line.rest.pop() {
            (line.head, line.number, line.due) = (operation, number, due);
            return Some(number);
        }
        line.head = NONE;
        self.free.push(id);
        self.lines_of[line.group.endpoint.0 as usize].retain(|entry| entry.1 != id);
        None
    }
}
