//! How many GPUs of each host will be free when: a step function of time from the present on, with a number for every host.
//!
//! [`Profile`](super::Profile) with a count per host in place of one of all. Which GPUs of a host a job gets is settled as it
//! starts: whatever they are, no more jobs overlap on a host than it has GPUs for. A question looks at every host of
//! every step that it passes, so it costs as much as there are of both; time before the present is dropped as it passes.

/// GPUs of a host, by its number.
pub(super) type OnHosts = Vec<(u32, u32)>;

/// Free GPUs of each host over time. See the module page.
#[derive(Clone, Debug)]
pub(super) struct HostProfile {
    /// (from, free GPUs of each host), in order; fewer than none where jobs stay longer than they should.
    steps: Vec<(u64, Vec<i32>)>,
}

impl HostProfile {
    /// `free` GPUs on each host, for ever.
    pub(super) fn new(free: Vec<i32>) -> Self {
        Self { steps: vec![(0, free)] }
    }

    /// The step that holds at `time`.
    fn find(&self, time: u64) -> usize {
        self.steps.partition_point(|&(from, _)| from <= time).saturating_sub(1)
    }

    /// Forgets what was before `now`.
    pub(super) fn advance(&mut self, now: u64) {
        let place = self.find(now);
        // Not one by one: what follows moves up.
        if place > self.steps.len() / 4 {
            self.steps.drain(..place);
        }
    }

    /// Makes a step at `time`, if there is none; its place.
    fn cut(&mut self, time: u64) -> usize {
        let place = self.find(time);
        if self.steps[place].0 >= time {
            return place;
        }
        let free = self.steps[place].1.clone();
        self.steps.insert(place + 1, (time, free));
        place + 1
    }

    /// Adds `gpus` from `from` until `to`, which is later; takes them away if not `back`.
    pub(super) fn add(&mut self, from: u64, to: u64, gpus: &[(u32, u32)], back: bool) {
        debug_assert!(from < to, "{from} {to}");
        let first = self.cut(from);
        let end = self.cut(to);
        for (_, free) in &mut self.steps[first..end] {
            for &(host, count) in gpus {
                free[host as usize] += if back { count as i32 } else { -(count as i32) };
            }
        }
    }

    /// The first time from `from` on from which what stays free on each host for `hold` is enough, as `enough` says of such
    /// numbers; and these. Less is never enough where more is not.
    ///
    /// # Panics
    /// If it never is: in the end all hosts are free.
    pub(super) fn earliest(
        &self,
        from: u64,
        hold: u64,
        mut enough: impl FnMut(&[i32]) -> bool,
    ) -> (u64, Vec<i32>) {
        let mut start = from;
        let mut least = Vec::new();
        'next: loop {
            let first = self.find(start);
            let end = start.saturating_add(hold);
            let last = self.steps.partition_point(|&(from, _)| from < end).max(first + 1) - 1;
            // From behind: no window that begins at or before a step from which on it is too little can do.
            least.clone_from(&self.steps[last].1);
            for place in (first..=last).rev() {
                let mut less = place == last;
                for (least, &free) in least.iter_mut().zip(&self.steps[place].1) {
                    less |= free < *least;
                    *least = (*least).min(free);
                }
                if less && !enough(&least) {
                    start = self.steps.get(place + 1).expect("in the end enough GPUs are free").0;
                    continue 'next;
                }
            }
            return (start, least);
        }
    }
}

#[cfg(test)]
mod tests {
    use windtunnel_kernel::RandomStream;

    use super::*;

    #[test]
    fn it_agrees_with_a_plain_table() {
        const HOSTS: usize = 3;
        let mut stream = RandomStream::new(1, "host-profile", 0);
        let horizon = 400usize;
        let mut plain = vec![[4i32; HOSTS]; horizon + 1];
        let mut profile = HostProfile::new(vec![4; HOSTS]);
        let mut now = 0;
        for step in 0..3_000 {
            if step % 7 == 0 && now < 150 {
                now += stream.below(3);
                profile.advance(now);
            }
            let from = now + stream.below(horizon as u64 - now - 60);
            let to = from + 1 + stream.below(50);
            let (host, count) = (stream.below(HOSTS as u64) as usize, 1 + stream.below(3) as u32);
            let back = plain[from as usize..to as usize].iter().any(|free| free[host] < 0);
            profile.add(from, to, &[(host as u32, count)], back);
            let change = if back { count as i32 } else { -(count as i32) };
            plain[from as usize..to as usize].iter_mut().for_each(|free| free[host] += change);
            // A whole host and one of another.
            let enough = |free: &[i32]| {
                free.iter().any(|&free| free >= 4) && free.iter().filter(|&&free| free >= 1).count() > 1
            };
            let (at, hold) = (now + stream.below(horizon as u64 - now), 1 + stream.below(30));
            let over = |start: u64| {
                let mut least = [i32::MAX; HOSTS];
                for time in start..start + hold {
                    let free = plain[(time as usize).min(horizon)];
                    (0..HOSTS).for_each(|host| least[host] = least[host].min(free[host]));
                }
                least
            };
            // Beyond the horizon nothing is taken.
            let slow = (at..=horizon as u64).find(|&start| start == horizon as u64 || enough(&over(start)));
            let (found, least) = profile.earliest(at, hold, enough);
            if found < horizon as u64 {
                assert_eq!((Some(found), least), (slow, over(found).to_vec()));
            }
        }
    }
}
