"""The table of the UEC's recordings: what a row becomes, and that a run of it takes what its closed form says."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from windtunnel.engine import InputError
from windtunnel.studies.runner import Limits
from windtunnel.validate import BOARD, NAMES, validate
from windtunnel.validate.predict import runs_of
from windtunnel.validate.tables import uec

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

COLUMNS = [*uec.COLUMNS, "end_us"]
ROW = {
    "kind": "incast", "transport": "nscc", "hosts": "128", "link_gbps": "400", "oversub": "1", "failed": "0",
    "flows": "2", "size_bytes": "408600", "paths": "", "matrix": "two.cm", "topology": "leaf_spine_128_400g.topo",
    "queue_pkts": "100", "ecn_low_pkts": "25", "ecn_high_pkts": "75", "min_fct_us": "16.5", "tail_fct_us": "36.5",
    "target_us": "40", "pass": "1", "recorded": "2024-07-30", "end_us": "100",
}  # fmt: skip
MATRIX = "Nodes 128\nConnections 2\n3->0 id 1 start 0 size 408600\n100->0 id 2 start 20 size 408600\n"


def folder(tmp_path: Path, *changes: dict[str, str], matrix: str = MATRIX) -> Path:
    place = tmp_path / "golden" / "htsim" / "uet"
    place.mkdir(parents=True)
    rows = [{**ROW, **change} for change in changes]
    text = ",".join(COLUMNS) + "\n" + "".join(",".join(row[c] for c in COLUMNS) + "\n" for row in rows)
    (place / uec.FILE).write_bytes(gzip.compress(text.encode()))
    with tarfile.open(place / uec.INCASTS, "w:gz") as archive:
        member = tarfile.TarInfo("two.cm")
        member.size = len(matrix)
        archive.addfile(member, io.BytesIO(matrix.encode()))
    return tmp_path


@pytest.mark.parametrize("transport", ["nscc", "rccc"])
def test_a_message_alone_takes_its_closed_form(tmp_path: Path, transport: str) -> None:
    """100 full packets of 4,150 B on an idle path of 1 us a link; starts are microseconds from the run's start."""
    data = folder(tmp_path, {"transport": transport})
    (score,) = validate(["uec"], data=data, limits=Limits(1)).scores
    assert not score.failed
    packet, answer = 4150 * 8 / 400e3, 64 * 8 / 400e3
    within = 100 * packet + 1 * packet + 2 * 1.0 + 2 * (1.0 + answer)
    across = 20 + 100 * packet + 3 * packet + 4 * 1.0 + 4 * (1.0 + answer)
    found = dict(zip((row.quantity for row in score.rows), score.predicted, strict=True))
    assert found["smallest"] * 1e6 == pytest.approx(within, rel=0.002)
    assert found["largest"] * 1e6 == pytest.approx(across, rel=0.002)
    assert score.facts["same side of the target, all"] == 1.0


def test_both_ends_are_of_one_run(tmp_path: Path) -> None:
    again = {"recorded": "2024-08-02", "transport": "rccc", "oversub": "4"}
    again["topology"] = "leaf_spine_128_400g_4_to_1.topo"
    data = folder(tmp_path, {}, {**again}, {**again, "recorded": "2024-07-30"}, {"failed": "1"}, {"matrix": "gone.cm"})
    table = uec.read(data, {})
    assert table is not None
    assert [row.quantity for row in table.rows] == ["smallest"] * 4 + ["largest"] * 4
    # Receivers' credit was recorded twice by one program.
    assert len({runs_of(row)[0][0] for row in table.rows}) == 3
    assert [(e.reason, e.rows) for e in table.excluded] == [("its matrix is not in the folder", 2)]
    plain, credit, _, failed = (row.scenario for row in table.rows[:4])
    assert plain["network"]["ecn"]["kmin"] == "103750 B"
    assert credit["network"]["ecn_on"] == ["leaf-up", "leaf-down"]
    assert credit["network"]["parameters"]["least_rate"] == 0.1875
    assert failed["network"]["ecn"]["kmin"] == "25937 B"
    assert failed["impairments"]["slow"][0]["rate"] == 0.25


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"uet_results.csv.gz:2: `topology`: expected a leaf-spine"):
        uec.read(folder(tmp_path / "a", {"topology": "ring.topo"}), {})
    with pytest.raises(InputError, match=r"two.cm: `Connections` is 2, but 1 connections follow"):
        uec.read(folder(tmp_path / "b", {}, matrix=MATRIX.rpartition("100->")[0]), {})


def test_it_is_asked_for_by_name() -> None:
    assert "uec" in NAMES
    assert "uec" not in BOARD
