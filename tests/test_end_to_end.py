"""Whole runs through the installed command and from Python."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from conftest import ROOT
from perfetto_reader import read
from windtunnel import engine
from windtunnel.breakdown import PARTS
from windtunnel.determinism import MACHINE_KEYS
from windtunnel.source import read_source

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command, Interrupted

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
    - {ports_down: 16, rate: 400 Gbps, length: 100 m}
  host: {gpu: H100-SXM, gpus: 8, nics: 8, nic: ConnectX-7, rails: true}
network: {mtu: 9000 B, header: 66 B, load_balancer: ecmp}
jobs:
  - name: pretrain
    workload: {model: llama3-8b, global_batch: 32, micro_batch: 1, sequence: 2048}
    parallelism: {tp: 4, pp: 2, dp: 4, zero: 1, schedule: {name: 1f1b}}
    iterations: 2
"""

SUMMARY = """
windtunnel scenario scenario_sha256 inputs seed fidelity partial fold simulated_time_s wall_time_s cpu_time_s events
packet_hops data_packet_hops peak_memory_bytes peak_rss_bytes jobs network flows cluster evidence
warnings cost
""".split()

JOB = """
name state ranks iterations simulated_iterations iteration_time_s undone_iterations outside_iterations_s
compute_s exposed_communication_s exposed_s bubble_s straggler_s host_s ideal_iteration_time_s
tokens_per_s mfu memory_bytes_per_gpu submit_s start_s finish_s time_band_s lost_s
""".split()

NETWORK = """
messages bytes_delivered undone_messages undone_bytes simulated_messages simulated_bytes packets_delivered
packets_dropped loss_rate ecn_marked pfc_pause_s retransmissions mean_queueing_delay_s reordered_packets
""".split()


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario of 32 GPUs."""
    path = tmp_path / "tiny.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize("fidelity", ["job", "message", "flow"])
def test_json_has_every_key_and_nothing_else_is_printed(command: Command, scenario: Path, fidelity: str) -> None:
    summary = json.loads(command("run", scenario, "--fidelity", fidelity, "--json", "--no-report").stdout)
    assert list(summary) == SUMMARY
    job = summary["jobs"][0]
    assert [key for key in job if key in JOB] == JOB
    assert list(job["iteration_time_s"]) == ["mean", "p50", "p99", "max"]
    assert list(job["exposed_s"]) == ["tp", "cp", "ep", "pp", "dp", "other"]
    assert [key for key in summary["network"] if key in NETWORK] == NETWORK
    assert list(summary["flows"]) == ["count", "fct_mean_s", "fct_p50_s", "fct_p99_s", "fct_max_s"]
    cluster = (
        "utilisation gpu_seconds busy_gpu_seconds waiting_s makespan_s goodput jobs finished slowdown deadlines "
        "preemptions lost_gpu_s interruptions faults skipped log fragmentation samples_per_s_per_gpu episodes "
        "congestion"
    )
    assert list(summary["cluster"]) == cluster.split()
    assert list(summary["cluster"]["gpu_seconds"]) == ["busy", "idle", "stranded", "failed", "draining"]
    assert list(summary["cluster"]["busy_gpu_seconds"]) == ["work", "loading", "checkpoint", "restart", "lost"]
    assert list(summary["cluster"]["waiting_s"]) == ["mean", "p50", "p99"]
    assert summary["evidence"]
    assert all(list(entry) == ["constant", "kind", "source"] for entry in summary["evidence"])
    # Unknown at these fidelities: null, not absent.
    assert summary["packet_hops"] is None
    assert summary["network"]["ecn_marked"] is None
    if fidelity != "job":
        assert summary["network"]["messages"] > 0
        assert summary["network"]["bytes_delivered"] > 0
        assert summary["flows"]["fct_p50_s"] <= summary["flows"]["fct_p99_s"] <= summary["flows"]["fct_max_s"]
    assert summary["peak_memory_bytes"] > 0
    assert summary["peak_rss_bytes"] > summary["peak_memory_bytes"] // 2
    assert summary["fidelity"] == fidelity
    assert summary["partial"] is False
    parts = [part.seconds(job) for part in PARTS]
    if fidelity == "job":
        assert parts == [None] * len(PARTS)
        return
    assert sum(value for value in parts if value is not None) == pytest.approx(
        job["iteration_time_s"]["mean"], rel=1e-9
    )


DAY_NS = 86_400 * 10**9


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


@pytest.mark.parametrize("fidelity", ["message", "flow"])
def test_the_same_bytes_for_any_number_of_threads(
    command: Command, scenario: Path, tmp_path: Path, fidelity: str
) -> None:
    noise = "variation.kernel_noise={distribution: lognormal, cv: 0.05}"
    more = ["--fidelity", fidelity, "--no-report", "--set", noise]

    def run(name: str, threads: int) -> tuple[dict[str, Any], dict[str, bytes]]:
        text = command("run", scenario, "--threads", str(threads), "--json", "--out", name, *more).stdout
        summary = {key: value for key, value in json.loads(text).items() if key not in MACHINE_KEYS}
        folder = tmp_path / name
        return summary, {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.parquet"))}

    first = run("a", 1)
    assert run("b", 1) == first
    assert run("c", 2) == first
    assert len(first[1]) == (6 if fidelity == "flow" else 5)
    assert run("d", 1)[1] == first[1]
    other = command("run", scenario, "--seed", "2", "--out", "e", *more)
    assert "iteration time" in other.stdout
    assert windtunnel.load(tmp_path / "e").summary["jobs"] != first[0]["jobs"]
    done = command("run", scenario, "--check-determinism", *more)
    # On a busy machine its progress is shown before.
    assert done.stderr.splitlines()[-1].startswith("deterministic: the same bytes")


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


def test_an_interrupted_run_leaves_a_partial_result(scenario: Path, tmp_path: Path, interrupted: Interrupted) -> None:
    endless = ["--set", "jobs[0].iterations=100000", "--set", "cluster.episodes.iterations=100000"]
    result = interrupted(scenario, *endless, "--set", "results.ideal=false", after=4)
    (job,) = result.summary["jobs"]
    assert job["state"] == "interrupted"
    assert 0 < job["simulated_iterations"] == result.iterations.height < 100000
    assert result.flows.height > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["partial", "partial.journal", "tiny.yaml"]


def test_topology_counts_what_is_built(command: Command, scenario: Path) -> None:
    found = json.loads(command("topology", scenario, "--json").stdout)
    # Two groups of two hosts, a leaf for each of eight rails, two spines of 16 ports for 32 uplinks.
    assert (found["hosts"], found["gpus"], found["nics"]) == (4, 32, 32)
    assert [tier["switches"] for tier in found["tiers"]] == [16, 2]
    assert found["switches"] == 18
    # Both ways: GPU to scale-up switch, NIC to leaf, leaf to spine.
    assert found["links"] == 2 * (32 + 32 + 32)
    assert 0 < found["setup_s"] < 1
    assert found["peak_memory_bytes"] >= 32 * found["links"]
    assert found["peak_rss_bytes"] > found["peak_memory_bytes"]
    scenario.write_text(
        scenario.read_text().partition("topology:\n")[2].partition("network:")[0].replace("\n  ", "\n")[2:]
    )
    assert json.loads(command("topology", scenario, "--json").stdout)["links"] == found["links"]
    assert "18" in command("topology", scenario).stdout


KINDS = (
    "fidelities transports parameters topologies load-balancers disciplines modules collectives algorithms schedules "
    "schedulers placements workloads logs gpus nics switches optics models frameworks jobs faults"
).split()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "modules"])
def test_names_are_listed(command: Command, kind: str) -> None:
    known = json.loads(command("list", kind, "--json").stdout)
    assert known
    assert all(entry["name"] and entry["description"] for entry in known)


def test_modules_are_those_of_other_crates(command: Command) -> None:
    """`examples/own-transport` lists its own; the command by itself has none, and says so."""
    assert json.loads(command("list", "modules", "--json").stdout) == []
    done = command("list", "modules")
    assert (done.stdout, done.stderr) == ("", "no modules: this program brings none along\n")


def test_an_unknown_kind_names_the_known(command: Command) -> None:
    assert command("list", "gpu", check=2).stderr == "error: no kind of name: `gpu`\n\nhint: did you mean `gpus`?\n"
    done = command("list", "weather", check=2)
    assert done.stderr == f"error: no kind of name: `weather`\n\nhint: one of `{'`, `'.join(KINDS)}`\n"


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("gpus", "topology.host.gpu"),
        ("load-balancers", "network.load_balancer"),
        ("disciplines", "network.discipline"),
        ("schedules", "jobs[0].parallelism.schedule.name"),
        ("schedulers", "cluster.scheduler"),
        ("placements", "jobs[0].placement"),
        ("algorithms", "jobs[0].parallelism.collectives.dp.algorithm"),
        ("fidelities", "fidelity"),
    ],
)
def test_a_scenario_may_say_what_is_listed(scenario: Path, kind: str, key: str) -> None:
    """None of the listed names is refused as unknown; some do not fit this job."""
    for name, _ in engine.names(kind):
        source = read_source(scenario)
        try:
            engine.explain(source.text, source.name, str(source.base), [(key, name)], {})
        except windtunnel.InputError as error:
            assert not re.search(r"unknown|no sheet|no placement|no scheduler", str(error)), error  # noqa: PT017


def test_the_schema_is_one(command: Command) -> None:
    schema = json.loads(command("schema").stdout)
    assert {"windtunnel", "topology", "jobs", "fidelity"} <= set(schema["properties"])
    assert all("description" in entry for entry in schema["properties"].values())


def golden_cases() -> list[tuple[str, int, dict[str, Any]]]:
    index = GOLDEN / "index.json"
    if not index.is_file():
        print(f"not compared: {index} is absent")
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


def golden(tmp_path: Path, name: str, loggops: str) -> dict[str, Any]:
    """The run of a recorded file."""
    source = GOLDEN / name
    if not source.is_file():
        pytest.skip(f"not compared: {source} is absent")
    path = tmp_path / "case.goal"
    path.write_bytes(gzip.decompress(source.read_bytes()))
    found: dict[str, Any] = json.loads(engine.goal_run(str(path), loggops, "held"))
    return found


def quirk(name: str) -> dict[str, Any]:
    cases = json.loads((GOLDEN / "index.json").read_text())["cases"]
    found: dict[str, Any] = next(case for case in cases if case["file"] == name)
    return found


def test_a_message_of_0_bytes_costs_as_one_of_1(tmp_path: Path) -> None:
    """LogGOPSim's (s - 1) wraps at s = 0; here the case with 0 bytes ends as the same case with 1."""
    name = "zero_and_one_byte.goal.gz"
    if not (GOLDEN / name).is_file():
        pytest.skip(f"not compared: {GOLDEN / name} is absent")
    text = gzip.decompress((GOLDEN / name).read_bytes()).decode()
    ones = re.sub(r"\b0b\b", "1b", text)
    assert ones != text
    for run in quirk(name)["runs"]:
        loggops = ",".join(f"{key}={value}" for key, value in run["params"].items())
        found = []
        for number, content in enumerate((text, ones)):
            path = tmp_path / f"{number}.goal"
            path.write_text(content)
            found.append(json.loads(engine.goal_run(str(path), loggops, "held"))["finish_ps"])
        assert found[0] == found[1]


def test_an_operation_waits_for_one_on_another_stream(tmp_path: Path) -> None:
    """LogGOPSim starts an operation before its prerequisite on another CPU has ended; here it waits."""
    name = "crosscpu2_dependency_quirk.goal.gz"
    for run in quirk(name)["runs"] if (GOLDEN / name).is_file() else []:
        loggops = ",".join(f"{key}={value}" for key, value in run["params"].items())
        assert golden(tmp_path, name, loggops)["finish_max"] > run["original_max"]
    path = tmp_path / "two.goal"
    path.write_text("num_ranks 1\nrank 0 {\na: calc 100 cpu 0\nb: calc 50 cpu 1\nb requires a\n}\n")
    assert json.loads(engine.goal_run(str(path), "", "held"))["finish_max"] == 150


@pytest.mark.parametrize(
    "rank",
    [
        f"l0: calc {200 * DAY_NS}\nl1: calc {200 * DAY_NS}\nl1 requires l0",
        f"l0: calc {200 * DAY_NS}\nl1: send {2**64 - 1}b to 1 tag 1\nl1 requires l0",
    ],
)
def test_what_lasts_longer_than_there_is_time_for_is_refused(tmp_path: Path, rank: str) -> None:
    path = tmp_path / "long.goal"
    receive = "l0: recv 18446744073709551615b from 0 tag 1" if "send" in rank else "l0: calc 1"
    path.write_text(f"num_ranks 2\nrank 0 {{\n{rank}\n}}\nrank 1 {{\n{receive}\n}}\n")
    with pytest.raises(engine.InputError, match="for more than the 213 days") as error:
        engine.goal_run(str(path), "G=6.0", "held")
    assert str(error.value).startswith(str(path))


def test_goal_text_and_binary_give_the_same(command: Command, tmp_path: Path) -> None:
    text = tmp_path / "two.goal"
    text.write_text("num_ranks 2\nrank 0 {\nl1: send 100b to 1 tag 5\n}\nrank 1 {\nl1: recv 100b from 0 tag 5\n}\n")
    command("goal", "convert", text, "two.bin")
    runs = [command("goal", "run", f, "--loggops", "L=10,o=2,G=1", "--json").stdout for f in (text, "two.bin")]
    assert runs[0] == runs[1]
    # o + (s-1) G + L, and the receiver's o.
    assert json.loads(runs[0])["finish_max"] == 2 + 99 + 10 + 2
    command("goal", "merge", text, f"{text}@2", "-o", "four.goal")
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
    # What the model goes without is told beside the result.
    assert done.stderr == "--loggops leaves out o, g, G, O, S: the run has o=0, g=0, G=0, O=0, S=65535\n"
    whole = command("goal", "run", "stuck.goal", "--loggops", "L=1,o=0,g=0,G=0,O=0,S=65535", "--json", check=1)
    assert (whole.stdout, whole.stderr) == (done.stdout, "")


def test_from_python(scenario: Path) -> None:
    result = windtunnel.run(scenario, fidelity="message", overrides={"jobs[0].iterations": 1})
    assert result.summary["jobs"][0]["iterations"] == 1
    assert result.messages.height == result.summary["network"]["simulated_messages"]
