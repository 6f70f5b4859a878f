"""What every run must satisfy, whatever was drawn; each rule names what it found where it does not hold.

A rule looks at the runs of one case at all fidelities and returns sentences, none where all is well. The figures are
those that a user reads: `summary.json` and the tables, as docs/results.md defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuzz.draw import Case
    from windtunnel import Result

Runs = dict[str, "Result"]
"""Results by fidelity."""


@dataclass(frozen=True)
class Seen:
    """What a rule looks at."""

    case: Case
    runs: Runs

    def of(self, *fidelities: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Fidelity and summary of the runs at `fidelities`."""
        for fidelity in fidelities:
            if fidelity in self.runs:
                yield fidelity, self.runs[fidelity].summary

    def jobs(self, *fidelities: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Fidelity and summary of each job at `fidelities`, at all where none is named."""
        for fidelity, summary in self.of(*(fidelities or tuple(self.runs))):
            for job in summary["jobs"]:
                yield fidelity, job


Rule = Callable[[Seen], Iterator[str]]

RULES: dict[str, Rule] = {}

NETWORKED = ("message", "flow", "packet")

TINY = 1e-9
"""Rounding of figures that are made from integers and written as floats, relative."""


def rule(check: Rule) -> Rule:
    RULES[check.__name__] = check
    return check


@dataclass(frozen=True)
class Violation:
    """A rule that a case breaks, and what was found."""

    number: int
    rule: str
    said: str

    def __str__(self) -> str:
        return f"{self.number}: {self.rule}: {self.said}"


def violations(case: Case, runs: Runs) -> list[Violation]:
    """All that `runs` of `case` break."""
    return [Violation(case.number, name, said) for name, check in RULES.items() for said in check(Seen(case, runs))]


def near(a: float, b: float, relative: float = TINY, absolute: float = 0.0) -> bool:
    return abs(a - b) <= max(relative * max(abs(a), abs(b)), absolute)


def _iteration_s(job: dict[str, Any]) -> float:
    return float(job["iteration_time_s"]["mean"])


@rule
def all_jobs_finish(seen: Seen) -> Iterator[str]:
    for fidelity, job in seen.jobs():
        if job["state"] != "finished":
            yield f"{fidelity}: {job['name']} is {job['state']}"


@rule
def iterations_take_the_time_of_the_job(seen: Seen) -> Iterator[str]:
    """Mean iteration × iterations = finish - start, to the nanosecond of the calendar.

    Iterations that an interruption undid were done too, and there is time outside them where a job writes checkpoints
    or lost its GPUs: nowhere else.
    """
    for fidelity, job in seen.jobs():
        whole, outside, done = job["finish_s"] - job["start_s"], job["outside_iterations_s"], job["iterations"]
        parts = _iteration_s(job) * (done + job["undone_iterations"])
        if not near(whole, parts + outside, 1e-6, 2e-9):
            yield f"{fidelity}: {job['name']} took {whole} s, its {done} iterations {parts} s and {outside} s beside"
        quiet = job["checkpoint_s"] == 0 and job["interruptions"] == 0 and job["preemptions"] == 0
        if quiet and (outside != 0 or job["undone_iterations"] != 0):
            yield f"{fidelity}: {job['name']} was never disturbed and spends {outside} s outside its iterations"


@rule
def parts_sum_to_the_iteration(seen: Seen) -> Iterator[str]:
    for fidelity, job in seen.jobs(*NETWORKED):
        parts = sum(job["exposed_s"].values()) + sum(job[f"{p}_s"] for p in ("compute", "bubble", "straggler", "host"))
        if not near(parts, _iteration_s(job), 1e-9, 1e-12):
            yield f"{fidelity}: the parts of {job['name']} sum to {parts} s, an iteration takes {_iteration_s(job)} s"


@rule
def times_are_in_order(seen: Seen) -> Iterator[str]:
    for fidelity, job in seen.jobs():
        if not 0 <= job["submit_s"] <= job["start_s"] <= job["finish_s"]:
            yield f"{fidelity}: {job['name']} {job['submit_s']}, {job['start_s']}, {job['finish_s']}"
        span = seen.runs[fidelity].summary["simulated_time_s"]
        if span < job["finish_s"] - 2e-9:
            yield f"{fidelity}: {span} s were simulated, {job['name']} ends at {job['finish_s']}"


@rule
def payload_is_the_same_at_every_fidelity(seen: Seen) -> Iterator[str]:
    for key in ("messages", "bytes_delivered"):
        found = {fidelity: summary["network"][key] for fidelity, summary in seen.of(*NETWORKED)}
        if len(set(found.values())) > 1:
            yield f"{key}: {found}"


def _payload(job: dict[str, Any], ranks: int) -> tuple[int, int] | None:
    """Messages and bytes of one iteration of a pattern of equal messages, None for other jobs."""
    flows = job["workload"].get("flows")
    if flows is None or "bytes_to" in flows:
        return None
    units = {"B": 1, "KB": 1000, "MB": 10**6, "KiB": 1024, "MiB": 2**20}
    number, unit = flows["bytes"].split()
    fan, pairs = ranks - 1, ranks * (ranks - 1)
    counts = {"ring": ranks, "permutation": ranks, "incast": fan, "outcast": fan, "all-to-all": pairs}
    count = counts[flows["pattern"]]
    return count, count * int(number) * units[unit]


@rule
def payload_is_what_the_patterns_send(seen: Seen) -> Iterator[str]:
    for fidelity, summary in seen.of(*NETWORKED):
        sent = [
            (_payload(job, said["ranks"]), said["iterations"])
            for job, said in zip(seen.case.scenario["jobs"], summary["jobs"], strict=True)
        ]
        if any(payload is None for payload, _ in sent):
            continue
        network = summary["network"]
        said = (network["messages"], network["bytes_delivered"])
        due = tuple(sum(payload[i] * n for payload, n in sent if payload) for i in (0, 1))
        if said != due:
            yield f"{fidelity}: {said[0]} messages of {said[1]} B, sent were {due[0]} of {due[1]} B"


@rule
def links_carry_what_their_rate_allows(seen: Seen) -> Iterator[str]:
    """Utilisation is at most 1; of runs that are simulated whole it is bytes carried / (rate × span)."""
    for fidelity, summary in seen.of("flow", "packet"):
        run = seen.runs[fidelity]
        rates = dict(run.table("links").select("name", "rate_bps").iter_rows()) if "links" in run.tables else {}
        span = summary["simulated_time_s"]
        whole = len(summary["jobs"]) == 1 and all(j["simulated_iterations"] == j["iterations"] for j in summary["jobs"])
        for link in summary["network"]["links_most_loaded"]:
            name, said, carried = link["name"], link["utilisation"], link["bytes"]
            if said > 1 + TINY:
                yield f"{fidelity}: {name} is used {said}"
            if whole and name in rates and span > 2e-9:
                # The span is rounded up to a nanosecond, bytes to whole ones.
                least = (carried - 1) * 8 / (rates[name] * span)
                most = (carried + 1) * 8 / (rates[name] * (span - 1e-9))
                if not least * (1 - TINY) <= said <= most * (1 + TINY):
                    yield f"{fidelity}: {name} says {said}, its bytes {least} to {most}"


MTU, HEADER, CONTROL = 4150, 66, 64
"""Bytes of a full packet, of its header and of a control packet, where a scenario says nothing."""


@rule
def nics_send_payload_headers_and_what_is_counted_apart(seen: Seen) -> Iterator[str]:
    """Bytes that leave NICs: of flows payload and headers, of packets that, what is sent again, and control packets.

    Of patterns over hosts of one GPU, where every message crosses one such link.
    """
    (job, *others), network = seen.case.scenario["jobs"], seen.case.scenario.get("network", {})
    if others or seen.case.scenario["topology"].get("host", {}).get("gpus", 1) != 1 or network.get("telemetry"):
        return
    full = int(str(network.get("mtu", MTU)).split()[0])
    for fidelity, summary in seen.of("flow", "packet"):
        run, (said,) = seen.runs[fidelity], summary["jobs"]
        payload = _payload(job, said["ranks"])
        whole = said["simulated_iterations"] == said["iterations"]
        if payload is None or not whole or summary["network"]["background"] or "links" not in run.tables:
            continue
        messages, sent = (count * said["iterations"] for count in payload)
        links = run.table("links")
        ups = links.filter(links["tier"] == "nic-up")
        if ups.height == 0:
            continue
        carried = int(ups["bytes"].sum())
        packets = -(-(sent // messages) // (full - HEADER))
        least = sent + messages * packets * HEADER
        parity = messages * _parity(network.get("recovery"), packets) * min(full, sent // messages + HEADER)
        # Of packets it may still be on its way at the end.
        most, least = least + parity, least + (parity if fidelity == "flow" else 0)
        if fidelity == "packet":
            # Each part of a message over several queue pairs has a last packet of its own.
            most += messages * (network.get("queue_pairs", 1) - 1) * HEADER
            most += summary["network"]["retransmissions"] * full + int(ups["control_packets"].sum()) * CONTROL
        # A flow's bytes are rounded on each link.
        slack = ups.height if fidelity == "flow" else 0
        if not least - slack <= carried <= most + slack:
            yield f"{fidelity}: NICs sent {carried} B, payload and headers are {least} B, with the rest {most} B"


def _parity(recovery: object, packets: int) -> int:
    """Packets of parity of a message of `packets`."""
    if recovery == "erasure":
        recovery = {"erasure": {"data": 32, "parity": 8}}
    if not isinstance(recovery, dict) or "erasure" not in recovery:
        return 0
    data, parity = int(recovery["erasure"]["data"]), int(recovery["erasure"]["parity"])
    return packets // data * parity + -(-(packets % data) * parity // data)


@rule
def much_that_is_sent_again_in_vain_is_told(seen: Seen) -> Iterator[str]:
    """Time-outs come too early where queues are long: a warning tells of more than one packet in a thousand."""
    for _, summary in seen.of("packet"):
        again, arrived = sent_again_in_vain(seen.case, summary), summary["network"]["packets_delivered"]
        if again > arrived / 500 and not any("sent again" in line for line in summary["warnings"]):
            yield f"{again} packets were sent again for {arrived} that arrived, none was lost, and no warning says so"


def sent_again_in_vain(case: Case, summary: dict[str, Any]) -> int:
    """Packets sent again where packets keep their order and nothing is dropped, trimmed or corrupted."""
    network = summary["network"]
    lost = network["packets_dropped"] + (network["packets_trimmed"] or 0)
    return int(network["retransmissions"]) if case.one_path and lost == 0 else 0


@rule
def nothing_beats_the_ideal_fabric(seen: Seen) -> Iterator[str]:
    for fidelity, job in seen.jobs("flow", "packet"):
        ideal, taken = job["ideal_iteration_time_s"], _iteration_s(job)
        # Where jobs meet and are fast-forwarded a time is an estimate.
        may_be_off = job["time_band_s"] / job["iterations"]
        # Where computations and messages wait for each other, what ends sooner may make others end later (Graham,
        # "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 1969): by little at the NICs of flows, and
        # by more where packets of GPUs that share a NIC meet in a better order than any that the ideal fabric tries.
        slack = 1e-3 if job["mfu"] is not None else 1e-6
        if fidelity == "packet" and seen.case.shares_nics:
            slack = 0.1
        if ideal is not None and taken < ideal * (1 - slack) - may_be_off:
            yield f"{fidelity}: {job['name']} takes {taken} s an iteration, on an ideal fabric {ideal} s"
