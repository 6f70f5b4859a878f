"""Run folders appear whole or not at all. The engine's `run` is stood in for: what is tested is around it."""

from __future__ import annotations

import gc
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windtunnel
from synthetic import write_run
from windtunnel import api, engine
from windtunnel.source import read_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from windtunnel._engine import Progress, RunOptions
    from windtunnel.engine import TableWriter


def stand_in(monkeypatch: pytest.MonkeyPatch, body: Callable[[TableWriter, Progress], bool]) -> list[tuple[Any, ...]]:
    """Replaces the engine's `run` by `body`, which says whether it was interrupted; returns the calls."""
    calls: list[tuple[Any, ...]] = []

    def run(
        text: str,
        source: str,
        base: str,
        overrides: list[tuple[str, str]],
        options: RunOptions,
        sink: TableWriter,
        progress: Progress,
    ) -> str:
        calls.append((text, source, base, overrides, options))
        partial = body(sink, progress)
        return json.dumps({"scenario": "a b/c", "fidelity": "flow", "partial": partial, "jobs": [], "seed": 1})

    monkeypatch.setattr(engine, "run", run)
    return calls


def rows(n: int) -> dict[str, Any]:
    return {"n": np.arange(n, dtype=np.uint64)}


def test_a_run_leaves_summary_manifest_scenario_and_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(sink: TableWriter, progress: Progress) -> bool:
        sink.sink("jobs", rows(3))
        progress(0.5, 1.0, 10, "simulating")
        return False

    calls = stand_in(monkeypatch, body)
    scenario = tmp_path / "s.yaml"
    scenario.write_text("windtunnel: 1\n")
    seen: list[tuple[float | None, float, int, str]] = []
    result = windtunnel.run(
        scenario, overrides={"jobs[0].parallelism.tp": 4, "fidelity": "flow"}, seed=7, out=tmp_path / "out",
        progress=lambda *call: seen.append(call),
    )  # fmt: skip
    assert sorted(p.name for p in result.path.iterdir()) == ["jobs", "manifest.json", "scenario.yaml", "summary.json"]
    assert seen == [(0.5, 1.0, 10, "simulating"), (0.0, 0.0, 0, "writing"), (0.5, 0.0, 0, "writing")]
    options = {"threads": None, "seed": 7, "fidelity": None, "full": False, "explain": False, "policies": ""}
    pairs = [("jobs[0].parallelism.tp", "4"), ("fidelity", "flow")]
    (*given, asked) = calls[0]
    assert given == ["windtunnel: 1\n", str(scenario), str(tmp_path), pairs]
    # Native code needs consent, which nobody has given; the notice says what was loaded.
    assert callable(asked.pop("notice"))
    assert (asked.pop("allow_native"), asked.pop("trusted_native")) == (False, [])
    journal, request = asked.pop("journal")
    assert journal == str(tmp_path / "out.journal")
    assert json.loads(request)["text"] == "windtunnel: 1\n"
    assert asked.pop("gate") is None
    assert (len(calls), asked) == (1, options)
    assert result.manifest["tables"] == {"jobs": 3}
    assert result.manifest["overrides"] == ["jobs[0].parallelism.tp=4", "fidelity=flow"]
    assert (result.path / "scenario.yaml").read_text() == "windtunnel: 1\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "s.yaml"]


def test_the_default_folder_is_named_by_scenario_and_fidelity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch, lambda _sink, _progress: False)
    source = read_source("windtunnel: 1")
    result = api.run_source(source, [], {}, target=None)
    assert result.path == Path("runs/a-b-c-flow")
    again = api.run_source(source, [], {}, target=None)
    assert again.path == result.path
    assert [p.name for p in Path("runs").iterdir()] == ["a-b-c-flow"]


def test_a_failed_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(sink: TableWriter, _progress: Progress) -> bool:
        sink.sink("jobs", rows(3))
        raise engine.RunError("3 operations are stuck")

    stand_in(monkeypatch, body)
    with pytest.raises(windtunnel.RunError, match="stuck"):
        windtunnel.run("windtunnel: 1", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_result_lives_as_long_as_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(sink: TableWriter, _progress: Progress) -> bool:
        sink.sink("jobs", rows(3))
        return False

    stand_in(monkeypatch, body)
    result = windtunnel.run({"windtunnel": 1})
    assert result.jobs.height == 3
    folder = result.path.parent
    assert folder.is_dir()
    del result
    gc.collect()
    assert not folder.exists()


def test_a_folder_that_is_no_run_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = stand_in(monkeypatch, lambda _sink, _progress: False)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(windtunnel.InputError, match="is there and is not a run folder"):
        windtunnel.run("windtunnel: 1", out=tmp_path)
    # Of another program.
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(windtunnel.InputError, match="is there and is not a run folder"):
        windtunnel.run("windtunnel: 1", out=tmp_path)
    assert calls == []
    assert (tmp_path / "thesis.tex").is_file()


def test_a_run_folder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "out")
    stand_in(monkeypatch, lambda _sink, _progress: False)
    assert windtunnel.run("windtunnel: 1", out=tmp_path / "out").tables == []
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_never_tears_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(sink: TableWriter, progress: Progress) -> bool:
        signal.raise_signal(signal.SIGINT)
        sink.sink("jobs", rows(3))
        with pytest.raises(KeyboardInterrupt):
            progress(0.1, 0.0, 0, "simulating")
        return True

    stand_in(monkeypatch, body)
    result = windtunnel.run("windtunnel: 1", out=tmp_path / "out")
    assert result.summary["partial"] is True
    assert result.jobs["n"].to_list() == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_scenarios_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "llama.yaml").write_text("windtunnel: 1\n")
    with pytest.raises(
        windtunnel.InputError, match=r"no such file: `.*lama.yaml`\n\nhint: did you mean `.*llama.yaml`\?"
    ):
        windtunnel.run(tmp_path / "lama.yaml")
    with pytest.raises(windtunnel.InputError, match="a folder where a file is due"):
        windtunnel.run(tmp_path)
    (tmp_path / "bad.yaml").write_bytes(b"abc\xff")
    with pytest.raises(windtunnel.InputError, match="is not UTF-8 text: byte 3"):
        windtunnel.run(tmp_path / "bad.yaml")
