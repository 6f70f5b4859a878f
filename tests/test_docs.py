"""What the pages show is what happens: their commands run, their snippets are read, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

import windtunnel
from conftest import ROOT
from windtunnel import engine
from windtunnel.results.folder import default_name

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = ("make ", "experiments run megatron-sc21", "windtunnel validate", "windtunnel calibrate")
"""What a test cannot run: the two commands themselves, and what takes minutes or needs measured tables."""

RANGES = {f"exposed_{part}_ps" for part in ("cp", "ep", "pp", "dp")}
"""Columns that the page names by the first and the last of their kind."""

RUN = "runs/llama3-8b-fsdp-flow"
"""Name of the run that pages refer to as there already."""

IMPLEMENTED = (
    "run",
    "topology",
    "goal",
    "report",
    "trace",
    "experiments",
    "list",
    "schema",
    "doctor",
    "validate",
    "whatif",
    "calibrate",
    "sweep",
    "runs",
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    lines = [(page.name, line) for page in PAGES for block in blocks(page, "console") for line in block.splitlines()]
    return sorted({(page, line[2:].split("  #")[0].strip()) for page, line in lines if line.startswith("$ ")})


@pytest.mark.engine
@pytest.mark.parametrize(("page", "line"), [case for case in commands() if not case[1].startswith(SLOW[0])])
def test_commands_run(page: str, line: str, command: Command, tmp_path: Path) -> None:
    program, *arguments = shlex.split(line)
    assert program == "windtunnel", page
    assert arguments[0] in IMPLEMENTED
    if any(slow in line for slow in SLOW):
        pytest.skip("takes minutes")
    for name in ("examples", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    if RUN in line:
        command("run", "examples/llama3-8b-fsdp.yaml")
    command(*arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_files_that_pages_name_are_there() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:examples|experiments|crates|data|python)/[\w./-]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists() or "NAME" in name, f"{page.name}: {name}"


def test_run_folders_that_pages_name_are_those_of_examples() -> None:
    """`runs/NAME-FIDELITY` of a page is where an example, run as it is written, leaves its result."""
    known = set()
    for path in (ROOT / "examples").glob("**/*.yaml"):
        text = path.read_text(encoding="utf-8")
        name = re.search(r"^name: (\S+)", text, flags=re.MULTILINE)
        fidelity = re.search(r"^fidelity: (\w+)", text, flags=re.MULTILINE)
        if name is not None and fidelity is not None:
            known.add(default_name(name[1], fidelity[1]))
    known.add("mine-flow")  # of the scenario `mine.yaml` that a page asks its reader to write
    for page in PAGES:
        for folder in re.findall(r"\bruns/([\w.+-]+-(?:job|message|flow|packet))\b", page.read_text(encoding="utf-8")):
            assert folder in known, f"{page.name}: runs/{folder}"


@pytest.mark.engine
def test_schedulers_of_the_scenario_page_are_those_there_are() -> None:
    (row,) = [
        line
        for line in (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `scheduler` | text")
    ]
    assert set(re.findall(r"`([\w-]+)`", row)) - {"scheduler"} == {name for name, _ in engine.names("schedulers")}


@pytest.mark.engine
@pytest.mark.parametrize("name", ["llama3-8b-fsdp", "lossless-incast", "all-to-all-message"])
def test_columns_of_tables_are_on_the_results_page(name: str) -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    tables = page[page.index("## Tables") :]
    known = set(re.findall(r"`([\w.]+)`", tables))
    result = windtunnel.run(ROOT / "examples" / f"{name}.yaml")
    for table in result.tables:
        missing = [column for column in result.table(table).columns if column not in known | RANGES]
        assert not missing, f"{table}: {missing}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}" in navigation, page.name


@pytest.mark.engine
def test_the_scenario_of_the_readme_is_one() -> None:
    (scenario,) = blocks(ROOT / "README.md", "yaml")
    result = windtunnel.run(scenario, overrides={"jobs[0].workload.global_batch": 16, "jobs[0].iterations": 1})
    assert result.summary["jobs"][0]["ranks"] == 512


@pytest.mark.engine
def test_variation_of_the_hosts_page_is_accepted() -> None:
    (variation,) = blocks(ROOT / "docs" / "hosts.md", "yaml")
    text = re.sub(r"^variation:.*?^jobs:", variation + "jobs:", (ROOT / "examples" / "stragglers.yaml").read_text(),
                  flags=re.MULTILINE | re.DOTALL)  # fmt: skip
    assert windtunnel.run(text).summary["jobs"][0]["straggler_s"] > 0
