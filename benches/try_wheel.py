"""Installs a wheel into a fresh environment and uses it far from any checkout: `benches/try_wheel.py FILE.whl`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = (
    ("--version",),
    ("example",),
    ("example", "goal-replay"),
    ("run", "goal-replay.yaml", "--no-report"),
    ("init", "first.yaml"),
    ("run", "first.yaml", "--explain"),
    ("experiments", "list"),
    ("list", "gpus"),
    ("new", "transport", "wheel-law", "--source", str(Path(__file__).resolve().parents[1])),
)


def main(wheel: Path) -> None:
    """Runs each of `STEPS`; the first that fails ends it with its output."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with tempfile.TemporaryDirectory(prefix="windtunnel-wheel-") as folder:
        home = Path(folder)
        subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
        python = home / "venv" / "bin" / "python"
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel.resolve())]
        subprocess.run(install, check=True, env=environment)
        (home / "work").mkdir()
        for step in STEPS:
            program = home / "venv" / "bin" / "windtunnel"
            done = subprocess.run(
                [program, *step], cwd=home / "work", env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"windtunnel {' '.join(step)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
            print(f"windtunnel {' '.join(step)}: {len(done.stdout.splitlines())} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
