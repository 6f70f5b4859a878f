//! What a replay asks of its machine, asked of the fabric.

use windtunnel_fabric::{Fabric, SendRequest};
use windtunnel_kernel::{EndpointId, RankId, Span, StreamId, Tag, Time};
use windtunnel_workload::machine::{Join, Meet};
use windtunnel_workload::{Machine, Outgoing, Token, Workload};

use super::groups::{Complete, Coupled};
use super::ticket::ticket;
use crate::coupler::{Coupler, Joined, Member};
use crate::variation::Variation;

/// The machine that a replay sees: the fabric, behind the job's placement.
pub(super) struct Bridge<'a, F> {
    pub fabric: &'a mut F,
    pub variation: &'a Variation,
    pub coupler: &'a mut Coupler,
    pub job: usize,
    pub complete: &'a mut Vec<Complete>,
    /// See [`super::exchanges`]; empty where nothing is merged.
    pub bounds: &'a mut [u64],
    pub placement: &'a [EndpointId],
    pub members: &'a [u32],
    pub workload: &'a Workload,
    /// Which ranks are, if not all.
    pub simulated: &'a [bool],
    pub iteration: u64,
}

impl<F: Fabric> Bridge<'_, F> {
    fn at(&self, rank: RankId) -> EndpointId {
        self.placement[rank.0 as usize]
    }
}

impl<F: Fabric> Machine for Bridge<'_, F> {
    fn calc(&mut self, ready: Time, rank: RankId, token: Token, stream: StreamId, duration: Span) {
        let endpoint = self.at(rank);
        let factor = self.variation.factor(endpoint, token.0, self.iteration, ready);
        self.fabric.calc(ready, endpoint, ticket(self.job, token), stream, duration.scaled(factor));
    }

    fn send(&mut self, ready: Time, rank: RankId, token: Token, message: Outgoing) {
        let request = SendRequest {
            stream: message.stream,
            nic: message.nic,
            to: self.at(message.to),
            bytes: message.bytes,
            tag: message.tag,
            class: message.dimension as u8,
            entropy: message.entropy,
            line: message.line,
            waits: message.waits,
        };
        if !self.bounds.is_empty() {
            let (from, to) = (rank.0 as usize, message.to.0 as usize);
            self.bounds[to] = self.bounds[to].max(self.bounds[from]);
        }
        self.fabric.send(ready, self.at(rank), ticket(self.job, token), request);
    }

    fn post_receive(
        &mut self,
        ready: Time,
        rank: RankId,
        token: Token,
        stream: StreamId,
        source: Option<RankId>,
        tag: Option<Tag>,
    ) {
        let source = source.map(|source| self.at(source));
        self.fabric.post_receive(ready, self.at(rank), ticket(self.job, token), stream, source, tag);
    }

    fn join(&mut self, ready: Time, rank: RankId, token: Token, join: Join) {
        let size = self.members[join.communicator as usize] as usize;
        let member = Member { rank, token, ready };
        let (run, joined) = self.coupler.join(join.communicator, join.sequence, size, member);
        let what = match joined {
            Joined::Late => Coupled::Late(member),
            _ if join.in_step => Coupled::Came(join),
            Joined::Last => Coupled::Join(join),
            Joined::Waits => return,
        };
        self.complete.push(Complete { run, start: self.coupler.start(run), what });
    }

    fn meet(&mut self, ready: Time, rank: RankId, token: Token, meet: Meet) {
        // The ranks of a fold that are not simulated do not come.
        let comes = |member: u32| {
            let rank = self.workload.communicators[meet.communicator as usize].ranks[member as usize];
            self.simulated.get(rank.0 as usize).is_none_or(|simulated| *simulated)
        };
        let size = || meet.meeting.members().filter(|&member| comes(member)).count();
        let name = (meet.tag.0, meet.meeting.first);
        if let Some((run, start)) = self.coupler.meet(name, size, Member { rank, token, ready }) {
            self.complete.push(Complete { run, start, what: Coupled::Meet(meet) });
        }
    }
}
