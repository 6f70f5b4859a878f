"""Commands of iproute2, and programs inside a namespace. The one place of the testbed that starts processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from windtunnel.engine import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOLS = ("ip", "tc")


def call(*command: str, text: str | None = None, check: bool = True) -> str:
    """What a command prints. Raises `RunError` with its message if it fails."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    if check and done.returncode != 0:
        raise RunError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def refused() -> str | None:
    """Why there can be no testbed here; None where there can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"`{missing[0]}` of iproute2 is not installed"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"wtb{os.getpid()}-probe"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, timeout=60, check=False)  # noqa: S607
    if done.returncode != 0:
        return f"this kernel allows no network namespaces: {done.stderr.strip()}"
    call("ip", "netns", "del", probe, check=False)
    return None


def demand() -> None:
    """Raises `InputError` where there can be no testbed."""
    reason = refused()
    if reason is not None:
        raise InputError(
            f"no testbed here: {reason}\n\nhint: run it as root, on Linux, outside of restricted containers"
        )


def batch(tool: str, commands: Sequence[str], space: str | None = None) -> str:
    """Many commands of `ip` or `tc` at once, perhaps in a namespace."""
    where = [] if space is None else ["-n", space]
    return call(tool, *where, "-batch", "-", text="\n".join(commands) + "\n")


def inside(space: str, program: Sequence[str], python: str | None = None) -> subprocess.Popen[str]:
    """A Python program in a namespace, with pipes: by this Python without its packages, or by another with them."""
    interpreter = [sys.executable, "-S", "-E"] if python is None else [python]
    return subprocess.Popen(
        ["ip", "netns", "exec", space, *interpreter, *program],  # noqa: S607
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def launch(space: str, command: Sequence[str], scratch: str, seconds: float) -> str:
    """What a program in a namespace prints; it has `scratch` for what it leaves. Raises `RunError` if it fails."""
    try:
        done = subprocess.run(
            ["ip", "netns", "exec", space, *command],  # noqa: S607
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "TMPDIR": scratch, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{command[0]} did not end within {seconds:.0f} s") from error
    if done.returncode != 0:
        words = [line for line in (done.stdout + done.stderr).splitlines() if line.strip(" -")]
        raise RunError(f"{command[0]} ended with {done.returncode}: {' / '.join(words[:4])}")
    return done.stdout


def lacks(python: str, code: str) -> str | None:
    """The last line of what a Python says when it cannot do `code`; None where it can."""
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    words = done.stderr.strip().splitlines() or ["it ended without a word"]
    return None if done.returncode == 0 else words[-1]
