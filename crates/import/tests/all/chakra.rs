//! Chakra traces as several writers leave them: names of files, groups, dimensions, JSON of the jsonizer.

use windtunnel_import::input::Input;
use windtunnel_import::{Missing, Options, Place, Treatment};
use windtunnel_kernel::RankId;
use windtunnel_workload::collectives::CollectiveKind;

use crate::small::{bytes_field, import, number_field, samples};

/// A trace of one collective on the device: 50 us, and attributes by name and field.
fn trace(attributes: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let attribute =
        |name: &str, value: &[u8]| bytes_field(10, &[&bytes_field(1, name.as_bytes())[..], value].concat());
    let mut node =
        [number_field(1, 1), bytes_field(2, b"sum"), number_field(3, 7), number_field(7, 50)].concat();
    node.extend(attribute("is_cpu_op", &[0xd8, 0x01, 0]));
    for (name, value) in attributes {
        node.extend(attribute(name, value));
    }
    let mut file = Vec::new();
    for message in [bytes_field(1, b"0.0.4"), node] {
        file.extend([(message.len() & 127) as u8 | 128, (message.len() >> 7) as u8]);
        file.extend(message);
    }
    file
}

/// A collective of a kind, of 100 bytes.
fn sized(kind: u8) -> Vec<(&'static str, Vec<u8>)> {
    vec![("comm_type", number_field(9, kind)), ("comm_size", number_field(9, 100))]
}

fn text(value: &str) -> Vec<u8> {
    [&[0xea, 0x01, value.len() as u8], value.as_bytes()].concat()
}

fn list(values: &[u8]) -> Vec<u8> {
    let fields: Vec<u8> = values.iter().flat_map(|&value| number_field(1, value)).collect();
    [&[0xe2, 0x01, fields.len() as u8], &fields[..]].concat()
}

#[test]
fn a_rank_is_the_number_in_the_name_of_its_file() {
    let of = |names: &[&str]| -> Vec<Input> {
        names.iter().map(|name| Input::bytes(*name, trace(&sized(0)))).collect()
    };
    let gap = of(&["s.0.et", "s.2.et"]);
    let error = import("chakra", &gap, &Options::default()).unwrap_err();
    assert!(error.found.ends_with("(missing: rank 1)"), "{error}");
    let same = Options { missing: Missing::Same, ..Options::default() };
    let (workload, coverage) = import("chakra", &gap, &same).unwrap();
    assert_eq!((workload.ranks(), coverage.of("rank", Treatment::Guessed)), (3, 1));
    // Names that are not alike, and a file alone: in order.
    for (names, ranks) in
        [(&["a.0.et", "b.7.et"][..], 2), (&["x/s.1.et", "y/s.1.et"], 2), (&["1.0.2-chakra.0.0.4.et"], 1)]
    {
        assert_eq!(import("chakra", &of(names), &Options::default()).unwrap().0.ranks(), ranks, "{names:?}");
    }
    let error = import("chakra", &of(&["s.0.et", "s.4000000000.et"]), &same).unwrap_err();
    assert_eq!(error.found, "4000000001");
}

#[test]
fn a_group_without_a_list_has_the_ranks_that_name_it() {
    let inputs: Vec<Input> = (0..4)
        .map(|rank| {
            let mut attributes = sized(0);
            attributes.push(("pg_name", text(&(1 + rank % 2).to_string())));
            Input::bytes(format!("s.{rank}.et"), trace(&attributes))
        })
        .collect();
    let (workload, coverage) = import("chakra", &inputs, &Options::default()).unwrap();
    let mut groups: Vec<Vec<u32>> =
        workload.communicators.iter().map(|group| group.ranks.iter().map(|rank| rank.0).collect()).collect();
    groups.sort();
    assert_eq!(groups, [[0, 2], [1, 3]]);
    assert_eq!(coverage.of("collective: all-reduce", Treatment::Mapped), 4);
}

#[test]
fn dimensions_of_a_network_that_is_not_there_are_approximated() {
    for (values, treatment) in [(&[1, 0][..], Treatment::Approximated), (&[1, 1], Treatment::Mapped)] {
        let inputs: Vec<Input> = (0..2)
            .map(|rank| {
                let mut attributes = sized(0);
                attributes.push(("involved_dim", list(values)));
                Input::bytes(format!("s.{rank}.et"), trace(&attributes))
            })
            .collect();
        let (_, coverage) = import("chakra", &inputs, &Options::default()).unwrap();
        assert_eq!(coverage.of("collective: all-reduce", treatment), 2, "{values:?}");
    }
}

#[test]
fn a_gather_with_a_size_is_not_said_to_have_none() {
    let reason = |attributes: &[(&str, Vec<u8>)]| {
        let inputs: Vec<Input> =
            (0..2).map(|rank| Input::bytes(format!("s.{rank}.et"), trace(attributes))).collect();
        let (_, coverage) = import("chakra", &inputs, &Options::default()).unwrap();
        let rows = coverage.json();
        let row = rows["rows"].as_array().unwrap().iter().find(|row| row["kind"] == "collective").unwrap();
        row["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(&sized(3)), "a gather or a scatter: its recorded time stays");
    assert_eq!(reason(&sized(0)[..1]), "it says no size: its recorded time stays");
    assert_eq!(reason(&sized(60)), "of a kind that is not known: its recorded time stays");
}

/// What the jsonizer writes of a kernel and an all-reduce behind it.
const JSONIZED: &str = r#"{
  "version": "0.0.4"
}{
  "id": "1", "name": "gemm", "type": "COMP_NODE", "durationMicros": "100",
  "attr": [{"name": "is_cpu_op", "boolVal": false}]
}{
  "id": "2", "name": "sum", "type": "COMM_COLL_NODE", "dataDeps": ["1"], "durationMicros": "50",
  "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "1000000"},
    {"name": "involved_dim", "boolList": {"values": [true]}}]
}"#;

#[test]
fn what_the_jsonizer_writes_is_read() {
    let of = |text: &str| -> Vec<Input> {
        (0..2).map(|rank| Input::bytes(format!("s.{rank}.json"), text.as_bytes().to_vec())).collect()
    };
    let inputs = of(JSONIZED);
    assert_eq!(windtunnel_import::detect(&inputs[0]).unwrap().unwrap().entry().name, "chakra");
    let (workload, coverage) = import("chakra", &inputs, &Options::default()).unwrap();
    let program = workload.program(RankId(0));
    assert_eq!((program.specs[0].kind, program.specs[0].bytes.get()), (CollectiveKind::AllReduce, 1_000_000));
    assert_eq!(coverage.of("device node", Treatment::Mapped), 2);
    let error = import("chakra", &of(&JSONIZED[..JSONIZED.len() - 9]), &Options::default()).unwrap_err();
    assert!(matches!(error.place, Place::Byte(byte) if byte > 100) && error.hint.is_some(), "{error}");
    let error = import("chakra", &of(&JSONIZED.replace("\"0.0.4\"", "\"2.0.0\"")), &Options::default());
    assert_eq!(error.unwrap_err().found, "version `2.0.0`");
    let error = import("chakra", &of(&JSONIZED.replace("[\"1\"]", "[\"x\"]")), &Options::default());
    assert_eq!(error.unwrap_err().expected, "the id of a node");
}

#[test]
fn a_newer_chakra_or_nsight_is_refused_with_what_to_do() {
    let (_, inputs) = samples()
        .into_iter()
        .find(|(kind, inputs)| *kind == "chakra" && inputs[0].name.ends_with("et"))
        .expect("a sample in Protocol Buffers");
    let mut content = inputs[0].whole().unwrap();
    let at = content.windows(5).position(|part| part == b"1.0.0").unwrap();
    content[at] = b'2';
    let error = import("chakra", &[Input::bytes("c.0.et", content)], &Options::default()).unwrap_err();
    assert_eq!(error.found, "version `2.0.0`");
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/nsys/two_gpus.sqlite");
    let inputs = windtunnel_import::input::expand(&[corpus]).unwrap();
    let (workload, coverage) = import("nsys", &inputs, &Options::default()).unwrap();
    assert_eq!((workload.ranks(), coverage.of("collective: all-reduce", Treatment::Guessed)), (2, 12));
    let mut content = inputs[0].whole().unwrap();
    let at = content.windows(6).position(|part| part == b"3.25.0").unwrap();
    content[at] = b'4';
    let error = import("nsys", &[Input::bytes("n.sqlite", content)], &Options::default()).unwrap_err();
    assert_eq!(error.found, "`EXPORT_SCHEMA_VERSION` 4.25.0");
}
