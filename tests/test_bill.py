"""Dollars, watts and joules: in the summary, in comparisons, and what an idle top tier could spare."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from windtunnel import shipped
from windtunnel.bill import _of_sheet
from windtunnel.topology_view.show import bundle_hint

if TYPE_CHECKING:
    from conftest import Command

SCENARIO = """
windtunnel: 1
name: billed
fidelity: flow
topology:
  shape: clos
  hosts: 4
  tiers: [{ports_down: 16, rate: 400 Gbps, length: 5 m}, {ports_down: 8, rate: 400 Gbps, length: 30 m}]
  host: {gpu: H100-SXM, gpus: 8, nics: 8, nic: ConnectX-7}
jobs: [{name: a, iterations: 2, workload: {collective: {kind: all_reduce, bytes: 64 MiB}}}]
"""


@pytest.mark.parametrize(("key", "unit"), [("power", "W"), ("price", "USD")])
def test_every_figure_of_a_sheet_is_read_as_it_is_written(key: str, unit: str) -> None:
    found = 0
    for path in sorted((shipped.data() / "gpus").glob("*.yaml")):
        written = re.search(rf"(?m)^{key}:.*?([0-9.]+) (k?){unit}", path.read_text(encoding="utf-8"))
        value, row = _of_sheet(key, path, path.read_text(encoding="utf-8"))
        if written is None:
            assert value is None
            continue
        assert value == float(written[1]) * (1000 if written[2] else 1)
        assert row is not None
        assert row["source"]
        found += 1
    assert found >= 3


def test_a_summary_says_dollars_watts_and_joules() -> None:
    summary = windtunnel.run(SCENARIO).summary
    fabric = windtunnel.topology(SCENARIO)["cost"]
    cost = summary["cost"]
    assert cost["fabric_usd"] == fabric["total_usd"]
    assert cost["fabric_power_w"] == fabric["power_w"]
    assert cost["gpus_power_w"] == 32 * 700
    assert cost["power_w"] == cost["gpus_power_w"] + cost["fabric_power_w"]
    assert cost["energy_j"] == pytest.approx(cost["power_w"] * summary["simulated_time_s"])
    # The only job has all GPUs, so its two iterations are the run.
    assert 2 * cost["jobs"][0]["iteration_energy_j"] == pytest.approx(cost["energy_j"], rel=1e-6)
    assert (cost["gpu_usd"], cost["gpus_usd"]) == (30_000, 32 * 30_000)
    assert any(row["constant"] == "GPU H100-SXM: price" and row["kind"] == "inferred" for row in cost["evidence"])
    assert any(row["constant"] == "GPU H100-SXM: power" for row in cost["evidence"])
    assert all(row["source"] for row in cost["evidence"])


HOURS_OF_YEARS = 365.25 * 24
"""In a year."""


def test_an_hour_is_written_off_or_rented() -> None:
    def cost(prices: str) -> dict[str, Any]:
        found: dict[str, Any] = windtunnel.run(SCENARIO + prices).summary["cost"]
        return found

    plain = cost("")
    bought, watts = plain["fabric_usd"] + plain["gpus_usd"], plain["power_w"]
    assert plain["hour_usd"] == pytest.approx(bought / (5 * HOURS_OF_YEARS) + 0.08 * watts / 1000)
    assert plain["run_usd"] == pytest.approx(plain["hour_usd"] * plain["energy_j"] / watts / 3600)
    # The only job has all GPUs, and no tokens.
    assert 2 * plain["jobs"][0]["iteration_usd"] == pytest.approx(plain["run_usd"], rel=1e-6)
    assert plain["jobs"][0]["tokens_per_usd"] is None
    assert [row["kind"] for row in plain["evidence"] if row["constant"].startswith("dollars")] == ["inferred"] * 2
    own = cost("prices: {years: 3, kwh: 0.2 USD}\n")
    assert own["hour_usd"] == pytest.approx(bought / (3 * HOURS_OF_YEARS) + 0.2 * watts / 1000)
    assert [row["kind"] for row in own["evidence"] if row["constant"].startswith("dollars")] == ["given"] * 2
    rented = cost("prices: {gpu_hour: 2.50 USD}\n")
    assert rented["hour_usd"] == 32 * 2.5
    without = windtunnel.run(SCENARIO.replace("H100-SXM", "A40") + "prices: {gpu_hour: 1 USD}\n").summary["cost"]
    assert without["hour_usd"] == 32, "a rent needs no price"


def test_tokens_a_dollar_are_those_of_an_hour() -> None:
    given = {"jobs[0].iterations": 1, "prices.gpu_hour": "2 USD"}
    summary = windtunnel.run(shipped.root() / "examples" / "llama3-70b-256xH100.yaml", overrides=given).summary
    job, cost = summary["jobs"][0], summary["cost"]["jobs"][0]
    assert cost["tokens_per_usd"] == pytest.approx(job["tokens_per_s"] * 3600 / (256 * 2))
    tokens = job["tokens_per_s"] * job["iteration_time_s"]["mean"]
    assert cost["iteration_usd"] * cost["tokens_per_usd"] == pytest.approx(tokens)


def test_what_no_sheet_says_is_unknown_and_not_zero() -> None:
    nameless = windtunnel.run(SCENARIO.replace("gpu: H100-SXM, ", "")).summary["cost"]
    assert nameless["gpu_power_w"] is None
    assert nameless["power_w"] is None
    assert nameless["energy_j"] is None
    assert nameless["gpus_usd"] is None
    assert nameless["hour_usd"] is None
    assert nameless["run_usd"] is None
    assert windtunnel.run(SCENARIO.replace("H100-SXM", "A40")).summary["cost"]["gpus_usd"] is None
    assert nameless["fabric_usd"] > 0
    calendar = "windtunnel: 1\nname: c\nfidelity: job\ntopology: {hosts: 2, host: {gpus: 8}}\n"
    jobs = "jobs: [{name: a, gpus: 8, duration: 1 h}]\n"
    without = windtunnel.run(calendar + jobs).summary["cost"]
    assert without["fabric_usd"] is None
    assert without["power_w"] is None


def test_a_sheet_of_ones_own_is_asked(tmp_path: Path) -> None:
    sheet = (shipped.data() / "gpus" / "h100-sxm.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(sheet.replace("value: 700 W", "value: 1.2 kW"), encoding="utf-8")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO.replace("gpu: H100-SXM", "gpu: mine.yaml"), encoding="utf-8")
    assert windtunnel.run(scenario).summary["cost"]["gpu_power_w"] == 1200


def test_comparisons_have_them(command: Command, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")
    command("run", "s.yaml", "--no-report", "--out", "then")
    shown = command(
        "run", "s.yaml", "--no-report", "--set", "topology.tiers[0].oversubscription=2", "--compare", "then"
    ).stdout
    assert "fabric usd" in shown
    assert "US$" in shown
    assert re.search(r"by data sheets: fabric US\$ [0-9,]+, GPUs US\$ 960,000, fabric [0-9.]+ kW, GPUs 22.40 kW", shown)
    again = windtunnel.compare(windtunnel.run(tmp_path / "s.yaml"), tmp_path / "then").to_json()
    assert not [metric for metric in again["metrics"] if metric["key"].startswith("cost")]


@pytest.mark.parametrize("hosts", [32, 64, 128])
def test_the_hint_at_bundles_spares_what_it_says(hosts: int) -> None:
    scenario = Path(shipped.root() / "examples" / "llama3-70b-256xH100.yaml")
    given = {"topology.hosts": hosts, "topology.host.rails": False}
    whole = windtunnel.topology(scenario, overrides=given)
    hint = bundle_hint(whole)
    if hint is None:
        top = whole["tiers"][-1]
        assert 2 * top["ports_down_used"] >= top["ports_down_used"] + top["ports_down_unused"]
        return
    found = re.search(r"`bundle: (\d+)`.* needs (\d+) switch", hint)
    assert found is not None
    spared = windtunnel.topology(scenario, overrides={**given, "topology.tiers[1].bundle": int(found[1])})
    assert spared["tiers"][-1]["switches"] == int(found[2])
    assert spared["cost"]["total_usd"] < whole["cost"]["total_usd"]
    assert spared["bisection_bps"] == whole["bisection_bps"]


def test_the_hint_at_bundles_of_a_2_to_1_clos_of_three_tiers() -> None:
    """As one naturally writes it: it costs more than what its uplinks save, with nearly all spine ports empty."""
    scenario = SCENARIO.replace(
        "[{ports_down: 16, rate: 400 Gbps, length: 5 m}, {ports_down: 8, rate: 400 Gbps, length: 30 m}]",
        "[{ports_down: 32, rate: 400 Gbps, length: 5 m}, {ports_down: 32, rate: 400 Gbps, length: 30 m, "
        "oversubscription: 2}, {ports_down: 64, rate: 400 Gbps, length: 100 m}]",
    )
    whole = windtunnel.topology(scenario, overrides={"topology.hosts": 128})
    top = whole["tiers"][-1]
    assert top["ports_down_used"] / top["switches"] == 1
    hint = bundle_hint(whole)
    assert hint is not None
    found = re.search(r"`bundle: (\d+)`.* needs (\d+) switch", hint)
    assert found is not None
    spared = windtunnel.topology(scenario, overrides={"topology.hosts": 128, "topology.tiers[2].bundle": int(found[1])})
    assert spared["tiers"][-1]["switches"] == int(found[2]) == 32
    assert spared["bisection_bps"] == whole["bisection_bps"]
    assert spared["cost"]["total_usd"] < 0.35 * whole["cost"]["total_usd"]


def test_the_bill_is_the_last_key_and_changes_no_other(tmp_path: Path) -> None:
    result = windtunnel.run(SCENARIO, out=tmp_path / "run")
    text = (result.path / "summary.json").read_text(encoding="utf-8")
    assert list(json.loads(text))[-1] == "cost"
    assert text.endswith("}\n")


def test_a_derived_sheet_gives_its_own_figures() -> None:
    derived = "{sheet: H100-SXM, power: 500 W, price: {value: 20000 USD, source: a quote}, scale_up: {rate: 200 GB/s}}"
    found = windtunnel.run(SCENARIO.replace("gpu: H100-SXM", f"gpu: {derived}")).summary
    cost = found["cost"]
    assert (cost["gpu_power_w"], cost["gpu_usd"]) == (500, 20_000)
    assert {"constant": "GPU: price", "kind": "given", "source": "a quote"} in cost["evidence"]
    rows = {row["constant"]: row for row in found["evidence"]}
    assert rows["GPU H100-SXM: scale_up.rate"]["kind"] == "given"
    kept = windtunnel.run(SCENARIO.replace("gpu: H100-SXM", "gpu: {sheet: H100-SXM, memory: 96 GB}")).summary["cost"]
    assert (kept["gpu_power_w"], kept["gpu_usd"]) == (700, 30_000)


def test_a_derived_sheet_that_is_none_says_why() -> None:
    for gpu, said in (
        ("{memory: 1 GB}", "sheet"),
        ("{sheet: H100-SXM, memori: 1 GB}", "memori"),
        ("{sheet: H100, memory: 1 GB}", "no sheet `H100`"),
        ("{sheet: H100-SXM, memory: 1 GBps}", r"^[^\n]*topology\.host\.gpu\.memory: (?!line)"),
        ("{sheet: H100-SXM, scale_up: {rate: 3}}", r"^[^\n]*topology\.host\.gpu\.scale_up\.rate: (?!line)"),
    ):
        with pytest.raises(windtunnel.InputError, match=said):
            windtunnel.run(SCENARIO.replace("gpu: H100-SXM", f"gpu: {gpu}"))


def test_a_sheet_file_may_derive_from_a_sheet_or_a_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "sheets").mkdir()
    base, mine = tmp_path / "sheets" / "base.yaml", tmp_path / "sheets" / "mine.yaml"
    base.write_text("sheet: H100-SXM\nname: Base\npower: 500 W\n", encoding="utf-8")
    mine.write_text("sheet: ./base.yaml\nname: Mine\nmemory: 96 GB\n", encoding="utf-8")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(SCENARIO.replace("gpu: H100-SXM", "gpu: sheets/mine.yaml"), encoding="utf-8")
    found = windtunnel.run(scenario).summary
    assert (found["cost"]["gpu_power_w"], found["cost"]["gpu_usd"]) == (500, 30_000)
    assert {"constant": "GPU: power", "kind": "given", "source": "`./base.yaml`"} in found["cost"]["evidence"]
    rows = {row["constant"]: row for row in found["evidence"]}
    assert rows["GPU Mine: memory"] == {
        "constant": "GPU Mine: memory", "kind": "given", "source": "`sheets/mine.yaml`",
    }  # fmt: skip
    assert {"sheets/mine.yaml", "sheets/base.yaml"} <= {Path(one["name"]).as_posix() for one in found["inputs"]}
    # A fault is told at its file, line and key, and not in a text that nobody wrote.
    base.write_text("sheet: H100-SXM\nname: Base\npower: 500 GB\n", encoding="utf-8")
    said = " ".join(command("run", scenario, check=2).stderr.split())
    assert "base.yaml:3:8: power: " in said, said
    assert "line 1" not in said
    base.write_text("sheet: ./mine.yaml\n", encoding="utf-8")
    assert "derives from itself" in command("run", scenario, check=2).stderr
