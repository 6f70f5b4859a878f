//! How many GPUs will be free when: a step function of time from the present on.
//!
//! Steps are kept in blocks of some hundred with the least and the most of each, and what a whole block goes up or down
//! is noted on it once; a question or a change looks into two blocks and over the heads of the others. Time before the
//! present is dropped as it passes.

/// Steps in a block, on average two thirds of it.
const BLOCK: usize = 128;

#[derive(Clone, Debug)]
struct Block {
    /// (from, free there less `shift`).
    steps: Vec<(u64, i64)>,
    /// Added to every step.
    shift: i64,
    least: i64,
    most: i64,
}

impl Block {
    fn of(steps: Vec<(u64, i64)>) -> Self {
        let mut block = Self { steps, shift: 0, least: 0, most: 0 };
        block.measure();
        block
    }

    /// Finds least and most again.
    fn measure(&mut self) {
        let values = || self.steps.iter().map(|&(_, free)| free);
        self.least = values().min().unwrap_or(0) + self.shift;
        self.most = values().max().unwrap_or(0) + self.shift;
    }

    fn first(&self) -> u64 {
        self.steps[0].0
    }
}

/// Free GPUs over time. See the module page.
#[derive(Clone, Debug)]
pub struct Profile {
    blocks: Vec<Block>,
}

impl Profile {
    /// `gpus` free for ever.
    pub fn new(gpus: u32) -> Self {
        Self { blocks: vec![Block::of(vec![(0, i64::from(gpus))])] }
    }

    /// Block and place of the step that holds at `time`, which is not before the first step.
    fn find(&self, time: u64) -> (usize, usize) {
        let block = self.blocks.partition_point(|block| block.first() <= time).saturating_sub(1);
        let place = self.blocks[block].steps.partition_point(|&(from, _)| from <= time).saturating_sub(1);
        (block, place)
    }

    /// Free GPUs at `time`.
    pub fn at(&self, time: u64) -> i64 {
        let (block, place) = self.find(time);
        self.blocks[block].steps[place].1 + self.blocks[block].shift
    }

    /// Forgets what was before `now`.
    pub fn advance(&mut self, now: u64) {
        let (block, place) = self.find(now);
        if block == 0 && place < BLOCK / 4 {
            return;
        }
        self.blocks.drain(..block);
        self.blocks[0].steps.drain(..place);
        self.blocks[0].measure();
    }

    /// Makes a step at `time`, if there is none; returns its block and place.
    fn cut(&mut self, time: u64) -> (usize, usize) {
        let (block, place) = self.find(time);
        let steps = &mut self.blocks[block].steps;
        if steps[place].0 == time {
            return (block, place);
        }
        let free = steps[place].1;
        steps.insert(place + 1, (time, free));
        if steps.len() < BLOCK {
            return (block, place + 1);
        }
        let upper = steps.split_off(BLOCK / 2);
        let shift = self.blocks[block].shift;
        self.blocks[block].measure();
        let mut new = Block { steps: upper, shift, least: 0, most: 0 };
        new.measure();
        self.blocks.insert(block + 1, new);
        if place + 1 < BLOCK / 2 { (block, place + 1) } else { (block + 1, place + 1 - BLOCK / 2) }
    }

    /// Adds `gpus` from `from` until `to`, which is later.
    pub fn add(&mut self, from: u64, to: u64, gpus: i64) {
        debug_assert!(from < to, "{from} {to}");
        self.cut(to);
        let (first, start) = self.cut(from);
        // The first cut's place may have moved with the second.
        let (last, end) = self.find(to);
        for block in first..=last {
            let whole = self.blocks[block].steps.len();
            let range = (if block == first { start } else { 0 })..(if block == last { end } else { whole });
            let block = &mut self.blocks[block];
            if range == (0..whole) {
                block.shift += gpus;
                block.least += gpus;
                block.most += gpus;
            } else if !range.is_empty() {
                block.steps[range].iter_mut().for_each(|(_, free)| *free += gpus);
                block.measure();
            }
        }
    }

    /// The first time from `time` on at which `gpus` are free.
    pub fn first_with(&self, time: u64, gpus: i64) -> Option<u64> {
        let (block, place) = self.find(time);
        let within = |block: &Block, from: usize| {
            let found = block.steps[from..].iter().find(|&&(_, free)| free + block.shift >= gpus);
            found.map(|&(from, _)| from.max(time))
        };
        let later = || within(self.blocks[block + 1..].iter().find(|block| block.most >= gpus)?, 0);
        within(&self.blocks[block], place).or_else(later)
    }

    /// The first time from `time` on from which `gpus` stay free for `hold`.
    ///
    /// # Panics
    /// If they never are: in the end all GPUs are free.
    pub fn earliest(&self, time: u64, gpus: i64, hold: u64) -> u64 {
        let (start, place) = self.find(time);
        // Where a stretch with enough began that has not ended yet.
        let mut open: Option<u64> = None;
        for (index, block) in self.blocks.iter().enumerate().skip(start) {
            if let Some(from) = open
                && block.first() >= from.saturating_add(hold)
            {
                return from;
            }
            let same = if open.is_some() { block.least >= gpus } else { block.most < gpus };
            if same {
                continue;
            }
            let first = if index == start { place } else { 0 };
            for &(at, free) in &block.steps[first..] {
                let enough = free + block.shift >= gpus;
                match open {
                    None if enough => open = Some(at.max(time)),
                    Some(from) if !enough => {
                        if at >= from.saturating_add(hold) {
                            return from;
                        }
                        open = None;
                    }
                    _ => {}
                }
            }
        }
        open.expect("in the end enough GPUs are free")
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::RandomStream;

    use super::*;

    #[test]
    fn it_agrees_with_a_plain_array() {
        let mut stream = RandomStream::new(1, "profile", 0);
        let horizon = 3_000usize;
        let mut plain = vec![40i64; horizon + 1];
        let mut profile = Profile::new(40);
        let mut now = 0;
        for step in 0..4_000 {
            if step % 5 == 0 && now < 1_000 {
                now += stream.below(3);
                profile.advance(now);
            }
            let from = now + stream.below(horizon as u64 - now - 600);
            let to = from + 1 + stream.below(if step % 3 == 0 { 500 } else { 20 });
            let gpus = stream.below(9) as i64 - if plain[from as usize] > 20 { 8 } else { 0 };
            profile.add(from, to, gpus);
            plain[from as usize..to as usize].iter_mut().for_each(|free| *free += gpus);
            let at = now + stream.below(horizon as u64 - now);
            assert_eq!(profile.at(at), plain[at as usize]);
            let want = stream.below(60) as i64;
            let first =
                |is: &dyn Fn(i64) -> bool| (at..=horizon as u64).find(|&time| is(plain[time as usize]));
            assert_eq!(profile.first_with(at, want), first(&|free| free >= want));
            if want <= 40 {
                let hold = 1 + stream.below(100);
                let free_from =
                    |time: u64| (time..time + hold).all(|t| plain[(t as usize).min(horizon)] >= want);
                let slow = (at..u64::MAX).find(|&time| free_from(time)).expect("in the end 40 are free");
                assert_eq!(profile.earliest(at, want, hold), slow);
            }
        }
    }
}
