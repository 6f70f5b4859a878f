//! Token buckets of lines where the rate of a cable changes, against closed forms.

use windtunnel_fabric::dispatched;
use windtunnel_fabric::packet::transport::{
    Bucket, Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines,
    Load, NicFacts, Note, Outbox, Parcel, Sent, Tally,
};
use windtunnel_fabric::packet::{FabricPart, Impairments, PacketSettings, PartChange, PartState};
use windtunnel_kernel::{Bytes, Span, Time};
use windtunnel_topology::Names;

use crate::packets::{drain, engine, send, star};

const MTU: u64 = 9_000;
const HEADER: u64 = 40;
const NOTE: u64 = 64;
/// Gbps of a cable, and picoseconds of a byte there.
const RATE: u64 = 800;
const BYTE: u64 = 10;
/// Time of a token at that rate.
const TOKEN: u64 = 100_000_000;
/// When the message is handed over.
const START: u64 = 1_000_000;

/// A sender puts three notes into a line whose bucket holds two tokens, before its packets; tells when the last note left there, and when
/// it reached its NIC.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Three;

#[derive(Clone, Debug, Default)]
struct ThreeNic {
    left: u64,
    came: u64,
}

dispatched!(Three);

impl Dispatcher for Three {
    type Used = Dispatching;
    type Nic = ThreeNic;
    const NAME: &'static str = "three";
    const PULLS: bool = false;

    /// The bucket is that of the NIC's port or, with notes of line 1, of the switch's.
    fn lines(&self, port: &LinePort, _: &FabricFacts) -> Lines {
        let interval = Span::from_ps(TOKEN * (RATE * 1_000_000_000 / port.rate.bps()));
        let bucket = Some(Bucket { interval, depth: 2 });
        let bound = |bound: bool| Line { bucket: bucket.filter(|_| bound), ..Line::default() };
        Lines { lines: vec![bound(port.nic), bound(!port.nic), Line::default()], shared: None }
    }

    fn open_nic(&self, _: &mut ThreeNic, _: &NicFacts) {}

    fn open(&self, _: &mut ThreeNic, _: &FlowFacts) {}

    fn accept(&self, _: &mut ThreeNic, _: &FlowFacts) {}

    fn abandon(&self, _: &mut ThreeNic, _: u32, _: bool) {}

    fn on_message(&self, _: &mut ThreeNic, message: &Joined, out: &mut Outbox) {
        // What it is hashed by says at which port notes meet a bucket.
        let line = message.group as u8;
        let note = Load::Note(Note::default());
        let parcel = Parcel { flow: message.flow, back: false, load: note, line, path: 0, rank: 0 };
        (0..3).for_each(|_| out.send(parcel));
        for sequence in message.first..message.first + message.packets {
            out.send(Parcel { load: Load::Data(sequence), line: 2, ..parcel });
        }
    }

    fn on_note(&self, nic: &mut ThreeNic, heard: &Heard, _: &mut Outbox) {
        nic.came = heard.now.ps();
    }

    fn on_data(&self, _: &mut ThreeNic, _: &Landed, _: &mut Outbox) {}

    fn on_sent(&self, nic: &mut ThreeNic, sent: &Sent, _: &mut Outbox) {
        if matches!(sent.load, Load::Note(_)) {
            nic.left = sent.now.ps();
        }
    }

    fn tell(&self, nic: &ThreeNic, tally: &mut Tally) {
        tally.raise("left", nic.left);
        tally.raise("came", nic.came);
    }
}

/// When the third note leaves its NIC and comes to the other, where `cable` has a quarter of its rate from the start until `at`. Notes go
/// by `line`, before so many packets.
fn third(cable: &str, line: u64, packets: u64, at: u64) -> [u64; 2] {
    let topology = star(2, RATE, 0);
    let link = Names::new(&topology).link(cable).expect("a link of this name");
    let change = |at, rate| PartChange {
        at: Time::from_ps(at),
        known: Time::from_ps(at),
        part: FabricPart::Cable(link),
        state: PartState::Rate(rate),
    };
    let changes = vec![change(0, 0.25), change(at, 1.0)];
    let settings = PacketSettings {
        mtu: Bytes::new(MTU),
        header: Bytes::new(HEADER),
        control: Bytes::new(NOTE),
        impairments: Impairments { changes, ..Impairments::default() },
        ..PacketSettings::default()
    };
    let mut engine = engine(&topology, settings, Three);
    send(&mut engine, START, 0, 1, packets * (MTU - HEADER), line);
    drain(&mut engine);
    let tally = engine.tally().expect("a dispatcher");
    ["left", "came"].map(|name| tally.get(name))
}

/// Two notes leave at once, at a quarter of the rate, so the bucket has its next token after four of a token's times. After one and a half
/// of them the rate is whole again: three eighths of a token are there, and five eighths come at the whole rate. A port that nothing
/// reaches meanwhile is woken up for that, whether it is idle or busy as the rate changes.
#[test]
fn tokens_come_at_the_new_rate() {
    let at = START + 3 * TOKEN / 2;
    let due = at + 5 * TOKEN / 8;
    let nic = "host0/nic0 -> leaf0";
    assert_eq!(third(nic, 0, 1, at)[0], due, "idle");
    // 417 packets leave until then: the port is busy as the rate changes, and idle as the token comes.
    assert_eq!(third(nic, 0, 500, at)[0], due, "busy at first");
    // 694 more leave until the token comes, and the note waits for the end of one.
    let [left, _] = third(nic, 0, 2_000, at);
    assert!((due..due + MTU * BYTE).contains(&left), "busy: {left}, the token at {due}");
    // Left at a quarter, it takes the four times.
    assert_eq!(third(nic, 0, 1, START + 10 * TOKEN)[0], START + 4 * TOKEN);
}

/// The same at the port of a switch: the third note comes so much after the token as cables and pipelines take.
#[test]
fn tokens_of_a_switch_come_at_the_new_rate() {
    let cable = "leaf0 -> host1/nic0";
    let at = START + 3 * TOKEN / 2;
    let due = at + 5 * TOKEN / 8;
    let [left, came] = third(cable, 1, 1, at);
    assert!(left < START + TOKEN / 100, "the NIC's port has no bucket for it");
    assert!((due..due + TOKEN / 50).contains(&came), "{came}, the token at {due}");
}
