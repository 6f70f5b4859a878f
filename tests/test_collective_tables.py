"""Tables of measured collectives: readers, calibration, predictions from small tables made by hand."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from windtunnel import engine
from windtunnel.calibrate import nccl as pools
from windtunnel.calibrate.fit import PRIOR, fit
from windtunnel.engine import InputError
from windtunnel.studies.runner import Limits
from windtunnel.validate import collectives as questions
from windtunnel.validate import validate
from windtunnel.validate.collectives import Asked, Ranks, fitted, hardware, question
from windtunnel.validate.quantities import quantity, written
from windtunnel.validate.rails import leaves_a_slow_leaf
from windtunnel.validate.rows import Table
from windtunnel.validate.settings import environment
from windtunnel.validate.systems import OWN, System, fitted_of, read_system, read_systems
from windtunnel.validate.tables import READERS, nccl, pico

if TYPE_CHECKING:
    from pathlib import Path

RUNS = "run_id,system,collective,nodes,gpus_per_node,ranks,gpu,nccl_version,fabric,variant,n_sizes,quality,source\n"
ROWS = "run_id,size_bytes,oop_time_us,ip_time_us\n"
SYSTEM = """
name: made
source: this test
evidence: inferred
topology:
  shape: clos
  tiers:
    - {ports_down: 32, rate: 200 Gbps, length: 0 m}
  host: {gpu: A100-80, gpus: 8, nics: 8, nic: ConnectX-6}
constants:
  nccl: {value: {}, evidence: inferred, source: "NCCL's own"}
collectives:
  rows: [{system: Made cluster}]
  cpu: {value: amd, evidence: inferred, source: this test}
  ll128_between_hosts: {value: true, evidence: inferred, source: this test}
"""


def folder(tmp_path: Path, runs: list[str], rows: list[str], system: str | None = SYSTEM) -> Path:
    """A validation folder with a table of nccl-tests, and perhaps a system."""
    place = tmp_path / "collectives"
    place.mkdir(parents=True, exist_ok=True)
    (place / "nccl_tests_runs.csv").write_text(RUNS + "".join(f"{run}\n" for run in runs))
    (place / "nccl_tests_rows.csv.gz").write_bytes(gzip.compress((ROWS + "".join(f"{row}\n" for row in rows)).encode()))
    if system is not None:
        (tmp_path / "systems").mkdir(exist_ok=True)
        (tmp_path / "systems" / "made.yaml").write_text(system)
    return tmp_path


def run(
    number: str, collective: str = "all_reduce", nodes: int = 4, quality: str = "raw_log", variant: str = ""
) -> str:
    """A line of the runs."""
    return f"{number},Made cluster,{collective},{nodes},8,{8 * nodes},A100,,,{variant},1,{quality},log"


def test_a_large_ring_takes_what_its_bytes_take(tmp_path: Path) -> None:
    # 62 of 32 parts over 200 GB/s of NICs at the prior's share of 0.92.
    size = 8 << 30
    ideal = size * 62 / 32 / (200e9 * 0.92)
    data = folder(tmp_path, [run("1")], [f"1,{size},{ideal * 1e6:.3f},0"])
    (score,) = validate(["nccl-tests"], data=data, limits=Limits(1)).scores
    assert score.rows[0].id == "nccl-tests/1/8589934592"
    assert score.predicted[0] == pytest.approx(ideal, rel=0.01)
    assert score.predicted[0] > ideal


def test_the_version_of_a_run_decides(tmp_path: Path) -> None:
    # 512 KiB on 4 hosts of 8: hops of trees under Simple take 14 us with 2.18 and 28 us with 2.21.
    named = [run("1", variant="nccl_2_18 env"), run("2", variant="nccl-tests_nccl-2.21.5-1-aws")]
    stated = [run("3").replace("A100,,,", f"A100,{version},,") for version in ("2.21.5+cuda12.4", "22105", "unknown")]
    stated[1], stated[2] = stated[1].replace("3,", "4,", 1), stated[2].replace("3,", "5,", 1)
    system = SYSTEM.replace("ll128_between_hosts: {value: true", "ll128_between_hosts: {value: false")
    data = folder(tmp_path, named + stated, [f"{i},{1 << 19},100,0" for i in range(1, 6)], system)
    systems = read_systems(data)
    points = list(nccl.points(data / "collectives", systems, Table("nccl-tests")))
    assert [dict(point.run.settings).get("NCCL_VERSION") for point in points] == [
        "2_18", "2.21.5", "2.21.5", "22105", None,
    ]  # fmt: skip
    asked = [
        question(systems["made"], "all_reduce", point.size, point.run.ranks, point.run.settings)["collective"]
        for point in points
    ]
    choices = Asked(asked).answer([{}])["choices"]
    assert choices[0] != choices[1] == choices[2] == choices[3]
    # A system's file speaks for runs that say nothing.
    older = folder(
        tmp_path, [run("5")], [f"5,{1 << 19},100,0"], system + "  nccl_version: {value: 2.18.5, evidence: inferred}\n"
    )
    made = read_systems(older)["made"]
    one = question(made, "all_reduce", 1 << 19, points[4].run.ranks)["collective"]
    assert one["settings"] == [["NCCL_VERSION", "2.18.5"]]
    assert Asked([one]).answer([{}])["choices"] == choices[:1]


def test_rows_are_left_out_by_rule_and_counted(tmp_path: Path) -> None:
    runs = [
        run("1", quality="doc_sample"),
        run("2", collective="gather"),
        "3,Elsewhere,all_reduce,2,8,16,,,,,1,raw_log,log",
        run("4"),
        "5,Made cluster,all_reduce,1,1,1,,,,,1,raw_log,log",
    ]
    rows = [f"{i},1048576,100,0" for i in range(1, 7)] + ["4,1048576,,9"]
    (score,) = validate(["nccl-tests"], data=folder(tmp_path, runs, rows), limits=Limits(1)).scores
    assert len(score.rows) == 1
    assert {e.reason: e.rows for e in score.excluded} == {
        "quality `doc_sample`: a sample in a document, no raw log": 1,
        "collective `gather` is not modelled": 1,
        "no file of system `Elsewhere`": 1,
        "one rank: a copy, no collective": 1,
        "run without a description": 1,
        "no out-of-place time": 1,
    }


def test_settings_in_a_variant_are_followed(tmp_path: Path) -> None:
    runs = [run("1"), run("2", variant="NCCL_ALGO_Tree_nccl-tests"), run("3", variant="NCCL_PROTO=Simple")]
    rows = [f"{i},{1 << 30},10000,0" for i in (1, 2)] + [f"{i},1024,50,0" for i in (1, 3)]
    (score,) = validate(["nccl-tests"], data=folder(tmp_path, runs, rows), limits=Limits(1)).scores
    predicted = dict(zip([row.id for row in score.rows], score.predicted, strict=True))
    assert predicted["nccl-tests/2/1073741824"] > predicted["nccl-tests/1/1073741824"]
    assert predicted["nccl-tests/3/1024"] > predicted["nccl-tests/1/1024"]


def test_the_median_of_set_ups_of_unknown_setting_is_compared(tmp_path: Path) -> None:
    system = SYSTEM.replace("  cpu:", "  group_by_variant: env-setup\n  cpu:")
    runs = [run(str(i), variant=f"site env-setup({i})") for i in (1, 2, 3)]
    rows = [f"{i},1048576,{time},0" for i, time in ((1, 100), (2, 900), (3, 200))]
    (score,) = validate(["nccl-tests"], data=folder(tmp_path, runs, rows, system), limits=Limits(1)).scores
    (row,) = score.rows
    assert row.id == "nccl-tests/made/site/all_reduce-4x8/1048576"
    assert row.measured == pytest.approx(200e-6)


@pytest.mark.parametrize(
    ("runs", "rows", "message"),
    [
        ([run("1", nodes=0)], ["1,8,1,0"], "runs.csv:2: `nodes`: expected a positive number, found `0`"),
        (
            [run("1")],
            ["1,8,1,0", "1,8,soon,0"],
            "rows.csv.gz:3: `oop_time_us`: expected a positive number, found `soon`",
        ),
        ([run("1")], ["1,8.5,1,0"], "rows.csv.gz:2: `size_bytes`: expected a whole number, found `8.5`"),
    ],
)
def test_a_bad_cell_is_named_with_file_and_line(tmp_path: Path, runs: list[str], rows: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        validate(["nccl-tests"], data=folder(tmp_path, runs, rows), limits=Limits(1))
    assert message in str(error.value)


def test_bad_files_are_named(tmp_path: Path) -> None:
    data = folder(tmp_path, [run("1")], [])
    (data / "collectives" / "nccl_tests_rows.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match=r"rows.csv.gz: not a table"):
        validate(["nccl-tests"], data=data, limits=Limits(1))
    (data / "collectives" / "nccl_tests_runs.csv").write_text("run_id,system\n")
    with pytest.raises(InputError, match=r"runs.csv:1: column `collective` is missing"):
        validate(["nccl-tests"], data=data, limits=Limits(1))
    (data / "systems" / "made.yaml").write_text(SYSTEM.replace("length: 0 m", "length: long"))
    folder(tmp_path, [run("1")], ["1,8,1,0"], None)
    with pytest.raises(InputError, match=r"made.yaml: topology.tiers: expected a length such as `1 mm`, found `long`"):
        validate(["nccl-tests"], data=data, limits=Limits(1))


def test_calibration_finds_the_constants_that_made_the_rows(tmp_path: Path) -> None:
    system = SYSTEM
    sizes = [1 << exponent for exponent in range(10, 34)]
    runs = [run("1", nodes=1), run("2", nodes=2), run("3"), run("4", "alltoall"), run("5", "alltoall", 1)]
    blank = folder(tmp_path, runs, [f"{i},{size},1,0" for i in range(1, 6) for size in sizes], system)
    systems = read_systems(blank)
    made = systems["made"]
    table = Table("x")
    points = list(nccl.points(blank / "collectives", systems, table))
    truth = {"launch": 9e-6, "share_network": [0.2, 0.7, 0.8], "exchange_network": 0.6}
    asked = [question(made, p.run.operation, p.size, p.run.ranks)["collective"] for p in points]
    (seconds,) = Asked(asked).times([{**pools.whole({}, {}), **truth}])
    rows = [f"{p.run.line.text('run_id')},{p.size},{t * 1e6:.6f},0" for p, t in zip(points, seconds, strict=True)]
    data = folder(tmp_path, runs, rows, system)
    known = {"made": read_systems(data)["made"]}
    fits = pools.Fits(known, pools.rows_of(data, known))
    found = fits.of("made")
    assert fits.errors("made", found).max() < 0.06
    assert found["share_network.2"] == pytest.approx(0.8, rel=0.03)
    assert found["exchange_network"] == pytest.approx(0.6, rel=0.04)
    # One process drives one GPU in these rows, and no switch sums: they say nothing of it.
    assert (found["issue"], found["share_sums"]) == (pools.PRIORS["issue"], pools.PRIORS["share_sums"])
    # Nobody else was measured: the middle is NCCL's own.
    assert fits.without_system("made") == pools.flat(pools.PRIORS)
    # Without its 32 ranks the machine is known by the rest, and nearly as well.
    left_out = fits.of("made", "32 ranks on 4")
    assert left_out != found
    assert np.median(fits.errors("made", left_out, "32 ranks on 4")) < 0.05


def test_a_pool_is_made_of_other_machines_and_kin_count_most(tmp_path: Path) -> None:
    sizes = [1 << exponent for exponent in range(10, 34, 2)]
    others = {"near": ("ConnectX-6", "A100-80", 0.6), "far": ("Slingshot-11", "H100-SXM", 0.9)}
    lines_, rows_, made = [], [], tmp_path / "systems"
    made.mkdir()
    for number, (name, (nic, gpu, _)) in enumerate(others.items(), 1):
        text = SYSTEM.replace("name: made", f"name: {name}").replace("Made cluster", f"cluster {name}")
        (made / f"{name}.yaml").write_text(text.replace("ConnectX-6", nic).replace("A100-80", gpu))
        lines_.append(run(str(number)).replace("Made cluster", f"cluster {name}"))
    blank = folder(tmp_path, lines_, [f"{i},{size},1,0" for i in (1, 2) for size in sizes])
    known = {name: system for name, system in read_systems(blank).items() if name in others}
    for point in nccl.points(blank / "collectives", known, Table("x")):
        system = point.run.system
        assert not isinstance(system, str)
        asked = nccl.asked_of(system, point.run, point.size)["collective"]
        share = [0.25, 0.85, others[system.name][2]]
        ((time,),) = Asked([asked]).times([pools.whole({}, {"share_network": share})])
        rows_.append(f"{point.run.line.text('run_id')},{point.size},{time * 1e6:.6f},0")
    data = folder(tmp_path, lines_, rows_)
    fits = pools.Fits(known, pools.rows_of(data, known))
    kin, other = fits.kin("ampere", "connectx", None), fits.kin("hopper", "slingshot", None)
    assert 0.6 < kin["share_network.2"] < other["share_network.2"] < 0.95
    # Without the machine itself nothing of it is left.
    assert fits.without_system("near")["share_network.2"] > 0.88
    # Other networks say nothing of TCP, which has constants of its own, and of EFA's latency.
    tcp, efa = fits.kin("ampere", "tcp", None), fits.kin("ampere", "efa", None)
    own = pools.flat({**pools.PRIORS, **pools.PRIORS_OF["tcp"]})
    shared = {name for name in own if name.partition(".")[0] in pools.OF_HOST}
    elsewhere = fits.kin("ampere", pools.OTHER, None)
    assert tcp == {**own, **{name: elsewhere[name] for name in shared}}
    assert tcp["share_network.2"] == 0.125
    assert (efa["hop_ring.0"], efa["peer_network"]) == (15e-6, 15e-6)
    assert efa["share_network.2"] != pools.flat(pools.PRIORS)["share_network.2"], "its share is what others reach"


def test_every_row_is_predicted_by_what_has_not_seen_its_scale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    system = SYSTEM.replace(
        """constants:
  nccl: {value: {}, evidence: inferred, source: "NCCL's own"}
""",
        "",
    )
    data = folder(tmp_path, [run("1", nodes=2), run("2", nodes=8)], ["1,8,20,0", "2,8,40,0"], system)
    own = {"launch": 1e-3}
    records = {
        "made": {"constants": {"launch": 3e-3}, "without": {"16 ranks on 2": {"launch": 2e-3}}},
        "pools": {"pools": [{"generation": "ampere", "network": "connectx", "constants": own}],
                  "without": {"made": {"launch": 4e-3}}},
    }  # fmt: skip
    monkeypatch.setattr(questions, "fitted", lambda name: records.get(name, {}))
    launches = {}
    for name in ("nccl-tests", "nccl-systems"):
        table = READERS[name](data, read_systems(data))
        assert table is not None
        launches[name] = [row.scenario["collective"]["constants"]["launch"] for row in table.rows]
    # Of a scale that no fit has seen nothing has to be left out.
    assert launches == {"nccl-tests": [2e-3, 3e-3], "nccl-systems": [4e-3, 4e-3]}
    monkeypatch.setattr(questions, "fitted", lambda name: records["pools"] if name == "pools" else {})
    assert question(read_systems(data)["made"], "all_reduce", 8, Ranks(2, 8))["collective"]["constants"] == own


RAILS = (
    SYSTEM
    + """  leaves: {value: [[1, 2], [3, 4]], evidence: inferred, source: this test}
  slow_leaf: {value: {leaf: 0, gpu: 4}, evidence: inferred, source: this test}
  placements: {value: placements.csv, evidence: measured, source: this test}
"""
)
PLACED = "ranks_a_host,first_host,second_host,first_gpus,second_gpus\n"


def railed(tmp_path: Path, *placed: str) -> System:
    """A system of two groups of hosts, of which one has a slow leaf, with runs on these GPUs."""
    (tmp_path / "made.yaml").write_text(RAILS)
    (tmp_path / "placements.csv").write_text(PLACED + "".join(f"{line}\n" for line in placed))
    return read_system(tmp_path / "made.yaml")


def test_ways_leave_a_slow_leaf_where_they_cannot_stay_on_their_rail(tmp_path: Path) -> None:
    system = railed(
        tmp_path,
        "1,1,2,4,4",
        "1,1,3,4,4",
        "1,1,4,0,4",
        "2,1,2,4 5,4 5",
        "2,1,3,4 5,0 1",
        "2,2,3,3 4,0 1",
        "2,2,4,4 5,0 1",
    )

    def slow(operation: str, hosts: tuple[int, ...], ranks: int) -> bool:
        return leaves_a_slow_leaf(system, operation, hosts, ranks)

    # Both NICs on the leaf itself, then one in the other group; that group's own leaf of the same rail is sound.
    assert not slow("alltoall", (1, 2), 1)
    assert slow("alltoall", (1, 3), 1)
    assert not slow("alltoall", (1, 4), 1)
    # From GPU 5 to GPU 4 by way of the sender's GPU 4 (PXN), so that the message stays on the leaf.
    assert not slow("alltoall", (1, 2), 2)
    assert slow("alltoall", (1, 3), 2)
    # Ranks in order: the last of a host sends to the first of the next, so GPU 4 sends or receives, or takes no part.
    assert slow("sendrecv", (1, 3), 2)
    assert slow("sendrecv", (2, 3), 2)
    assert slow("sendrecv", (2, 4), 2)
    # Whole hosts have every rail: only other groups' leaves are beyond their own. A ring of sends passes GPUs 7 and 0.
    assert not slow("alltoall", (1, 2), 8)
    assert slow("alltoall", (2, 3), 8)
    assert not slow("sendrecv", (2, 3), 8)
    # A run of which nobody knows where it was.
    assert not slow("alltoall", (3, 4), 2)
    assert not slow("alltoall", (), 2)


def test_a_placement_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    system = railed(tmp_path, "2,1,2,4,4 5")
    with pytest.raises(InputError, match=r"placements.csv:2: `first_gpus`: expected 2 numbers of GPUs, found `4`"):
        leaves_a_slow_leaf(system, "alltoall", (1, 2), 2)


def test_calibration_finds_what_a_slow_leaf_lets_out(tmp_path: Path) -> None:
    pairs = [(1, 2), (1, 3), (1, 4)]
    logs = [f"nccl_N2_G8_node-00{a}_node-00{b}.log" for a, b in pairs]
    runs = [run(str(i), "alltoall", 2).rpartition(",")[0] + f",{log}" for i, log in enumerate(logs, 1)]
    sizes = [1 << exponent for exponent in range(20, 35)]
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "placements.csv").write_text(PLACED)
    blank = folder(tmp_path, runs, [f"{i},{size},1,0" for i in (1, 2, 3) for size in sizes], RAILS)
    systems = read_systems(blank)
    points = list(nccl.points(blank / "collectives", systems, Table("x")))
    asked = [nccl.asked_of(systems["made"], p.run, p.size)["collective"] for p in points]
    (seconds,) = Asked(asked).times([{**pools.whole({}, {}), "slow_leaf": 6e9, "sustained": 7e8}])
    # Of 16 GiB a NIC sends half, at 6 GB/s / (1 + (16 GiB / 8 peers) / 0.7 GB).
    last = next(t for p, t in zip(points, seconds, strict=True) if p.size == 1 << 34 and p.run.hosts == (1, 3))
    assert last == pytest.approx((1 << 33) / 6e9 * (1 + (1 << 31) / 7e8), rel=1e-3)
    rows = [f"{p.run.line.text('run_id')},{p.size},{t * 1e6:.6f},0" for p, t in zip(points, seconds, strict=True)]
    data = folder(tmp_path, runs, rows, RAILS)
    known = {"made": read_systems(data)["made"]}
    found = pools.Fits(known, pools.rows_of(data, known)).of("made")
    assert found["slow_leaf"] == pytest.approx(6e9, rel=0.1)
    assert found["sustained"] == pytest.approx(7e8, rel=0.15)


def test_what_a_system_sets_comes_before_what_a_run_sets(tmp_path: Path) -> None:
    (tmp_path / "made.yaml").write_text(
        SYSTEM
        + """  environment: {value: {NCCL_PROTO: simple}, evidence: data sheet, source: this test}
  tuner:
    value:
      - {hosts: [2, 2], ranks: [8, ~], operations: [all_reduce], algorithm: tree}
      - {hosts: [3, 6], bytes: [0 B, 2 MiB], algorithm: ring, channels: 4}
    evidence: data sheet
    source: this test
"""
    )
    system = read_system(tmp_path / "made.yaml")
    proto = ("NCCL_PROTO", "simple")
    four = [("NCCL_MIN_NCHANNELS", "4"), ("NCCL_MAX_NCHANNELS", "4")]
    assert environment(system, "all_reduce", 8, 2, 8) == [proto, ("NCCL_ALGO", "tree")]
    assert environment(system, "all_gather", 8, 2, 8) == [proto]
    assert environment(system, "all_reduce", 8, 2, 4) == [proto]
    assert environment(system, "all_reduce", (2 << 20) - 1, 6, 8) == [proto, ("NCCL_ALGO", "ring"), *four]
    assert environment(system, "all_reduce", 2 << 20, 6, 8) == [proto]
    asked = question(system, "all_reduce", 8, Ranks(2, 8), [("NCCL_PROTO", "ll")])["collective"]["settings"]
    assert asked.index(["NCCL_PROTO", "simple"]) < asked.index(["NCCL_PROTO", "ll"])
    record = dict(system.record)
    record["collectives"] = {"tuner": {"value": [{"hosts": 2, "algorithm": "tree"}]}}
    with pytest.raises(InputError, match=r"collectives.tuner\[0\].hosts: expected two bounds, found `2`"):
        environment(System("made", system.path, record), "all_reduce", 8, 2, 8)


def test_what_rows_do_not_determine_is_refused() -> None:
    # y = a · b: only the product can be known; c never enters.
    def predict(sets: list[dict[str, float]]) -> np.ndarray:
        x = np.array([1.0, 2.0, 4.0, 8.0])
        return np.array([s.get("a", 1.0) * s.get("b", 1.0) * x + 0.0 * s.get("c", 1.0) for s in sets])

    found = fit(["a", "b", "c"], [1.0, 1.0, 1.0], [3.0, 6.0, 12.0, 24.0], [1.0] * 4, predict)
    assert found.refused["c"] == "the rows do not depend on it"
    assert any("only a combination of" in reason for reason in found.refused.values())
    (kept,) = found.values
    # Four rows that ask for 3 and the belief in 1: the minimum of 4 (x - ln 3)²/2 + PRIOR x²/2.
    assert found.values[kept] == pytest.approx(3.0 ** (4 / (4 + PRIOR)), rel=1e-3)


def test_what_the_rows_leave_open_stays_where_it_was_believed() -> None:
    # Every row hardly moves with b: it stays, and a takes what there is.
    def predict(sets: list[dict[str, float]]) -> np.ndarray:
        x = np.arange(1.0, 101.0)
        return np.array([s.get("a", 1.0) * x + 0.2 * s.get("b", 1.0) for s in sets])

    truth = 2.0 * np.arange(1.0, 101.0) + 0.2
    found = fit(["a", "b"], [1.0, 1.0], truth.tolist(), [1.0] * 100, predict)
    assert found.values["a"] == pytest.approx(2.0, rel=0.01)
    assert found.values.get("b", 1.0) == pytest.approx(1.0, rel=0.3)


def test_quantities_have_units() -> None:
    assert quantity("200 Gbps", "rate", "here") == 25e9
    assert quantity("1.5 us", "time", "here") == pytest.approx(1.5e-6)
    assert written(1.5e-6) == "1.5 us"
    with pytest.raises(InputError, match=r"here: expected a size such as `1 B`, found `64 kB`"):
        quantity("64 kB", "size", "here")


def test_every_system_of_collectives_can_be_read() -> None:
    for name, system in read_systems(None).items():
        record = system.record.get("collectives") or {}
        for key, figure in record.items():
            if key not in {"rows", "group_by_variant", "machine"}:
                assert set(figure) >= {"value", "evidence", "source"}, f"{name}: {key}"
        if "rows" in record:
            machine = hardware(system)
            assert machine["scale_up"] > machine["nic"] > 1e9, name
        assert system.path.parent == OWN


PICO = (
    "system,timestamp,test_id,nnodes,tasks_per_node,ranks,collective,mpi_lib,gpu_awareness,algorithm,dtype,bytes,"
    "median_us,notes\n"
)


def test_mpi_rows_name_their_algorithm_or_are_left_out(tmp_path: Path) -> None:
    place = tmp_path / "collectives"
    place.mkdir()
    rows = [
        "leonardo,t,0,4,1,4,ALLREDUCE,OMPI,no,ring_ompi,int32,67108864,9000,null",
        "leonardo,t,0,4,1,4,ALLREDUCE,OMPI,no,default_ompi,int32,67108864,9000,null",
        "leonardo,t,0,4,1,4,ALLREDUCE,OMPI,yes,ring_ompi,int32,67108864,9000,null",
        "leonardo,t,0,4,1,4,ALLREDUCE,OMPI,no,swirl_over,int32,67108864,9000,null",
        "somewhere,t,0,4,1,4,ALLREDUCE,OMPI,no,ring_ompi,int32,67108864,9000,null",
        "fugaku,t,0,2x2x2,1,8,ALLREDUCE,FJMPI,no,BINE-L-UTOFU-0-6,int32,67108864,9000,null",
    ]
    (place / "pico_mpi_collectives.csv.gz").write_bytes(
        gzip.compress((PICO + "".join(f"{r}\n" for r in rows)).encode())
    )
    board = validate(["pico"], data=tmp_path, limits=Limits(1))
    (score,) = board.scores
    assert [row.groups["algorithm"] for row in score.rows] == ["all_reduce by ring", "all_reduce by bine_whole"]
    assert sum(e.rows for e in score.excluded) == 4
    ring, _ = score.predicted
    # 6 rounds of 16 MiB at most at the 25 GB/s of two ports, and no faster than that.
    assert ring > 6 * 16 * 2**20 / 25e9


def test_names_of_pico_become_definitions() -> None:
    assert pico.definition("ALLREDUCE", "bine_bdw_remap_segmented_over_16384") == {
        "algorithm": "bine", "segment": 16384.0, "ports": 1, "permute": False, "announced": False,
    }  # fmt: skip
    found = pico.definition("ALLGATHER", "BINE-VEC_DOUBLING_CONT_PERMUTE-UTOFU-0-3")
    assert found == {"algorithm": "bine", "segment": 0.0, "ports": 3, "permute": True, "announced": False}
    # Trees of whole vectors are cut; receivers announce their buffers unless known ones lie between.
    assert pico.definition("BCAST", "BINE-BINOMIAL_TREE-UTOFU-4096-6") == {
        "algorithm": "bine", "segment": 4096.0, "ports": 6, "permute": False, "announced": True,
    }  # fmt: skip
    buffered = pico.definition("BCAST", "BINE-BINOMIAL_TREE_TMPBUF-UTOFU-0-6")
    assert buffered is not None
    assert not buffered["announced"]
    assert pico.definition("ALLREDUCE", "bine_bdw_remap_segmented_over") is None
    # Those for any even number of ranks leave none aside.
    for collective in ("ALLREDUCE", "ALLGATHER", "REDUCE_SCATTER"):
        even = pico.definition(collective, "bine_block_by_block_over_any_even")
        assert even is not None
        assert even["algorithm"] == "bine_blocks_even"


def test_a_job_on_most_leaves_of_the_machine_is_known_as_wide(tmp_path: Path) -> None:
    topology = tmp_path / "collectives" / "pico_topology"
    topology.mkdir(parents=True)
    nodes = "".join(f"NODE {n} RACK 1 CELL 1 ROW 1 SWITCH {n // 2}\n" for n in range(20))
    (topology / "leonardo.txt.gz").write_bytes(gzip.compress(nodes.encode()))
    rows = [f"leonardo,t{n},0,{n},1,{n},ALLGATHER,OMPI,no,ring_ompi,int32,67108864,9000,null" for n in (10, 12)]
    (tmp_path / "collectives" / "pico_mpi_collectives.csv.gz").write_bytes(
        gzip.compress((PICO + "".join(f"{r}\n" for r in rows)).encode())
    )
    # Ten leaves of two hosts, of which the first ones are taken whole.
    hosts = [f"leonardo,t{n},a.csv,{host},lrdn{host:04}" for n in (10, 12) for host in range(n)]
    (tmp_path / "collectives" / "pico_allocations.csv.gz").write_bytes(
        gzip.compress(("system,timestamp,alloc_file,mpi_rank,node\n" + "".join(f"{h}\n" for h in hosts)).encode())
    )
    found = list(pico.rows(tmp_path / "collectives", read_systems(None), Table("pico")))
    fabrics = [row.scenario["mpi"]["fabric"]["switches"] for row in found]
    # Six leaves of ten are most of them.
    assert [(len(set(f["leaves"])), f["wide"], f["exposed"]) for f in fabrics] == [(5, False, 0.0), (6, True, 0.0)]
    assert {f["rails"] for f in fabrics} == {2.0}


def test_a_note_and_an_allocation_say_how_many_ranks_a_host_had(tmp_path: Path) -> None:
    place = tmp_path / "collectives"
    place.mkdir()
    rows = [f"leonardo,t{i},0,4,1,4,ALLGATHER,OMPI,no,ring_ompi,int32,65536,90,{note}" for i, note in
            enumerate(["4 tasks per node", "null", "4 tasks per node"])]  # fmt: skip
    (place / "pico_mpi_collectives.csv.gz").write_bytes(
        gzip.compress((PICO + "".join(f"{r}\n" for r in rows)).encode())
    )
    hosts = [f"leonardo,{stamp},a.csv,{rank},lrdn{rank // per:04}" for stamp, per in (("t0", 4), ("t1", 4))
             for rank in range(4 * per)]  # fmt: skip
    (place / "pico_allocations.csv.gz").write_bytes(
        gzip.compress(("system,timestamp,alloc_file,mpi_rank,node\n" + "".join(f"{h}\n" for h in hosts)).encode())
    )
    (score,) = validate(["pico"], data=tmp_path, limits=Limits(1)).scores
    # The second has no such note, the third no such allocation.
    assert [row.groups["scale"] for row in score.rows] == ["16 ranks", "4 ranks", "4 ranks"]
    assert score.predicted[0] > 2 * score.predicted[1]
    assert score.predicted[1] == score.predicted[2]


def test_a_table_with_another_hosts_times_is_left_out(tmp_path: Path) -> None:
    place = tmp_path / "collectives" / "vidur_network"
    place.mkdir(parents=True)
    head = "time_stats.send_recv.median,num_workers,size,devices_per_node,rank\n"
    # 350 GB/s: within what H100 carries, beyond A100.
    rows = "".join(f"{size / 350e9 * 1e3},2,{size},2,0\n" for size in (1 << 24, 1 << 25))
    for host in ("a100_pairwise_nvlink", "h100_pairwise_nvlink"):
        (place / f"{host}__send_recv.csv.gz").write_bytes(gzip.compress((head + rows).encode()))
    (score,) = validate(["vidur-network"], data=tmp_path, limits=Limits(1)).scores
    assert {row.system for row in score.rows} == {"vidur-h100-pairs"}
    reason = "a table with another host's times, faster than this host's links"
    assert [(e.reason, e.rows) for e in score.excluded] == [(reason, 2)]


SCENARIO = """
windtunnel: 1
name: t
seed: 1
fidelity: flow
topology:
  shape: clos
  hosts: {hosts}
  tiers:
    - {{ports_down: 32, rate: 400 Gbps, length: 0 m}}
  host: {{gpu: H100-SXM, gpus: {gpus}, nics: {gpus}, nic: ConnectX-7}}
network: {{mtu: 4096 B, header: 66 B, load_balancer: ideal}}
jobs:
  - name: j
    workload: {{collective: {{kind: {kind}, bytes: {bytes} B, tuner: nccl, ranks: {ranks}{more}}}}}
    iterations: 1
"""


def simulated(kind: str, size: int, ranks: int, gpus: int = 8, more: str = "") -> float:
    """Seconds of a run."""
    text = SCENARIO.format(hosts=max(2, ranks // gpus), gpus=gpus, kind=kind, bytes=size, ranks=ranks, more=more)
    summary = engine.run(text, "t", "/", [], {"threads": 1}, lambda *_: None, lambda *_: None)
    return float(json.loads(summary)["jobs"][0]["iteration_time_s"]["mean"])


def pool(generation: str, network: str) -> dict[str, object]:
    """Constants of a kin."""
    (found,) = [
        one["constants"]
        for one in fitted("pools")["pools"]
        if (one["generation"], one["network"]) == (generation, network)
    ]
    return dict(found)


def closed(operation: str, size: int, domains: int, ranks: int) -> tuple[float, str]:
    """Seconds of the closed form on the same hosts, and NCCL's choice."""
    machine = {
        "architecture": "hopper", "scale_up": 370.8e9, "scale_up_sums": ranks == 8, "memory": 2.8e12, "nics": ranks,
        "nic": 50e9, "gpus": ranks, "wire": 0.3e-6, "ll128_between": True,
    }  # fmt: skip
    question = {
        "hardware": 0, "settings": 0, "layout": {"domains": domains, "ranks": ranks}, "operation": operation,
        "bytes": size,
    }  # fmt: skip
    asked = {
        "hardware": [machine],
        "settings": [[]],
        "constants": [pool("hopper", "connectx")],
        "questions": [question],
    }
    answer = json.loads(engine.collective_times(json.dumps(asked)))
    return answer["times"][0][0], answer["choices"][0]


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_a_run_takes_what_the_closed_form_says_inside_a_host(kind: str) -> None:
    size = 1 << 30
    expected, choice = closed(kind, size, 1, 8)
    assert simulated(kind, size, 8) == pytest.approx(expected, rel=0.03), choice


@pytest.mark.parametrize(
    ("kind", "gpus"),
    [("all_to_all", 8), ("all_gather", 1), ("all_gather", 8), ("reduce_scatter", 8), ("all_reduce", 8)],
)
def test_a_run_takes_what_the_closed_form_says_between_hosts(kind: str, gpus: int) -> None:
    size = 1 << 30
    expected, choice = closed(kind, size, 4, gpus)
    assert simulated(kind, size, 4 * gpus, gpus) == pytest.approx(expected, rel=0.03), choice


def test_the_environment_of_a_scenario_is_checked() -> None:
    with pytest.raises(InputError, match=r"environment.NCCL_DEBUG: `NCCL_DEBUG` is not followed"):
        simulated("all_reduce", 1024, 8, more=", environment: {NCCL_DEBUG: INFO}")
    with pytest.raises(InputError, match=r"tuner: `nccl` chooses the algorithm, found one"):
        simulated("all_reduce", 1024, 8, more=", algorithm: ring")
    slow = simulated("all_reduce", 1 << 30, 8, more=", environment: {NCCL_ALGO: ring}")
    assert slow > simulated("all_reduce", 1 << 30, 8)


def test_a_system_with_calibrated_constants_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "made.yaml"
    path.write_text(SYSTEM)
    (tmp_path / "constants").mkdir()
    (tmp_path / "constants" / "made.json").write_text(
        '{"nccl": {"value": {"launch": "9 us"}, "evidence": "calibrated", "source": "here", '
        '"fitted": ["nccl-tests/1/8"]}}'
    )
    system = read_system(path)
    of_its_gpu = {row for figure in fitted_of("gpus", "A100-80").values() for row in figure["fitted"]}
    assert system.constant("nccl") == {"launch": "9 us"}
    assert system.fitted == of_its_gpu | {"nccl-tests/1/8"}
    assert set(READERS) >= {"nccl-tests", "nccl-scale", "pico", "deepep", "vidur-network"}
