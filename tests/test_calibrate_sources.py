"""Sources of a watch that rotate, are copied, packed, replaced or cut, and URLs: nothing is lost or counts twice."""

from __future__ import annotations

import functools
import gzip
import json
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT
from windtunnel.calibrate.loop import watch as watching
from windtunnel.calibrate.loop.content import Content
from windtunnel.calibrate.loop.files import write_page
from windtunnel.calibrate.loop.gpus import another
from windtunnel.calibrate.loop.ledger import Ledger
from windtunnel.calibrate.loop.models import Models
from windtunnel.validate.systems import read_system, read_systems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Command

EXAMPLES = ROOT / "examples" / "calibration"
HEADER = "bytes,fct_us,class\n"


def flows(first: int, count: int) -> str:
    """Lines of a table of flows, each another."""
    return "".join(f"{4096 * (1 + at % 4)},{5 + at / 997:.5f},leaf\n" for at in range(first, first + count))


class Loop:
    """A store, and a watch that is begun anew for each scan, as after a restart."""

    def __init__(self, folder: Path, system: str = "polaris") -> None:
        self.place, self.store = folder / "in", folder / "store"
        self.place.mkdir()
        self.models = Models(read_systems(None)[system])
        self.said: list[str] = []

    def scan(self, place: object = None) -> watching.Heard:
        with Ledger(self.store) as ledger:
            return watching.Watch(ledger, self.models, self.said.append).scan(str(place or self.place))

    def counted(self) -> int:
        with Ledger(self.store) as ledger:
            return int(ledger.one("select count(*) from measurements"))

    def aside(self) -> list[tuple[str, int, str]]:
        with Ledger(self.store) as ledger:
            return ledger.db.execute("select source, line, reason from aside order by rowid").fetchall()


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


@pytest.mark.parametrize(
    "name", ["flows.1.csv", "flows.csv.1", "z.csv", "a.csv", "old/flows.csv", "flows.csv-20261128"]
)
@pytest.mark.parametrize("tail", [0, 10])
@pytest.mark.parametrize("how", ["rename", "copytruncate"])
def test_a_log_that_rotates_counts_once(loop: Loop, name: str, tail: int, how: str) -> None:
    """Sixty lines are counted, the file grows perhaps, rotates, and ten lines come under its old name."""
    file, moved = loop.place / "flows.csv", loop.place / name
    file.write_text(HEADER + flows(0, 60))
    assert loop.scan().measurements == 60
    text = HEADER + flows(0, 60 + tail)
    moved.parent.mkdir(exist_ok=True)
    if how == "rename":
        file.rename(moved)
    moved.write_text(text)
    file.write_text(HEADER + flows(1000, 10))
    loop.scan()
    loop.scan()
    assert loop.counted() == 70 + tail
    with file.open("a") as more:
        more.write(flows(1010, 5))
    assert loop.scan().measurements == 5
    # And once more, by a name that is taken already.
    moved.write_text(file.read_text())
    file.write_text(HEADER + flows(2000, 10))
    loop.scan()
    assert loop.counted() == 85 + tail


def test_a_rotated_log_that_was_packed_goes_on(loop: Loop) -> None:
    (loop.place / "flows.csv").write_text(HEADER + flows(0, 60))
    loop.scan()
    (loop.place / "flows.csv.2.gz").write_bytes(gzip.compress((HEADER + flows(0, 70)).encode()))
    (loop.place / "flows.csv").write_text(HEADER + flows(1000, 10))
    loop.scan()
    loop.scan()
    assert loop.counted() == 80


@pytest.mark.parametrize("name", ["a.csv", "z.csv"])
def test_a_copy_counts_nothing_twice_however_long_it_is(loop: Loop, name: str) -> None:
    file, copy = loop.place / "flows.csv", loop.place / name
    file.write_text(HEADER + flows(0, 60))
    loop.scan()
    for length in (30, 60, 70):
        copy.write_text(HEADER + flows(0, length))
        loop.scan()
    assert loop.counted() == 70
    # The original catches up with its copy, and both go on as one.
    file.write_text(HEADER + flows(0, 80))
    loop.scan()
    copy.write_text(HEADER + flows(0, 80))
    loop.scan()
    assert loop.counted() == 80
    assert {reason for _, _, reason in loop.aside()} == {"a copy of flows.csv", f"a copy of {name}"}


def test_files_of_one_name_in_two_folders_are_two(loop: Loop, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (loop.place / "flows.csv").write_text(HEADER + flows(0, 20))
    (other / "flows.csv").write_text(HEADER + flows(500, 20))
    for _ in range(2):
        loop.scan()
        loop.scan(other)
    assert loop.counted() == 40
    with (other / "flows.csv").open("a") as more:
        more.write(flows(520, 3))
    assert loop.scan(other).measurements == 3
    (loop.place / "more").mkdir()
    (loop.place / "more" / "flows.csv").write_text((other / "flows.csv").read_text())
    assert loop.scan().measurements == 0


def test_logs_that_begin_alike_are_all_read(loop: Loop) -> None:
    """Three logs of nccl-tests whose headers are the same, each of which is seen before its rows are there."""
    log = (EXAMPLES / "logs" / "day-00-all_reduce.log").read_text().splitlines(keepends=True)
    begin = next(i for i, line in enumerate(log) if line.split()[:1] == ["1024"])
    for name in ("a.log", "b.log", "c.log"):
        (loop.place / name).write_text("".join(log[:begin]))
        loop.scan()
    for at, name in enumerate(("a.log", "b.log", "c.log")):
        row = log[begin].replace(log[begin].split()[-8], f"3{at}.25")
        (loop.place / name).write_text("".join([*log[:begin], row]))
    assert loop.scan().measurements == 3
    assert loop.aside() == []


def test_a_store_of_the_version_before_is_brought_forward(loop: Loop) -> None:
    (loop.place / "flows.csv").write_text(HEADER + flows(0, 6))
    loop.scan()
    with Ledger(loop.store) as ledger:
        for statement in (
            "drop index sources_head", "drop index sources_head_bytes", "drop table steps",
            "alter table sources drop column tail", "pragma user_version = 1",
        ):  # fmt: skip
            ledger.db.execute(statement)
    (loop.place / "flows.csv").write_text(HEADER + flows(0, 9))
    assert loop.scan().measurements == 3
    assert loop.scan().measurements == 0


def test_packed_files_are_read_as_others(loop: Loop) -> None:
    log = (EXAMPLES / "logs" / "day-00-all_reduce.log").read_bytes()
    step = json.dumps({"job": "a", "iteration_s": 1.5}) + "\n"
    (loop.place / "all_reduce.log.gz").write_bytes(gzip.compress(log))
    (loop.place / "f.csv.gz").write_bytes(gzip.compress((HEADER + flows(0, 3)).encode()))
    (loop.place / "j.jsonl.gz").write_bytes(gzip.compress(step.encode()))
    # Cut in the middle: what is whole is read, the rest once it is there.
    whole = gzip.compress((HEADER + flows(100, 4000)).encode())
    (loop.place / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    heard = loop.scan()
    assert 6 + 3 + 1 < heard.measurements < 4010
    assert "cut or still being written" in loop.aside()[-1][2]
    loop.scan()
    assert len(loop.aside()) == 1
    (loop.place / "cut.csv.gz").write_bytes(whole)
    loop.scan()
    assert loop.counted() == 6 + 3 + 1 + 4000
    (loop.place / "not.csv.gz").write_bytes(b"plain")
    loop.scan()
    assert loop.aside()[-1][0] == "not.csv.gz"


def test_files_that_are_not_read_are_named_once(loop: Loop) -> None:
    for name in ("notes.md", "plot.png", ".hidden.swp"):
        (loop.place / name).write_text("x")
    loop.scan()
    loop.scan()
    assert loop.said == ["not read, as no reader takes files of these names: notes.md, plot.png"]


def test_a_trace_that_is_seen_while_it_is_written_is_read_once_it_is_whole(loop: Loop) -> None:
    steps = [{"name": f"ProfilerStep#{at}", "cat": "user_annotation", "dur": 2e6 + at} for at in range(3)]
    text = json.dumps({"traceEvents": steps}, indent=1)
    trace = loop.place / "job.json"
    for length in (20, 100):
        trace.write_text(text[:length])
        heard = loop.scan()
        assert (heard.measurements, len(heard.waiting)) == (0, 1)
    assert len(loop.aside()) == 1
    trace.write_text(text)
    assert loop.scan().measurements == 3
    assert loop.scan().measurements == 0
    assert loop.aside() == []
    (loop.place / "copy.json").write_text(text)
    assert loop.scan().measurements == 0


def test_a_last_line_without_its_end_is_told(tmp_path: Path, command: Command) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f.csv").write_text(HEADER + flows(0, 2).rstrip("\n"))
    done = command("calibrate", "watch", tmp_path / "in", "--system", "polaris", "--once")
    assert "f.csv:3: has no end yet" in done.stdout


BAD_LINES = {
    "cr.csv": HEADER + "4096,5.1\r4096,5.2,leaf\n",
    "nul.csv": HEADER + "40\x0096,5.1,leaf\n",
    "null.jsonl": '{"coll_perf": null}\n',
    "deep.jsonl": "[" * 100_000 + "\n",
    "far.jsonl": json.dumps(
        {
            "header": {"n_ranks": 8, "nnodes": 2},
            "metadata": {"dump_timestamp_us": 10**400},
            "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 4096, "coll_exec_time_us": 50},
        }
    )
    + "\n",
    "half.jsonl": '{"job": "\\ud800", "iteration_s": 2.0}\n',
    "key.jsonl": '{"job": "a", "run": "\\udc00", "iteration": 1, "iteration_s": 2.0}\n',
    "wide.csv": HEADER + "1e300,5,leaf\n",
    "power.csv": HEADER + "99999999999999999999,5,leaf\n",
    "short.csv": HEADER + "1000,1e-300,leaf\n",
    "minus.csv": HEADER + "-1000,5,leaf\n",
    "zero.csv": HEADER + "1000,0,leaf\n",
    "part.csv": HEADER + "1000.7,6,leaf\n",
    "square.csv": HEADER + "²,6,leaf\n",
    "types.json": json.dumps({"traceEvents": [{"name": "ProfilerStep#1", "cat": [], "dur": {}}], "distributedInfo": 5}),
    "list.json": json.dumps([1]),
    "dur.json": json.dumps({"traceEvents": [{"name": "ProfilerStep#1", "dur": "long"}]}),
}


@pytest.mark.parametrize("name", list(BAD_LINES))
def test_a_bad_line_is_put_aside_and_all_else_is_read(loop: Loop, name: str) -> None:
    (loop.place / name).write_bytes(BAD_LINES[name].encode())
    if name.endswith(".csv"):
        with (loop.place / name).open("a") as more:
            more.write(flows(0, 2))
    (loop.place / "zz.csv").write_text(HEADER + flows(50, 3))
    loop.scan()
    loop.scan()
    assert loop.counted() == (5 if name.endswith(".csv") else 3)
    ((source, line, reason),) = loop.aside()
    assert source == name
    assert line == (2 if name.endswith(".csv") else 1)
    assert 0 < len(reason) < 400


def test_bad_rows_of_nccl_tests_are_put_aside(loop: Loop) -> None:
    log = (EXAMPLES / "logs" / "day-00-all_reduce.log").read_text()
    rows = [line for line in log.splitlines() if line.split()[:1] == ["1024"]]
    for at, (old, new) in enumerate(
        [(" 1024 ", " 1²24 "), (" 1024 ", " -1024 "), (" 1024 ", f" {10**30} "), (rows[0].split()[-8], "-38.1")]
    ):
        (loop.place / f"all_reduce-{at}.log").write_text(log.replace(rows[0], rows[0].replace(old, new, 1)))
    heard = loop.scan()
    # A size with a digit that is none is no row at all.
    assert heard.measurements == 5 + 5 + 5 + 5
    assert len(loop.aside()) == 3


def test_what_vanishes_or_cannot_be_read_is_said_and_the_watch_goes_on(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        (loop.place / name).write_text(HEADER + flows(ord(name[0]), 2))
    of = Content.of

    def refusing(path: Path) -> Content:
        if path.name == "a.csv":
            raise PermissionError(13, "Permission denied", str(path))
        if path.name == "b.csv":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return of(path)

    with Ledger(loop.store) as ledger:
        watch = watching.Watch(ledger, loop.models, loop.said.append)
        monkeypatch.setattr(Content, "of", refusing)
        for _ in range(2):
            heard = watch.scan(str(loop.place))
            assert len(heard.failed) == 2
        assert loop.said == ["a.csv: Permission denied", "b.csv: No such file or directory"]
        monkeypatch.setattr(Content, "of", of)
        assert watch.scan(str(loop.place)).measurements == 4
        loop.place.rename(tmp_path / "away")
        assert watch.scan(str(loop.place)).failed
        assert loop.said[-1].endswith("no such folder or file")
        (tmp_path / "away").rename(loop.place)
        assert not watch.scan(str(loop.place)).failed
        assert loop.counted() == 6


def test_a_log_of_another_gpu_is_put_aside(loop: Loop) -> None:
    log = (EXAMPLES / "logs" / "day-00-all_reduce.log").read_text()
    (loop.place / "a.log").write_text(log.replace("NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB"))
    (loop.place / "b.log").write_text(log)
    assert loop.scan().measurements == 6
    assert {source for source, _, _ in loop.aside()} == {"a.log"}
    assert loop.aside()[0][2] == "measured on `Tesla V100-SXM2-16GB`, and the GPU of polaris is `A100-40`"


@pytest.mark.parametrize(
    ("gpu", "told", "other"),
    [
        ("A100-40", "NVIDIA A100-SXM4-40GB", False),
        ("A100-40", "NVIDIA A100-SXM4-80GB", True),
        ("A100-80", "NVIDIA A100 80GB PCIe", False),
        ("H100-SXM", "NVIDIA H100 80GB HBM3", False),
        ("H100-96", "NVIDIA H100 80GB HBM3", True),
        ("H200", "NVIDIA GH200 120GB", True),
        ("GH200", "NVIDIA GH200 120GB", False),
        ("V100", "Tesla V100-SXM2-16GB", False),
        ("V100", "NVIDIA H100 80GB HBM3", True),
        ("MI300X", "AMD Instinct MI300X", False),
        ("MI300X", "gfx942", False),
        ("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", False),
    ],
)
def test_gpus_are_told_apart_by_the_names_of_drivers(gpu: str, told: str, other: bool) -> None:
    assert another(gpu, told) is other


def test_the_example_says_the_gpu_of_its_logs() -> None:
    gpu = read_system(EXAMPLES / "own-cluster.yaml").section("topology")["host"]["gpu"]
    for path in (EXAMPLES / "logs").glob("*.log"):
        (told,) = {line.partition("] ")[2] for line in path.read_text().splitlines() if line.startswith("#  Rank")}
        assert not another(gpu, told)


def test_ranks_that_the_system_cannot_have_are_put_aside(loop: Loop) -> None:
    log = (EXAMPLES / "logs" / "day-00-all_reduce.log").read_text().splitlines(keepends=True)
    holes = [line for line in log if not line.startswith("#  Rank  2")]
    many = [line.replace("host01", "host00") for line in log]
    (loop.place / "a-all_reduce.log").write_text("".join(holes))
    (loop.place / "b-all_reduce.log").write_text("".join(many))
    assert loop.scan().measurements == 0
    reasons = {source: reason for source, _, reason in loop.aside()}
    assert "the last is rank 7: some are missing" in reasons["a-all_reduce.log"]
    assert "8 ranks on a host, and a host of polaris has 4 GPUs" in reasons["b-all_reduce.log"]


def test_times_that_jump_backwards_are_counted_and_told(loop: Loop) -> None:
    lines = [
        json.dumps({"job": "a", "iteration_s": 2 + at / 10, "time": time}) for at, time in enumerate([9, 99, 9, 8])
    ]
    (loop.place / "j.jsonl").write_text("\n".join(lines) + "\n")
    assert loop.scan().measurements == 4
    assert loop.said == ["j.jsonl: 1 of its times are before that of the line before; the measurements count"]
    assert loop.aside() == [("j.jsonl", 3, "its time is before that of the line before: a clock jumped")]


def test_the_page_has_the_times_of_measurements_where_all_say_theirs(loop: Loop) -> None:
    lines = [json.dumps({"job": "a", "iteration_s": 2 + at / 99, "time": 1.7e9 + 86_400 * at}) for at in range(9)]
    (loop.place / "j.jsonl").write_text("\n".join(lines) + "\n")
    loop.scan()
    with Ledger(loop.store) as ledger:
        page = write_page(ledger).read_text()
    assert "2023-11-1" in page
    (loop.place / "k.jsonl").write_text('{"job": "a", "iteration_s": 2.5}\n')
    loop.scan()
    with Ledger(loop.store) as ledger:
        assert "2023-11-1" not in write_page(ledger).read_text()


class _Ranges(SimpleHTTPRequestHandler):
    """A server that knows ranges, as those of logs do."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.translate_path(self.path)
        asked = self.headers.get("Range")
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - as the handler has it
                data = file.read()
        except OSError:
            self.send_error(404)
            return
        begin = int(asked.partition("=")[2].rstrip("-")) if asked else 0
        if begin and begin >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        self.wfile.write(data[begin:])


@contextmanager
def served(folder: Path, handler: type[SimpleHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


class _Whole(_Ranges):
    """A server that knows no ranges."""

    def do_GET(self) -> None:
        del self.headers["Range"]
        super().do_GET()


@pytest.mark.parametrize("handler", [_Ranges, _Whole])
def test_a_file_at_a_url_grows_and_is_replaced(loop: Loop, handler: Any) -> None:  # noqa: ANN401
    file = loop.place / "f.csv"
    file.write_text(HEADER + flows(0, 300))
    with served(loop.place, handler) as url:
        place = f"{url}/f.csv"
        assert [loop.scan(place).measurements for _ in range(2)] == [300, 0]
        file.write_text(HEADER + flows(0, 310) + "4096,5")
        heard = loop.scan(place)
        assert (heard.measurements, len(heard.waiting)) == (10, 1)
        # A shorter file, and a longer one.
        for first, count in ((1000, 5), (2000, 400)):
            file.write_text(HEADER + flows(first, count))
            assert loop.scan(place).measurements == count
            assert loop.scan(place).measurements == 0
        told = f"{place}: another file than before is served: it is read from its beginning"
        assert loop.said.count(told) == 2


def test_a_trace_and_packed_files_at_a_url_are_read_as_wholes(loop: Loop) -> None:
    steps = [{"name": f"ProfilerStep#{at}", "dur": 2e6 + at} for at in range(3)]
    text = json.dumps({"traceEvents": steps}, indent=1)
    (loop.place / "job.json").write_text(text[:80])
    (loop.place / "f.csv.gz").write_bytes(gzip.compress((HEADER + flows(0, 5)).encode()))
    with served(loop.place, _Ranges) as url:
        assert loop.scan(f"{url}/job.json").measurements == 0
        (loop.place / "job.json").write_text(text)
        assert [loop.scan(f"{url}/job.json").measurements for _ in range(2)] == [3, 0]
        assert [loop.scan(f"{url}/f.csv.gz").measurements for _ in range(2)] == [5, 0]


def test_a_url_that_does_not_answer_is_told(loop: Loop, tmp_path: Path, command: Command) -> None:
    with served(loop.place, _Ranges) as url:
        done = command("calibrate", "watch", f"{url}/none.csv", "--system", "polaris", "--once", check=1)
        assert f"{url}/none.csv: " in done.stdout
        with Ledger(loop.store) as ledger:
            watch = watching.Watch(ledger, loop.models, loop.said.append)
            for _ in range(2):
                assert len(watch.scan(f"{url}/none.csv").failed) == 1
            assert len(loop.said) == 1
            (loop.place / "none.csv").write_text(HEADER + flows(0, 2))
            assert watch.scan(f"{url}/none.csv").measurements == 2
    assert loop.scan(f"{url}/none.csv").failed
    assert "refused" in loop.said[-1]
    del tmp_path
