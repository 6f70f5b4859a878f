"""Kills a month at random instants, lets it go on each time, and compares its end with that of an undisturbed month.

Run by `python benches/month_kills.py [KILLS] [SEED]` (20 and 1 if left out); prints figures and never fails. The month
is 900 jobs of `examples/shared-cluster.yaml`, in episodes at flow fidelity. Each of its processes is ended by SIGKILL,
a random time after its journal has reached a random length; so the kills spread over the month on a busy machine too.
"""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import windtunnel
from windtunnel.determinism import first_difference
from windtunnel.results.journal import journal_of

MONTH = [str(Path(__file__).resolve().parents[1] / "examples" / "shared-cluster.yaml")]
for _setting in ("jobs.count=900", "jobs.load=0.05", "cluster.faults[2].mtbf=2000 d"):
    MONTH += ["--set", _setting]


def begun(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """A run, whose progress is not shown."""
    words = [sys.executable, "-m", "windtunnel", "run", *arguments, "--no-report"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def size(journal: Path) -> int:
    """In bytes; 0 if there is none."""
    return journal.stat().st_size if journal.exists() else 0


def to_its_end(arguments: list[str], folder: Path, journal: Path) -> tuple[float, int]:
    """Seconds that a run took, and the length to which its journal grew; raises if it failed."""
    begin, length = time.perf_counter(), 0
    process = begun(arguments, folder)
    while process.poll() is None:
        length = max(length, size(journal))
        time.sleep(0.005)
    _, err = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(err)
    return time.perf_counter() - begin, length


def killed(process: subprocess.Popen[str], journal: Path, length: float, wait_s: float) -> bool:
    """Whether a run was killed, `wait_s` after its journal had reached this length; it may have ended by itself."""
    while process.poll() is None and size(journal) < length:
        time.sleep(0.005)
    try:
        process.wait(timeout=wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def hashes(folder: Path) -> dict[str, str]:
    """Of each file of a run folder, by its name in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main() -> None:
    """Prints how often it was killed, and what differs."""
    given = [int(text) for text in sys.argv[1:]]
    most, seed = (*given, *(20, 1)[len(given) :])
    draw = random.Random(seed)  # noqa: S311 - instants, not secrets
    kills: list[int] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, length = to_its_end([*MONTH, "--out", "once"], folder, journal_of(folder / "once"))
        once, often = windtunnel.load(folder / "once"), folder / "often"
        days = once.summary["simulated_time_s"] / 86400
        print(f"{days:.1f} days in {whole:.0f} s, undisturbed")
        journal, arguments = journal_of(often), [*MONTH, "--out", "often"]
        for target in sorted(draw.uniform(0.0, 0.95 * length) for _ in range(most)):
            # Late in the month little is left: it shall not end before it is killed.
            left_s = whole * (1.0 - target / length)
            wait_s = draw.uniform(0.0, min(whole / (2 * most), left_s / 4))
            if not killed(begun(arguments, folder), journal, target, wait_s):
                break
            kills.append(size(journal))
            if kills[-1]:
                arguments = ["--resume", "often"]
        if not often.exists():
            print(f"the last of them took {to_its_end(arguments, folder, journal)[0]:.0f} s to its end")
        told = ", ".join(f"{at / 1e6:.2f}" for at in kills)
        print(f"killed {len(kills)} times; of {length / 1e6:.2f} MB of a journal there were then {told}")
        print(f"first difference of figures and rows: {first_difference(once, windtunnel.load(often))}")
        first, second = hashes(folder / "once"), hashes(often)
        other = sorted(file for file in first.keys() | second.keys() if first.get(file) != second.get(file))
        print(f"{len(first)} files, of other bytes {', '.join(other)} (these hold the machine's times and the command)")


if __name__ == "__main__":
    main()
