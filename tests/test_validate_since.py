"""`windtunnel validate --since`: what moved since an earlier board, and the pinned rows of this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windtunnel.cli.app import DONE, FAILED, main
from windtunnel.engine import InputError
from windtunnel.studies.runner import Limits
from windtunnel.validate import validate
from windtunnel.validate.since import MOST_GPUS, PINNED, before, moved

if TYPE_CHECKING:
    from windtunnel.validate import Row

PINS = Path(__file__).with_name("pins.csv")
HEAD = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,"
    "data parallelism,pipeline parallelism,iteration time (ms)\n"
)
REFUSED = 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Measured tables with two rows."""
    place = tmp_path / "data" / "e2e_iteration"
    place.mkdir(parents=True)
    rows = ["2,8,1,1024,16,16,1024,1,2,1,230", "2,16,1,1024,16,16,1024,1,2,1,430"]
    (place / "vtrain_ground_truth_single.csv").write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return tmp_path / "data"


def asked(folder: Path, *more: str) -> list[str]:
    return ["validate", "--data", str(folder), "--table", "vtrain-single", "--workers", "1", *more]


def test_rows_that_moved_are_named_with_their_errors(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(asked(folder, "--pin", "pins.csv")) == DONE
    # Nothing moved: of a board's folder, and of pinned rows.
    assert main(asked(folder, "--since", "runs/validation")) == DONE
    assert main(asked(folder, "--since", "pins.csv", "--out", "again")) == DONE
    assert "0 of 2 predictions moved" in capsys.readouterr().out
    header, first, second = Path("pins.csv").read_text().splitlines()
    table, name, predicted = first.split(",")
    lower = float(predicted) / 1.02
    Path("pins.csv").write_text("\n".join([header, f"{table},{name},{lower:.6g}", second, f"{table},old,1.5"]) + "\n")
    assert main(asked(folder, "--since", "pins.csv", "--out", "again")) == FAILED
    said = capsys.readouterr().out
    assert "1 of 3 predictions moved by more than 1%" in said
    assert f"{name}: " in said
    assert "(+2.0%)" in said
    assert "old: is not predicted any more" in said
    assert main(asked(folder, "--since", "pins.csv", "--out", "again", "--json")) == FAILED
    record = json.loads(capsys.readouterr().out)
    (one,) = record["moved"]
    assert (one["id"], record["gone"]) == (name, ["old"])
    assert one["change"] == pytest.approx(0.02, abs=1e-4)
    assert (1 + one["error"]) / (1 + one["error_before"]) == pytest.approx(1.02, abs=1e-4)


def test_only_rows_of_the_file_are_predicted_and_told_as_they_come(folder: Path) -> None:
    heard: list[tuple[str, float]] = []

    def told(row: Row, predicted: float) -> None:
        heard.append((row.id, predicted))

    both = validate(["vtrain-single"], data=folder, limits=Limits(1), told=told)
    assert heard == [(row.id, value) for row, value in zip(both.scores[0].rows, both.scores[0].predicted, strict=True)]
    name = both.scores[0].rows[1].id
    one = validate(["vtrain-single", "marin"], data=folder, limits=Limits(1), only={"vtrain-single": {name}})
    assert [row.id for row in one.scores[0].rows] == [name]
    assert (len(one.scores), one.absent) == (1, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pins.csv:1: column `id` is missing"),
        ("table,id,predicted\n", "pins.csv: no predictions"),
        (
            "table,id,predicted\na,b,1.0\na,c,fast\n",
            "pins.csv:3: `predicted`: expected a positive number, found `fast`",
        ),
        ("table,id,predicted\na,b,-1\n", "pins.csv:2: `predicted`: expected a positive number, found `-1`"),
    ],
)
def test_pins_that_are_none_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pins.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message.replace("`", "`")) as caught:
        before(path)
    assert message in str(caught.value)
    assert main(["validate", "--data", str(tmp_path), "--since", str(path)]) == REFUSED
    assert main(["validate", "--data", str(tmp_path), "--since", str(tmp_path / "absent.csv")]) == REFUSED


def test_no_pinned_prediction_moved(measured: Path) -> None:
    """The gate: a change that moves predictions renews `tests/pins.csv` and says so in the CHANGELOG.

    `windtunnel validate --pin tests/pins.csv` writes it.
    """
    pinned = before(PINS)
    assert sum(len(rows) for rows in pinned.values()) == PINNED
    board = validate(list(pinned), data=measured, only=pinned)
    for score in board.scores:
        for row in score.rows:
            gpus = 1
            for axis in ("tp", "cp", "ep", "pp", "dp"):
                gpus *= (row.scenario.get("jobs") or [{}])[0].get("parallelism", {}).get(axis, 1)
            assert gpus <= MOST_GPUS
    assert moved(board, pinned) == ([], [])
