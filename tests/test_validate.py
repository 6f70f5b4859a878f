"""The validation board: scores, systems, tables."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from windtunnel import engine
from windtunnel.cli.app import FAILED, main
from windtunnel.engine import InputError
from windtunnel.studies.runner import Limits
from windtunnel.validate import NAMES, Figures, Row, Score, targets, validate
from windtunnel.validate.output import html
from windtunnel.validate.predict import runs_of
from windtunnel.validate.score import spearman
from windtunnel.validate.systems import OWN, fitted_of, read_system, read_systems
from windtunnel.validate.tables import READERS
from windtunnel.validate.tables.common import racks, training_scenario

if TYPE_CHECKING:
    from pathlib import Path


HEAD = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,"
    "data parallelism,pipeline parallelism,iteration time (ms)\n"
)


def table(folder: Path, *rows: str) -> Path:
    """A folder with a table of single-host rows."""
    place = folder / "e2e_iteration"
    place.mkdir(parents=True, exist_ok=True)
    (place / "vtrain_ground_truth_single.csv").write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return folder


def test_figures_of_errors_worked_by_hand() -> None:
    figures = Figures.of([1.1, 1.6, 3.3, 4.0], [1.0, 2.0, 3.0, 4.0])
    assert figures.rows == 4
    assert figures.median_abs_error == pytest.approx(0.1)
    assert figures.max_abs_error == pytest.approx(0.2)
    # Between the third of three gaps: 0.1 + 0.85 · (0.2 - 0.1).
    assert figures.p95_abs_error == pytest.approx(0.185)
    assert figures.bias == pytest.approx(0.05)
    assert figures.rank_correlation == pytest.approx(1.0)


def test_rank_correlation_takes_mean_ranks_for_ties() -> None:
    # Ranks 0.5, 0.5, 2 against 0, 1, 2: covariance 0.75 over sqrt(1.5 · 2)/... = sqrt(3)/2.
    assert spearman(np.array([5.0, 5.0, 9.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(np.sqrt(3) / 2)
    assert spearman(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])) is None
    assert spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert Figures.of([], []).median_abs_error is None


def test_groups_split_the_rows() -> None:
    rows = [Row(str(i), "here", 1.0, {}, {"size": size}) for i, size in enumerate(["a", "a", "b"])]
    groups = Score("t", rows, [1.1, 1.3, 2.0], []).groups()
    by = {next(iter(group["by"].items())): group for group in groups}
    assert by["size", "a"]["median_abs_error"] == pytest.approx(0.2)
    assert (by["size", "b"]["rows"], by["system", "here"]["rows"]) == (1, 3)


def test_equal_configurations_run_once() -> None:
    scenario = {"jobs": [{"workload": {"global_batch": 8}, "parallelism": {}}]}
    a = Row("a", "s", 1.0, scenario, {}, {"m.json": {"y": 2}})
    b = Row("b", "other", 2.0, scenario, {"size": "1"}, {"m.json": {"y": 2}})
    c = Row("c", "s", 1.0, scenario, {}, {"m.json": {"y": 3}})
    keys = [[key for key, *_ in runs_of(row)] for row in (a, b, c)]
    assert keys[0] == keys[1]
    assert set(keys[0]).isdisjoint(keys[2])


def test_every_system_says_where_it_is_from() -> None:
    systems = read_systems(None)
    assert {"vtrain-a100", "selene", "zero-bubble-a100"} <= systems.keys()
    for system in systems.values():
        assert system.path.parent == OWN
        assert system.record["source"], system.name
        assert system.record["evidence"] in {"measured", "calibrated", "data sheet", "inferred"}


def test_a_slow_host_is_predicted_and_fitted_rows_are_never_scored(tmp_path: Path) -> None:
    # Bound by launches: the time of the two rows differs by the number of micro-batches.
    fitted = "8,128,1,1024,16,12,1024,1,8,1,160"
    rows = ["2,8,1,1024,16,16,1024,1,2,1,230", "2,16,1,1024,16,16,1024,1,2,1,430", fitted]
    board = validate(["vtrain-single"], data=table(tmp_path, *rows), limits=Limits(1))
    (score,) = board.scores
    assert [e.reason for e in score.excluded] == ["used to fit a constant"]
    four, eight = score.predicted
    # 4 and 8 micro-batches of 16 layers, what is done once (optimiser, gradients) apart.
    assert 1.8 < eight / four < 2.0
    record = board.record()["tables"][0]
    assert (record["name"], record["rows"]) == ("vtrain-single", 2)


def test_systems_of_the_folder_come_first_and_those_without_a_file_are_counted(tmp_path: Path) -> None:
    folder = table(tmp_path, "2,8,1,1024,16,16,1024,1,2,1,230")
    (folder / "systems").mkdir()
    own = (OWN / "vtrain-a100.yaml").read_text().split("constants:")[0]
    (folder / "systems" / "a.yaml").write_text(own)
    found = read_systems(folder)["vtrain-a100"]
    # What was fitted on is that of its GPU alone.
    of_its_gpu = frozenset(row for figure in fitted_of("gpus", "A100-80").values() for row in figure["fitted"])
    assert (found.path.parent, found.fitted, found.constant("dispatch")) == (folder / "systems", of_its_gpu, None)
    unknown = READERS["vtrain-single"](folder, {})
    assert unknown is not None
    assert [(e.reason, e.rows) for e in unknown.excluded] == [("no file of system `vtrain-a100`", 1)]


def test_a_row_that_cannot_be_run_is_a_failure_of_the_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2,048 GPUs are 256 hosts, more than the two levels of this system reach.
    folder = table(tmp_path, "2,8,1,1024,16,16,1024,1,2,1,230", "2048,4096,1,1024,16,16,1024,1,2048,1,230")
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "--data", str(folder), "--table", "vtrain-single"]) == FAILED
    assert "2048" in capsys.readouterr().err
    board = validate(["vtrain-single"], data=folder, limits=Limits(1))
    (score,) = board.scores
    ((row, reason),) = ((f.row, f.reason) for f in score.failed)
    assert (score.figures.rows, row.scenario["topology"]["hosts"]) == (1, 256)
    assert "topology" in reason
    record = board.record()["tables"][0]
    assert record["failed"] == [{"row": row.id, "reason": reason}]
    assert not any("could not" in e["reason"] for e in record["excluded"])
    (line,) = (line for line in targets.lines(board) if "vtrain-single" in line)
    assert line.endswith("| 1 rows could not be run |")
    assert reason in html(board)
    last = (tmp_path / "runs" / "validation" / "vtrain-single.csv").read_text().splitlines()[-1]
    assert row.id in last
    assert ",,," in last


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        # Hosts of published runs: MLPerf Training v4.0 to v5.1, and the sizes that two levels hold.
        *(("eos", hosts) for hosts in (256, 304, 1024, 1452)),
        *((name, hosts) for name in ("dgx-b200", "dgx-b300", "hgx-h200") for hosts in (256, 512, 2048)),
        *((name, hosts) for name in ("gb200-nvl72", "gb300-nvl72") for hosts in (256, 624, 1280)),
    ],
)
def test_systems_reach_the_hosts_of_published_runs(name: str, hosts: int) -> None:
    system = read_systems(None)[name]
    gpus = hosts * int(system.section("topology")["host"]["gpus"])
    scenario = training_scenario(system, gpus=gpus, workload={}, parallelism={})
    racks(scenario, gpus)
    topology = scenario["topology"]
    assert topology["hosts"] == hosts
    assert len(topology["tiers"]) == (3 if hosts > 256 else 2)
    # The engine builds it.
    facts = json.loads(engine.topology(json.dumps(topology), name, "."))
    assert facts["hosts"] == hosts


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "2,8,1,1024,16,16,1024,1,2,1,fast",
            "single.csv:2: `iteration time (ms)`: expected a positive number, found `fast`",
        ),
        ("2,8,1.5,1024,16,16,1024,1,2,1,9", "single.csv:2: `micro batch`: expected a whole number, found `1.5`"),
        ("2,8,0,1024,16,16,1024,1,2,1,9", "single.csv:2: `micro batch`: expected a positive number, found `0`"),
    ],
)
def test_a_bad_cell_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match="vtrain_ground_truth") as error:
        READERS["vtrain-single"](table(tmp_path, row), read_systems(None))
    assert message in str(error.value)


def test_a_missing_column_and_a_bad_system_are_named(tmp_path: Path) -> None:
    folder = table(tmp_path)
    (folder / "e2e_iteration" / "vtrain_ground_truth_single.csv").write_text("# GPUs,global batch\n1,2\n")
    with pytest.raises(InputError, match=r"single.csv:1: column `micro batch` is missing"):
        READERS["vtrain-single"](folder, read_systems(None))
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: x\ntopolgy: {}\n")
    with pytest.raises(InputError, match=r"bad.yaml: `topology` is missing"):
        read_system(bad)
    bad.write_text("name: x\ntopology: {}\nconstants: {dispatch: {value: 1 us}}\n")
    with pytest.raises(InputError, match=r"constants.dispatch: `evidence` is missing"):
        read_system(bad)
    bad.write_text("name: x\ntopology: 3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad.yaml: topology: expected keys and values, found `3`"):
        read_system(bad)
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"bad.yaml: not a system"):
        read_system(bad)
    (folder / "e2e_iteration" / "published_tables.json.gz").write_bytes(
        gzip.compress(json.dumps({"rows": [{}]}).encode())
    )
    with pytest.raises(InputError, match=r"rows\[0\]"):
        READERS["megatron-sc21"](folder, read_systems(None))


def test_the_board_reads_every_table_there_is(measured: Path) -> None:
    systems = read_systems(None)
    for name in NAMES:
        found = READERS[name](measured, systems)
        assert found is not None, name
        assert found.rows, name


def test_korthikanti_within_its_target(measured: Path) -> None:
    (score,) = validate(["korthikanti"], data=measured, limits=Limits(2)).scores
    # Two of the eight are of those that the share of A100 was fitted on.
    assert (score.figures.rows, [e.rows for e in score.excluded]) == (6, [2])
    assert score.figures.median_abs_error is not None
    assert score.figures.median_abs_error <= 0.08
    assert score.figures.p95_abs_error is not None
    assert score.figures.p95_abs_error <= 0.20
