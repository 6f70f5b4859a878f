"""The scripts of docs/scale-out.md, tried with stand-ins for SLURM, SkyPilot and Ray that note how they are called."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from conftest import ROOT
from windtunnel.cli import app

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "scale-out.md").read_text(encoding="utf-8")

NOTING = """#!/bin/bash
echo "$(basename "$0") $*" >> "$CALLS"
"""

STANDINS = {
    "scontrol": NOTING + "printf '%s\\n' node1 node2 node3 node4\n",
    "hostname": NOTING + "echo 10.0.0.1\n",
    # What comes first that is no option of its own is run; `-w` takes a value.
    "srun": NOTING + 'while [[ $1 == -* ]]; do [[ $1 == -w ]] && shift; shift; done\n"$@"\n',
    "ray": NOTING,
    "sleep": NOTING,
    "windtunnel": NOTING + 'mkdir -p runs; exit "${STATUS:-0}"\n',
    "pip": NOTING,
}


def block(section: str, language: str) -> str:
    """The first block of a section of the page."""
    found = re.search(rf"^## {section}\n.*?^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def called(script: str, folder: Path, **environment: str) -> list[list[str]]:
    """What a script calls, in order."""
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir()
    for name, text in STANDINS.items():
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)
    (folder / "script.sh").write_text(script, encoding="utf-8")
    subprocess.run(["bash", "-n", "script.sh"], cwd=folder, check=True)
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(calls)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "script.sh"], cwd=folder, env={**os.environ, **path, **environment},
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return [shlex.split(line) for line in calls.read_text(encoding="utf-8").splitlines()]


def sweeps(calls: list[list[str]]) -> list[list[str]]:
    """Calls of Windtunnel, each of which the command line takes."""
    found = [arguments for program, *arguments in calls if program == "windtunnel"]
    assert all(app.plain_call(arguments) is not None for arguments in found)
    return found


def test_the_script_for_slurm_starts_a_cluster_and_sweeps(tmp_path: Path) -> None:
    script = block("SLURM", "bash")
    given = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_NNODES": "4", "SLURM_CPUS_PER_TASK": "64"}
    calls = called(script, tmp_path, SLURM_SUBMIT_DIR="/home/me", **given)
    ray = [arguments for program, *arguments in calls if program == "ray"]
    assert sorted(ray) == [
        ["start", "--address=10.0.0.1:6379", "--num-cpus=64", "--block"],
        ["start", "--head", "--port=6379", "--num-cpus=64", "--block"],
    ]
    others = next(arguments for program, *arguments in calls if program == "srun" and "--exclude=node1" in arguments)
    assert {"--nodes=3", "--ntasks=3"} <= set(others)
    assert sweeps(calls) == [["sweep", "study.yaml", "--store", "/home/me/runs", "--engine", "ray:10.0.0.1:6379"]]
    # SLURM's signal reaches the batch script alone, so that has to be the study itself by then.
    assert "#SBATCH --signal=B:TERM@" in script
    assert script.splitlines()[-1].startswith("exec windtunnel ")


@pytest.mark.parametrize("rank", ["0", "2"])
def test_the_task_for_skypilot_does_on_each_node_its_part(tmp_path: Path, rank: str) -> None:
    task = YAML(typ="safe").load(block("SkyPilot", "yaml"))
    assert set(task) == {"resources", "num_nodes", "workdir", "file_mounts", "setup", "run"}
    script = task["run"].replace("/results/", f"{tmp_path}/results/")
    (tmp_path / "results").mkdir()
    calls = called(
        f"{task['setup']}\n{script}", tmp_path, SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2", SKYPILOT_NODE_RANK=rank
    )
    ray = [arguments for program, *arguments in calls if program == "ray"]
    if rank == "0":
        assert ray == [["start", "--head", "--port=6379"]]
        assert sweeps(calls) == [["sweep", "study.yaml", "--store", "runs", "--engine", "ray:10.0.0.1:6379"]]
        assert (tmp_path / "results" / "runs").is_dir()
    else:
        assert ray == [["start", "--address=10.0.0.1:6379", "--block"]]
        assert sweeps(calls) == []
