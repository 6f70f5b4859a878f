//! From one start of a job on, what it did when: pauses first, then work with a write every so long.

/// Nanoseconds by what they were spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Waiting for its data.
    pub loading: u64,
    /// Restarting, or moving to other GPUs.
    pub restart: u64,
    /// Writing checkpoints, finished or not.
    pub checkpoint: u64,
    /// Working, whether the work is kept or not.
    pub work: u64,
}

impl Parts {
    /// All together.
    pub const fn total(&self) -> u64 {
        self.loading + self.restart + self.checkpoint + self.work
    }

    /// What is not work.
    pub const fn pauses(&self) -> u64 {
        self.loading + self.restart + self.checkpoint
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// How the time since the segment's begin was spent.
    pub parts: Parts,
    /// Work of this segment that a finished write keeps; `None` if none has finished.
    pub kept: Option<u64>,
    /// What is left of the pause that it is in.
    pub pause: Parts,
}

/// A stretch of a job's life on the same GPUs. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// When it begins.
    pub begin: u64,
    /// What is paid first: a write, loading, a restart, in this order.
    pub pause: Parts,
    /// Work until the first write; at least 1.
    pub first: u64,
    /// Work between writes after that; at least 1.
    pub every: u64,
    /// A write.
    pub write: u64,
}

impl Segment {
    /// Where the job stands at `now`, if it has not ended by then.
    pub fn at(&self, now: u64) -> State {
        let elapsed = now - self.begin;
        let mut parts = Parts::default();
        let mut left = elapsed;
        let mut pay = |due: u64| {
            let paid = due.min(left);
            left -= paid;
            paid
        };
        parts.checkpoint = pay(self.pause.checkpoint);
        parts.loading = pay(self.pause.loading);
        parts.restart = pay(self.pause.restart);
        let pause = Parts {
            checkpoint: self.pause.checkpoint - parts.checkpoint,
            loading: self.pause.loading - parts.loading,
            restart: self.pause.restart - parts.restart,
            work: 0,
        };
        // A write that was under way as the segment began keeps what was done before.
        let written = self.pause.checkpoint > 0 && pause.checkpoint == 0;
        let mut state = State { parts, kept: written.then_some(0), pause };
        if left < self.first {
            state.parts.work = left;
            return state;
        }
        let since = left - self.first;
        let period = self.every.saturating_add(self.write);
        let (cycles, rest) = (since / period, since % period);
        // At the begin of write number `cycles`, counted from 0.
        let work = self.first + cycles * self.every;
        if rest < self.write {
            state.parts.work = work;
            state.parts.checkpoint += cycles * self.write + rest;
            state.pause.checkpoint = self.write - rest;
            if cycles > 0 {
                state.kept = Some(work - self.every);
            }
        } else {
            state.parts.work = work + (rest - self.write);
            state.parts.checkpoint += (cycles + 1) * self.write;
            state.kept = Some(work);
        }
        state
    }

    /// Writes that begin before `work` of this segment is done.
    pub const fn writes_before(&self, work: u64) -> u64 {
        if work <= self.first { 0 } else { (work - self.first).div_ceil(self.every) }
    }

    /// Time from the begin until `work` is done.
    pub const fn time_for(&self, work: u64) -> u64 {
        let writes = self.writes_before(work) as u128 * self.write as u128;
        let time = self.pause.total() as u128 + work as u128 + writes;
        if time > u64::MAX as u128 { u64::MAX } else { time as u64 }
    }

    /// What is left of it at `now`, as a segment of its own, with where the job stands then.
    pub fn split(&self, now: u64) -> (State, Self) {
        let state = self.at(now);
        // Work until the next write: of a write under way the full interval, as it comes after that one.
        let first = if state.pause.total() > 0 && state.parts.work >= self.first {
            self.every
        } else if state.parts.work < self.first {
            self.first - state.parts.work
        } else {
            self.every - (state.parts.work - self.first) % self.every
        };
        (state, Self { begin: now, pause: state.pause, first, ..*self })
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::RandomStream;

    use super::*;

    /// Nanosecond by nanosecond.
    fn slow(segment: &Segment, elapsed: u64) -> State {
        let mut parts = Parts::default();
        let mut pause = segment.pause;
        let (mut kept, mut to_write, mut pending) = (None, segment.first, Some(0));
        if pause.checkpoint == 0 {
            pending = None;
        }
        for _ in 0..elapsed {
            // A write is due as soon as nothing else is paid.
            if pause.total() == 0 && to_write == 0 {
                pause.checkpoint = segment.write;
                pending = Some(parts.work);
                to_write = segment.every;
            }
            if pause.checkpoint > 0 {
                pause.checkpoint -= 1;
                parts.checkpoint += 1;
                if pause.checkpoint == 0 {
                    kept = pending.take().or(kept);
                }
            } else if pause.loading > 0 {
                pause.loading -= 1;
                parts.loading += 1;
            } else if pause.restart > 0 {
                pause.restart -= 1;
                parts.restart += 1;
            } else {
                parts.work += 1;
                to_write -= 1;
            }
        }
        if pause.total() == 0 && to_write == 0 {
            pause.checkpoint = segment.write;
        }
        State { parts, kept, pause }
    }

    fn drawn(stream: &mut RandomStream) -> Segment {
        let mut up_to = |most: u64| stream.below(most + 1);
        Segment {
            begin: up_to(5),
            pause: Parts { loading: up_to(4), restart: up_to(4), checkpoint: up_to(4), work: 0 },
            first: 1 + up_to(8),
            every: 1 + up_to(8),
            write: 1 + up_to(5),
        }
    }

    #[test]
    fn the_closed_form_is_what_a_clock_counts() {
        let mut stream = RandomStream::new(1, "segments", 0);
        for _ in 0..2_000 {
            let segment = drawn(&mut stream);
            let elapsed = stream.below(80);
            let state = segment.at(segment.begin + elapsed);
            assert_eq!(state, slow(&segment, elapsed), "{segment:?} after {elapsed}");
            assert_eq!(state.parts.total(), elapsed);
        }
    }

    #[test]
    fn parts_of_a_segment_are_the_segment() {
        let mut stream = RandomStream::new(2, "segments", 0);
        for _ in 0..2_000 {
            let segment = drawn(&mut stream);
            let (cut, later) = (stream.below(60), stream.below(60));
            let (before, rest) = segment.split(segment.begin + cut);
            let whole = segment.at(segment.begin + cut + later);
            let after = rest.at(segment.begin + cut + later);
            assert_eq!(before.parts.work + after.parts.work, whole.parts.work, "{segment:?} {cut} {later}");
            assert_eq!(before.parts.checkpoint + after.parts.checkpoint, whole.parts.checkpoint);
            assert_eq!(before.parts.total() + after.parts.total(), cut + later);
            assert_eq!(after.pause, whole.pause);
            let kept = after.kept.map(|kept| before.parts.work + kept).or(before.kept);
            assert_eq!(kept, whole.kept, "{segment:?} {cut} {later}");
        }
    }

    #[test]
    fn the_end_is_when_the_work_is_done() {
        let mut stream = RandomStream::new(3, "segments", 0);
        for _ in 0..2_000 {
            let segment = drawn(&mut stream);
            let work = 1 + stream.below(50);
            let end = segment.time_for(work);
            assert_eq!(segment.at(segment.begin + end).parts.work, work, "{segment:?} {work}");
            assert_eq!(segment.at(segment.begin + end - 1).parts.work, work - 1);
        }
    }

    #[test]
    fn a_job_without_checkpoints_keeps_nothing() {
        let segment =
            Segment { begin: 7, pause: Parts::default(), first: u64::MAX, every: u64::MAX, write: 0 };
        let state = segment.at(1_007);
        assert_eq!((state.parts.work, state.kept, segment.time_for(123)), (1_000, None, 123));
        // A write that costs nothing keeps all up to it.
        let free = Segment { first: 10, every: 10, ..segment };
        assert_eq!(free.at(7 + 35).kept, Some(30));
    }
}
