//! What a job loads over the network before it works: requests as operations.
//!
//! Of each request every NIC of the storage hosts sends an equal part and every GPU gets one, so that laying both parts over one
//! line gives at most n + S - 1 flows for n GPUs and S NICs.

use std::sync::Arc;

use windtunnel_kernel::{Bytes, EndpointId, NicId, RankId, StreamId, Tag};
use windtunnel_workload::program::{Binding, Communicator};
use windtunnel_workload::{CommSlot, Dimension, OpKind, Operation, Peer, ProgramBuilder, Workload};

/// What a job loads over the network.
#[derive(Clone, Debug)]
pub struct Load {
    /// A request: ranks of the job, then one for each of `storage`.
    pub workload: Arc<Workload>,
    /// Where those stand.
    pub storage: Arc<[EndpointId]>,
    /// Requests in all.
    pub requests: u64,
    bytes: u64,
}

impl Load {
    /// `bytes` in so many `requests` from `storage` to `gpus` GPUs.
    pub fn new(bytes: u64, requests: u64, gpus: u32, storage: Arc<[EndpointId]>) -> Self {
        let workload = Arc::new(request(bytes, requests, gpus, storage.len() as u32));
        Self { workload, storage, requests, bytes }
    }

    /// The same data, in as many requests, for `gpus` GPUs.
    pub fn onto(&self, gpus: u32) -> Self {
        let workload = Arc::new(request(self.bytes, self.requests, gpus, self.storage.len() as u32));
        Self { workload, ..self.clone() }
    }

    /// Both ends of each flow for a job on `placement`.
    pub fn flows(&self, placement: &[EndpointId]) -> impl Iterator<Item = (EndpointId, EndpointId)> {
        let own = placement.len();
        self.storage.iter().enumerate().flat_map(move |(source, &from)| {
            let rank = RankId((own + source) as u32);
            let to = move |op: &Operation| match op.kind {
                OpKind::Send { peer, .. } => Some(placement[self.workload.resolve(rank, peer).0 as usize]),
                _ => None,
            };
            self.workload.program(rank).ops.iter().filter_map(to).map(move |to| (from, to))
        })
    }
}

/// Asks for the next request, and the request.
const ASKS: Tag = Tag(1);
/// See above.
const SENDS: Tag = Tag(0);

/// One of `requests` for `bytes` in all, from `sources` to `gpus`: the latter are the first ranks.
fn request(bytes: u64, requests: u64, gpus: u32, sources: u32) -> Workload {
    let (n, s) = (u64::from(gpus), u64::from(sources));
    let mut builders: Vec<ProgramBuilder> = (0..gpus + sources).map(|_| ProgramBuilder::new()).collect();
    let labels: Vec<u32> = builders.iter_mut().map(|builder| builder.label("load data")).collect();
    let (stream, nic, slot) = (StreamId(0), NicId(0), CommSlot(0));
    let mut message = |from: u32, to: u32, bytes: u64, tag: Tag| {
        let (peer, bytes) = (Peer::Member(slot, to), Bytes::new(bytes));
        let send = OpKind::Send { peer, bytes, tag, stream, nic };
        builders[from as usize].push(send, Dimension::Other, labels[from as usize]);
        let receive = OpKind::Receive { peer: Some(Peer::Member(slot, from)), tag: Some(tag), stream };
        builders[to as usize].push(receive, Dimension::Other, labels[to as usize]);
    };
    // On a line of n·s units a GPU has s of them and a source n.
    let (mut at, all) = (0, n * s);
    while at < all {
        let (gpu, source) = (at / s, at / n);
        let end = ((gpu + 1) * s).min((source + 1) * n);
        let part = u128::from(bytes) * u128::from(end - at);
        let part = part.div_ceil(u128::from(all) * u128::from(requests)) as u64;
        message(gpu as u32, gpus + source as u32, 1, ASKS);
        message(gpus + source as u32, gpu as u32, part, SENDS);
        at = end;
    }
    let programs = builders.into_iter().map(|builder| builder.finish().expect("nothing waits for another"));
    let mut workload = Workload { programs: programs.collect(), ..Workload::default() };
    let ranks = (0..gpus + sources).map(RankId).collect();
    workload.communicators.push(Communicator { name: "data".to_owned(), ranks });
    for index in 0..gpus + sources {
        workload.add_rank(index, &[Binding { communicator: 0, index }]);
    }
    workload
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that each rank sends and each receives of data, and the number of flows.
    fn sums(workload: &Workload) -> (Vec<u64>, Vec<u64>, usize) {
        let ranks = workload.ranks();
        let (mut sent, mut received, mut flows) = (vec![0; ranks], vec![0; ranks], 0);
        for rank in 0..ranks as u32 {
            for op in &workload.program(RankId(rank)).ops {
                if let OpKind::Send { peer, bytes, tag: SENDS, .. } = op.kind {
                    sent[rank as usize] += bytes.get();
                    received[workload.resolve(RankId(rank), peer).0 as usize] += bytes.get();
                    flows += 1;
                }
            }
        }
        (sent, received, flows)
    }

    #[test]
    fn every_nic_sends_and_every_gpu_gets_as_much() {
        for (gpus, sources) in [(1, 1), (4, 4), (3, 2), (2, 3), (8, 5), (1, 6), (7, 1)] {
            let each = 1_000;
            let bytes = each * u64::from(gpus * sources) * 3;
            let (sent, received, flows) = sums(&request(bytes, 3, gpus, sources));
            let (n, s) = (u64::from(gpus), u64::from(sources));
            assert!(received[..gpus as usize].iter().all(|&got| got == each * s), "{gpus} {sources}");
            assert!(sent[gpus as usize..].iter().all(|&gave| gave == each * n), "{gpus} {sources}");
            assert!(flows < (gpus + sources) as usize);
        }
    }
}
