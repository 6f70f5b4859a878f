"""Every recording of the folder of measured data: imported, then replayed at message, flow and packet fidelity.

    python benches/recordings.py [--only TEXT]… [--seconds 300] [--out TABLE.md]

Prints a table in Markdown: what was read and what became of it, and the iteration time at each fidelity, or why a
file is refused. Ends with status 1 where a file is neither replayed nor refused with a reason (a crash, or more than
`--seconds` of processor time). Ranks stand below one switch, one a host, at 100 Gbps; ranks that were not recorded do
as recorded ones (`--missing same`).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from windtunnel.engine import InputError
from windtunnel.validate.board import data_folder

FOLDERS = ("traces_kineto", "traces_nsys", "traces_mpi", "traces_nccl", "storage")
FIDELITIES = ("message", "flow", "packet")
COMMAND = Path(sys.executable).with_name("windtunnel")
FLOPS = "5e9"
"""Of SimGrid's traces, which count operations."""

PARTS = {
    "liballprof_sweep3d_2x2_and_bcast.tar.gz": ("sweep3d", "bcast"),
    "sstmacro_dumpi_testtraces.tar.gz": ("testbgp", "testtrace"),
    "chakra_json_trace.tar.gz": ("/chakra.0", "small_chakra"),
    "pipit_pingpong_otf2.tar.gz": ("ping-pong-otf2/", "ping-pong-otf2-papi/"),
}
"""Archives of several programs."""

TOGETHER = {"param_dlrm_8rank_kineto.tar.gz": "param_dlrm_8rank_pytorch_et.tar.gz"}
"""Traces and the execution traces that say their sizes."""


def main() -> int:
    """Reads and replays all, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="files whose name has TEXT")
    parser.add_argument("--seconds", type=int, default=300, help="processor time of a command, at most")
    parser.add_argument("--out", type=Path, help="the table as a file")
    asked = parser.parse_args()
    try:
        data = data_folder(None)
    except InputError as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    rows = ["| recording | ranks | operations | mapped | approximated | guessed | dropped | message | flow | packet |"]
    rows.append("|---" * 10 + "|")
    counts = {"replayed": 0, "refused": 0, "failed": 0}
    for name, sources, only in pieces(data, asked.only):
        verdict, row = piece(name, sources, only, asked.seconds)
        counts[verdict] += 1
        rows.append(row)
        print(row, flush=True)
    if asked.out is not None:
        asked.out.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["failed"] else 0


def pieces(data: Path, only: list[str]) -> list[tuple[str, list[Path], str | None]]:
    """Each program: its name, the files of it, and what their names have."""
    found: list[tuple[str, list[Path], str | None]] = []
    for folder in FOLDERS:
        for path in sorted((data / folder).glob("*")):
            if not path.is_file() or (only and not any(text in path.name for text in only)):
                continue
            other = TOGETHER.get(path.name)
            found += [
                (path.name if part is None else f"{path.name}: {part.strip('/')}", [path], part)
                for part in PARTS.get(path.name, (None,))
            ]
            if other is not None and (path.parent / other).is_file():
                found.append((f"{path.name} and {other}", [path, path.parent / other], None))
    return found


def command(arguments: list[str | Path], seconds: int) -> subprocess.CompletedProcess[str]:
    """A command with so much processor time."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))

    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, preexec_fn=limit)


def piece(name: str, sources: list[Path], only: str | None, seconds: int) -> tuple[str, str]:
    """What becomes of a program, and its row."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        target = folder / "w.wtw"
        some = ["--only", only] if only is not None else []
        read = command(
            ["import", "auto", *sources, *some, "--missing", "same", "--flops", FLOPS, "-o", target, "--json"], seconds
        )
        if read.returncode != 0:
            return refused(name, read)
        answer = json.loads(read.stdout)
        ranks = answer["workload"]["ranks"]
        cells = [str(ranks), f"{answer['workload']['operations']:,}"]
        cells += [share(answer, verdict) for verdict in ("mapped", "approximated", "guessed", "dropped")]
        for fidelity in FIDELITIES:
            scenario = folder / f"{fidelity}.yaml"
            scenario.write_text(json.dumps(replay(fidelity, ranks)), encoding="utf-8")
            run = command(["run", scenario, "--no-report", "--json", "--out", folder / fidelity], seconds)
            if run.returncode != 0:
                verdict, row = refused(f"{name}, {fidelity}", run)
                return "failed" if verdict == "refused" else verdict, row
            time = json.loads(run.stdout)["jobs"][0]["iteration_time_s"]["mean"]
            cells.append(f"{time * 1e3:,.2f} ms")
        return "replayed", f"| {name} | {' | '.join(cells)} |"


def share(answer: dict[str, Any], verdict: str) -> str:
    """Operations of a verdict as a part of those read."""
    part = answer["totals"][verdict]["operations"] / max(answer["totals"]["read"]["operations"], 1)
    return "0" if part == 0 else f"{part:.1%}"


def refused(name: str, done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """The row of what ended with an error: a refusal has status 2 and says what it expected."""
    said = " ".join(done.stderr.split())
    verdict = "refused" if done.returncode == 2 and "Traceback" not in said else "failed"
    return verdict, f"| {name} | {verdict} ({done.returncode}): {said[-400:]} |" + " |" * 8


def replay(fidelity: str, ranks: int) -> dict[str, Any]:
    """A scenario of one iteration, with a host for each rank."""
    return {
        "windtunnel": 1,
        "name": "recorded",
        "fidelity": fidelity,
        "topology": {
            "shape": "clos",
            "hosts": ranks,
            "tiers": [{"ports_down": ranks, "rate": "100 Gbps", "length": "5 m"}],
            "host": {"gpus": 1, "nics": 1, "nic": "ConnectX-6"},
        },
        "jobs": [{"name": "program", "workload": {"file": "w.wtw"}, "iterations": 1}],
    }


if __name__ == "__main__":
    sys.exit(main())
