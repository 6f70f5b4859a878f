"""The loop of calibration: readers, the detector against river's, a watch that is killed, sets and what runs say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from conftest import ROOT
from windtunnel.calibrate.loop import watch as watching
from windtunnel.calibrate.loop.drift import Alarm, Detector, groups
from windtunnel.calibrate.loop.ledger import Ledger
from windtunnel.calibrate.loop.models import Models
from windtunnel.calibrate.loop.readers import Aside, Measured, read_line, reader_of
from windtunnel.calibrate.loop.seen import bound
from windtunnel.validate.systems import read_systems

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conftest import Command

EXAMPLES = ROOT / "examples" / "calibration"
EFFECTS = {
    "latency": [0.95, 0.8, 0.3, 0.05],
    "rate": [0.02, 0.15, 0.65, 0.92],
    "launch": [0.0, 0.9, 0.0, 0.8],
}
"""What a step in each of three constants does to four kinds."""


def effects(kind: int) -> dict[str, float]:
    return {name: column[kind] for name, column in EFFECTS.items()}


def stepped(draws: np.random.Generator, noise: float, moved: str, step: float) -> tuple[int, Alarm] | None:
    """Measurements until an alarm, after baselines were learnt; None where there is none in 200."""
    detector = Detector()
    at = 0
    while not all(detector.ready(str(kind)) for kind in range(4)):
        kind, at = at % 4, at + 1
        assert detector.hear(str(kind), 0.1 * kind + noise * draws.standard_normal(), effects(kind)) is None
    for count in range(1, 201):
        kind = count % 4
        off = 0.1 * kind + noise * draws.standard_normal() + step * EFFECTS[moved][kind]
        alarm = detector.hear(str(kind), off, effects(kind))
        if alarm is not None:
            return count, alarm
    return None


@pytest.mark.parametrize("moved", list(EFFECTS))
def test_a_step_of_three_per_cent_is_found_and_named(moved: str) -> None:
    draws = np.random.default_rng(7)
    found = [stepped(draws, 0.007, moved, sign * 0.03) for sign in (1, -1) for _ in range(15)]
    in_time = [one for one in found if one is not None and one[0] <= 20]
    assert len(in_time) >= 27
    assert sum(one is not None and one[1].name == moved for one in found) >= 27
    steps = [abs(one[1].step) for one in in_time]
    assert np.median(steps) == pytest.approx(0.03, rel=0.15)


def test_a_year_without_drift_has_no_alarm() -> None:
    draws = np.random.default_rng(8)
    detector = Detector()
    # A third of a year, with tails heavier than a normal distribution's, and runs that are slow once.
    for at in range(12_000):
        kind = at % 4
        off = 0.02 * draws.standard_t(6) + (0.5 if draws.random() < 0.002 else 0.0)
        assert detector.hear(str(kind), 0.1 * kind + off, effects(kind)) is None


def test_rows_of_a_log_that_are_slow_together_are_no_drift() -> None:
    """A run that is slow is slow at all its sizes: what rows share is learnt, and is no step of a constant."""
    draws = np.random.default_rng(21)
    told, alone = Detector(), Detector()
    alarms = {"told": 0, "alone": 0}
    for log in range(3000):
        together = 0.01 * draws.standard_normal()
        for kind in range(4):
            off = 0.1 * kind + together + 0.005 * draws.standard_normal()
            alarms["told"] += told.hear(str(kind), off, effects(kind), str(log)) is not None
            alarms["alone"] += alone.hear(str(kind), off, effects(kind)) is not None
    assert alarms["told"] == 0
    # As single measurements the same rows are taken for four times the evidence.
    assert alarms["alone"] > 0
    assert told.shared("") == pytest.approx(0.8, abs=0.05)


def test_a_log_counts_as_one_measurement_with_all_its_rows() -> None:
    """What moves no single row by more than its noise is seen by the rows of a log together."""
    draws = np.random.default_rng(22)
    weak = {"latency": 0.3, "rate": 0.0}, {"latency": 0.0, "rate": 0.3}
    detector = Detector()
    for log in range(400):
        for row in range(20):
            moved = 0.03 * weak[row % 2]["rate"] if log >= 300 else 0.0
            # A step moves a row by 0.9%, which has 1% of noise.
            alarm = detector.hear(str(row), moved + 0.01 * draws.standard_normal(), weak[row % 2], str(log))
            if alarm is not None:
                assert 300 <= log <= 305
                assert alarm.name == "rate"
                assert alarm.logs <= 6
                assert alarm.since > alarm.logs
                return
    pytest.fail("the step was not found")


def test_a_detector_that_is_written_down_in_the_middle_of_a_log_goes_on() -> None:
    draws = np.random.default_rng(23)
    rows = []
    for log in range(200):
        moved = 0.03 if log >= 150 else 0.0
        for kind in range(4):
            off = 0.1 * kind + 0.007 * draws.standard_normal() + moved * EFFECTS["launch"][kind]
            rows.append((str(kind), off, effects(kind), str(log)))
    whole, parts = Detector(), Detector()
    heard: list[list[Alarm | None]] = [[], []]
    for at, row in enumerate(rows):
        heard[0].append(whole.hear(*row))
        heard[1].append(parts.hear(*row))
        if at % 7 == 0:
            parts = Detector.of(json.loads(json.dumps(parts.record())))
    assert heard[0] == heard[1]
    alarms = [one for one in heard[0] if one is not None]
    # Told where a log ends, before all of it is known: 1.7% at first, and a second alarm corrects it.
    assert [alarm.name for alarm in alarms] == ["launch", "launch"]
    assert sum(alarm.step for alarm in alarms) == pytest.approx(0.03, rel=0.3)
    assert whole.record() == parts.record()


def test_rows_of_a_log_are_judged_where_it_ends() -> None:
    """Whatever its rows say on the way: fewer looks need a lower threshold."""
    draws = np.random.default_rng(28)
    detector = Detector()
    for log in range(60):
        for kind in range(16):
            off = 0.1 * kind + 0.007 * draws.standard_normal()
            assert detector.hear(str(kind), off, effects(kind % 4), str(log)) is None
    for kind in range(16):
        off = 0.1 * kind + 0.4 * EFFECTS["latency"][kind % 4]
        assert detector.hear(str(kind), off, effects(kind % 4), "after") is None
    told = Detector.of(json.loads(json.dumps(detector.record())))
    alarm = detector.end()
    assert alarm is not None
    assert (alarm.name, alarm.logs, alarm.since) == ("latency", 1, 16)
    assert alarm.step == pytest.approx(0.4, abs=0.02)
    # Without being told, the next log ends it.
    assert told.hear("0", 0.4 * EFFECTS["latency"][0], effects(0), "next") == alarm
    assert detector.end() is None


def test_a_step_that_was_a_false_one_is_taken_back_as_it_was() -> None:
    """Its estimate is as far off as noise makes it, and a correction of its own would be off as well."""
    draws = np.random.default_rng(29)
    detector = Detector()

    def told(count: int, step: float) -> list[Alarm]:
        heard = (
            detector.hear(str(at % 4), step * EFFECTS["rate"][at % 4] + 0.01 * draws.standard_normal(), effects(at % 4))
            for at in range(count)
        )
        return [alarm for alarm in heard if alarm is not None]

    assert told(400, 0.0) == []
    (first,) = told(30, 0.035)
    (second,) = told(400, 0.0)
    assert (first.name, second.name) == ("rate", "rate")
    assert second.step == -first.step
    assert detector.shifts == {}


def test_kinds_of_one_noise_learn_it_together_and_others_alone() -> None:
    draws = np.random.default_rng(30)
    detector = Detector()
    for _ in range(20):
        for kind in range(100):
            for band, noise in (("same", 0.01), ("own", 0.002 * 1.03**kind)):
                detector.hear(f"{band} {kind}", noise * draws.standard_normal(), {}, None, band)
    same = [detector.noise(f"same {kind}", "same") / 0.01 for kind in range(100)]
    own = [detector.noise(f"own {kind}", "own") / (0.002 * 1.03**kind) for kind in range(100)]
    # Twenty measurements of one kind tell its noise to 16%.
    assert np.std(same) < 0.06
    assert np.mean(same) == pytest.approx(1.0, abs=0.06)
    # Of kinds that differ by a factor of 18 the band says less than a kind's own measurements.
    assert np.std(own[60:]) > 0.1
    assert np.mean(own[60:]) == pytest.approx(1.0, abs=0.1)


def test_what_cannot_be_named_yet_is_told_and_named_when_it_can() -> None:
    """Two constants that the first rows do not tell apart, and later ones do."""
    draws = np.random.default_rng(26)
    both = {"a": 0.8, "b": 0.8}
    alone = {"a": 0.8, "b": 0.0}
    detector = Detector()
    detector.asks(lambda kind: ("", both if kind == "both" else alone))
    for _ in range(100):
        assert detector.hear("both", 0.007 * draws.standard_normal(), both) is None
        assert detector.hear("alone", 0.007 * draws.standard_normal(), alone) is None
    heard = 0
    while not detector.suspects:
        assert detector.hear("both", 0.024 + 0.007 * draws.standard_normal(), both) is None
        heard += 1
        assert heard <= 10
    assert set(detector.suspects) == {"a", "b"}
    detector = Detector.of(json.loads(json.dumps(detector.record())))
    detector.asks(lambda kind: ("", both if kind == "both" else alone))
    for _ in range(20):
        # The constant that these depend on has not moved.
        alarm = detector.hear("alone", 0.007 * draws.standard_normal(), alone)
        alarm = alarm or detector.hear("both", 0.024 + 0.007 * draws.standard_normal(), both)
        if alarm is not None:
            break
    assert alarm is not None
    assert alarm.name == "b"
    assert detector.suspects == []


def test_a_detector_of_an_earlier_version_keeps_its_baselines() -> None:
    old = {
        "kinds": {"a": [40.0, 0.1, 0.004]}, "sums": {"rate": [1.0, 0.0, 3, 0]}, "window": [["a", 0.0, 0.01, {}]],
        "waiting": [["a", 0.1]], "shifts": {"rate": 0.02}, "seen": 50,
    }  # fmt: skip
    detector = Detector.of(old)
    assert (detector.kinds, detector.shifts, detector.seen) == (old["kinds"], old["shifts"], 50)
    assert detector.hear("a", 0.1, {"rate": 1.0}) is None
    # One that looked after each row, in the middle of a log.
    record = detector.record()
    record |= {"bands": {"": [39.0, 0.004, 0.0, 0.0]}, "log": {"name": "x", "band": "", "rows": [[0.0, 0.01, {}]]}}
    detector = Detector.of(record)
    assert detector.hear("a", 0.1, {"rate": 1.0}, "x") is None
    assert detector.end() is None
    assert detector.noise("a") == pytest.approx(0.01, rel=0.1)


def test_what_a_detector_keeps_is_bounded() -> None:
    draws = np.random.default_rng(24)
    detector = Detector()
    sizes = []
    for log in range(600):
        for kind in range(20):
            moves = {f"c{at}": 0.5 for at in range(kind % 5, 10)}
            detector.hear(str(kind), 0.02 * draws.standard_normal(), moves, str(log))
        if log in {400, 599}:
            sizes.append(len(json.dumps(detector.record())))
    assert sizes[1] < 1.05 * sizes[0]
    assert sizes[1] < 500_000


def test_the_bound_is_that_of_the_best_test() -> None:
    """Neyman and Pearson: the sum over a window of known size, against the quantile of what noise makes of it."""
    draws = np.random.default_rng(25)
    moves = np.full(20, 1.2)
    noise = draws.standard_normal((200_000, 20)) @ moves
    threshold = np.quantile(noise, 1 - 20 / 36_500)
    found = np.mean(noise + moves @ moves > threshold)
    assert bound(float(np.linalg.norm(moves))) == pytest.approx(found, abs=0.01)


def test_what_the_measurements_show_is_said(tmp_path: Path, command: Command) -> None:
    place, store = tmp_path / "in", tmp_path / "calibration"
    place.mkdir()
    transfers(place / "flows.csv", 400)
    watch(store, place)
    told = json.loads(command("calibrate", "seen", "--json").stdout)
    shown = {one["names"][0]: one for one in told["constants"]}
    assert set(shown) == {"rate.leaf", "latency.leaf"}
    # Noise is 0.5%: a step of 3% in the rate moves the largest of four sizes by six deviations.
    assert shown["rate.leaf"]["found_within"] > 0.99
    assert shown["rate.leaf"]["least"] < shown["rate.leaf"]["needs"] < 10
    assert "rate.leaf  is found after" in command("calibrate", "seen").stdout


def test_river_finds_the_same_step() -> None:
    """One constant, one kind: our CUSUM beside ADWIN and Page-Hinkley of the library `river`."""
    drift = pytest.importorskip("river.drift", reason="river is not installed")
    draws = np.random.default_rng(9)
    noise = 0.01
    values = np.concatenate([noise * draws.standard_normal(400), 0.03 + noise * draws.standard_normal(100)])

    def first(update: Callable[[float], bool]) -> int | None:
        return next((i for i, value in enumerate(values) if update(float(value))), None)

    detector = Detector()
    ours = first(lambda value: detector.hear("a", value, {"rate": 1.0}) is not None)
    others: dict[str, Any] = {
        "ADWIN": drift.ADWIN(delta=1e-4, clock=1),
        "Page-Hinkley": drift.PageHinkley(min_instances=30, delta=0.5, threshold=5),
    }
    found = {}
    for name, other in others.items():

        def update(value: float, other: Any = other) -> bool:  # noqa: ANN401
            # They take values of about one.
            other.update(value / 0.03)
            return bool(other.drift_detected)

        found[name] = first(update)
    assert ours is not None
    assert 400 <= ours <= 420
    for name, at in found.items():
        assert at is not None, name
        # None of them is before the step, and none of them is sooner by much.
        assert 400 <= at <= 500, name
        assert ours <= at + 10, name


def test_constants_that_cannot_be_told_apart_are_named_together() -> None:
    found, weak = groups({"a": [1.0, 0.5], "b": [0.9, 0.46], "c": [0.0, 1.0], "d": [0.0, 0.01]})
    assert set(found) == {"a | b", "c"}
    assert weak == ["d"]


def lines_of(reader: str, text: str, name: str) -> list[Measured | Aside]:
    state: dict[str, Any] = {}
    return [found for line in text.splitlines() for found in read_line(reader, line, state, PurePosixPath(name))]


def test_logs_of_nccl_tests_become_measurements() -> None:
    path = EXAMPLES / "logs" / "day-00-all_reduce.log"
    found = lines_of("nccl", path.read_text(encoding="utf-8"), path.name)
    assert all(isinstance(one, Measured) for one in found)
    kinds = [one.kind for one in found if isinstance(one, Measured)]
    assert kinds[0][:2] == ("collective", "all_reduce")
    assert {kind[3:] for kind in kinds} == {(2, 4)}
    cut = path.read_text(encoding="utf-8").splitlines()
    headless = lines_of("nccl", "\n".join(cut[-4:]), "x.log")
    assert {one.reason.partition(":")[0] for one in headless if isinstance(one, Aside)} == {
        "which collective it is stands nowhere"
    }
    no_units = "\n".join(line for line in cut if "(us)" not in line)
    assert all(
        "no line of units" in one.reason for one in lines_of("nccl", no_units, "x.log") if isinstance(one, Aside)
    )
    torn = "\n".join([*cut[:-3], cut[-3][:70]])
    assert isinstance(lines_of("nccl", torn, path.name)[-1], Aside)


def test_records_of_the_inspector_and_iterations_become_measurements() -> None:
    header = {"id": "0x1", "rank": 0, "n_ranks": 8, "nnodes": 2}
    perf = {"coll": "ReduceScatter", "coll_sn": 7, "coll_msg_size_bytes": 1024, "coll_exec_time_us": 50}
    record = {"header": header, "metadata": {"dump_timestamp_us": 1_700_000_000_000_000}, "coll_perf": perf}
    (one,) = lines_of("lines", json.dumps(record), "a.jsonl")
    assert one == Measured(("collective", "reduce_scatter", 8192, 2, 4), 50e-6, 1.7e9, "0x1/0/7")
    later = "\n".join([json.dumps({"header": header}), json.dumps({"coll_perf": perf})])
    assert isinstance(lines_of("lines", later, "a.jsonl")[0], Measured)
    assert isinstance(lines_of("lines", json.dumps({"coll_perf": perf}), "a.jsonl")[0], Aside)
    assert isinstance(lines_of("lines", '{"coll_perf": {"co', "a.jsonl")[0], Aside)
    (step,) = lines_of("lines", json.dumps({"job": "a", "iteration_s": 1.5, "run": 1, "iteration": 4}), "b.jsonl")
    assert step == Measured(("iteration", "a"), 1.5, None, "a/1/4")
    table = lines_of("transfers", "bytes,fct_us,class\n1000,5,leaf\n2000,x,leaf\n3000,1", "f.csv")
    assert table[0] == Measured(("transfer", "leaf", 1000), 5e-6)
    assert [isinstance(one, Aside) for one in table[1:]] == [True, True]
    trace = json.dumps({"traceEvents": [{"name": "ProfilerStep#3", "cat": "user_annotation", "dur": 2e6}]})
    assert lines_of("kineto", trace, "job.json") == [Measured(("iteration", "job"), 2.0)]
    assert reader_of(PurePosixPath("a.png")) is None


def transfers(path: Path, count: int, *, slow: float = 1.0, begin: int = 0) -> None:
    """A table of completion times over a link of 10 GB/s, with a rate that is `slow` times as much."""
    draws = np.random.default_rng(11 + begin)
    with path.open("a", encoding="utf-8") as file:
        if begin == 0:
            file.write("bytes,fct_us,class\n")
        for at in range(count):
            size = (4096, 65536, 1 << 20, 1 << 24)[at % 4]
            time_us = (5 + size / (10e3 * slow)) * float(np.exp(0.005 * draws.standard_normal()))
            file.write(f"{size},{time_us:.4f},leaf\n")


def watch(store: Path, place: Path, system: str = "polaris") -> tuple[watching.Heard, list[str]]:
    said: list[str] = []
    with Ledger(store) as ledger:
        ledger.put("system", system)
        heard = watching.Watch(ledger, Models(read_systems(None)[system]), said.append).scan(str(place))
    return heard, said


def rows(store: Path) -> Sequence[tuple[Any, ...]]:
    with Ledger(store, create=False) as ledger:
        return ledger.db.execute("select source, line, seconds from measurements order by id").fetchall()


def test_what_moves_is_named_and_a_set_proposed_that_is_adopted_and_reverted(tmp_path: Path, command: Command) -> None:
    place, store = tmp_path / "in", tmp_path / "calibration"
    place.mkdir()
    transfers(place / "flows.csv", 160)
    heard, said = watch(store, place)
    assert (heard.measurements, heard.alarms, said) == (160, 0, [])
    transfers(place / "flows.csv", 40, slow=0.96, begin=160)
    heard, said = watch(store, place)
    assert heard.measurements == 40
    assert len(said) == 1
    assert said[0].startswith("rate.leaf has moved by -")
    with Ledger(store) as ledger:
        before = ledger.current()
        assert before is not None
        (proposed,) = [one for one in ledger.sets() if one.why.startswith("proposed")]
        assert proposed.constants["rate.leaf"] / before.constants["rate.leaf"] == pytest.approx(0.96, rel=0.01)
        assert proposed.id != before.id
    told = command("calibrate", "diff", before.id, proposed.id)
    assert "rate.leaf" in told.stdout
    assert "nccl" not in told.stdout
    both = json.loads(command("calibrate", "diff", before.id, proposed.id, "--json").stdout)
    assert list(both["changed"]) == ["rate.leaf"]
    command("calibrate", "adopt", proposed.id[:6])
    # What was proposed is no drift against the set that took it up, and nothing else has moved.
    transfers(place / "flows.csv", 40, slow=0.96, begin=200)
    heard, said = watch(store, place)
    assert (heard.measurements, said) == (40, [])
    assert command("calibrate", "revert").stdout.startswith(f"predictions go by set {before.id}")
    transfers(place / "flows.csv", 40, slow=0.96, begin=240)
    heard, said = watch(store, place)
    assert (heard.measurements, said) == (40, [])
    command("calibrate", "revert", check=2)
    unknown = command("calibrate", "adopt", "zzzz", check=2)
    assert "no set `zzzz`" in unknown.stderr


def test_a_watch_that_is_killed_counts_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, store = tmp_path / "in", tmp_path / "calibration"
    place.mkdir()
    transfers(place / "flows.csv", 1500)
    monkeypatch.setattr(watching, "CHUNK", 40)
    draws = np.random.default_rng(5)
    take = watching.Watch._take
    left = 0

    def dying(self: watching.Watch, *arguments: Any) -> None:  # noqa: ANN401
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        take(self, *arguments)

    monkeypatch.setattr(watching.Watch, "_take", dying)
    for _ in range(60):
        left = int(draws.integers(1, 120))
        try:
            watch(store, place)
        except KeyboardInterrupt:
            continue
        break
    left = 10_000
    watch(store, place)
    found = rows(store)
    assert [line for _, line, _ in found] == list(range(2, 1502))


def test_a_process_that_is_killed_counts_everything_once(tmp_path: Path) -> None:
    place, store = tmp_path / "in", tmp_path / "calibration"
    place.mkdir()
    program = Path(sys.executable).with_name("windtunnel")
    asked = [
        str(program),
        "calibrate",
        "watch",
        str(place),
        "--system",
        "polaris",
        "--store",
        str(store),
        "--every",
        "0.1",
    ]
    for turn in range(3):
        with subprocess.Popen(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            transfers(place / "flows.csv", 700, begin=700 * turn)
            time.sleep(1.2)
            process.send_signal(signal.SIGKILL)
    watch(store, place)
    assert [line for _, line, _ in rows(store)] == list(range(2, 2102))


def test_renamed_copied_and_rotated_files_count_once(tmp_path: Path) -> None:
    place, store = tmp_path / "in", tmp_path / "calibration"
    place.mkdir()
    transfers(place / "flows.csv", 60)
    watch(store, place)
    (place / "copy.csv").write_bytes((place / "flows.csv").read_bytes())
    heard, _ = watch(store, place)
    assert (heard.measurements, heard.aside) == (0, 1)
    (place / "copy.csv").unlink()
    (place / "flows.csv").rename(place / "flows.1.csv")
    transfers(place / "flows.1.csv", 10, begin=60)
    heard, _ = watch(store, place)
    assert heard.measurements == 10
    # A line without its end waits for it.
    with (place / "flows.1.csv").open("a", encoding="utf-8") as file:
        file.write("4096,5.4")
    assert watch(store, place)[0].measurements == 0
    with (place / "flows.1.csv").open("a", encoding="utf-8") as file:
        file.write("0,leaf\n")
    assert watch(store, place)[0].measurements == 1


def test_bad_input_of_a_watch_is_refused_or_put_aside(tmp_path: Path, command: Command) -> None:
    place = tmp_path / "in"
    place.mkdir()
    assert "no file of system" in command("calibrate", "watch", place, "--system", "polari", "--once", check=2).stderr
    assert "no such folder" in command("calibrate", "watch", "none", "--system", "polaris", "--once", check=2).stderr
    assert "no such file" in command("calibrate", "sets", check=2).stderr
    far = {"job": "a", "iteration_s": 2.0, "time": time.time() + 1e6}
    (place / "jobs.jsonl").write_text(json.dumps(far) + "\n" + json.dumps({**far, "iteration_s": "long"}) + "\n")
    done = command("calibrate", "watch", place, "--system", "polaris", "--once")
    assert "1 measurements, 2 lines put aside" in done.stdout
    with Ledger(tmp_path / "calibration") as ledger:
        assert ledger.one("select at from measurements") is None
    assert (
        "is of system `polaris`" in command("calibrate", "watch", place, "--system", "alps", "--once", check=2).stderr
    )
    os.truncate(tmp_path / "calibration" / "calibration.sqlite", 100)
    for extra in tmp_path.glob("calibration/*-wal"):
        extra.unlink()
    assert "not a store of calibrations" in command("calibrate", "sets", check=2).stderr


@pytest.mark.engine
def test_the_worked_example_of_the_page(tmp_path: Path, command: Command) -> None:
    """The five commands of docs/calibration.md: what was put into the logs comes out, and a run names the set."""
    said = command("calibrate", "watch", EXAMPLES / "logs", "--system", EXAMPLES / "own-cluster.yaml", "--once").stdout
    assert "nccl.share_network.2 has moved by -5.2% (± 0.5%), 12 measurements (2 logs) ago" in " ".join(said.split())
    told = command("calibrate", "all").stdout
    assert "nccl.share_network.2  0.684  (-10.4%" in told
    assert "nccl.launch" in told.partition("known only in combination: ")[2].partition("no measurement")[0]
    assert command("calibrate", "sets").stdout.count("\n") == 3
    adopted = command("calibrate", "adopt", "latest").stdout.split()[4].rstrip(";")
    scenario = EXAMPLES / "all-reduce.yaml"
    kin = json.loads(command("run", scenario, "--json").stdout)
    system = tmp_path / "calibration" / "systems" / "own-cluster.yaml"
    own = json.loads(command("run", scenario, "--json", "--set", f"network.collectives.system={system}").stdout)
    times = [found["jobs"][0]["iteration_time_s"]["mean"] for found in (kin, own)]
    assert times == [pytest.approx(1.61e-3, rel=0.01), pytest.approx(1.78e-3, rel=0.01)]
    (evidence,) = [one for one in own["evidence"] if one["constant"] == "network.collectives"]
    assert evidence["source"].startswith(f"set {adopted}, adopted on ")
    assert evidence["kind"] == "calibrated"
