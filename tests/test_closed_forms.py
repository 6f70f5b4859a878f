"""Collectives and messages on an ideal fabric against their closed forms, at flow and message fidelity.

Tolerance: 1e-9 relative or 1 ps per step, whichever is larger. S is the size as nccl-tests counts it, n the ranks.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from ideal import (
    GAP_PS,
    LATENCY_PS,
    OVERHEAD_PS,
    PS_PER_BYTE,
    collective,
    flow_step_ps,
    iteration_ps,
    latency_ps,
    message_step_ps,
    run_ps,
    scenario,
    wire_ps,
)

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine


def agrees(found: float, expected: float, steps: int) -> None:
    assert abs(found - expected) <= max(1e-9 * expected, steps), (found, expected)


SIZE = 8 * 400_000


@pytest.mark.parametrize("n", [2, 5, 8])
def test_ring_all_reduce(n: int) -> None:
    """2 (n - 1) steps of S / n: at flow fidelity L + wire(S/n) each."""
    size = 40 * 80_000
    steps = 2 * (n - 1)
    found = run_ps(n, collective("all_reduce", "ring", size), "flow")
    agrees(found, steps * flow_step_ps(n, size // n), steps)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_ring_all_reduce_by_messages(n: int) -> None:
    """Step after step of o + L + o + (s - 1) G; the receive that comes in holds the next send back by nothing more."""
    size = 40 * 80_000
    found = run_ps(n, collective("all_reduce", "ring", size), "message")
    assert found == 2 * (n - 1) * message_step_ps(size // n)


@pytest.mark.parametrize(("kind", "steps"), [("all_gather", 7), ("reduce_scatter", 7)])
def test_ring_all_gather_and_reduce_scatter(kind: str, steps: int) -> None:
    found = run_ps(8, collective(kind, "ring", SIZE), "flow")
    agrees(found, steps * flow_step_ps(8, SIZE // 8), steps)
    assert run_ps(8, collective(kind, "ring", SIZE), "message") == steps * message_step_ps(SIZE // 8)


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_recursive_halving_and_doubling(n: int) -> None:
    """S/2, S/4, …, S/n, and back: 2 log2 n exchanges."""
    size = 16 * 100_000
    halves = [size >> k for k in range(1, n.bit_length())]
    found = run_ps(n, collective("all_reduce", "recursive", size), "flow")
    agrees(found, 2 * sum(flow_step_ps(n, half) for half in halves), 2 * len(halves))
    found = run_ps(n, collective("all_reduce", "recursive", size), "message")
    assert found == 2 * sum(map(message_step_ps, halves))


def test_double_binary_tree_of_two() -> None:
    """Both trees are one edge: S/2 each, at once, up and then down."""
    size = 800_000
    workload = collective("all_reduce", "double_binary_tree", size)
    agrees(run_ps(2, workload, "flow"), 2 * (latency_ps(2) + 2 * wire_ps(size // 2)), 2)
    # The second tree's half waits for the first to be taken in, o + (s - 1) G, and goes down behind the other's o.
    behind = OVERHEAD_PS + (size // 2 - 1) * PS_PER_BYTE + OVERHEAD_PS
    assert run_ps(2, workload, "message") == 2 * message_step_ps(size // 2) + behind


@pytest.mark.parametrize("n", [4, 8, 16])
def test_double_binary_tree_in_chunks(n: int) -> None:
    """A synchronous pipeline: C + 4 (2 ceil(log2 n) - 1) rounds for C chunks of S / (2 C).

    A NIC sends and receives four chunks a round: an inner node of one tree three, as a leaf of the other one. With many
    chunks that is 2 S / rate, and both fidelities come within the pipeline's filling.
    """
    chunk, chunks = 512 << 10, 256
    workload = collective("all_reduce", "double_binary_tree", 2 * chunk * chunks)
    rounds = chunks + 4 * (2 * (n - 1).bit_length() - 1)
    found = run_ps(n, workload, "message")
    assert chunks * 4 * chunk * PS_PER_BYTE <= found <= rounds * 4 * chunk * PS_PER_BYTE * 1.01
    found = run_ps(n, workload, "flow")
    assert chunks * 4 * wire_ps(chunk) <= found <= 1.05 * chunks * 4 * wire_ps(chunk)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_pairwise_all_to_all(n: int) -> None:
    """N - 1 exchanges of S / n, one peer at a time."""
    size = 40 * 80_000
    found = run_ps(n, collective("all_to_all", "pairwise", size), "flow")
    agrees(found, (n - 1) * flow_step_ps(n, size // n), n - 1)
    found = run_ps(n, collective("all_to_all", "pairwise", size), "message")
    assert found == (n - 1) * message_step_ps(size // n)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_direct_all_to_all(n: int) -> None:
    """All n - 1 blocks of S / n share each NIC and end together: one latency."""
    size = 40 * 80_000
    found = run_ps(n, collective("all_to_all", "direct", size), "flow")
    agrees(found, latency_ps(n) + (n - 1) * wire_ps(size // n), n - 1)


@pytest.mark.parametrize(
    ("n", "workload"),
    [
        (8, collective("all_reduce", "ring", 8 << 20, "coupled")),
        (5, collective("all_reduce", "ring", 40 * 80_000, "coupled")),
        (8, collective("all_gather", "ring", 8 << 20, "coupled")),
        (8, collective("reduce_scatter", "ring", 8 << 20, "coupled")),
    ],
)
@pytest.mark.parametrize("fidelity", ["flow", "message"])
def test_coupled_and_step_by_step_agree(n: int, workload: dict[str, dict[str, object]], fidelity: str) -> None:
    """Within 1% when ranks arrive together (they do: the job starts with the collective)."""
    steps = {"collective": {**workload["collective"], "form": "steps"}}
    assert run_ps(n, workload, fidelity) == pytest.approx(run_ps(n, steps, fidelity), rel=0.01)


def domains_ps(workload: dict[str, Any], fidelity: str, ranks: int = 16) -> int:
    """The same with four hosts of four GPUs and as many rails."""
    four = scenario(4, {"collective": {**workload["collective"], "ranks": ranks}})
    # LogGOPS parameters differ by class, so they come from the sheets.
    four["network"].pop("loggops")
    inside = {"rate": "800 Gbps", "latency": "500 ns"}
    host = {"gpu": "H100-SXM", "gpus": 4, "nics": 4, "nic": "ConnectX-7", "rails": True, "scale_up": inside}
    four["topology"]["host"] = host
    four["topology"]["tiers"] *= 2
    return iteration_ps(windtunnel.run(four, fidelity=fidelity))


@pytest.mark.parametrize(
    ("kind", "algorithm", "ranks", "fidelity"),
    [
        ("all_reduce", "multi_ring", 16, "flow"),
        ("all_gather", "multi_ring", 16, "flow"),
        ("reduce_scatter", "multi_ring", 16, "flow"),
        *(
            (kind, algorithm, 4, fidelity)
            for kind, algorithm in (("all_to_all", "direct"), ("all_to_all", "pairwise"), ("all_gather", "direct"))
            for fidelity in ("flow", "message")
        ),
    ],
)
def test_coupled_and_step_by_step_agree_over_domains(kind: str, algorithm: str, ranks: int, fidelity: str) -> None:
    size = 1 << 30
    coupled = domains_ps(collective(kind, algorithm, size, "coupled"), fidelity, ranks)
    steps = domains_ps(collective(kind, algorithm, size), fidelity, ranks)
    assert coupled == pytest.approx(steps, rel=0.01)


def test_several_rings_leave_a_host_by_every_nic() -> None:
    """2 (n - 1) / n of a quarter of the buffer over each NIC; what passes inside meanwhile takes less."""
    size, n = 1 << 30, 16
    found = domains_ps(collective("all_reduce", "multi_ring", size, "coupled"), "flow")
    assert found == pytest.approx(2 * (n - 1) / n * wire_ps(size / 4), rel=0.01)
    assert found == domains_ps(collective("all_reduce", "auto", size, "auto", tuner="size"), "flow")
    # LogGOPS holds a rank for its messages one after another, so rings do not overlap and `auto` takes levels.
    by_levels = domains_ps(collective("all_reduce", "hierarchical", size, "auto"), "message")
    assert domains_ps(collective("all_reduce", "auto", size, "auto", tuner="size"), "message") == by_levels
    by_steps = domains_ps(collective("all_reduce", "multi_ring", size), "message")
    assert domains_ps(collective("all_reduce", "multi_ring", size, "auto"), "message") == by_steps


def nics_s(kind: str, algorithm: str, fidelity: str, *, nics: int, jobs: int = 1) -> float:
    """Mean time of the slowest of equal jobs that fill two hosts of 4 GPUs and `nics` NICs of 100 Gbps."""
    collective = {"kind": kind, "algorithm": algorithm, "bytes": "64 MB", "ranks": 8 // jobs}
    document = {
        "windtunnel": 1,
        "name": "shared",
        "fidelity": fidelity,
        "topology": {
            "shape": "clos",
            "hosts": 2,
            "tiers": [{"ports_down": 2 * nics, "rate": "100 Gbps"}],
            "host": {"gpus": 4, "nics": nics, "scale_up": {"rate": "400 GB/s"}},
        },
        "jobs": [
            {
                "name": f"job{job}",
                "iterations": 3,
                "placement": "packed" if jobs == 1 else "spread",
                "workload": {"collective": collective},
            }
            for job in range(jobs)
        ],
    }
    summary = windtunnel.run(document).summary
    return float(max(job["iteration_time_s"]["mean"] for job in summary["jobs"]))


@pytest.mark.parametrize("nics", [1, 2])
@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("all_reduce", "ring"),
        ("all_reduce", "multi_ring"),
        ("all_reduce", "hierarchical"),
        ("all_gather", "ring"),
        ("all_to_all", "pairwise"),
    ],
)
def test_gpus_take_turns_at_a_nic_that_they_share(kind: str, algorithm: str, nics: int) -> None:
    """Messages take as long as flows, which share every link, also where a host has fewer NICs than GPUs."""
    message, flow = (nics_s(kind, algorithm, fidelity, nics=nics) for fidelity in ("message", "flow"))
    assert message == pytest.approx(flow, rel=0.02)


@pytest.mark.parametrize("fidelity", ["message", "flow", "packet"])
@pytest.mark.parametrize("n", [2, 5, 8, 16])
def test_a_binomial_broadcast_takes_a_message_a_level(n: int, fidelity: str) -> None:
    """ceil(log2 n) messages one after the other: who has the data sends to one after another, not to all at once."""

    def taken(ranks: int) -> float:
        collective = {"kind": "broadcast", "algorithm": "binomial", "bytes": "16 MB", "ranks": ranks}
        document = {
            "windtunnel": 1,
            "name": "broadcast",
            "fidelity": fidelity,
            "topology": {"shape": "clos", "hosts": 16, "tiers": [{"ports_down": 16, "rate": "100 Gbps"}], "host": {}},
            "jobs": [{"name": "a", "workload": {"collective": collective}}],
        }
        return float(windtunnel.run(document).summary["jobs"][0]["iteration_time_s"]["mean"])

    assert taken(n) == pytest.approx(math.ceil(math.log2(n)) * taken(2), rel=0.01)


def test_a_message_from_rail_to_rail_pays_for_its_bytes(tmp_path: Path) -> None:
    """Between two hosts, all of whose rails are one leaf each: GPU 0 of one to GPU 1 of the other goes by a spine."""
    lines = [
        {"windtunnel_workload": 1, "ranks": 4},
        {"rank": 0, "id": "send", "send": {"to": 3, "bytes": "16 MB", "tag": 1}},
        {"rank": 3, "id": "receive", "receive": {"from": 0, "tag": 1}},
    ]
    (tmp_path / "send.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    times = []
    for fidelity in ("message", "flow"):
        document = {
            "windtunnel": 1,
            "name": "rails",
            "fidelity": fidelity,
            "topology": {
                "shape": "clos",
                "hosts": 2,
                "tiers": [{"ports_down": 2, "rate": "100 Gbps"}, {"ports_down": 2, "rate": "100 Gbps"}],
                "host": {"gpus": 2, "nics": 2, "rails": True, "scale_up": {"rate": "300 GB/s"}},
            },
            "jobs": [{"name": "a", "workload": {"file": str(tmp_path / "send.jsonl")}}],
        }
        times.append(windtunnel.run(document).summary["jobs"][0]["iteration_time_s"]["mean"])
    assert times[0] == pytest.approx(times[1], rel=0.01)
    assert times[0] > 16e6 * 8 / 100e9


def test_jobs_take_turns_at_a_nic_that_they_share() -> None:
    """Four rings of two GPUs on one NIC a host: bytes of four jobs, each 2 (n - 1) / n = 1 of its own, at line rate."""
    for fidelity in ("message", "flow"):
        together = nics_s("all_reduce", "ring", fidelity, nics=1, jobs=4)
        assert together == pytest.approx(4 * 64e6 * 8 / 100e9, rel=0.03), fidelity


def test_a_ring_written_as_goal_takes_as_long(tmp_path: Path) -> None:
    """The same 2 (n - 1) steps as sends and receives with dependencies."""
    n, size = 4, 400_000
    lines = [f"num_ranks {n}"]
    for rank in range(n):
        lines.append(f"rank {rank} {{")
        for step in range(2 * (n - 1)):
            lines.append(f"s{step}: send {size // n}b to {(rank + 1) % n} tag {step}")
            lines.append(f"r{step}: recv {size // n}b from {(rank - 1) % n} tag {step}")
            if step:
                lines.append(f"s{step} requires r{step - 1}")
        lines.append("}")
    path = tmp_path / "ring.goal"
    path.write_text("\n".join(lines) + "\n")
    for fidelity in ("flow", "message"):
        by_hand = run_ps(n, {"goal": str(path)}, fidelity)
        assert by_hand == run_ps(n, collective("all_reduce", "ring", size), fidelity)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_incast_shares_the_receiver(n: int) -> None:
    """N - 1 senders, one link: each gets 1 / (n - 1) of it, all end together."""
    size = 1_000_000
    result = windtunnel.run(scenario(n, {"flows": {"pattern": "incast", "bytes": f"{size} B"}}))
    expected = latency_ps(n) + (n - 1) * wire_ps(size)
    agrees(iteration_ps(result), expected, 1)
    spans = (result.flows["finish_ps"] - result.flows["start_ps"]).to_list()
    assert len(spans) == n - 1
    for span in spans:
        agrees(span, expected, 1)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("pattern", ["incast", "outcast"])
def test_iterations_of_messages_come_one_after_the_other(pattern: str, *, full: bool) -> None:
    """Nobody who only sends waits for anything, and yet iterations follow one another.

    The link of rank 0 is busy until the messages of k iterations are through, k (n - 1).
    """
    n, size, iterations = 5, 1_000_000, 40
    job = {"name": "job", "workload": {"flows": {"pattern": pattern, "bytes": f"{size} B"}}, "iterations": iterations}
    result = windtunnel.run(scenario(n, {}, jobs=[job]), full=full)
    of_one = (n - 1) * wire_ps(size)
    spans = (result.iterations["finish_ps"] - result.iterations["start_ps"]).to_list()
    for span, expected in zip(spans, [latency_ps(n) + of_one, *[of_one] * len(spans)], strict=False):
        agrees(span, expected, 1)
    (found,) = result.summary["jobs"]
    mean_ps = of_one + latency_ps(n) / iterations
    assert found["iteration_time_s"]["mean"] == pytest.approx(mean_ps * 1e-12, rel=1e-6)
    assert found["finish_s"] == pytest.approx((latency_ps(n) + iterations * of_one) * 1e-12, rel=1e-6)


@pytest.mark.parametrize("fidelity", ["flow", "packet"])
def test_a_repeated_goal_file_takes_as_long_as_its_slowest_link(tmp_path: Path, fidelity: str) -> None:
    """Rank 0 never hears of rank 1: an iteration takes a message's time, whether all are simulated or a few."""
    size, iterations = 1_000_000, 50
    lines = ["num_ranks 2", "rank 0 {", "a: calc 10000", f"b: send {size}b to 1 tag 5", "b requires a", "}"]
    lines += ["rank 1 {", f"a: recv {size}b from 0 tag 5", "b: calc 20000", "b requires a", "}"]
    (tmp_path / "one-way.goal").write_text("\n".join(lines) + "\n")
    job = {"name": "job", "workload": {"goal": str(tmp_path / "one-way.goal")}, "iterations": iterations}
    asked = scenario(2, {}, jobs=[job])
    asked["network"].update({"transport": "none", "load_balancer": "ecmp"} if fidelity == "packet" else {})
    of_one = wire_ps(size)
    for full in (False, True):
        (found,) = windtunnel.run(asked, fidelity=fidelity, full=full).summary["jobs"]
        assert found["iteration_time_s"]["mean"] == pytest.approx(of_one * 1e-12, rel=0.01)
        assert found["finish_s"] == pytest.approx(iterations * of_one * 1e-12, rel=0.03)


@pytest.mark.parametrize("n", [2, 5])
def test_shares_of_one_bottleneck_by_size(tmp_path: Path, n: int) -> None:
    """N senders of k S bytes to one receiver: the k-th ends after S (k (n - k) + k (k + 1) / 2) at line rate."""
    unit = 400_000
    rows = [f"{k},0,{k * unit}" for k in range(1, n + 1)]
    (tmp_path / "sizes.csv").write_text("\n".join(["source,destination,bytes", *rows]) + "\n")
    result = windtunnel.run(scenario(n + 1, {"flows": {"file": str(tmp_path / "sizes.csv")}}))
    for row in result.flows.sort("source").iter_rows(named=True):
        k = row["source"]
        expected = latency_ps(n + 1) + wire_ps(unit) * (k * (n - k) + k * (k + 1) / 2)
        agrees(row["finish_ps"] - row["start_ps"], expected, 2)


@pytest.mark.parametrize("payload", [1, 4000, 4001, 1_000_000])
def test_an_unloaded_flow(payload: int) -> None:
    found = run_ps(2, {"flows": {"pattern": "outcast", "bytes": f"{payload} B"}}, "flow")
    agrees(found, flow_step_ps(2, payload), 1)


@pytest.mark.parametrize(
    ("receiver", "finish_ps"),
    [
        # Each of 100 messages holds the receiver for (s - 1) G, after the gap of the one before: 4 ms.
        ("held", 100 * (2_000_000 - 1) * 20 + 99 * 25_000),
        # The senders pay (s - 1) G all at once, the receiver g + o for each: 40 us and 100 gaps of 25 ns.
        ("free", (2_000_000 - 1) * 20 + 100 * 25_000),
    ],
)
def test_incast_of_a_hundred(command: Command, tmp_path: Path, receiver: str, finish_ps: int) -> None:
    """100:1 of 2 MB at G = 0.02 ns/B: 4 ms where the receiver is held, 42.5 us where it is free."""
    sends = "".join(f"rank {r} {{\nl1: send 2000000b to 0 tag {r}\n}}\n" for r in range(1, 101))
    receives = "".join(f"l{r}: recv 2000000b from {r} tag {r}\n" for r in range(1, 101))
    (tmp_path / "incast.goal").write_text(f"num_ranks 101\nrank 0 {{\n{receives}}}\n{sends}")
    loggops = "L=0,o=0,g=25,G=0.02,S=10000000"
    done = command("goal", "run", "incast.goal", "--loggops", loggops, "--receiver", receiver, "--json")
    found = json.loads(done.stdout)["finish_ps"][0]
    assert found == finish_ps


def test_a_chain_of_messages() -> None:
    """O + L + o + (s - 1) G, then the gap: two messages of one sender follow at max(o, g + (s - 1) G)."""
    found = run_ps(2, {"flows": {"pattern": "outcast", "bytes": "1000 B"}}, "message")
    assert found == OVERHEAD_PS + LATENCY_PS + OVERHEAD_PS + 999 * PS_PER_BYTE
    result = windtunnel.run(scenario(3, {"flows": {"pattern": "outcast", "bytes": "1000 B"}}), fidelity="message")
    starts = sorted(result.messages["start_ps"].to_list())
    assert starts == [0, max(OVERHEAD_PS, GAP_PS + 999 * PS_PER_BYTE)]
