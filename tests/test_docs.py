"""What the pages show is what happens: their commands run, their snippets are read, their links lead somewhere."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from conftest import ROOT
from doc_commands import PROGRAMS, Written, files_of, of_page
from schema_keys import pieces, unknown
from windtunnel import engine
from windtunnel.cli import app as command_line
from windtunnel.cli import declare
from windtunnel.cli.app import main
from windtunnel.experiments.spec import read_experiment
from windtunnel.results.folder import default_name
from windtunnel.studies.study import Study

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW = (
    "make ", "experiments run megatron-sc21", "windtunnel validate", "windtunnel calibrate", "windtunnel testbed",
    "experiments report dcsim", "windtunnel layouts examples/llama3-70b-256xH100.yaml", "workload explain step.wtw",
    "examples/own-transport/scenario.yaml",
)  # fmt: skip
"""What a test cannot run: the two commands themselves, and what takes minutes, needs measured tables, root or an engine
of one's own."""

BUILT = "own-network"
"""The example into whose folder a page builds a library."""

RANGES = {f"exposed_{part}_ps" for part in ("cp", "ep", "pp", "dp")}
"""Columns that the page names by the first and the last of their kind."""

RUN = "runs/llama3-8b-fsdp-flow"
"""Name of the run that pages refer to as there already."""

IMPLEMENTED = (
    "run",
    "topology",
    "goal",
    "import",
    "record",
    "workload",
    "report",
    "trace",
    "pcap",
    "experiments",
    "list",
    "schema",
    "doctor",
    "validate",
    "whatif",
    "calibrate",
    "testbed",
    "collective",
    "sweep",
    "runs",
    "layouts",
    "explore",
    "fabrics",
    "example",
    "init",
    "new",
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands() -> list[Written]:
    return sorted({written for page in PAGES for written in of_page(page)})


def shown(written: Written) -> str:
    return f"{written.page}: {written.line}"


def is_slow(written: Written) -> bool:
    return any(slow in written.line for slow in SLOW)


def of_block(page: Path) -> list[Written]:
    """Commands of a page's blocks that a test can run, in the page's order, and the compiler that they need."""
    programs = ("windtunnel", "cc")
    found = [one for one in of_page(page) if one.of_block and one.words[0] in programs and not is_slow(one)]
    return found if any(one.words[0] == "windtunnel" for one in found) else []


TOGETHER = [page for page in PAGES if any(not written.prompted for written in of_block(page))]
"""Pages with commands without a prompt, which build on each other: all of a page run in one folder."""


def runs(written: Written) -> bool:
    """Whether a test runs it: what stands behind a prompt, and what prints a list."""
    line = written.line
    if is_slow(written) or written.words[0] != "windtunnel" or written.page in [page.name for page in TOGETHER]:
        return False
    return written.prompted or (written.words[1] in ("list", "schema", "doctor") and "KIND" not in line)


@pytest.mark.engine
@pytest.mark.parametrize("written", [case for case in commands() if runs(case)], ids=shown)
def test_commands_run(written: Written, command: Command, tmp_path: Path) -> None:
    for name in ("examples", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    if RUN in written.line:
        command("run", "examples/llama3-8b-fsdp.yaml")
    command(*written.words[1:])


@pytest.mark.engine
@pytest.mark.parametrize("page", TOGETHER, ids=lambda page: page.name)
def test_commands_of_a_page_run_one_after_the_other(page: Path, command: Command, tmp_path: Path) -> None:
    for name in ("experiments", "crates"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "examples").mkdir()
    for one in (ROOT / "examples").iterdir():
        if one.name == BUILT:
            shutil.copytree(one, tmp_path / "examples" / one.name, ignore=shutil.ignore_patterns("*.so"))
        else:
            (tmp_path / "examples" / one.name).symlink_to(one)
    for written in of_block(page):
        if written.words[0] == "windtunnel":
            command(*written.words[1:])
        else:
            subprocess.run(written.words, cwd=tmp_path, check=True)


@pytest.mark.parametrize("written", commands(), ids=shown)
def test_commands_are_ones(
    written: Written, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of what takes too long to run: the program is known, takes such arguments, and the files named are there."""
    program, *arguments = written.words
    assert program in PROGRAMS
    for name in files_of(written.words):
        built = name.endswith((".so", ".html"))
        assert built or (ROOT / name).exists(), name
    if program == "windtunnel":
        assert arguments[0] in IMPLEMENTED
        # Everything but the command itself: options, their types, numbers of arguments.
        called: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(declare, "invoke", lambda function, values: called.append((function.__name__, values)))
        words = ["1" if word == "N" else word.strip("[]…") or "ROW" for word in arguments]
        quick = command_line.plain_call(words)
        monkeypatch.setattr(command_line, "plain_call", lambda _: None)
        status = main(words)
        # What is read without Typer is what Typer reads.
        assert quick is None or called == [(quick[0].__name__, quick[1])]
        said = capsys.readouterr().err
        # A sentence may leave out what the command is applied to.
        short = "missing argument" in said or "usage: " in said
        assert status == 0 or (not written.of_block and short), said
        if arguments[:2] == ["experiments", "run"] and arguments[2] not in ("NAME", "--all"):
            assert (ROOT / "experiments" / arguments[2] / "experiment.yaml").exists()
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for word in arguments:
            name, is_variable, _ = word.partition("=")
            assert f"$({name})" in makefile if is_variable else f"\n{name}:" in makefile, word
    elif program == "cargo":
        for flag, package in itertools.pairwise(arguments):
            if flag == "-p":
                assert package in {read_name(path) for path in ROOT.glob("*/*/Cargo.toml")}
    elif program.endswith("python"):
        assert arguments[0] == "-m"
        assert (ROOT / "tests" / arguments[1] / "__main__.py").exists()


def read_name(manifest: Path) -> str:
    """Name of the package of a Cargo.toml."""
    return str(tomllib.loads(manifest.read_text(encoding="utf-8"))["package"]["name"])


def test_commands_of_blocks_and_sentences_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Say `windtunnel list\ngpus`; `make test` too, not `window`.\n"
        "```console\n$ windtunnel run a.yaml  # why\nprinted\n```\n"
        "```sh\nFUZZ=1 make fuzz\nwindtunnel run b.yaml \\\n    --full\n```\n"
    )
    found = list(of_page(page))
    assert [(w.line, w.prompted) for w in found] == [
        ("windtunnel run a.yaml", True),
        ("FUZZ=1 make fuzz", False),
        ("windtunnel run b.yaml      --full", False),
        ("windtunnel list gpus", False),
        ("make test", False),
    ]
    assert found[1].words == ["make", "fuzz"]


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
        if line.startswith("| `scheduler` | `fcfs`")
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
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert f": {name}" in navigation, name


def test_examples_of_the_extending_pages_are_built() -> None:
    """`examples/extend` makes a page's examples its tests; a page that it does not list would be read by nobody."""
    listed = re.search(
        r"^pages!\((.*?)\);", (ROOT / "examples/extend/src/lib.rs").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert listed is not None
    with_rust = {page.stem for page in (ROOT / "docs/extend").glob("*.md") if blocks(page, "rust")}
    # The code of that one is two crates' own.
    assert with_rust - {"transport"} == set(listed[1].split(", "))


@pytest.mark.engine
def test_the_scenario_of_the_readme_is_one() -> None:
    (scenario,) = blocks(ROOT / "README.md", "yaml")
    result = windtunnel.run(scenario, overrides={"jobs[0].workload.global_batch": 16, "jobs[0].iterations": 1})
    assert result.summary["jobs"][0]["ranks"] == 512


OTHER_FORMS = {
    "experiments.md": "claims:",
    "studies.md": "study:",
    "frameworks.md": "title:",
    "hosts.md": "sheet: H100-SXM  ",
    "scale-out.md": "num_nodes:",
}
"""What a block of a page has that is no piece of a scenario: an experiment, a study, data sheets, another program's."""


@pytest.mark.parametrize(
    ("page", "piece"),
    [
        pytest.param(page.name, piece, id=f"{page.name}: {', '.join(piece)}")
        for page in PAGES
        for block in blocks(page, "yaml")
        if OTHER_FORMS.get(page.name, "\0") not in block
        for piece in pieces(block)
    ],
)
def test_keys_of_blocks_are_those_of_the_schema(page: str, piece: dict[str, Any]) -> None:
    assert unknown(piece) == [], page


def test_a_key_of_a_block_that_nobody_knows_is_found() -> None:
    wrong = "jobs:\n  - name: a\n    chekpoint: {every: 1 h}\n    placement: near\njobs: {like: philly, cuont: 3}\n"
    assert [[said.partition(":")[0] for said in unknown(piece)] for piece in pieces(wrong)] == [
        [".jobs[0].chekpoint", ".jobs[0].placement"], [".jobs.cuont"],
    ]  # fmt: skip
    assert unknown({"topology": {"shape": "clos"}, "name": "a", "network": {"load_balancer": {"ecpm": {}}}}) == [
        ".network.load_balancer.ecpm"
    ]
    assert unknown({"hosst": 1}) == ["no record has all of hosst"]


def other_form(page: str) -> str:
    """The block of `page` that is no piece of a scenario."""
    (path,) = (path for path in PAGES if path.name == page)
    (found,) = (block for block in blocks(path, "yaml") if OTHER_FORMS[page] in block)
    return found


@pytest.mark.engine
def test_the_data_sheets_of_pages_are_read(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(other_form("frameworks.md"), encoding="utf-8")
    (tmp_path / "gpu.yaml").write_text(other_form("hosts.md"), encoding="utf-8")
    scenario = (ROOT / "examples/llama3-8b-fsdp.yaml").read_text(encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text(scenario, encoding="utf-8")
    overrides = {"jobs[0].workload.training.framework": "./mine.yaml", "topology.host.gpu": "gpu.yaml"}
    windtunnel.explain(tmp_path / "scenario.yaml", overrides=overrides)


def test_the_study_and_the_experiment_of_pages_are_read(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "llama3-70b-512xH100.yaml").write_bytes((ROOT / "examples/llama3-70b-512xH100.yaml").read_bytes())
    (tmp_path / "studies" / "layouts.yaml").write_text(other_form("studies.md"), encoding="utf-8")
    points = Study.read(tmp_path / "studies" / "layouts.yaml").plan()
    assert len(points) == 11
    (tmp_path / "experiment.yaml").write_text(other_form("experiments.md"), encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text((ROOT / "examples/ring-all-reduce.yaml").read_text(), encoding="utf-8")
    assert read_experiment(tmp_path).claims[0].observe == "jobs[0].iteration_time_s.mean"


@pytest.mark.engine
def test_variation_of_the_hosts_page_is_accepted() -> None:
    (variation,) = (block for block in blocks(ROOT / "docs" / "hosts.md", "yaml") if "variation:" in block)
    text = re.sub(r"^variation:.*?^jobs:", variation + "jobs:", (ROOT / "examples" / "stragglers.yaml").read_text(),
                  flags=re.MULTILINE | re.DOTALL)  # fmt: skip
    assert windtunnel.run(text).summary["jobs"][0]["straggler_s"] > 0


@pytest.mark.engine
def test_the_derived_sheet_of_the_hosts_page_is_as_much_slower_as_it_says() -> None:
    page = ROOT / "docs" / "hosts.md"
    gpu = next(block for block in blocks(page, "yaml") if "sheet:" in block).partition("gpu: ")[2].strip()
    said = re.search(r"takes ([0-9.]+) times as long", page.read_text(encoding="utf-8"))
    assert said is not None
    took = []
    for each in ("H100-SXM", gpu):
        text = f"""
windtunnel: 1
name: one-host
fidelity: flow
topology: {{shape: clos, hosts: 1, tiers: [{{ports_down: 8, rate: 400 Gbps, length: 5 m}}],
           host: {{gpu: {each}, gpus: 8, nics: 8, nic: ConnectX-7}}}}
jobs: [{{name: a, iterations: 2, workload: {{collective: {{kind: all_reduce, bytes: 64 MiB}}}}}}]
"""
        took.append(windtunnel.run(text).summary["jobs"][0]["iteration_time_s"]["mean"])
    assert took[1] / took[0] == pytest.approx(float(said[1]), abs=0.05)
