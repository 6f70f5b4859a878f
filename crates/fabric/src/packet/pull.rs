//! Whose turn it is at a NIC port: the ring of queue pairs that may send, or one for each queue.

use super::packets::NONE;
use super::port::List;
use super::queue_settings::{MOST_QUEUES, Pull, QueueSettings};
use super::sender::Sender;

/// Queue pairs that may send, in the order of their turns.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    ring: List,
    /// By queue, where turns go by that; then `ring` is empty.
    classes: Option<Box<Classes>>,
}

/// Rings by queue.
#[derive(Clone, Debug)]
struct Classes {
    rings: [List; MOST_QUEUES],
    /// Queues by priority, the highest first, each with its weight.
    levels: Vec<Level>,
}

/// Queues that take turns.
#[derive(Clone, Debug)]
struct Level {
    members: Vec<(u8, u32)>,
    /// Whose turn it is, and packets left of it.
    at: usize,
    left: u32,
}

impl Default for Ready {
    fn default() -> Self {
        Self { ring: List::EMPTY, classes: None }
    }
}

impl Ready {
    /// Turns go by queues from now on, if `pull` says so.
    pub(super) fn pull_by(&mut self, pull: Pull, queues: &[QueueSettings]) {
        let priority = |queue: &QueueSettings| if pull == Pull::Strict { queue.priority } else { 0 };
        let mut priorities: Vec<u8> = queues.iter().map(priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let level = |&of: &u8| {
            let members = (0u8..).zip(queues).filter(|(_, queue)| priority(queue) == of);
            Level { members: members.map(|(number, queue)| (number, queue.weight)).collect(), at: 0, left: 0 }
        };
        self.classes = (pull != Pull::RoundRobin).then(|| {
            let levels = priorities.iter().map(level).collect();
            Box::new(Classes { rings: [List::EMPTY; MOST_QUEUES], levels })
        });
    }

    /// The one whose turn it is, where turns do not go by queues.
    #[inline]
    pub(super) const fn first(&self) -> Option<u32> {
        if self.ring.is_empty() { None } else { Some(self.ring.head) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.classes.as_ref().is_none_or(|classes| classes.is_empty())
    }

    /// Puts a queue pair behind the others, those of its queue where turns go by that.
    #[inline]
    pub(super) fn push<F>(&mut self, flow: u32, senders: &mut [Sender<F>]) {
        let ring = match &mut self.classes {
            None => &mut self.ring,
            Some(classes) => &mut classes.rings[usize::from(senders[flow as usize].queue)],
        };
        senders[flow as usize].after = NONE;
        ring.append(flow, |before| senders[before as usize].after = flow);
    }

    /// Takes the one off whose turn it is; there is one.
    #[inline]
    pub(super) fn pop<F>(&mut self, senders: &[Sender<F>]) -> u32 {
        let ring = match &mut self.classes {
            None => &mut self.ring,
            Some(classes) => classes.turn(),
        };
        let flow = ring.head;
        ring.head = senders[flow as usize].after;
        flow
    }

    /// A packet of a queue has been sent: of its turn one less is left.
    #[inline]
    pub(super) fn sent(&mut self, queue: u8) {
        let Some(classes) = &mut self.classes else { return };
        for level in &mut classes.levels {
            if level.members[level.at].0 == queue {
                level.left = level.left.saturating_sub(1);
            }
        }
    }
}

impl Classes {
    fn is_empty(&self) -> bool {
        self.rings.iter().all(|ring| ring.is_empty())
    }

    /// The ring whose turn it is.
    fn turn(&mut self) -> &mut List {
        let Self { rings, levels } = self;
        let busy = |&(queue, _): &(u8, u32)| !rings[usize::from(queue)].is_empty();
        let level = levels.iter_mut().find(|level| level.members.iter().any(busy)).expect("one may send");
        while level.left == 0 || !busy(&level.members[level.at]) {
            level.at = (level.at + 1) % level.members.len();
            level.left = level.members[level.at].1;
        }
        &mut rings[usize::from(level.members[level.at].0)]
    }
}
