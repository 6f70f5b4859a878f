//! `topology.txt` of the HPCC fork of ns-3, and SimAI's.
//!
//! HPCC: `nodes switches links`, the ids of the switches, then `src dst rate delay loss` per cable; the other ids,
//! `0..nodes`, are hosts. SimAI: `nodes gpus_per_server nvswitches switches links gpu_type`, the ids of `NVSwitches` and
//! of switches, and the cables; every other id is a GPU. Ids may stand on several lines. ns-3 keeps one link for a pair
//! of nodes, so a pair given twice is an error.
//!
//! SimAI's GPUs become hosts of `gpus_per_server` GPUs, in order of their ids; the `NVSwitches` are their scale-up
//! network: a GPU's rate is the sum of its links to them, its latency the way through one. The cables of a server, GPU
//! by GPU, are its NICs.

use rustc_hash::FxHashMap;
use windtunnel_kernel::{BitRate, Span};

use super::text::{Line, Source, Word, lines};
use crate::graph::{
    Cable, Defaults, GraphBuilder, GraphError, GraphProblem, GraphSpec, NodeKind, Place, Repeats,
};
use crate::spec::{HostSpec, ScaleUpSpec};

/// What an id is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Id {
    Endpoint,
    NvSwitch,
    Switch,
}

struct Header {
    nodes: u32,
    gpus_per_server: Option<u32>,
    nv_switches: u32,
    switches: u32,
    links: u32,
    place: Place,
}

struct Row {
    ends: (u32, u32),
    cable: Cable,
    place: Place,
}

pub(super) fn read(file: &str, text: &str, defaults: &Defaults) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let mut lines = lines(text);
    let first = lines.next();
    let first = first
        .ok_or_else(|| source.syntax(Place::File, "a first line `nodes switches links`", "an empty file"))?;
    let header = read_header(source, first)?;
    // A header that promises more than the text can hold costs no memory.
    let most = text.len() as u64 / 10;
    if u64::from(header.links) > most {
        let found = format!("{}, more than the file holds", header.links);
        return Err(source.syntax(header.place, "the number of links", &found));
    }
    let ids = read_ids(source, &header, &mut lines)?;
    let mut rows = Vec::new();
    let mut last = header.place;
    for line in lines {
        last = line.place();
        rows.push(read_row(source, line, header.nodes)?);
    }
    if rows.len() as u64 != u64::from(header.links) {
        let found = format!("{}", rows.len());
        return Err(source.syntax(last, &format!("{} links as in the first line", header.links), &found));
    }
    match header.gpus_per_server {
        None => plain(file, defaults, &ids, &rows, header.place),
        Some(gpus) => servers(file, defaults, &ids, &rows, gpus, header.place),
    }
}

fn read_header(source: Source<'_>, line: Line<'_>) -> Result<Header, GraphError> {
    let words: Vec<Word<'_>> = line.words().collect();
    let place = line.place();
    let whole = |index: usize, key: &str| source.whole(key, words[index]);
    match words.len() {
        3 => Ok(Header {
            nodes: whole(0, "nodes")?,
            gpus_per_server: None,
            nv_switches: 0,
            switches: whole(1, "switches")?,
            links: whole(2, "links")?,
            place,
        }),
        // Later forms of SimAI append the GPUs of a node once more.
        6 | 7 => Ok(Header {
            nodes: whole(0, "nodes")?,
            gpus_per_server: Some(source.positive("gpus_per_server", words[1])?),
            nv_switches: whole(2, "nvswitches")?,
            switches: whole(3, "switches")?,
            links: whole(4, "links")?,
            place,
        }),
        found => Err(source.syntax(
            place,
            "`nodes switches links` or `nodes gpus_per_server nvswitches switches links gpu_type`",
            &format!("{found} words"),
        )),
    }
}

/// What every id is; no id may be named twice.
fn read_ids<'a>(
    source: Source<'_>,
    header: &Header,
    lines: &mut impl Iterator<Item = Line<'a>>,
) -> Result<Vec<Id>, GraphError> {
    let due = u64::from(header.nv_switches) + u64::from(header.switches);
    if due >= u64::from(header.nodes) {
        let expected = format!("fewer switches than the {} nodes", header.nodes);
        return Err(source.syntax(header.place, &expected, &due.to_string()));
    }
    // Every node needs a link, so that a connected graph has no more nodes than links and one.
    if u64::from(header.nodes) > u64::from(header.links) + 1 {
        let expected = format!("at least {} links to connect {} nodes", header.nodes - 1, header.nodes);
        return Err(source.syntax(header.place, &expected, &header.links.to_string()));
    }
    let mut ids = vec![Id::Endpoint; header.nodes as usize];
    let mut seen = 0;
    while seen < due {
        let Some(line) = lines.next() else {
            return Err(source.syntax(header.place, &format!("{due} switch ids"), &format!("{seen}")));
        };
        for word in line.words() {
            let id = node_id(source, word, header.nodes)?;
            if seen == due {
                let found = format!("`{}` beyond them", word.text);
                return Err(source.syntax(
                    word.place,
                    &format!("{due} switch ids as in the first line"),
                    &found,
                ));
            }
            if ids[id as usize] != Id::Endpoint {
                let name = word.text.to_owned();
                return Err(source.fail(word.place, GraphProblem::DuplicateNode { name, first: Place::File }));
            }
            ids[id as usize] = if seen < u64::from(header.nv_switches) { Id::NvSwitch } else { Id::Switch };
            seen += 1;
        }
    }
    Ok(ids)
}

fn node_id(source: Source<'_>, word: Word<'_>, nodes: u32) -> Result<u32, GraphError> {
    let id = source.whole("node", word)?;
    if id < nodes {
        return Ok(id);
    }
    let nearest = Some(format!("{}", nodes - 1));
    let problem = GraphProblem::UnknownNode { name: word.text.to_owned(), nodes: nodes as usize, nearest };
    Err(source.fail(word.place, problem))
}

fn read_row(source: Source<'_>, line: Line<'_>, nodes: u32) -> Result<Row, GraphError> {
    let words: Vec<Word<'_>> = line.words().collect();
    let [src, dst, rate, delay, loss] = words[..] else {
        let found = format!("{} words", words.len());
        return Err(source.syntax(line.place(), "`src dst rate delay loss`", &found));
    };
    let ends = (node_id(source, src, nodes)?, node_id(source, dst, nodes)?);
    let rate = source.rate("rate", rate)?;
    let latency = source.time("delay", delay)?;
    let cable = Cable { rate: Some(rate), latency: Some(latency), loss: source.loss(loss)? };
    Ok(Row { ends, cable, place: line.place() })
}

/// HPCC's: ids are nodes.
fn plain(
    file: &str,
    defaults: &Defaults,
    ids: &[Id],
    rows: &[Row],
    place: Place,
) -> Result<GraphSpec, GraphError> {
    let mut graph = GraphBuilder::new(file, defaults);
    for (id, &what) in ids.iter().enumerate() {
        let kind = if what == Id::Endpoint { NodeKind::Host } else { NodeKind::Switch };
        graph.declare(&id.to_string(), Some(kind), None, place)?;
    }
    for row in rows {
        graph.link(row.ends, row.cable, 1, Repeats::Refused(None), row.place)?;
    }
    graph.finish()
}

/// SimAI's: runs of GPUs are hosts.
fn servers(
    file: &str,
    defaults: &Defaults,
    ids: &[Id],
    rows: &[Row],
    gpus_per_server: u32,
    place: Place,
) -> Result<GraphSpec, GraphError> {
    let source = Source { file };
    let gpus = ids.iter().filter(|&&id| id == Id::Endpoint).count() as u32;
    if ids[..gpus as usize].iter().any(|&id| id != Id::Endpoint) {
        return Err(source.syntax(place, "the GPUs to be the first ids", "a switch among them"));
    }
    if !gpus.is_multiple_of(gpus_per_server) {
        let expected = format!("a number that divides the {gpus} GPUs");
        let key = "gpus_per_server".to_owned();
        let found = gpus_per_server.to_string();
        return Err(source.fail(place, GraphProblem::Mismatch { key, expected, found, hint: None }));
    }
    let mut graph = GraphBuilder::new(file, defaults);
    // Hosts first, then switches by id; an NVSwitch is none of the graph's nodes.
    let mut node_of: Vec<Option<u32>> = Vec::with_capacity(ids.len());
    for server in 0..gpus / gpus_per_server {
        let host = graph.declare(&format!("server{server}"), Some(NodeKind::Host), None, place)?;
        node_of.extend((0..gpus_per_server).map(|_| Some(host)));
    }
    for (id, &what) in ids.iter().enumerate().skip(gpus as usize) {
        let name = id.to_string();
        let switch = what == Id::Switch;
        node_of.push(switch.then(|| graph.declare(&name, Some(NodeKind::Switch), None, place)).transpose()?);
    }

    let mut scale_up: Vec<Option<(BitRate, Span)>> = vec![None; gpus as usize];
    let mut server_of_switch: Vec<Option<u32>> = vec![None; ids.len()];
    let mut nics = vec![0u32; gpus as usize];
    let mut cables: Vec<(u32, usize)> = Vec::new();
    let mut pairs = FxHashMap::default();
    for (number, row) in rows.iter().enumerate() {
        let (low, high) = (row.ends.0.min(row.ends.1), row.ends.0.max(row.ends.1));
        if let Some(first) = pairs.insert((low, high), row.place) {
            let (a, b) = (low.to_string(), high.to_string());
            return Err(source.fail(row.place, GraphProblem::DuplicateLink { a, b, first, hint: None }));
        }
        match (ids[low as usize], ids[high as usize]) {
            (Id::Endpoint, Id::NvSwitch) => {
                let server = low / gpus_per_server;
                let owner = server_of_switch[high as usize].get_or_insert(server);
                if *owner != server {
                    let what = format!(
                        "expected an NVSwitch to join the GPUs of one server, found {high} at server{owner} and \
                         server{server}"
                    );
                    let hint = Some("raise `gpus_per_server` to all GPUs of the NVLink domain".to_owned());
                    return Err(source.fail(row.place, GraphProblem::Unsupported { what, hint }));
                }
                let (rate, latency) =
                    (row.cable.rate.unwrap_or_default(), row.cable.latency.unwrap_or_default());
                let sum = scale_up[low as usize].get_or_insert((BitRate::ZERO, Span::ZERO));
                // Through an NVSwitch: its link there and another one back.
                *sum = (BitRate::from_bps(sum.0.bps().saturating_add(rate.bps())), sum.1.max(latency * 2));
            }
            (Id::Endpoint, Id::Endpoint) | (Id::NvSwitch, _) | (_, Id::NvSwitch) => {
                let what = format!(
                    "expected links from a GPU to a switch or between switches, found {low} -- {high}"
                );
                return Err(source.fail(row.place, GraphProblem::Unsupported { what, hint: None }));
            }
            (Id::Endpoint, Id::Switch) => {
                nics[low as usize] += 1;
                cables.push((low, number));
            }
            _ => cables.push((u32::MAX, number)),
        }
    }
    let uneven = |what: &str, gpu: usize, found: String, first: String| {
        let key = format!("{what} of GPU {gpu}");
        let expected = format!("{first} as of GPU 0");
        source.fail(place, GraphProblem::Mismatch { key, expected, found, hint: None })
    };
    if let Some(gpu) = (0..nics.len()).find(|&gpu| nics[gpu] != nics[0]) {
        return Err(uneven("NICs", gpu, nics[gpu].to_string(), nics[0].to_string()));
    }
    if let Some(gpu) = (0..nics.len()).find(|&gpu| scale_up[gpu] != scale_up[0]) {
        let text = |at: usize| match scale_up[at] {
            Some((rate, _)) => format!("{} Gbps", rate.bps() as f64 / 1e9),
            None => "none".to_owned(),
        };
        return Err(uneven("NVLink rate", gpu, text(gpu), text(0)));
    }
    // NICs of a host are counted GPU by GPU, whatever the order of the file; other links keep theirs.
    cables.sort_by_key(|&(gpu, _)| gpu);
    for (_, number) in cables {
        let row = &rows[number];
        let node = |id: u32| node_of[id as usize].expect("an NVSwitch has been refused");
        // The GPUs of a server may each have a cable to one leaf; pairs of ids given twice have been refused.
        graph.link((node(row.ends.0), node(row.ends.1)), row.cable, 1, Repeats::Parallel, row.place)?;
    }
    let mut spec = graph.finish()?;
    let (rate, latency) = scale_up[0].unwrap_or_default();
    let size = if scale_up[0].is_some() { None } else { Some(1) };
    spec.host = Some(HostSpec {
        gpus: gpus_per_server,
        nics: gpus_per_server * nics[0],
        rails: false,
        scale_up: ScaleUpSpec { size, rate, latency },
    });
    Ok(spec)
}
