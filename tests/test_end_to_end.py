"""Whole runs through the installed command and from Python."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from conftest import ROOT
from perfetto_reader import read
from windtunnel.breakdown import PARTS
from windtunnel.determinism import MACHINE_KEYS

if TYPE_CHECKING:
    from conftest import Command

pytestmark = pytest.mark.engine

GOLDEN = ROOT.parent / "shared" / "data" / "golden" / "goal"

SCENARIO = """\
windtunnel: 1
name: tiny
seed: 1
fidelity: flow
topology:
  shape: clos
  hosts: 4
  tiers:
    - {ports_down: 2, oversubscription: 1, rate: 400 Gbps, length: 30 m}
    - {ports_down: 4, rate: 400 Gbps, length: 100 m}
  host: {gpu: H100-SXM, gpus: 8, nics: 8, nic: ConnectX-7, rails: true}
network: {mtu: 9000 B, header: 66 B, load_balancer: ecmp}
jobs:
  - name: pretrain
    workload: {model: llama3-8b, global_batch: 32, micro_batch: 1, sequence: 2048}
    parallelism: {tp: 4, pp: 2, dp: 4, zero: 1, schedule: {name: 1f1b}}
    iterations: 2
"""

SUMMARY = """
windtunnel scenario scenario_sha256 seed fidelity partial fold simulated_time_s wall_time_s cpu_time_s events
packet_hops data_packet_hops peak_memory_bytes peak_rss_bytes jobs network flows cluster evidence
""".split()

JOB = """
name state ranks iterations simulated_iterations iteration_time_s compute_s exposed_communication_s exposed_s
bubble_s straggler_s host_s ideal_iteration_time_s tokens_per_s mfu memory_bytes_per_gpu submit_s start_s
finish_s lost_s
""".split()

NETWORK = """
messages bytes_delivered packets_delivered packets_dropped loss_rate ecn_marked pfc_pause_s retransmissions
mean_queueing_delay_s reordered_packets
""".split()


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario of 32 GPUs."""
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize("fidelity", ["flow", "message"])
def test_json_has_every_key_and_nothing_else_is_printed(command: Command, scenario: Path, fidelity: str) -> None:
    summary = json.loads(command("run", scenario, "--fidelity", fidelity, "--json", "--no-report").stdout)
    assert set(SUMMARY) <= set(summary)
    job = summary["jobs"][0]
    assert set(JOB) <= set(job)
    assert set(job["iteration_time_s"]) == {"mean", "p50", "p99", "max"}
    assert list(job["exposed_s"]) == ["tp", "cp", "ep", "pp", "dp", "other"]
    assert set(NETWORK) <= set(summary["network"])
    assert set(summary["flows"]) == {"count", "fct_mean_s", "fct_p50_s", "fct_p99_s", "fct_max_s"}
    assert {"utilisation", "gpu_seconds", "waiting_s", "makespan_s", "goodput"} <= set(summary["cluster"])
    assert all({"constant", "kind", "source"} <= set(entry) for entry in summary["evidence"])
    assert summary["fidelity"] == fidelity
    assert summary["partial"] is False
    parts = [part.seconds(job) for part in PARTS]
    assert sum(value for value in parts if value is not None) == pytest.approx(
        job["iteration_time_s"]["mean"], rel=1e-9
    )


def test_a_run_folder_is_complete(command: Command, scenario: Path, tmp_path: Path) -> None:
    done = command("run", scenario)
    assert "where an iteration goes" in done.stdout
    result = windtunnel.load(tmp_path / "runs" / "tiny-flow")
    assert {"jobs", "iterations", "critical_path", "operations", "flows", "links"} <= set(result.tables)
    rows = result.iterations
    parts = sum(rows[part.column].cast(int) for part in PARTS)
    assert (parts == (rows["finish_ps"] - rows["start_ps"]).cast(int)).all()  # type: ignore[union-attr]
    for (_, iteration), path in result.critical_path.group_by(["job", "iteration"], maintain_order=True):
        whole = rows.filter(rows["iteration"] == iteration).row(0, named=True)
        assert path["start_ps"][0] == whole["start_ps"]
        assert path["finish_ps"][-1] == whole["finish_ps"]
        assert path["start_ps"][1:].to_list() == path["finish_ps"][:-1].to_list()
    tracks = read(gzip.decompress((result.path / "trace.pftrace.gz").read_bytes()))
    slices = sum(len(track.slices) for track in tracks.values() if track.name != "critical path")
    assert slices == result.operations.height
    assert (result.path / "report.html").read_text().count("<svg ") >= 4
    assert result.manifest["scenario_sha256"] == result.summary["scenario_sha256"]


def test_the_same_bytes_for_any_number_of_threads(command: Command, scenario: Path, tmp_path: Path) -> None:
    def run(name: str, threads: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        text = command("run", scenario, "--threads", str(threads), "--json", "--out", name, "--no-report").stdout
        summary = {key: value for key, value in json.loads(text).items() if key not in MACHINE_KEYS}
        folder = tmp_path / name
        return summary, {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.parquet"))}

    first = run("a", 1)
    assert run("b", 1) == first
    assert run("c", 2) == first
    assert "deterministic" in command("run", scenario, "--check-determinism", "--no-report").stderr


def test_overrides_and_comparison(command: Command, scenario: Path) -> None:
    command("run", scenario, "--out", "before", "--no-report")
    done = command(
        "run", scenario, "--set", "jobs[0].parallelism.schedule.name=gpipe", "--compare", "before", "--no-report"
    )
    assert "compared with before" in done.stdout


def test_explain_does_not_run(command: Command, scenario: Path, tmp_path: Path) -> None:
    assert json.loads(command("run", scenario, "--explain", "--json").stdout)
    assert "layers" in command("run", scenario, "--explain").stdout
    assert not (tmp_path / "runs").exists()


def test_a_wrong_key_is_named_and_nothing_is_written(command: Command, scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(SCENARIO.replace("hosts: 4", "host_count: 4"))
    done = command("run", scenario, check=2)
    assert done.stderr.startswith("error: ")
    assert "tiny.yaml:7:3" in done.stderr
    assert "`host_count`" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_bare_number_says_which_units_fit(command: Command, scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("length: 30 m", "length: 30"))
    assert "`m`" in command("run", scenario, check=2).stderr


def test_an_interrupted_run_leaves_a_partial_result(scenario: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("windtunnel")
    arguments = ["run", str(scenario), "--set", "jobs[0].iterations=100000", "--no-report", "--out", "partial"]
    with subprocess.Popen(
        [program, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        time.sleep(4)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130, errors
    assert "Traceback" not in errors
    assert windtunnel.load(tmp_path / "partial").summary["partial"] is True
    assert sorted(p.name for p in tmp_path.iterdir()) == ["partial", "tiny.yaml"]


def test_topology_counts_what_is_built(command: Command, scenario: Path) -> None:
    found = json.loads(command("topology", scenario, "--json").stdout)
    assert found["hosts"] == 4
    assert {"switches", "links", "tiers", "setup_s", "peak_memory_bytes", "peak_rss_bytes"} <= set(found)


@pytest.mark.parametrize("kind", ["algorithms", "topologies", "schedules", "gpus", "nics", "models", "fidelities"])
def test_names_are_listed(command: Command, kind: str) -> None:
    known = json.loads(command("list", kind, "--json").stdout)
    assert known
    assert all(entry["name"] and entry["description"] for entry in known)


def test_an_unknown_kind_names_the_known(command: Command) -> None:
    assert "hint: " in command("list", "gpu", check=2).stderr


def golden_cases() -> list[tuple[str, int, dict[str, Any]]]:
    index = GOLDEN / "index.json"
    if not index.is_file():
        return []
    cases = json.loads(index.read_text())["cases"]
    return [(c["file"], i, run) for c in cases if "QUIRK" not in c["note"] for i, run in enumerate(c["runs"])]


@pytest.mark.parametrize(
    ("file", "number", "case"), golden_cases(), ids=lambda value: str(value) if not isinstance(value, dict) else ""
)
def test_recorded_finish_times(command: Command, tmp_path: Path, file: str, number: int, case: dict[str, Any]) -> None:
    path = tmp_path / file.removesuffix(".gz")
    path.write_bytes(gzip.decompress((GOLDEN / file).read_bytes()))
    loggops = ",".join(f"{key}={value}" for key, value in case["params"].items())
    found = json.loads(command("goal", "run", path, "--loggops", loggops, "--json").stdout)
    assert found["finish_max"] == case["expected_max"], number
    if "expected_hosts" in case:
        assert found["finish"] == case["expected_hosts"]
    assert [-(-ps // 1000) for ps in found["finish_ps"]] == found["finish"]


def test_goal_text_and_binary_give_the_same(command: Command, tmp_path: Path) -> None:
    text = tmp_path / "two.goal"
    text.write_text("num_ranks 2\nrank 0 {\nl1: send 100b to 1 tag 5\n}\nrank 1 {\nl1: recv 100b from 0 tag 5\n}\n")
    command("goal", "convert", text, "two.bin")
    runs = [command("goal", "run", f, "--loggops", "L=10,o=2,G=1", "--json").stdout for f in (text, "two.bin")]
    assert runs[0] == runs[1]
    # o + (s-1) G + L, and the receiver's o.
    assert json.loads(runs[0])["finish_max"] == 2 + 99 + 10 + 2
    command("goal", "merge", text, text, "-o", "four.goal")
    assert json.loads(command("goal", "check", "four.goal", "--json").stdout)
    assert json.loads(command("goal", "stats", "four.goal", "--json").stdout)["ranks"] == 4


def test_a_stuck_schedule_names_what_it_waits_for(command: Command, tmp_path: Path) -> None:
    (tmp_path / "stuck.goal").write_text(
        "num_ranks 2\nrank 0 {\nl1: recv 1b from 1 tag 0\n}\nrank 1 {\nl1: calc 5\n}\n"
    )
    done = command("goal", "run", "stuck.goal", "--loggops", "L=1", "--json", check=1)
    (stuck,) = json.loads(done.stdout)["stuck"]
    assert stuck["rank"] == 0
    assert stuck["waits_for"]


def test_from_python(scenario: Path) -> None:
    result = windtunnel.run(scenario, fidelity="message", overrides={"jobs[0].iterations": 1})
    assert result.summary["jobs"][0]["iterations"] == 1
    assert result.messages.height == result.summary["network"]["messages"]
