"""Bad input through the installed command: exit status, the whole message with place and hint, and nothing left behind.

The messages are in `bad_input.txt`, one section per case; `{dir}` stands for the folder the command runs in.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Command

pytestmark = pytest.mark.engine

BASE = """\
windtunnel: 1
name: bad
seed: 1
fidelity: flow
topology:
  shape: clos
  hosts: 2
  tiers:
    - {ports_down: 2, rate: 400 Gbps, length: 30 m}
    - {ports_down: 8, rate: 400 Gbps, length: 100 m}
  host: {gpu: H100-SXM, gpus: 8, nics: 8, nic: ConnectX-7, rails: true}
network: {mtu: 4150 B, header: 66 B}
jobs:
  - name: train
    workload: {model: llama3-8b, global_batch: 8, micro_batch: 1, sequence: 2048}
    parallelism: {tp: 4, pp: 2, dp: 2}
    iterations: 1
"""

JOBS = BASE[BASE.index("jobs:") :]

# What is replaced in the file, and by what.
EDITS = {
    "unknown key": ("fidelity: flow", "fidelty: flow"),
    "unknown key inside": ("ports_down: 2", "port_down: 2"),
    "unknown key far from any": ("seed: 1", "weather: sunny"),
    "no unit of a rate": ("400 Gbps, length: 30 m", "400, length: 30 m"),
    "no unit of a length": ("30 m", "30"),
    "no unit of a size": ("4150 B", "4150"),
    "unit of another dimension": ("400 Gbps, length: 30 m", "400 ns, length: 30 m"),
    "unit in the wrong case": ("400 Gbps, length: 30 m", "400 gbps, length: 30 m"),
    "negative quantity": ("400 Gbps, length: 30 m", "-400 Gbps, length: 30 m"),
    "broken YAML": ("jobs:", "jobs: ["),
    "key twice": ("seed: 1", "seed: 1\nseed: 2"),
    "key missing at the root": ("name: bad\n", ""),
    "key missing inside": ("name: train\n    workload", "workload"),
    "text for a number": ("hosts: 2", "hosts: many"),
    "negative number": ("hosts: 2", "hosts: -1"),
    "number without end": ("seed: 1", "seed: .inf"),
    "unknown key without end": ("seed: 1", "sead: .inf"),
    "unknown key beside a number without end": ("seed: 1", "seed: 1\nvariation: {speeds: [{speed: .inf}]}\nweather: 1"),
    "list for a mapping": ("network: {mtu: 4150 B, header: 66 B}", "network: [4150 B]"),
    "unknown shape": ("shape: clos", "shape: close"),
    "unknown fidelity": ("fidelity: flow", "fidelity: flows"),
    "another version": ("windtunnel: 1", "windtunnel: 2"),
    "empty file": (BASE, ""),
    "two documents": (JOBS, JOBS + "---\nseed: 2\n"),
    "list for a scenario": (BASE, "- 1\n"),
    "no jobs": (JOBS, "jobs: []\n"),
    "prices: no years": ("seed: 1", "seed: 1\nprices: {years: 0}"),
    "prices: a rent and energy": ("seed: 1", "seed: 1\nprices: {gpu_hour: 2 USD, kwh: 0.1 USD}"),
    "prices: without a unit": ("seed: 1", "seed: 1\nprices: {gpu_hour: 2.5}"),
    "explore: no number of GPUs": ("seed: 1", "seed: 1\nexplore: {gpus: many}"),
    "explore: a list with 0 GPUs": ("seed: 1", "seed: 1\nexplore: {gpus: [8, 0]}"),
    "explore: unknown objective": ("seed: 1", "seed: 1\nexplore: {objective: dolars}"),
}

COLLECTIVE = "jobs=[{name: a, workload: {collective: {kind: %s, bytes: 1 MiB}}}]"
P = "jobs[0].parallelism"
W = "jobs[0].workload"
PACKETS = "fidelity=packet"
BUFFER = "network.buffers=[{size: 64 MB}]"

# Values of `--set`.
SETS = {
    "topology too small for the job": ["topology.hosts=1"],
    "more hosts than ports": ["topology.hosts=3"],
    "rails without a tier above": ["topology.tiers=[{ports_down: 2, rate: 400 Gbps}]"],
    "heads not divisible": [f"{P}.tp=3"],
    "layers not divisible": [f"{P}.pp=3", f"{P}.dp=1"],
    "layers that do not sum up": [f"{W}.training={{layers_per_stage: [10, 10]}}"],
    "layers of too many stages": [f"{W}.training={{layers_per_stage: [10, 10, 12]}}"],
    "batch not divisible": [f"{W}.global_batch=7"],
    "ranks not divisible by replicas": [f"{P}.replicate=3", f"{P}.zero=3"],
    "sequence not divisible": [f"{P}.cp=3", f"{P}.tp=1"],
    "experts not divisible": [f"{P}.ep=3", f"{P}.tp=1", f"{P}.dp=1", f"{W}.model=mixtral-8x7b", f"{W}.global_batch=9"],
    "SMs of an all-to-all": [f"{W}.training.dispatcher_sms=20"],
    "unknown dispatcher": [f"{W}.training.dispatcher=deep_ep"],
    "a token on no domain": [f"{W}.training={{dispatcher: deepep, routing_domains: 0}}"],
    "experts of a dense model": [f"{P}.ep=2", f"{P}.dp=1"],
    "degree of 0": [f"{P}.tp=0"],
    "unknown ZeRO stage": [f"{P}.zero=4"],
    "dimension twice in the order": [f"{P}.order=[tp, tp, ep, dp, pp]"],
    "order too short": [f"{P}.order=[tp, dp, pp]"],
    "unknown schedule": [f"{P}.schedule.name=gpip"],
    "chunks of 1F1B": [f"{P}.schedule={{name: 1f1b, chunks: 2}}"],
    "unknown GPU": ["topology.host.gpu=H100-SMX"],
    "unknown GPU far from any": ["topology.host.gpu=TPU"],
    "unknown NIC": ["topology.host.nic=ConnectX7"],
    "unknown model": [f"{W}.model=llama3-80b"],
    "absent model file": [f"{W}.model=./absent.json"],
    "unknown scheduler": ["cluster.scheduler=fcsf"],
    "unknown placement": ["jobs[0].placement=paked"],
    "model that does not fit": [f"{W}.model=llama3-70b"],
    "no iterations": ["jobs[0].iterations=0"],
    "two jobs of one name": ["jobs=[" + 2 * "{name: a, workload: {collective: {kind: barrier, bytes: 1 B}}}, " + "]"],
    "two sources of work": [f"{W}.collective={{kind: all_reduce, bytes: 1 MiB}}"],
    "no source of work": [f"{W}={{}}"],
    "model without a sequence": [f"{W}={{model: llama3-8b, global_batch: 8}}"],
    "model without a GPU": ["topology.host={gpus: 8, nics: 8, rails: true}"],
    "layout without a model": [f"{W}={{collective: {{kind: all_reduce, bytes: 1 MiB}}}}"],
    "packets without payload": ["network.mtu=60 B"],
    "links faster than the NIC": ["topology.tiers[0].rate=800 Gbps"],
    "NICs that fit no GPU": ["topology.host.nics=3"],
    "negative gap": ["fidelity=message", "network.loggops={L: 1 us, o: 1 ns, g: 1 ns, G: -1, S: 64 KiB}"],
    "unknown transport": ["fidelity=packet", "network.transport=dctpc"],
    "unknown transport far from any": ["fidelity=packet", "network.transport=pigeon"],
    "parameters of a built-in transport": ["fidelity=packet", "network={transport: uec, parameters: {gain: 1}}"],
    "parameter of a built-in transport out of range": [
        "fidelity=packet",
        "network={transport: dctcp, parameters: {g: 16}}",
    ],
    "balancer that nobody brings along": ["fidelity=packet", "network={path_chooser: {name: mine}}"],
    "unknown balancer": ["network.load_balancer=spary"],
    "absent network model": ["fidelity=packet", "network.backend.library=absent.so"],
    "network model without a library": ["network.backend={libary: mine.so}"],
    "packets on an ideal fabric": ["fidelity=packet", "network.load_balancer=ideal"],
    "NDP without trimming": ["fidelity=packet", "network.transport=ndp"],
    "HPCC without telemetry": ["fidelity=packet", "network={transport: hpcc, trimming: {}}"],
    "queue that trims every packet": ["fidelity=packet", "network={transport: ndp, trimming: {queue: 4 KB}}"],
    "MRC whose paths are others' choice": [PACKETS, "network.transport=mrc"],
    "MRC with more entropy values than paths": [
        PACKETS,
        "topology.planes=2",
        "topology.tiers=[{ports_down: 4, rate: 400 Gbps}, {ports_down: 8, rate: 200 Gbps}]",
        "network={transport: mrc, load_balancer: source, parameters: {evs: 256}}",
    ],
    "MRC with entropy values that do not divide": [
        PACKETS,
        "topology.planes=2",
        "topology.tiers=[{ports_down: 4, rate: 400 Gbps}, {ports_down: 8, rate: 200 Gbps}]",
        "network={transport: mrc, load_balancer: source, parameters: {evs: 6}}",
    ],
    "MRC with a time-out beyond its exponent": [
        PACKETS,
        "network={transport: mrc, load_balancer: source, parameters: {timeout_exponent: 25}}",
    ],
    "feedback of another kind": [PACKETS, "network={transport: uec, parameters: {feedback: mean}}"],
    "marks on a tier that there is not": [PACKETS, "network.ecn_on=[leaf-op]"],
    "a trimming rate of nothing": [PACKETS, "network.trimming={queue: 64 KB, rate: 0 Gbps}"],
    "parity beneath credit": ["fidelity=packet", "network={transport: eqds, recovery: erasure}"],
    "a block without parity": ["network={recovery: {erasure: {data: 32, parity: 0}}}"],
    "a block that is too long": ["network={recovery: {erasure: {data: 60, parity: 8}}}"],
    "a key of no block": ["network={recovery: {erasure: {rate: 0.25}}}"],
    "go-back-N beneath credit": ["fidelity=packet", "network={transport: eqds, recovery: go_back_n}"],
    "losses on an unknown tier": ["fidelity=packet", "impairments.loss=[{on: leaf-op, rate: 0.1}]"],
    "losses above one": ["fidelity=packet", "impairments.loss=[{on: all, rate: 2}]"],
    "a spine that goes down and is none": ["fidelity=packet", "impairments.down=[{part: spine9, at: 1 ms}]"],
    "links that fail under messages": ["fidelity=message", "impairments.down=[{part: spine0, at: 1 ms}]"],
    "switches that do not sum": [
        "jobs=[{name: sum, workload: {collective: {kind: all_reduce, algorithm: in_network, bytes: 1 MB}}}]"
    ],
    "switches that sum at no rate": ["network.reduction={rate: 0 Gbps}"],
    "background traffic beyond the rate": [
        "fidelity=packet",
        "impairments.background=[{sizes: vl2, load: 1.5}]",
    ],
    "flow sizes in the wrong spelling": [
        "fidelity=packet",
        "impairments.background=[{sizes: websarch, load: 0.5}]",
    ],
    "marking that ends before it begins": ["fidelity=packet", "network.ecn={kmin: 2 MB, kmax: 1 MB}"],
    "marking for a port without a rate": ["fidelity=packet", "network.ecn={rate: 0 Gbps}"],
    "xon above xoff": [PACKETS, "network.pfc={xoff: 50 KB, xon: 60 KB}", BUFFER],
    "xoff above the buffer": [PACKETS, "network.pfc={xoff: 80 MB}", BUFFER],
    "xoff below a packet": [PACKETS, "network.pfc={xoff: 4 KB}", BUFFER],
    "headroom larger than the buffer": [PACKETS, "network.pfc={headroom: 32 MB}", BUFFER],
    "two ways to say xoff": [PACKETS, "network.pfc={xoff: 50 KB, alpha: 0.5}", BUFFER],
    "two ways to say xon": [PACKETS, "network.pfc={xoff: 50 KB, xon: 40 KB, xon_offset: 9 KB}", BUFFER],
    "unknown key of pauses": [PACKETS, "network.pfc={head_room: 50 KB}"],
    "nothing to pause": [PACKETS, "network.pfc={}", "network.queues=[{name: bulk, lossless: false}]"],
    "pauses without a known buffer": [PACKETS, "network.pfc={}", "topology.switch.model=Quantum-2"],
    "weight of 0": [PACKETS, "network.queues=[{name: bulk, weight: 0}]"],
    "a drop profile below a packet": [PACKETS, "network.queues=[{name: bulk, red: {kmin: 1 KB, kmax: 4 KB}}]"],
    "unknown traffic class": [PACKETS, "network.queues=[{name: bulk, classes: [tpp]}]"],
    "traffic class of two queues": [PACKETS, "network.queues=[{name: a, classes: [tp, dp]}, {name: b, classes: [dp]}]"],
    "unknown discipline": [PACKETS, "network.discipline=dwr"],
    "bucket below a packet": [PACKETS, "network.queues=[{name: bulk, rate: 1 Gbps, burst: 1 KB}]"],
    "bucket without a rate": [PACKETS, "network.queues=[{name: bulk, burst: 64 KB}]"],
    "more queues than there may be": [PACKETS, f"network.queues=[{', '.join(f'{{name: q{i}}}' for i in range(9))}]"],
    "slow host that does not exist": ["variation.speeds=[{host: 9, speed: 0.5}]"],
    "slow host of a building": ["variation.speeds=[{building: east, host: 1, speed: 0.5}]"],
    "slow building where there are none": ["variation.nics=[{building: east, rate: 0.5}]"],
    "speed of 0": ["variation.speeds=[{host: 1, speed: 0}]"],
    "too much noise": ["variation.kernel_noise={distribution: normal, cv: 3}"],
    "pattern without a size": ["jobs=[{name: a, workload: {flows: {pattern: incast}}}]"],
    "absent table of flows": ["jobs=[{name: a, workload: {flows: {file: absent.csv}}}]"],
    "absent GOAL file": ["jobs=[{name: a, workload: {goal: absent.goal}}]"],
    "absent hand-written file": ["jobs=[{name: a, workload: {file: absent.jsonl}}]"],
    "unknown algorithm": [COLLECTIVE % "all_reduce, algorithm: rings"],
    "algorithm of another collective": [COLLECTIVE % "broadcast, algorithm: pairwise"],
    "collective larger than the machine": [COLLECTIVE % "all_reduce, ranks: 99"],
    "absent topology file": ["topology={file: absent.yaml}"],
    "topology file and keys": ["topology.file=absent.yaml"],
    "odd k of a fat tree": ["topology={shape: fat-tree, k: 5, rate: 400 Gbps, host: {}}"],
    "planes that do not divide the NIC": ["topology.planes=3"],
    "rails that are not the NICs": ["topology.host.rails=4"],
    "negative rate of a dimension": [
        "topology={shape: torus, dimensions: [{size: 4, rate: -1 Gbps}], host: {}}",
    ],
    "key of another shape": ["topology.dimensions=[{size: 4, rate: 1 Gbps}]"],
    "routing of another shape": [
        "topology={shape: torus, routing: valiant, dimensions: [{size: 4, rate: 1 Gbps}], host: {}}",
    ],
    "failed switch that does not exist": ["topology.failed=[spine9]"],
    "dragonfly without its cables": [
        "topology={shape: dragonfly, groups: 9, routers: 4, global_links: 2, host: {}}",
    ],
    "unknown precision": [f"{W}.training={{precision: fp3}}"],
    "unknown graphs": [f"{W}.training={{graphs: layer}}"],
    "unknown optimizer": [f"{W}.training={{optimizer: lion}}"],
    "muon of adapters": [f"{W}.training={{optimizer: muon, lora_rank: 16}}"],
    "permute traffic of none": [f"{W}.training={{permute_traffic: -1}}"],
    "hidden exchange of all": [f"{W}.training={{hidden_exchange: 1}}"],
    "fused mlp of single experts": [f"{W}.training={{fused_experts: false, fused_expert_mlp: true}}"],
    "evidence of what is not given": [
        f"{W}.training={{dispatch: 9 us, evidence: {{dispach: {{kind: measured, source: x}}}}}}"
    ],
    "evidence of no kind": [f"{W}.training={{dispatch: 9 us, evidence: {{dispatch: {{kind: guessed, source: x}}}}}}"],
    "set beyond a list": ["jobs[3].name=x"],
    "set of an empty key": ["jobs..x=1"],
    "set of an index that is no number": ["jobs[x].name=1"],
    "set of an unknown key": [f"{P}.tpp=4"],
    "set without a unit": ["topology.tiers[0].rate=400"],
    "set inside a text": ["name.x=400"],
    "set of an index of a mapping": ["topology[0]=400"],
    "set of broken YAML": ["jobs=[1"],
    "set of a negative number": [f"{P}.tp=-4"],
}

OPTIONS = {
    "option: unknown fidelity": ["--fidelity", "flows"],
    "option: folder that is no run": ["--out", "."],
    "option: comparison with nothing": ["--compare", "absent"],
}

PAIR = "num_ranks 2\nrank 0 {\nl1: %s\n}\nrank 1 {\nl1: recv 100b from 0 tag 5\n}\n"

# GOAL files: text, or bytes.
GOALS: dict[str, str | bytes] = {
    "goal: cut off": "num_ranks 2\nrank 0 {\nl1: calc 5\n",
    "goal: cyclic": (
        "num_ranks 1\nrank 0 {\na: calc 5\nb: calc 5\nc: calc 1\na requires b\nb requires c\nc requires a\n}\n"
    ),
    "goal: wrong magic": bytes(range(64)),
    "goal: UTF-16": "num_ranks 1\n".encode("utf-16-le"),
    "goal: binary cut off": (4223).to_bytes(8, "little") + b"\x00\x00\x00\x00\x00",
    "goal: empty": "",
    "goal: peer out of range": PAIR % "send 100b to 7 tag 5",
    "goal: size without unit": PAIR % "send 100 to 1 tag 5",
    "goal: unknown word": PAIR % "sned 100b to 1 tag 5",
    "goal: unknown label": PAIR % "send 100b to 1 tag 5\nl2 requires l1",
    "goal: rank missing": "num_ranks 2\nrank 0 {\nl1: calc 5\n}\n",
    "goal: label twice": PAIR % "calc 5\nl1: calc 6",
}

LOGGOPS = {
    "loggops: unknown parameter": "L=1,l=2",
    "loggops: no number": "L=fast",
    "loggops: no value": "L",
    "loggops: twice": "L=1,L=2",
    "loggops: negative": "L=-1",
    "loggops: too many decimals": "G=0.0000001",
}

EDGES = "src,dst,rate,latency\nh0,s0,100 Gbps,1 us\nh1,s0,100 Gbps,1 us\n"
NODES = json.dumps({"nodes": [{"id": "h0", "kind": "host"}, {"id": "s0"}], "edges": [{"source": "h0", "target": "%s"}]})

# Imported graphs: file, text (or bytes), and more keys of `graph`.
GRAPHS: dict[str, tuple[str, str | bytes, str]] = {
    "graph: not connected": ("fabric.csv", EDGES + "h2,s1,100 Gbps,1 us\n", ""),
    "graph: link twice": ("fabric.csv", EDGES + "s0,h0,100 Gbps,1 us\n", ""),
    "graph: negative rate": ("fabric.csv", EDGES + "h2,s0,-100 Gbps,1 us\n", ""),
    "graph: rate without unit": ("fabric.csv", EDGES + "h2,s0,100,1 us\n", ""),
    "graph: rate of 0": ("fabric.csv", EDGES + "h2,s0,0 Gbps,1 us\n", ""),
    "graph: link to itself": ("fabric.csv", EDGES + "s0,s0,100 Gbps,1 us\n", ""),
    "graph: hosts with other numbers of links": ("fabric.csv", (
        "src,dst,rate,latency,src_kind\nh0,s0,100 Gbps,1 us,host\nh1,s0,100 Gbps,1 us,host\nh1,s1,100 Gbps,1 us,host\n"
        "s0,s1,100 Gbps,1 us,switch\n"), ""),
    "graph: no rate": ("fabric.csv", "src,dst,latency\nh0,s0,1 us\n", ""),
    "graph: no latency": ("fabric.csv", "src,dst\nh0,s0\n", "rate: 100 Gbps"),
    "graph: unknown column": ("fabric.csv", EDGES.replace("rate", "rtae"), ""),
    "graph: field missing": ("fabric.csv", EDGES + "h2,s0,100 Gbps\n", ""),
    "graph: unknown node": ("fabric.json", NODES.replace("%s", "s1"), "rate: 100 Gbps, latency: 1 us"),
    "graph: unknown node of ns-3": ("topology.txt", "3 1 2\n2\n0 2 100Gbps 1us 0\n1 7 100Gbps 1us 0\n", ""),
    "graph: unknown switch of Slurm": ("topology.conf", "SwitchName=a Nodes=n[0-1]\nSwitchName=t Switches=a,b1\n", (
        "rate: 100 Gbps, latency: 1 us")),
    "graph: sizes of htsim that do not close": ("fabric.topo", (
        "Nodes 8\nTiers 2\nPodsize 6\nTier 0\nDownlink_speed_Gbps 400\nRadix_Down 4\nRadix_Up 4\n"
        "Downlink_Latency_ns 500\nTier 1\nDownlink_speed_Gbps 400\nRadix_Down 2\nDownlink_Latency_ns 500\n"), ""),
    "graph: unknown block of ASTRA-sim": ("network.yml", (
        "topology: [Rign]\nnpus_count: [4]\nbandwidth: [50]\nlatency: [500]\n"), ""),
    "graph: XML cut off": ("fabric.graphml", "<graphml>\n<graph edgedefault='undirected'>\n<node id='a'/>\n", ""),
    "graph: format that cannot be told": ("fabric.txt", "four hosts and a switch\n", ""),
    "graph: unknown format": ("fabric.csv", EDGES, "format: edge-lists"),
    "graph: empty file": ("fabric.csv", "", ""),
    "graph: neither text nor gzip": ("fabric.csv", b"\xff\x00\x00", ""),
    "graph: UTF-16": ("fabric.csv", EDGES.encode("utf-16"), ""),
    "graph: gzip cut off": ("fabric.csv.gz", gzip.compress(EDGES.encode(), mtime=0)[:20], ""),
}  # fmt: skip

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
ROW = "2017-10-09 07:02:55,%s,%s,66.0,11cb48\n"
CLUSTER = """\
windtunnel: 1
name: bad
fidelity: job
topology: {hosts: 4, host: {gpus: 8}}
jobs: %s
"""
LOG = "{log: jobs.csv, format: philly%s}"
TIER = "{ports_down: 2, rate: 1 Gbps}"
LEAVES = f"topology={{shape: clos, hosts: 4, tiers: [{TIER}, {TIER}], host: {{gpus: 8}}}}"

MODELS = f"topology={{shape: clos, hosts: 4, tiers: [{TIER}, {TIER}], host: {{gpus: 8, gpu: H100-SXM}}}}"

# Job logs: text, the scenario's `jobs`, and options.
LOGS: dict[str, tuple[str, str, list[str]]] = {
    "log: hole": (PHILLY + ROW % ("", 1), LOG % "", []),
    "log: no number": (PHILLY + ROW % (5, "many"), LOG % "", []),
    "log: no date": (PHILLY + "9 Oct,5,1,5,a\n", LOG % "", []),
    "log: unknown column": (PHILLY.replace("cluster", "vc"), LOG % "", []),
    "log: column missing": (PHILLY.replace("num_gpus", "gpus"), LOG % "", []),
    "log: nothing but holes": (PHILLY.replace("66.0,1", ",1"), LOG % ", lenient: true", []),
    "log: empty file": ("", LOG % "", []),
    "log: job larger than the cluster": (PHILLY + ROW % (5, 64) + ROW % (5, 128), LOG % "", []),
    "log: job larger than a leaf": (PHILLY + ROW % (5, 24), LOG % ", locality: leaf", [LEAVES]),
    "log: job larger than a region": (PHILLY + ROW % (5, 24), LOG % "", [
        "cluster={scheduler: mast, regions: 2}"]),
    "log: no format": (PHILLY, "{log: jobs.csv}", []),
    "log: unknown format": (PHILLY, "{log: jobs.csv, format: phily}", []),
    "log: absent file": (PHILLY, "{log: absent.csv, format: philly}", []),
    "log: neither log nor like": (PHILLY, "{count: 5}", []),
    "log: both log and like": (PHILLY, LOG % ", like: philly", []),
    "log: unknown key": (PHILLY, LOG % ", laod: 0.9", []),
    "log: load of 0": (PHILLY, LOG % ", load: 0", []),
    "log: scaled by a negative number": (PHILLY, LOG % ", scale: {gpus: -8}", []),
    "log: share of 0": (PHILLY, LOG % ", priorities: [{priority: 1, share: 0}]", []),
    "log: unknown locality": (PHILLY, LOG % ", locality: laef", []),
    "log: unknown shape": (PHILLY, "{like: phily, count: 5}", []),
    "log: draw of unknown length": (PHILLY, "{like: philly}", []),
    "log: at a fidelity with a network": (PHILLY, LOG % "", ["fidelity=flow", LEAVES]),
    "log: regions of a scheduler without": (PHILLY, LOG % "", ["cluster={scheduler: easy, regions: 2}"]),
    "log: slice of no time": (PHILLY, LOG % "", ["cluster={scheduler: gang, slice: 0 s}"]),
    "drawn: no room in the queue": (PHILLY + ROW % (5, 1), LOG % ", queue: 0", []),
    "drawn: an end without workloads": (PHILLY + ROW % (5, 1), LOG % ", ends: 5", []),
    "drawn: model without a batch": (
        PHILLY + ROW % (5, 1), LOG % ", workloads: [{name: a, workload: {model: dlrm}}]", [MODELS]
    ),
    "drawn: batch of all replicas": (PHILLY + ROW % (5, 1), LOG % (
        ", workloads: [{name: a, workload: {model: dlrm, global_batch: 8}, batch_per_replica: 8}]"), [MODELS]),
    "drawn: share of 0": (PHILLY + ROW % (5, 1), LOG % (
        ", workloads: [{name: a, share: 0, workload: {model: dlrm}, batch_per_replica: 8}]"), [MODELS]),
    "drawn: dp of its own": (PHILLY + ROW % (5, 1), LOG % (
        ", workloads: [{name: a, workload: {model: dlrm}, batch_per_replica: 8, parallelism: {dp: 4}}]"), [MODELS]),
    "drawn: nothing fits": (PHILLY + ROW % (5, 1), LOG % (
        ", workloads: [{name: a, workload: {model: llama3-8b, sequence: 512}, batch_per_replica: 8, "
        "parallelism: {tp: 8}}]"), [MODELS]),
    "drawn: unknown memo": (PHILLY + ROW % (5, 1), LOG % "", ["cluster.episodes.memo=all"]),
    "jobs: neither list nor mapping": (PHILLY, "philly", []),
    "jobs: no workload at flow fidelity": (PHILLY, "[{name: a, gpus: 4, duration: 1 h}]", ["fidelity=flow", LEAVES]),
    "jobs: no workload and no GPUs": (PHILLY, "[{name: a, duration: 1 h}]", []),
    "jobs: more GPUs than there are": (PHILLY, "[{name: a, gpus: 40, duration: 1 h}]", []),
    "jobs: lenient list": (PHILLY, "[{name: a, gpus: 4, duration: 1 h}]", ["jobs.lenient=true"]),
}  # fmt: skip

JOB = "[{name: a, gpus: 8, duration: 1 h%s}]"
FAULTS = "time_s,component,repair_s\n1,host0,5\n%s"
OUT = "{part: host1, at: 1 h, for: 2 h}"
DATA = ", data: {bytes: 1 TB%s}"

# What fails and is drained: a log of faults, more of the job, and the scenario's `cluster`.
OPERATIONS: dict[str, tuple[str, str, str]] = {
    "faults: hole in the log": (FAULTS % ",host1,5\n", "", "{faults: [{log: faults.csv}]}"),
    "faults: no number in the log": (FAULTS % "2,host1,soon\n", "", "{faults: [{log: faults.csv}]}"),
    "faults: column missing in the log": ("time_s,host,repair_s\n", "", "{faults: [{log: faults.csv}]}"),
    "faults: unknown component in the log": (FAULTS % "2,host9,5\n", "", "{faults: [{log: faults.csv}]}"),
    "faults: unknown class": ("", "", "{faults: [{class: gpus, mtbf: 1 y, repair: 1 h}]}"),
    "faults: negative rate": ("", "", "{faults: [{class: gpu, mtbf: -1 y, repair: 1 h}]}"),
    "faults: no time between faults": ("", "", "{faults: [{class: gpu, mtbf: 0 y, repair: 1 h}]}"),
    "faults: Weibull without a shape": ("", "", (
        "{faults: [{class: gpu, mtbf: 1 y, distribution: weibull, repair: 1 h}]}")),
    "faults: never repaired": ("", "", "{faults: [{class: gpu, mtbf: 1 y}]}"),
    "faults: switches without a fabric": ("", "", "{faults: [{class: switch, mtbf: 1 y, repair: 1 h}]}"),
    "faults: unknown sheet": ("", "", "{faults: [{like: lama3}]}"),
    "faults: two sources": ("", "", "{faults: [{like: llama3, class: gpu}]}"),
    "maintenance: unknown part": ("", "", "{maintenance: [{part: hots1, at: 1 h, for: 2 h}]}"),
    "maintenance: overlapping": ("", "", f"{{maintenance: [{OUT}, {{part: host1/gpu3, at: 2 h, for: 2 h}}]}}"),
    "maintenance: of no length": ("", "", "{maintenance: [{part: host1, at: 1 h, for: 0 s}]}"),
    "spares: nothing but": ("", "", "{spares: {hosts: 4}}"),
    "storage: unknown host": ("", DATA % "", "{storage: {hosts: [hots3]}}"),
    "storage: host twice": ("", DATA % "", "{storage: {hosts: [host3, host3]}}"),
    "storage: no host": ("", DATA % "", "{storage: {hosts: []}}"),
    "storage: nothing computes": ("", DATA % "", "{storage: {hosts: [host1, host2, host3]}, spares: {hosts: 1}}"),
    "storage: of no speed": ("", DATA % "", "{storage: {hosts: [host3], rate: 0 Gbps}}"),
    "storage: requests of nothing": ("", DATA % "", "{storage: {hosts: [host3], request: 0 B}}"),
    "data: nowhere": ("", DATA % "", "{}"),
    "data: from an unknown host": ("", DATA % ", from: [host33]", "{storage: {hosts: [host3]}}"),
    "data: from a host that computes": ("", DATA % ", from: [host2]", "{storage: {hosts: [host3]}}"),
    "data: from no host": ("", DATA % ", from: []", "{storage: {hosts: [host3]}}"),
    "data: from hosts and at a rate": ("", DATA % ", from: [host3], rate: 1 Gbps", "{storage: {hosts: [host3]}}"),
    "checkpoint: of unknown cost": ("", ", checkpoint: {every: 1 h}", "{}"),
    "elastic: more than is asked for": ("", ", elastic: {min: 9}", "{}"),
    "elastic: under a scheduler that counts": ("", ", elastic: {min: 2}", "{scheduler: gang}"),
    "checkpoint: by time and iterations": ("", ", checkpoint: {every: 1 h, iterations: 5, write: 1 s}", "{}"),
}  # fmt: skip

RECORDED = Path(__file__).with_name("bad_input.txt")


def recorded() -> dict[str, str]:
    """Messages by case."""
    parts = re.split(r"^== (.*)\n", RECORDED.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def refused(command: Command, folder: Path, case: str, *arguments: str) -> None:
    """Runs the command and checks what it says and that it leaves nothing."""
    before = sorted(folder.rglob("*"))
    done = command(*arguments, check=2)
    assert done.stdout == ""
    assert done.stderr.replace(str(folder), "{dir}").strip() == recorded()[case]
    assert sorted(folder.rglob("*")) == before


def scenario(folder: Path, old: str = "", new: str = "") -> str:
    assert old in BASE
    (folder / "bad.yaml").write_text(BASE.replace(old, new, 1) if old else BASE)
    return "bad.yaml"


@pytest.mark.parametrize("case", EDITS)
def test_a_faulty_file(command: Command, tmp_path: Path, case: str) -> None:
    refused(command, tmp_path, case, "run", scenario(tmp_path, *EDITS[case]))


@pytest.mark.parametrize("case", SETS)
def test_a_faulty_value(command: Command, tmp_path: Path, case: str) -> None:
    overrides = [word for text in SETS[case] for word in ("--set", text)]
    refused(command, tmp_path, case, "run", scenario(tmp_path), *overrides)


@pytest.mark.parametrize("case", OPTIONS)
def test_a_faulty_option(command: Command, tmp_path: Path, case: str) -> None:
    refused(command, tmp_path, case, "run", scenario(tmp_path), *OPTIONS[case])


@pytest.mark.parametrize("case", GOALS)
@pytest.mark.parametrize("subcommand", ["check", "run"])
def test_a_faulty_goal_file(command: Command, tmp_path: Path, case: str, subcommand: str) -> None:
    text: Any = GOALS[case]
    (tmp_path / "bad.goal").write_bytes(text.encode() if isinstance(text, str) else text)
    more = ["--loggops", "L=1"] if subcommand == "run" else []
    refused(command, tmp_path, case, "goal", subcommand, "bad.goal", *more)


@pytest.mark.parametrize("case", LOGGOPS)
def test_a_faulty_parameter(command: Command, tmp_path: Path, case: str) -> None:
    (tmp_path / "one.goal").write_text("num_ranks 1\nrank 0 {\nl1: calc 5\n}\n")
    refused(command, tmp_path, case, "goal", "run", "one.goal", "--loggops", LOGGOPS[case])


@pytest.mark.parametrize("case", GRAPHS)
def test_a_faulty_graph(command: Command, tmp_path: Path, case: str) -> None:
    file, text, more = GRAPHS[case]
    (tmp_path / file).write_bytes(text.encode() if isinstance(text, str) else text)
    (tmp_path / "bad.yaml").write_text(f"shape: graph\ngraph: {{file: {file}{', ' if more else ''}{more}}}\n")
    refused(command, tmp_path, case, "topology", "bad.yaml")


def test_an_absent_graph(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("shape: graph\ngraph: {file: absent.csv}\n")
    refused(command, tmp_path, "graph: absent file", "topology", "bad.yaml")


@pytest.mark.parametrize("case", LOGS)
def test_a_faulty_log(command: Command, tmp_path: Path, case: str) -> None:
    text, jobs, sets = LOGS[case]
    (tmp_path / "jobs.csv").write_text(text)
    (tmp_path / "bad.yaml").write_text(CLUSTER % jobs)
    refused(command, tmp_path, case, "run", "bad.yaml", *[word for one in sets for word in ("--set", one)])


@pytest.mark.parametrize("case", OPERATIONS)
def test_faulty_operations(command: Command, tmp_path: Path, case: str) -> None:
    log, job, cluster = OPERATIONS[case]
    (tmp_path / "faults.csv").write_text(log)
    (tmp_path / "bad.yaml").write_text(CLUSTER % (JOB % job) + f"cluster: {cluster}\n")
    refused(command, tmp_path, case, "run", "bad.yaml")


def test_a_conversion_that_fails_leaves_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.goal").write_text("num_ranks 2\nrank 0 {\nl1: calc 5\n")
    refused(command, tmp_path, "goal: cut off", "goal", "convert", "bad.goal", "bad.bin")


def test_every_recorded_message_belongs_to_a_case() -> None:
    graphs = [*GRAPHS, "graph: absent file"]
    assert list(recorded()) == [*EDITS, *SETS, *OPTIONS, *GOALS, *LOGGOPS, *graphs, *LOGS, *OPERATIONS]


STUCK = """\
num_ranks 3
rank 0 {
l1: send 100b to 1 tag 5
}
rank 1 {
l1: recv 100b from 0 tag 5
l2: recv 7b from 2 tag 9
l3: calc 5
l2 requires l1
l3 requires l2
}
rank 2 {
l1: send 100000b to 0 tag 3
}
"""


def test_a_scenario_whose_operations_never_end(command: Command, tmp_path: Path) -> None:
    (tmp_path / "stuck.goal").write_text(STUCK)
    name = scenario(tmp_path)
    done = command("run", name, "--set", "jobs=[{name: a, workload: {goal: stuck.goal}}]", check=1)
    assert done.stderr == (
        "error: the run ended, but 2 operations wait for something that never comes\n"
        "  job `a`, rank 1, operation 1 `l2` waits for a message from rank 2 with tag 9\n"
        "  job `a`, rank 2, operation 0 `l1` waits for a receive by rank 0 with tag 3\n\n"
        "hint: every receive needs a send of the same tag from the same rank, and the other way round\n"
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.yaml", "stuck.goal"]


def test_a_goal_run_whose_operations_never_end(command: Command, tmp_path: Path) -> None:
    """The JSON lists them, status 1; so does `goal check`, without parameters."""
    (tmp_path / "stuck.goal").write_text(STUCK)
    done = command("goal", "run", "stuck.goal", "--loggops", "L=1", "--json", check=1)
    assert done.stderr.startswith("--loggops leaves out o, g, G, O, S")
    assert json.loads(done.stdout) == {
        "finish_max": 1,
        "finish": [1, 1, 0],
        "finish_ps": [1000, 1000, 0],
        "stuck": [
            {"rank": 1, "operation": 1, "label": "l2", "waits_for": "a message from rank 2 with tag 9"},
            {"rank": 2, "operation": 0, "label": "l1", "waits_for": "a receive by rank 0 with tag 3"},
        ],
    }
    found = json.loads(command("goal", "check", "stuck.goal", "--json", check=1).stdout)
    assert (found["complete"], found["sends"], found["receives"], found["matched"]) == (False, 2, 2, 1)
    assert len(found["unmatched"]) == 2


def test_a_model_that_does_not_fit_runs_when_it_may(command: Command, tmp_path: Path) -> None:
    name = scenario(tmp_path)
    large = ("--set", "jobs[0].workload.model=llama3-70b", "--no-report", "--json")
    done = command("run", name, *large, "--set", "memory=warn")
    refusal = recorded()["model that does not fit"].removeprefix("error: bad.yaml: ").partition("\n")[0]
    assert done.stderr == f"warning: bad.yaml: {refusal}\n"
    assert command("run", name, *large, "--set", "memory=ignore").stderr == ""
