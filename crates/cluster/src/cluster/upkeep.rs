//! What faults, repairs, spares and maintenance do to the cluster.
//!
//! A fault takes its GPUs out at once and interrupts the jobs on them; the cluster reacts `reaction_delay` later: then the
//! other GPUs of the job can be given away, and the job waits at its old place in the queue. A cable or a switch takes out
//! the GPUs that nothing joins to the others any more, and changes the fabric for the rest.
//!
//! *Spares.* A host that loses a GPU is taken out whole as long as there is a spare to take its place; jobs on its other
//! GPUs go on until they end. Once it is whole again, it is the spare.
//!
//! *Maintenance.* From the notice on nothing new is placed on what will be drained. As it begins, what still runs there is
//! interrupted; or it has moved away when the notice was given, with a checkpoint.

use rustc_hash::FxHashSet;
use windtunnel_kernel::EndpointId;

use super::{Change, Cluster, FaultRecord, HOPELESS, JobId, Place, Reason, Running, Tally, View};
use crate::faults::{Cause, Known};
use crate::faults::{Class, Component, Event, Leave, Out, Outages, Upkeep};
use crate::life::Debts;
use crate::scheduler::{Absence, Scheduler};

impl Cluster<'_> {
    /// What faults of each kind did.
    pub fn tallies(&self) -> impl Iterator<Item = (Reason, Tally)> + '_ {
        Reason::ALL.into_iter().map(|reason| (reason, self.log.tallies[reason.index()]))
    }

    /// What has happened since the last call.
    pub fn take_faults(&mut self) -> Vec<FaultRecord> {
        std::mem::take(&mut self.log.records)
    }

    /// Cables and switches that are out, in order.
    pub fn fabric_out(&self) -> Vec<Component> {
        self.outages.iter().flat_map(Outages::fabric).collect()
    }

    /// How often those have changed.
    pub fn fabric_changes(&self) -> u64 {
        self.outages.as_ref().map_or(0, |outages| outages.changes)
    }

    /// Takes spare hosts out.
    pub(super) fn keep_spares(&mut self) {
        let Some(outages) = &self.outages else { return };
        let spare: Vec<EndpointId> =
            outages.pool.iter().rev().flat_map(|&host| outages.gpus_of(host)).collect();
        for gpu in spare {
            let region = self.region_of(gpu);
            self.regions[region as usize].take(&[gpu]);
        }
    }

    fn region_of(&self, gpu: EndpointId) -> u32 {
        let (hosts, regions) = (u64::from(self.machine.hosts()), u64::from(self.machine.region_count()));
        let host = u64::from(gpu.0 / self.machine.endpoints_per_host);
        // The last region that begins at or before the host; region r begins at ⌊hosts · r / regions⌋.
        (((host + 1) * regions - 1) / hosts).min(regions - 1) as u32
    }

    /// A job has got GPUs.
    pub(super) fn hold(&mut self, job: JobId, placement: &[EndpointId]) {
        let Some(outages) = &mut self.outages else { return };
        for &gpu in placement {
            outages.change(gpu, |out| (out.job, out.held) = (Some(job), true));
        }
    }

    /// A job has GPUs no longer; they are on their way.
    pub(super) fn leave(&mut self, placement: &[EndpointId]) {
        let Some(outages) = &mut self.outages else { return };
        for &gpu in placement {
            outages.change(gpu, |out| out.job = None);
        }
        let (failed, draining) = outages.counts();
        self.ledger.out(failed, draining);
    }

    /// Makes the GPUs that a job had free, unless they are out, and tells the scheduler.
    pub(super) fn hand_back(&mut self, job: JobId, running: &Running, scheduler: &mut dyn Scheduler) {
        let region = running.region;
        let Some(outages) = &mut self.outages else {
            self.regions[region as usize].give(&running.placement);
            scheduler.released(job, running, self);
            return;
        };
        let (mut back, mut gone) = (Vec::with_capacity(running.placement.len()), Vec::new());
        for &gpu in &running.placement {
            let (_, now) = outages.change(gpu, |out| out.held = false);
            if now.is_available() { back.push(gpu) } else { gone.push(gpu) }
        }
        self.regions[region as usize].give(&back);
        scheduler.released(job, running, self);
        self.tell(&gone, scheduler);
    }

    /// Tells the scheduler of those of `gpus` that stay away longer than it knows.
    fn tell(&mut self, gpus: &[EndpointId], scheduler: &mut dyn Scheduler) {
        let mut gone = Vec::new();
        for &gpu in gpus {
            let out = *self.out().of(gpu);
            if !out.held && !out.is_in_service() && out.until > out.told {
                gone.push((self.region_of(gpu), out.told.max(self.now), out.until, gpu));
                self.out().change(gpu, |out| out.told = out.until);
            }
        }
        for absence in batches(gone) {
            scheduler.lost(&absence, self);
        }
    }

    /// All that happens by now.
    pub(super) fn operate(&mut self, scheduler: &mut dyn Scheduler) {
        let machine = self.machine;
        let Some(upkeep) = machine.upkeep else { return };
        if !std::mem::replace(&mut self.log.opened, true) {
            self.announce_spares(scheduler);
        }
        let mut happened = false;
        let now = self.now;
        while let Some(event) = self.out().agenda.pop(upkeep, now) {
            happened = true;
            match event {
                Event::Fails { component, until } => self.fail(upkeep, component, until, scheduler),
                Event::Repaired { component } => self.repair(upkeep, component, scheduler),
                Event::Noticed { window } => self.notice(upkeep, window, scheduler),
                Event::Begins { window } => self.begin(upkeep, window, scheduler),
                Event::Ends { window } => self.finish(upkeep, window, scheduler),
                Event::Ready { host } => {
                    self.out().called -= 1;
                    self.ready(host, scheduler);
                }
            }
        }
        if happened {
            let (failed, draining) = self.out().counts();
            self.ledger.out(failed, draining);
        }
    }

    /// How many of `gpus` jobs may get.
    fn computing(&self, gpus: &[EndpointId]) -> u32 {
        let computes =
            |gpu: &&EndpointId| self.outages.as_ref().is_none_or(|outages| !outages.of(**gpu).storage);
        gpus.iter().filter(computes).count() as u32
    }

    fn out(&mut self) -> &mut Outages {
        self.outages.as_mut().expect("there is upkeep, so there is what they change")
    }

    fn announce_spares(&mut self, scheduler: &mut dyn Scheduler) {
        let outages = self.out();
        let spare: Vec<EndpointId> =
            outages.pool.iter().rev().flat_map(|&host| outages.gpus_of(host)).collect();
        for &gpu in &spare {
            self.out().change(gpu, |out| out.told = 0);
        }
        self.tell(&spare, scheduler);
    }

    fn fail(&mut self, upkeep: &Upkeep<'_>, component: Component, until: u64, scheduler: &mut dyn Scheduler) {
        let lasts = until > self.now;
        let (gpus, back) = if !component.class.is_fabric() {
            let mut gpus = Vec::new();
            upkeep.plant.gpus(component, &mut gpus);
            (gpus, Vec::new())
        } else if lasts && self.out().fabric_out(component, Cause::Failed, until) {
            self.out().cuts(upkeep, Cause::Failed)
        } else {
            (Vec::new(), Vec::new())
        };
        let (jobs, job, lost) = self.interrupt_on(&gpus, component.class != Class::Software, true);
        let out = if lasts && component.class != Class::Software { gpus } else { Vec::new() };
        self.log.enter(FaultRecord {
            at: self.now,
            until,
            component,
            reason: Reason::Fault(component.class),
            gpus: self.computing(&out),
            jobs,
            job,
            lost,
        });
        self.put_out(&out, until, scheduler, |out| out.failed += 1);
        self.rejoin(&back, scheduler);
        if lasts && component.class.is_fabric() {
            self.stay_cut(until, scheduler);
        }
        self.replace(upkeep, &out, until, scheduler);
    }

    /// Something more is out until `until`, which may keep GPUs cut off for as long.
    fn stay_cut(&mut self, until: u64, scheduler: &mut dyn Scheduler) {
        let cut: Vec<EndpointId> = self.out().cut().collect();
        self.put_out(&cut, until, scheduler, |_| ());
    }

    fn repair(&mut self, upkeep: &Upkeep<'_>, component: Component, scheduler: &mut dyn Scheduler) {
        if component.class.is_fabric() {
            self.restore_fabric(upkeep, component, Cause::Failed, scheduler);
            return;
        }
        let mut gpus = Vec::new();
        upkeep.plant.gpus(component, &mut gpus);
        self.put_back(&gpus, scheduler, |out| out.failed -= 1);
        self.retire(&gpus, scheduler);
    }

    /// A cable or switch works again, or is back from maintenance: from one `cause`.
    fn restore_fabric(
        &mut self,
        upkeep: &Upkeep<'_>,
        component: Component,
        cause: Cause,
        scheduler: &mut dyn Scheduler,
    ) {
        if !self.out().fabric_back(component, cause) {
            return;
        }
        let (why, until) = self.out().fabric_cause();
        let (cut, back) = self.out().cuts(upkeep, why);
        self.rejoin(&back, scheduler);
        // Another part is the largest now. Nothing has come between the jobs of this one, which go on to their end.
        match why {
            Cause::Failed => {
                self.put_out(&cut, until, scheduler, |out| out.failed += 1);
                self.replace(upkeep, &cut, until, scheduler);
            }
            Cause::Draining => self.put_out(&cut, until, scheduler, |out| out.draining += 1),
        }
    }

    /// GPUs are no longer cut off, each from its cause.
    fn rejoin(&mut self, back: &[(EndpointId, Cause)], scheduler: &mut dyn Scheduler) {
        let of = |cause: Cause| -> Vec<EndpointId> {
            back.iter().filter(|(_, why)| *why == cause).map(|&(gpu, _)| gpu).collect()
        };
        let (failed, drained) = (of(Cause::Failed), of(Cause::Draining));
        self.put_back(&failed, scheduler, |out| out.failed -= 1);
        self.put_back(&drained, scheduler, |out| out.draining -= 1);
        self.retire(&failed, scheduler);
    }

    fn notice(&mut self, upkeep: &Upkeep<'_>, window: u32, scheduler: &mut dyn Scheduler) {
        let known = upkeep.maintenance[window as usize];
        let mut gpus = Vec::new();
        if known.component.class.is_fabric() {
            // Those that it will cut off, by what is out now.
            let mut out: Vec<Component> = self.out().fabric().chain([known.component]).collect();
            out.sort_unstable();
            out.dedup();
            gpus = upkeep.plant.cut_off(&out);
            gpus.retain(|gpu| !self.out().is_cut(*gpu));
        } else {
            upkeep.plant.gpus(known.component, &mut gpus);
        }
        let moved =
            if known.leave == Leave::Migrated { self.interrupt_on(&gpus, true, false) } else { (0, None, 0) };
        self.put_out(&gpus, known.end(), scheduler, |out| out.draining += 1);
        self.out().known.insert(window, Known { gpus, moved: moved.0, job: moved.1 });
    }

    fn begin(&mut self, upkeep: &Upkeep<'_>, window: u32, scheduler: &mut dyn Scheduler) {
        let known = upkeep.maintenance[window as usize];
        let noticed = self.out().known.remove(&window).expect("notice comes first");
        let fabric = known.component.class.is_fabric();
        let (gpus, back) = if fabric {
            let changed = self.out().fabric_out(known.component, Cause::Draining, known.end());
            if changed { self.out().cuts(upkeep, Cause::Draining) } else { (Vec::new(), Vec::new()) }
        } else {
            (noticed.gpus.clone(), Vec::new())
        };
        let (stopped, job, lost) = self.interrupt_on(&gpus, true, true);
        self.log.enter(FaultRecord {
            at: self.now,
            until: known.end(),
            component: known.component,
            reason: Reason::Maintenance,
            gpus: self.computing(&gpus),
            jobs: stopped + noticed.moved,
            job: noticed.job.or(job),
            lost,
        });
        if fabric {
            // What is cut off now takes over from what was kept free since the notice.
            self.put_out(&gpus, known.end(), scheduler, |out| out.draining += 1);
            self.put_back(&noticed.gpus, scheduler, |out| out.draining -= 1);
            self.rejoin(&back, scheduler);
            self.stay_cut(known.end(), scheduler);
        } else {
            self.out().known.insert(window, noticed);
        }
    }

    fn finish(&mut self, upkeep: &Upkeep<'_>, window: u32, scheduler: &mut dyn Scheduler) {
        let known = upkeep.maintenance[window as usize];
        if known.component.class.is_fabric() {
            self.restore_fabric(upkeep, known.component, Cause::Draining, scheduler);
        } else if let Some(noticed) = self.out().known.remove(&window) {
            self.put_back(&noticed.gpus, scheduler, |out| out.draining -= 1);
        }
    }

    /// Jobs on `gpus` lose them, as do those in their memory if that is `wiped`, and their work since the last checkpoint unless
    /// they `lose` none; how many, the first, and the work.
    fn interrupt_on(&mut self, gpus: &[EndpointId], wiped: bool, lose: bool) -> (u32, Option<JobId>, u128) {
        let mut jobs: Vec<JobId> = gpus.iter().filter_map(|&gpu| self.out().of(gpu).job).collect();
        let running = jobs.len();
        if wiped && !self.memory.is_empty() && !gpus.is_empty() {
            let among: FxHashSet<EndpointId> = gpus.iter().copied().collect();
            let there = |placement: &[EndpointId]| placement.iter().any(|gpu| among.contains(gpu));
            jobs.extend(
                self.memory.iter().filter(|(_, (placement, _))| there(placement)).map(|(&job, _)| job),
            );
        }
        let suspended = jobs.split_off(running);
        jobs.sort_unstable();
        jobs.dedup();
        let mut lost: u128 = jobs.iter().map(|&job| self.interrupt(job, lose)).sum();
        lost += suspended.iter().map(|&job| self.evict(job, lose)).sum::<u128>();
        let first = jobs.iter().chain(&suspended).min().copied();
        ((jobs.len() + suspended.len()) as u32, first, lost)
    }

    /// A suspended job is no longer in the memory of its GPUs.
    fn evict(&mut self, job: JobId, lose: bool) -> u128 {
        self.memory.remove(&job);
        let Place::Waiting(debts) = self.status[job.0 as usize].place else { return 0 };
        let (after, undone) = self.fall_back(job, debts.loads, lose);
        self.status[job.0 as usize].place = Place::Waiting(after);
        self.change(if lose { Change::Interrupted(job) } else { Change::Stopped(job) });
        undone
    }

    /// A job that has lost its GPUs goes back to its last checkpoint, or writes one in time if it does not `lose`; what it owes, and
    /// the GPU-time of work undone.
    fn fall_back(&mut self, job: JobId, loads: bool, lose: bool) -> (Debts, u128) {
        if !lose {
            return (self.keep(job, loads), 0);
        }
        let status = &mut self.status[job.0 as usize];
        let undone = status.done - status.kept;
        status.done = status.kept;
        status.time.lost += undone;
        status.time.interruptions += 1;
        status.futile += 1;
        if status.futile >= HOPELESS {
            self.hopeless.get_or_insert(job);
        }
        let lost = u128::from(undone) * u128::from(self.job(job).gpus);
        self.ledger.lose(lost);
        (Debts { loads, restarts: true, wrote: false }, lost)
    }

    fn interrupt(&mut self, job: JobId, lose: bool) -> u128 {
        let (running, pause) = self.vacate(job);
        let (debts, lost) = self.fall_back(job, pause.loading > 0, lose);
        self.remember(job, &running);
        self.status[job.0 as usize].place = Place::Away(debts);
        self.change(if lose { Change::Interrupted(job) } else { Change::Stopped(job) });
        self.releases.push_back((self.now + self.machine.reaction_delay.ns_ceil(), job, running));
        lost
    }

    /// `gpus` have one more cause to be out, until `until` as far as is known.
    fn put_out(
        &mut self,
        gpus: &[EndpointId],
        until: u64,
        scheduler: &mut dyn Scheduler,
        by: impl Fn(&mut Out),
    ) {
        for &gpu in gpus {
            let (before, after) = self.out().change(gpu, |out| {
                by(out);
                out.until = out.until.max(until);
            });
            if before.is_available() && !after.is_available() {
                let region = self.region_of(gpu);
                self.regions[region as usize].take(&[gpu]);
            }
        }
        self.tell(gpus, scheduler);
    }

    /// `gpus` have one cause less to be out.
    fn put_back(&mut self, gpus: &[EndpointId], scheduler: &mut dyn Scheduler, by: impl Fn(&mut Out)) {
        let mut back = Vec::new();
        for &gpu in gpus {
            let (_, after) = self.out().change(gpu, |out| by(out));
            if after.is_available() {
                let region = self.region_of(gpu);
                self.regions[region as usize].give(&[gpu]);
                back.push((region, self.now, after.told, gpu));
            }
            if after.is_in_service() {
                self.out().change(gpu, |out| (out.until, out.told) = (0, 0));
            }
        }
        for absence in batches(back) {
            scheduler.regained(&absence, self);
        }
    }

    /// Puts spares in the place of hosts that have just lost `gpus`.
    fn replace(
        &mut self,
        upkeep: &Upkeep<'_>,
        gpus: &[EndpointId],
        until: u64,
        scheduler: &mut dyn Scheduler,
    ) {
        let per_host = self.machine.endpoints_per_host;
        let mut hosts: Vec<u32> = gpus.iter().map(|gpu| gpu.0 / per_host).collect();
        hosts.dedup();
        for host in hosts {
            let all: Vec<EndpointId> = self.out().gpus_of(host).collect();
            if self.out().is_replaced(host) {
                self.put_out(&all, until, scheduler, |_| ());
                continue;
            }
            if self.out().is_spare(host) {
                continue;
            }
            let Some(spare) = self.out().draw_spare() else { return };
            self.out().set_replaced(host, true);
            self.put_out(&all, until, scheduler, |out| out.failed += 1);
            match upkeep.spares.delay {
                0 => self.ready(spare, scheduler),
                delay => {
                    let at = self.now.saturating_add(delay);
                    self.out().called += 1;
                    self.out().agenda.call(spare, at);
                    self.announce(spare, at, scheduler);
                }
            }
        }
    }

    /// A spare will be up at `at`.
    fn announce(&mut self, host: u32, at: u64, scheduler: &mut dyn Scheduler) {
        let all: Vec<EndpointId> = self.out().gpus_of(host).collect();
        let mut back = Vec::new();
        for &gpu in &all {
            let (before, _) = self.out().change(gpu, |out| (out.until, out.told) = (at, at));
            back.push((self.region_of(gpu), at, before.told, gpu));
        }
        for absence in batches(back) {
            scheduler.regained(&absence, self);
        }
    }

    /// A spare is up.
    fn ready(&mut self, host: u32, scheduler: &mut dyn Scheduler) {
        let all: Vec<EndpointId> = self.out().gpus_of(host).collect();
        self.put_back(&all, scheduler, |out| out.spare = false);
    }

    /// Makes spares of the replaced hosts among those of `gpus` that are whole again.
    fn retire(&mut self, gpus: &[EndpointId], scheduler: &mut dyn Scheduler) {
        let per_host = self.machine.endpoints_per_host;
        let mut hosts: Vec<u32> = gpus.iter().map(|gpu| gpu.0 / per_host).collect();
        hosts.dedup();
        for host in hosts {
            let all: Vec<EndpointId> = self.out().gpus_of(host).collect();
            // The one cause left is that it was replaced.
            if self.out().is_replaced(host) && all.iter().all(|&gpu| self.out().of(gpu).failed == 1) {
                self.out().set_replaced(host, false);
                self.put_out(&all, u64::MAX, scheduler, |out| out.spare = true);
                self.put_back(&all, scheduler, |out| out.failed -= 1);
                self.out().add_spare(host);
            }
        }
    }
}

/// GPUs of equal region and times together, in order.
fn batches(mut gpus: Vec<(u32, u64, u64, EndpointId)>) -> Vec<Absence> {
    gpus.sort_unstable();
    let mut found: Vec<Absence> = Vec::new();
    for (region, from, until, gpu) in gpus {
        match found.last_mut() {
            Some(last) if (last.region, last.from, last.until) == (region, from, until) => {
                last.gpus.push(gpu);
            }
            _ => found.push(Absence { region, from, until, gpus: vec![gpu] }),
        }
    }
    found
}
