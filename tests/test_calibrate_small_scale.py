"""Fits of small scales: what they leave open comes from other machines, and disturbed runs are not believed."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from windtunnel.calibrate import nccl as pools
from windtunnel.validate.collectives import Asked, Ranks, question
from windtunnel.validate.systems import System, read_system
from windtunnel.validate.tables import nccl

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM = """
name: {name}
source: this test
evidence: inferred
topology:
  shape: clos
  tiers:
    - {{ports_down: 32, rate: 200 Gbps, length: 0 m}}
  host: {{gpu: A100-80, gpus: 4, nics: 4, nic: {nic}}}
collectives:
  cpu: {{value: amd, evidence: inferred, source: this test}}
{more}
"""
SIZES = [1 << exponent for exponent in range(10, 33)]


def system(folder: Path, name: str, nic: str = "ConnectX-6", more: str = "") -> System:
    """A machine whose hosts have four A100."""
    path = folder / f"{name}.yaml"
    path.write_text(SYSTEM.format(name=name, nic=nic, more=more))
    return read_system(path)


def rows(of: System, hosts: list[int], truth: dict[str, float]) -> pools.Rows:
    """All-reduces of four ranks a host as a machine with the constants `truth` would take."""
    found = pools.Rows()
    for count in hosts:
        for size in SIZES:
            asked = question(of, "all_reduce", size, Ranks(count, 4))["collective"]
            asked.pop("constants")
            found.asked.append(asked)
            found.weights.append(1.0)
            found.scales.append(nccl.scale_of(Ranks(count, 4)))
    (found.measured,) = Asked(found.asked).times([pools.whole({**pools.flat(pools.PRIORS), **truth}, {})])
    found.count = len(found.asked)
    return found


def test_what_crowds_cost_is_what_other_machines_say(tmp_path: Path) -> None:
    known = {
        "large": system(tmp_path, "large"),
        "small": system(tmp_path, "small"),
        "sockets": system(tmp_path, "sockets", more="  transport: {value: tcp, evidence: inferred, source: this test}"),
    }
    # A launch that all three have, and a crowd that only the large one can tell.
    truth = {"launch": 9e-6, "crowd.2": 0.03}
    measured = {"large": rows(known["large"], [2, 8, 64, 256], truth), "small": rows(known["small"], [2, 4], truth)}
    measured["sockets"] = rows(known["sockets"], [2, 4], truth)
    fits = pools.Fits(known, measured)
    prior = pools.flat(pools.PRIORS)
    # Of what a kin's trees say and what is believed, each counts a half.
    expected = (truth["crowd.2"] + prior["crowd.2"]) / 2
    assert fits.without_system("small")["crowd.2"] == pytest.approx(expected, rel=0.02)
    # Over TCP nothing of other networks' rates, hops or crowd counts, but what does not leave a host does.
    tcp = fits.without_system("sockets")
    other = fits.kin("ampere", pools.OTHER, "sockets")
    # One machine of another network counts a quarter, and over TCP not at all.
    expected = prior["crowd.2"] + (truth["crowd.2"] - prior["crowd.2"]) / 4
    assert other["crowd.2"] == pytest.approx(expected, rel=0.02)
    assert tcp["crowd.2"] == pools.flat(pools.PRIORS_OF["tcp"])["crowd.2"] < 0.01
    assert tcp["launch"] == other["launch"] > prior["launch"]
    assert tcp["share_network.2"] == pools.flat(pools.PRIORS_OF["tcp"])["share_network.2"]
    # Nobody else is large: the prior stays.
    assert fits.without_system("large")["crowd.2"] == pytest.approx(prior["crowd.2"], rel=0.02)


def test_a_fit_on_few_ranks_sees_no_more_of_them(tmp_path: Path) -> None:
    known = {"made": system(tmp_path, "made")}
    every = rows(known["made"], [2, 8, 64], {"share_network.2": 0.7})
    small = rows(known["made"], [2, 8], {"share_network.2": 0.7})
    fits = pools.Fits(known, {"made": every})
    found = fits.of("made", most=32)
    assert found == pools.Fits(known, {"made": small}).of("made")
    assert found != fits.of("made")
    assert found["share_network.2"] == pytest.approx(0.7, rel=0.05)
    assert fits.of("made", most=1) == fits.without_system("made"), "no row is left"


def test_of_two_runs_the_one_that_nobody_disturbed_is_fitted_on(tmp_path: Path) -> None:
    made = system(tmp_path, "made", more="  rows: [{system: Made cluster}]")
    folder = tmp_path / "collectives"
    folder.mkdir()
    head = "run_id,system,collective,nodes,gpus_per_node,ranks,gpu,nccl_version,fabric,variant,n_sizes,quality,source\n"
    run = "Made cluster,all_reduce,2,4,8,A100,2.23.4,,,1,raw_log,this test"
    (folder / "nccl_tests_runs.csv").write_text(head + "".join(f"{i},{run}\n" for i in (1, 2, 3)))
    for times, fitted in (([50, 500], 50.0), ([500, 50], 50.0), ([50, 500, 60], 60.0)):
        lines = "".join(f"{i},1024,{time},0\n" for i, time in enumerate(times, 1))
        (folder / "nccl_tests_rows.csv.gz").write_bytes(
            gzip.compress(f"run_id,size_bytes,oop_time_us,ip_time_us\n{lines}".encode())
        )
        found = pools.rows_of(tmp_path, {"made": made})["made"]
        assert found.measured == pytest.approx([fitted * 1e-6])
        assert found.count == len(times)


def test_the_ranks_of_a_scale_are_read_from_its_name() -> None:
    assert nccl.members(nccl.scale_of(Ranks(10, 8))) == 80
