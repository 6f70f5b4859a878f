//! There and back; cut and damaged files.

use std::path::Path;

use proptest::prelude::*;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag};

use super::{encode, read, read_from, write};
use crate::collectives::{Algorithm, CollectiveKind, CollectiveSpec};
use crate::program::{Binding, Communicator};
use crate::{CommSlot, Dimension, OpKind, Peer, ProgramBuilder, Workload};

fn sample() -> Workload {
    let mut builder = ProgramBuilder::new();
    let label = builder.label("gemm");
    let first = builder.calc(Span::from_ps(1_234_567), StreamId(0), label);
    let mut spec = CollectiveSpec::new(CollectiveKind::AllToAllV, Bytes::new(10));
    spec.matrix = Some(vec![1, 2, 3, 4].into());
    let second = builder.collective(CommSlot(0), spec, Dimension::Ep, StreamId(3), label);
    let mut spec = CollectiveSpec::new(CollectiveKind::Broadcast { root: 1 }, Bytes::new(1 << 40));
    spec.algorithm = Algorithm::Binomial;
    let third = builder.collective(CommSlot(0), spec, Dimension::Dp, StreamId(1), 0);
    builder.requires(second, first);
    builder.irequires(third, second);
    builder.requires(third, first);
    let mut workload = Workload { programs: vec![builder.finish().unwrap()], ..Workload::default() };
    let mut builder = ProgramBuilder::new();
    let to = Peer::Rank(RankId(1));
    builder.push(
        OpKind::Send { peer: to, bytes: Bytes::new(7), tag: Tag(9), stream: StreamId(0), nic: NicId(2) },
        Dimension::Pp,
        0,
    );
    builder.push(OpKind::Receive { peer: None, tag: None, stream: StreamId(5) }, Dimension::Other, 0);
    builder.push(
        OpKind::Receive { peer: Some(to), tag: Some(Tag(0)), stream: StreamId(5) },
        Dimension::Other,
        0,
    );
    workload.programs.push(builder.finish().unwrap());
    workload.communicators.push(Communicator { name: "pair".to_owned(), ranks: vec![RankId(2), RankId(1)] });
    workload.add_rank(1, &[]);
    workload.add_rank(0, &[Binding { communicator: 0, index: 1 }]);
    workload.add_rank(0, &[Binding { communicator: 0, index: 0 }]);
    workload
}

fn bytes(workload: &Workload) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(workload, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_workload_comes_back_as_it_was() {
    let workload = sample();
    assert_eq!(read_from(&bytes(&workload)[..], Path::new("t"), 1).unwrap(), workload);
}

#[test]
fn every_cut_is_refused() {
    let whole = bytes(&sample());
    for cut in 0..whole.len() - 1 {
        // zstd's last bytes may be a checksum alone.
        let result = read_from(&whole[..cut], Path::new("t"), 1);
        assert!(result.is_err() || cut + 4 >= whole.len(), "{cut} of {}", whole.len());
    }
}

proptest! {
    #[test]
    fn damage_never_panics(at in any::<proptest::sample::Index>(), new in any::<u8>()) {
        // Damage below zstd's packing, where its checks do not see it.
        let whole = bytes(&sample());
        let mut plain = zstd::decode_all(&whole[5..]).unwrap();
        let place = at.index(plain.len());
        plain[place] = new;
        let mut packed = whole[..5].to_vec();
        packed.extend(zstd::encode_all(&plain[..], 1).unwrap());
        let _ = read_from(&packed[..], Path::new("t"), 1);
    }
}

#[test]
fn a_file_that_cannot_be_opened_or_written_has_no_place_in_it() {
    let nowhere = std::env::temp_dir().join("windtunnel-no-such-folder").join("w.wtw");
    for error in [write(&sample(), &nowhere).unwrap_err(), read(&nowhere, 1).unwrap_err()] {
        let text = error.to_string();
        assert!(text.starts_with(&format!("{}: ", nowhere.display())) && !text.contains("byte"), "{text}");
    }
}
