"""`windtunnel doctor`."""

from __future__ import annotations

import json as json_module
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

from windtunnel.cli.declare import Commands, Option

app = Commands()

NEEDED = ("numpy", "polars", "matplotlib", "rich", "typer", "ruamel.yaml")

OPTIONAL = (
    ("torch", "module", "measuring kernels and collectives on GPUs"),
    ("mpi4py", "module", "measuring message times with MPI"),
    ("ray", "module", "studies on a cluster (`--engine ray`)"),
    ("chromium", "program", "tests of the web page; not needed to read reports"),
)
"""Optional parts: name, what it is, what it is for."""


@app.command()
def doctor(
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> int:
    """Say what is installed, which optional parts are present, and what each is for."""
    from windtunnel.cli.app import DONE, FAILED
    from windtunnel.cli.console import print_json

    found = examine()
    if json:
        print_json(json_module.dumps(found, indent=2))
    else:
        _show(found)
    return DONE if found["engine"] else FAILED


def examine() -> dict[str, Any]:
    """What is there: versions, the machine, and each optional part with its version, or None where it is absent."""
    from windtunnel.results.manifest import machine
    from windtunnel.version import __version__

    try:
        import windtunnel.engine as _engine
    except ImportError:
        engine = False
    else:
        engine = bool(_engine.__all__)
    return {
        "windtunnel": __version__,
        "engine": engine,
        "machine": machine(),
        "packages": {name: _version(name) for name in NEEDED},
        "optional": [
            {"name": name, "found": _version(name) if kind == "module" else _program(name), "for": purpose}
            for name, kind, purpose in OPTIONAL
        ],
    }


def _show(found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from windtunnel.cli.console import out
    from windtunnel.text import size

    machine = found["machine"]
    table = Table.grid(padding=(0, 2))
    table.add_row("windtunnel", found["windtunnel"])
    table.add_row("engine", "present" if found["engine"] else Text("absent: run `make setup`", style="red"))
    table.add_row("machine", f"{machine['processor']}, {machine['cores']} cores, {size(machine['memory_bytes'])}")
    table.add_row("system", f"{machine['system']}, Python {machine['python']}")
    for name, known in found["packages"].items():
        table.add_row(name, known or Text("absent", style="red"))
    for part in found["optional"]:
        table.add_row(part["name"], part["found"] or Text("absent", style="dim"), Text(part["for"], style="dim"))
    out().print(table)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _program(name: str) -> str | None:
    return shutil.which(name)
