//! A step in which parameters are gathered throughout, over links that pipeline ranks share.
//!
//! How long a gather takes depends then on what the other ranks do at that instant, so passes and exchanges are followed together,
//! instant by instant. Life cycle: [`Crowded::run`] puts each rank before its first pass; a rank goes on through the points of its
//! passes until it waits for an input, for parameters or for a computation; what wakes it is a message, a gather, or the clock.
//!
//! Invariants: passes run in the schedule's order; exchanges of one kind and rank queue in the order of the program, gathers up to
//! `prefetch` ahead of the one in use, as [the generator](crate::generate) emits them; ties go by the order of booking.
//! Failure modes: none for a schedule that was built.

use std::collections::BinaryHeap;

use super::course::{Ends, Gathering, REDUCES, Reducing, marks};
use super::fluid::{At, Exchanges, Leaving, Part};
use super::pass::{Point, StagePrice};
use super::shares::{Of, Shares};
use crate::schedules::{Action, Schedule};

/// What is followed.
pub struct Crowded<'a> {
    /// The order of passes.
    pub schedule: &'a Schedule,
    /// When parameters are gathered.
    pub gathering: Gathering,
    /// When gradients leave.
    pub reducing: Reducing,
    /// Gathers ahead of the one in use.
    pub prefetch: usize,
    /// By rank and chunk.
    pub prices: &'a [&'a StagePrice],
    /// What messages of each rank take: to the one after, and to the one before.
    pub sides: &'a [[Part; 2]],
    /// How exchanges share links.
    pub shares: &'a Shares,
}

/// Something on its way.
#[derive(Clone, Copy, Debug)]
enum On {
    Gather { rank: u32, number: u32 },
    Reduce { rank: u32, across: Part },
    Message { rank: u32, place: u32 },
    Inside { rank: u32, number: u32 },
}

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    Nothing,
    Clock,
    Gather(u32),
    Input(u32),
    Inside(u32),
}

/// Where a gather is read: chunk, kind of pass, point in it.
type Place = (u16, u8, u16);

struct Rank {
    action: usize,
    point: usize,
    wait: Wait,
    since: f64,
    waited: f64,
    /// Whether the time up to the point has passed.
    reached: bool,
    /// Whether the pass's parameters were asked for before its input came.
    asked: bool,
    marks: Vec<(u16, bool)>,
    gathers: Vec<Place>,
    /// Gathers used, asked for, and parts of each that have not ended.
    entered: usize,
    issued: usize,
    open: Vec<u8>,
    /// Whether each exchange of the pass has ended.
    inside: Vec<bool>,
    /// Ends of the host's last launch, and of the last of this pass.
    host: f64,
    launched: f64,
    /// The point of the last launch, and when it began.
    made: usize,
    begun: f64,
}

struct Walk<'a> {
    of: &'a Crowded<'a>,
    ranks: Vec<Rank>,
    exchanges: Exchanges<'a, On>,
    clock: BinaryHeap<At<u32>>,
    booked: u64,
    now: f64,
    arrived: Vec<bool>,
    ends: Ends,
}

impl<'a> Crowded<'a> {
    fn price(&self, rank: u32, chunk: u16) -> &'a StagePrice {
        self.prices[(rank * u32::from(self.schedule.placement.chunks)) as usize + usize::from(chunk)]
    }

    /// When the ranks end.
    pub fn run(&self) -> Ends {
        let (ranks, chunks) = (self.schedule.ranks(), u32::from(self.schedule.placement.chunks));
        let all = (ranks * chunks * self.schedule.microbatches * 2) as usize;
        let mut walk = Walk {
            of: self,
            ranks: (0..ranks).map(|rank| self.rank(rank)).collect(),
            exchanges: Exchanges::new(self.shares),
            clock: BinaryHeap::new(),
            booked: 0,
            now: 0.0,
            arrived: vec![false; all],
            ends: Ends {
                passes: vec![0.0; ranks as usize],
                reduced: vec![0.0; ranks as usize],
                completed: vec![0.0; (ranks * chunks) as usize],
                waited: vec![0.0; ranks as usize],
            },
        };
        walk.run();
        walk.ends
    }

    /// For how long the exchanges of each rank among its data-parallel peers take if they share links with nothing: gathers, and these with
    /// reductions of gradients. Passes end no sooner than the first, gradients no sooner than the second.
    pub fn exchanged(&self) -> Vec<[f64; 2]> {
        let ranks = self.shares.ranks;
        let alone = |of: Of, rank: u32, part: Part| {
            let (_, most) = self.shares.fair[of.class(rank, ranks) as usize];
            part.latency + part.work / most
        };
        (0..self.schedule.ranks())
            .map(|rank| {
                let actions = self.schedule.actions(rank);
                let (mut gathers, mut reductions) = ([0.0f64; 2], [0.0f64; 2]);
                for (action, (flags, gathered)) in
                    actions.iter().zip(marks(actions, self.gathering, self.reducing))
                {
                    for (_, point) in &self.price(rank, action.chunk).points[action.kind as usize] {
                        let (parts, sums) = match point {
                            Point::Enter(parts) if gathered => (parts, &mut gathers),
                            Point::Leave(leaving) if flags & REDUCES != 0 => {
                                (&leaving.parts, &mut reductions)
                            }
                            _ => continue,
                        };
                        for ((of, &part), sum) in [Of::Shard, Of::Expert].into_iter().zip(parts).zip(sums) {
                            *sum += alone(of, rank, part);
                        }
                    }
                }
                let both = (gathers[0] + reductions[0]).max(gathers[1] + reductions[1]);
                [gathers[0].max(gathers[1]), both]
            })
            .collect()
    }

    fn rank(&self, rank: u32) -> Rank {
        let actions = self.schedule.actions(rank);
        let marks = marks(actions, self.gathering, self.reducing);
        let mut gathers: Vec<Place> = Vec::new();
        for (action, _) in actions.iter().zip(&marks).filter(|(_, (_, gathers))| *gathers) {
            let kind = action.kind as u8;
            let points = &self.price(rank, action.chunk).points[usize::from(kind)];
            for (index, (_, point)) in points.iter().enumerate() {
                if matches!(point, Point::Enter(_)) {
                    gathers.push((action.chunk, kind, index as u16));
                }
            }
        }
        Rank {
            action: 0,
            point: 0,
            wait: Wait::Nothing,
            since: 0.0,
            waited: 0.0,
            reached: false,
            asked: false,
            marks,
            open: vec![0; gathers.len()],
            gathers,
            entered: 0,
            issued: 0,
            inside: Vec::new(),
            host: 0.0,
            launched: 0.0,
            made: usize::MAX,
            begun: 0.0,
        }
    }
}

impl Walk<'_> {
    fn run(&mut self) {
        for rank in 0..self.ranks.len() as u32 {
            self.go_on(rank);
        }
        let mut ended: Vec<On> = Vec::new();
        loop {
            let tick = self.clock.peek().map_or(f64::INFINITY, |at| at.time);
            let until = self.exchanges.next().min(tick);
            if until.is_infinite() {
                break;
            }
            self.now = until;
            self.exchanges.advance(until, &mut ended);
            for what in ended.drain(..) {
                self.ended(what);
            }
            while self.clock.peek().is_some_and(|at| at.time <= until) {
                let rank = self.clock.pop().expect("it has just been seen").what;
                self.ranks[rank as usize].reached = true;
                self.go_on(rank);
            }
        }
        for (rank, end) in self.ranks.iter().zip(&mut self.ends.waited) {
            *end = rank.waited;
        }
    }

    fn ended(&mut self, what: On) {
        match what {
            On::Gather { rank, number } => {
                let known = &mut self.ranks[rank as usize];
                known.open[number as usize] -= 1;
                if known.open[number as usize] == 0 && known.wait == Wait::Gather(number) {
                    known.waited += self.now - known.since;
                    self.go_on(rank);
                }
            }
            On::Reduce { rank, across } => {
                let end = &mut self.ends.reduced[rank as usize];
                *end = end.max(self.now);
                if across.alone() > 0.0 {
                    let last = On::Reduce { rank, across: Part::default() };
                    self.exchanges.push(Of::Across, rank, across, last);
                }
            }
            On::Inside { rank, number } => {
                let known = &mut self.ranks[rank as usize];
                known.inside[number as usize] = true;
                if known.wait == Wait::Inside(number) {
                    self.go_on(rank);
                }
            }
            On::Message { rank, place } => {
                self.arrived[place as usize] = true;
                if self.ranks[rank as usize].wait == Wait::Input(place) {
                    self.go_on(rank);
                }
            }
        }
    }

    fn place(&self, rank: u32, chunk: u16, microbatch: u32, gradient: bool) -> u32 {
        let schedule = self.of.schedule;
        let stage = rank * u32::from(schedule.placement.chunks) + u32::from(chunk);
        (stage * schedule.microbatches + microbatch) * 2 + u32::from(gradient)
    }

    /// Asks for all gathers up to number `last`.
    fn gather(&mut self, rank: u32, last: usize) {
        let known = &mut self.ranks[rank as usize];
        while known.issued < known.gathers.len().min(last + 1) {
            let (number, (chunk, kind, point)) = (known.issued, known.gathers[known.issued]);
            known.issued += 1;
            let points = &self.of.price(rank, chunk).points[usize::from(kind)];
            let (_, Point::Enter(parts)) = points[usize::from(point)] else { continue };
            for (of, part) in [Of::Shard, Of::Expert].into_iter().zip(parts) {
                if part.alone() > 0.0 {
                    known.open[number] += 1;
                    self.exchanges.push(of, rank, part, On::Gather { rank, number: number as u32 });
                }
            }
        }
    }

    fn reduce(&mut self, rank: u32, leaving: Leaving) {
        for ((of, part), across) in [Of::Shard, Of::Expert].into_iter().zip(leaving.parts).zip(leaving.across)
        {
            if part.alone() > 0.0 {
                self.exchanges.push(of, rank, part, On::Reduce { rank, across });
            } else if across.alone() > 0.0 {
                self.exchanges.push(Of::Across, rank, across, On::Reduce { rank, across: Part::default() });
            }
        }
    }

    /// For how long the host of `rank` holds up the pass to which its GPU has come, of a stage whose launches are not followed one by one.
    fn held_up(&mut self, rank: u32, action: Action) -> f64 {
        let price = self.of.price(rank, action.chunk);
        let kind = action.kind as usize;
        let Some(hosted) = price.hosts[kind].filter(|_| !price.closed) else { return 0.0 };
        let host = &mut self.ranks[rank as usize].host;
        let late = *host + hosted.behind - (self.now + price.passes[kind]);
        *host = (*host + hosted.launches).max(self.now + hosted.gated);
        late.max(0.0)
    }

    /// Lets `rank` go on at `time`.
    fn wake(&mut self, rank: u32, time: f64) {
        self.ranks[rank as usize].wait = Wait::Clock;
        self.clock.push(At { time, order: self.booked, what: rank });
        self.booked += 1;
    }

    /// Takes `rank` through its passes until it waits.
    fn go_on(&mut self, rank: u32) {
        let schedule = self.of.schedule;
        loop {
            let known = &mut self.ranks[rank as usize];
            known.wait = Wait::Nothing;
            let Some(&action) = schedule.actions(rank).get(known.action) else {
                self.ends.passes[rank as usize] = self.now;
                return;
            };
            let points = &self.of.price(rank, action.chunk).points[action.kind as usize];
            let (flags, gathers) = known.marks[known.action];
            let (mut after, point) = points[known.point];
            if known.point == 0 && !known.reached {
                if !known.asked && gathers && after == 0.0 && matches!(point, Point::Enter(_)) {
                    // What is read first is fetched before the input has come.
                    known.asked = true;
                    let last = known.entered + self.of.prefetch;
                    self.gather(rank, last);
                }
                let sender = schedule.sender(rank, action).filter(|&(from, _)| from != rank);
                if let Some((_, gradient)) = sender {
                    let place = self.place(rank, action.chunk, action.microbatch, gradient);
                    if !self.arrived[place as usize] {
                        self.ranks[rank as usize].wait = Wait::Input(place);
                        return;
                    }
                }
            }
            let known = &mut self.ranks[rank as usize];
            if known.point == 0 && !known.reached {
                let asked = self.of.price(rank, action.chunk).asked[action.kind as usize];
                known.inside.clear();
                known.inside.resize(asked as usize, false);
                known.launched = 0.0;
                after += self.held_up(rank, action);
            }
            if !self.ranks[rank as usize].reached && after > 0.0 {
                self.wake(rank, self.now + after);
                return;
            }
            let known = &mut self.ranks[rank as usize];
            known.reached = true;
            match point {
                Point::Ask { of, part, number } => {
                    if part.alone() > 0.0 {
                        self.exchanges.push(of, rank, part, On::Inside { rank, number });
                    } else {
                        known.inside[number as usize] = true;
                    }
                }
                Point::Await(number) if !known.inside[number as usize] => {
                    known.wait = Wait::Inside(number);
                    return;
                }
                Point::Launch { span, gated } => {
                    // A launch is looked at twice where the pass has to wait for it: it has been made then.
                    if known.made != known.point {
                        known.made = known.point;
                        known.begun = if gated { known.host.max(self.now) } else { known.host };
                        known.host = known.begun + span;
                        known.launched = known.host;
                    }
                    let begun = known.begun;
                    if begun > self.now {
                        self.wake(rank, begun);
                        return;
                    }
                }
                Point::End if known.launched > self.now => {
                    let end = known.launched;
                    self.wake(rank, end);
                    return;
                }
                Point::Enter(_) if gathers => {
                    let number = known.entered;
                    self.gather(rank, number + self.of.prefetch);
                    let known = &mut self.ranks[rank as usize];
                    if known.open[number] > 0 {
                        known.wait = Wait::Gather(number as u32);
                        known.since = self.now;
                        return;
                    }
                    known.entered += 1;
                }
                Point::Leave(leaving) if flags & REDUCES != 0 => self.reduce(rank, leaving),
                Point::End => {
                    if flags & REDUCES != 0 {
                        let chunks = u32::from(schedule.placement.chunks);
                        self.ends.completed[(rank * chunks + u32::from(action.chunk)) as usize] = self.now;
                    }
                    if let Some((to, chunk, gradient)) =
                        schedule.receiver(rank, action).filter(|&(to, ..)| to != rank)
                    {
                        let ranks = schedule.ranks();
                        let down = to + 1 == rank || rank == 0 && to + 1 == ranks && to > 1;
                        let place = self.place(to, chunk, action.microbatch, gradient);
                        let side = self.of.sides[rank as usize][usize::from(down)];
                        let of = if down { Of::Down } else { Of::Up };
                        self.exchanges.push(of, rank, side, On::Message { rank: to, place });
                    }
                }
                _ => {}
            }
            let known = &mut self.ranks[rank as usize];
            known.reached = false;
            known.point += 1;
            if known.point == points.len() {
                known.point = 0;
                known.asked = false;
                known.made = usize::MAX;
                known.action += 1;
            }
        }
    }
}
