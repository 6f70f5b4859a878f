"""Overrides that give buildings their cables: the ratio, the length, one building far from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conftest import ROOT
from windtunnel.experiments.cuts import buildings, cut
from windtunnel.experiments.runner import module_of
from windtunnel.experiments.spec import read_experiment

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = ROOT / "experiments" / "scaleacross-fig6" / "scenario.yaml"


def test_the_ratio_is_that_of_nics_to_all_cables_of_a_building() -> None:
    found = buildings(SCENARIO)
    assert (found.nics, found.neighbours, found.cables) == (200, 3, 20)
    values = cut(SCENARIO, 16, 1000)
    assert len(values) == 2 * len(found.pairs)
    rate, unit = values["topology.cross[5].rate"].split()
    # 200 x 400 Gbps over 16 times what 60 cables carry.
    assert unit == "Gbps"
    assert float(rate) == pytest.approx(200 * 400 / (16 * 60), rel=1e-5)
    assert values["topology.cross[0].length"] == "200 km"


def test_a_far_building_has_all_its_cables_longer() -> None:
    values = cut(SCENARIO, far=("d", 2000))
    lengths = {pair: values[f"topology.cross[{i}].length"] for i, pair in enumerate(buildings(SCENARIO).pairs)}
    assert {pair for pair, length in lengths.items() if length == "400 km"} == {("a", "d"), ("b", "d"), ("c", "d")}
    assert {length for pair, length in lengths.items() if "d" not in pair} == {"10 km"}


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("scaleacross-fig*")), ids=lambda path: path.name)
def test_every_figure_is_on_the_page(path: Path) -> None:
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert f"\n| `{path.name}` |" in page


def test_every_reason_is_of_a_figure_that_a_claim_is_on() -> None:
    for path in sorted((ROOT / "experiments").glob("scaleacross-fig*")):
        module, observed = module_of(path), {claim.observe for claim in read_experiment(path).claims}
        assert set(getattr(module, "WHY", {})) <= observed, path.name


def test_unequal_buildings_have_no_one_ratio(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.read_text().replace("{name: d, hosts: 200", "{name: d, hosts: 100"), encoding="utf-8")
    with pytest.raises(ValueError, match="buildings or cables differ"):
        buildings(path)
