"""The experiment `nuwa`: its smallest sizes, and that what is not built says so."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT
from windtunnel.experiments import find
from windtunnel.experiments.check import Results

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = ROOT / "experiments" / "nuwa"


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nuwa_experiment", FOLDER / "experiment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.engine
def test_small_sizes_are_measured(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUPS", 7_500_000)
    found: dict[str, Any] = module.observe(Results([]), sizes=(1024, 3456))
    rules, tables = found[module.RULES], found[module.TABLES]
    assert rules["GPUs"].to_list() == tables["GPUs"].to_list() == [1024, 3456]
    assert tables[""].to_list() == ["measured", "measured"]
    for frame in (rules, tables):
        assert (frame["set-up s"] > 0).all()
        assert (frame["look-up s"] > 0).all()
    # 320 switches, 128 of them with hosts, 16 ports: a word for each pair.
    assert tables["tables MB"][0] == pytest.approx(320 * 128 * 8 / 1e6, rel=0.01)
    assert found["setup_ratio"] > 1


@pytest.mark.engine
def test_what_is_too_large_is_extrapolated(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUPS", 750_000)
    monkeypatch.setattr(module, "TABLE_LIMIT", 1 << 20)
    found: dict[str, Any] = module.observe(Results([]), sizes=(1024, 8192))
    tables = found[module.TABLES]
    assert tables[""].to_list() == ["measured", "extrapolated"]
    # Four times the switches with hosts, eight times the links and NICs.
    assert tables["set-up s"][1] / tables["set-up s"][0] == pytest.approx(32, rel=0.02)
    assert tables["look-up s"][1] / tables["look-up s"][0] == pytest.approx(8, rel=0.02)


def test_claims_name_figures_that_there_are() -> None:
    experiment = find(str(FOLDER))
    assert experiment.points() == []
    for claim in experiment.claims:
        assert re.fullmatch(r"(setup_s|lookup_s|memory_mb)_\d+|growth|worst_ratio|setup_ratio", claim.observe)
