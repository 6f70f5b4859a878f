"""Network advice: which traffic stands for a layout, and what settings of the network make of it, packet by packet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from conftest import ROOT
from windtunnel.explore import advise as module
from windtunnel.explore.advise import Advice, Alternative, Traffic, advise, traffic_of
from windtunnel.explore.space import Candidate
from windtunnel.layout.job import read_job
from windtunnel.source import read_source
from windtunnel.studies.runner import Limits
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from conftest import Command

BUILDINGS = ROOT / "examples" / "explore-two-buildings.yaml"
HSDP = Candidate(8, 1, 1, 1, 8, 1, 2, "dp-out", "1f1b", 1, 0, 1, "none")


def test_the_traffic_is_that_of_the_outermost_dimension_across_the_middle() -> None:
    job = read_job(read_source(BUILDINGS), [])
    # Replicas of shards, one in each building: GPU i and GPU 32 + i.
    assert traffic_of(job, HSDP, 8) == Traffic("replicas", 0, 32, 32, 64, 4 << 20)
    # Eight data-parallel groups of eight GPUs: the fourth ends its building, the fifth begins the other.
    alone = Candidate(8, 1, 1, 1, 8, 1, 1, "dp-out", "1f1b", 1, 0, 1, "none")
    assert traffic_of(job, alone, 8) == Traffic("dp", 24, 8, 8, 64, 8 << 20)
    # Sixteen stages of four GPUs: two of them in each host.
    stages = Candidate(4, 1, 1, 16, 1, 0, 1, "pp-out", "1f1b", 1, 0, 1, "none")
    assert traffic_of(job, stages, 8) == Traffic("pp", 24, 8, 8, 64, 8 << 20)
    assert traffic_of(job, alone, 64) is None


def test_each_pair_sends_both_ways() -> None:
    goal = Traffic("dp", 2, 4, 2, 8, 1000).goal()
    sends = [line for line in goal.splitlines() if "send" in line]
    assert sends == [f"s: send 1000b to {peer} tag 1" for peer in (6, 7, 2, 3)]
    assert goal.count("recv") == len(sends)
    assert goal.count("rank ") == 8


def test_what_is_advised_is_what_packets_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL", 32 << 20)
    job = read_job(read_source(BUILDINGS), [])
    with Store(tmp_path / "runs") as store:
        advice = advise(job, HSDP, 8, store, limits=Limits(workers=1))
        again = advise(job, HSDP, 8, store, limits=Limits(workers=1))
    assert advice is not None
    assert advice == again
    rows = {(row.knob, row.name()): row for row in advice.rows if row.loss == 0.0}
    seconds = {key: row.seconds or 0.0 for key, row in rows.items()}
    assert min(seconds.values()) > 0.0, rows
    # 16 MiB each way over two cables of 400 Gbps, 64 bytes of header to 4096, and 10 km of fibre.
    least = 16 * 2**20 * (4160 / 4096) * 8 / 800e9 + 50e-6
    best = advice.best()
    assert best is not None
    assert best.seconds is not None
    assert least < best.seconds < 1.1 * least
    # Two hashes out of a few share a cable; go-back-N takes what overtakes for lost.
    assert seconds["load balancing", "ecmp"] > seconds["load balancing", "spray"]
    assert seconds["loss recovery", "go_back_n"] > 2.0 * seconds["loss recovery", "selective"]
    for loss, mended in advice.mended().items():
        assert loss in module.LOSSES
        under = {row.name(): row.seconds or 0.0 for row in mended}
        assert under["selective"] < 0.5 * under["go_back_n"], under
        # Parity is a fifth of what is sent, and nothing is lost beyond it.
        assert under["erasure"] < 1.3 * seconds["as written", "as written"], under
    assert advice.sentences()[0].startswith(("choose `network.", "keep the network"))


def test_equal_times_change_least_and_small_gains_are_not_advised() -> None:
    def of(*times: tuple[Mapping[str, object], float]) -> Advice:
        rows = [Alternative("as written", {}, seconds=1.0)]
        rows += [Alternative("load balancing", dict(values), seconds=time) for values, time in times]
        return Advice(Traffic("dp", 0, 8, 8, 16, 1), tuple(rows))

    spray, both = {"network.load_balancer": "spray"}, {"network.load_balancer": "spray", "network.queue_pairs": 4}
    least = of((both, 0.7999), (spray, 0.8)).best()
    assert least is not None
    assert least.values == spray
    assert "20% less time" in of((spray, 0.8)).sentences()[0]
    assert of((spray, 0.99)).sentences()[0].startswith("keep")


def test_the_command_tells_it(command: Command, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    space = ("--gpus", "16", "--tp", "8", "--micro-batch", "1", "--recompute", "none", "--zero", "3", "--prove", "0")
    files = ("--page", page, "--store", tmp_path / "runs", "--workers", "1")
    told = json.loads(command("explore", BUILDINGS, *space, "--advise", "--json", *files).stdout)["network"]
    assert told["alternatives"][0]["knob"] == "as written"
    assert sum(row["best"] for row in told["alternatives"]) == 1
    assert told["advice"]
    assert "Simulated packet by packet" in page.read_text(encoding="utf-8")
