"""`tracers/mpi`: programs under `mpirun` leave traces that say what they did, with OpenMPI and with MPICH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine
LIBRARIES = ["openmpi", "mpich"]
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


@pytest.fixture(scope="module", params=LIBRARIES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of what was built, and the command that starts programs; or a test that is skipped."""
    compiler, run = f"mpicc.{request.param}", f"mpirun.{request.param}"
    if not shutil.which(compiler) or not shutil.which(run):
        pytest.skip(f"needs {compiler} and {run} (Debian: lib{request.param}-dev)")
    folder = tmp_path_factory.mktemp(request.param)
    make = ["make", "-s", "-C", ROOT / "tracers" / "mpi", f"MPICC={compiler}", f"OUT={folder}", "CFLAGS=-O1"]
    subprocess.run(make, check=True)
    return folder, run


def traced(built: tuple[Path, str], target: Path, program: str, *arguments: str) -> str:
    """Runs a program on four ranks, and returns what it printed."""
    folder, run = built
    target.mkdir()
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "WINDTUNNEL_MPI_DIR": str(target),
        "LD_PRELOAD": str(folder / "libwindtunnel-mpi.so"),
    }
    done = subprocess.run(
        [run, "-n", "4", folder / program, *arguments],
        env=environment, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    return done.stdout


def test_programs_are_traced_whole(built: tuple[Path, str], command: Command, tmp_path: Path) -> None:
    # What each prints is the same for any number of ranks, with a tracer or without.
    expected = {
        "stencil": (["64", "10"], "heat", {"non-blocking send": 80, "collective: all-reduce": 4}),
        "conjugate_gradient": (["16", "5"], "residual", {"non-blocking send": 30, "collective: all-reduce": 44}),
        "fft": (["32", "1"], "off by", {"collective: all-to-all": 16, "collective: reduce": 4}),
    }
    for program, (arguments, printed, counts) in expected.items():
        assert printed in traced(built, tmp_path / program, program, *arguments)
        target = tmp_path / f"{program}.jsonl"
        answer = json.loads(command("import", "auto", tmp_path / program, "-o", target, "--strict", "--json").stdout)
        assert answer["workload"]["ranks"] == 4
        found = {row["kind"]: row["operations"] for row in answer["rows"] if row["verdict"] == "mapped"}
        assert counts.items() <= found.items(), (program, found)
        # Time of computation and of calls is that of the program: nothing is counted twice.
        spans = [span for span in answer["spans"] if span["name"] == "program"]
        assert len(spans) == 4


def test_recorded_examples_run_at_every_fidelity(command: Command, tmp_path: Path) -> None:
    for name in ("mpi-stencil", "mpi-conjugate-gradient", "mpi-fft"):
        command("import", "mpi", ROOT / "examples" / "traces" / name, "-o", tmp_path / "w.wtw")
        times = []
        for fidelity in ("message", "flow", "packet"):
            scenario = tmp_path / "s.yaml"
            scenario.write_text(
                f"windtunnel: 1\nname: traced\nfidelity: {fidelity}\n"
                "topology: {shape: clos, hosts: 4, tiers: [{ports_down: 4, rate: 100 Gbps, length: 5 m}],\n"
                "  host: {gpus: 1, nics: 1, nic: ConnectX-6}}\n"
                "jobs: [{name: p, workload: {file: w.wtw}, iterations: 1}]\n"
            )
            done = command("run", scenario, "--json", "--no-report", "--out", tmp_path / "run")
            times.append(json.loads(done.stdout)["jobs"][0]["iteration_time_s"]["mean"])
        assert max(times) < 1.2 * min(times), (name, times)
