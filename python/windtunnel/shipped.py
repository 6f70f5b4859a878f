"""Files that come with the package: examples, experiments and data sheets, of a checkout or of an installed wheel.

`make wheel` puts them into the package's folder `shipped`; in a checkout they lie at its root.
"""

from __future__ import annotations

from pathlib import Path

from windtunnel.engine import InputError

PACKAGE = Path(__file__).resolve().parent
SHIPPED = PACKAGE / "shipped"


def root() -> Path:
    """The folder that holds `examples`, `experiments` and `data`. Raises `InputError` if this package has none."""
    checkout = PACKAGE.parents[1]
    for folder in (*([checkout] if (checkout / "crates").is_dir() else []), SHIPPED):
        if any((folder / "examples").glob("*.yaml")):
            return folder
    raise InputError("this installation has no examples\n\nhint: `make wheel` packs them into what `pip install` takes")


def data() -> Path:
    """The folder of data sheets; an empty one where the package has none."""
    checkout = PACKAGE.parents[1]
    return checkout / "data" if (checkout / "crates").is_dir() else SHIPPED / "data"


def examples() -> dict[str, Path]:
    """Name → file of every scenario and study, `topologies/clos` for those in folders."""
    home = root() / "examples"
    files = sorted([*home.glob("*.yaml"), *home.glob("topologies/*.yaml"), *home.glob("studies/*.yaml")])
    return {path.relative_to(home).with_suffix("").as_posix(): path for path in files}


def title(path: Path) -> str:
    """What an example says of itself in its first sentence."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") or not line.strip("# "):
            break
        lines.append(line.strip("# "))
    text = " ".join(lines)
    return text.partition(". ")[0].rstrip(".")
