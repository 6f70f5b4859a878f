"""The experiment `megatron-sc21`: the rows that take seconds, and the table of docs/experiments.md."""

from __future__ import annotations

import dataclasses
import re

import pytest

from conftest import ROOT
from windtunnel.experiments import find, run_experiment

ROWS = ("1.7B", "3.6B", "7.5B", "18.4B", "39.1B")


@pytest.mark.engine
def test_the_first_rows_are_what_the_page_says() -> None:
    whole = find(str(ROOT / "experiments" / "megatron-sc21"))
    assert len(whole.cases) == 10
    some = dataclasses.replace(
        whole,
        cases={name: whole.cases[name] for name in ROWS},
        claims=[claim for claim in whole.claims if claim.observe.removeprefix("tflops_") in ROWS],
    )
    outcome = run_experiment(some)
    assert outcome.holds
    page = (ROOT / "docs" / "experiments.md").read_text()
    stated = dict(re.findall(r"^\| ([\d.]+B)[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \|", page, flags=re.MULTILINE))
    assert list(stated) == list(whole.cases)
    for row in outcome.tables["TFLOP/s per GPU and s"].iter_rows(named=True):
        assert float(stated[row["model"]]) == pytest.approx(row["predicted"], rel=0.005), row["model"]
