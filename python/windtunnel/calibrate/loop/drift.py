"""Drift of constants: a matched filter for each, over residuals that each constant explains in its own way.

A measurement of kind q has the residual r = ln(measured/predicted), of which a step d in the logarithm of constant k
makes J[q,k] d. What a kind is off by from the start is the model's own discrepancy: the mean of its first residuals is
taken off, and is never put into a constant (Kennedy and O'Hagan 2001). The rest is divided by the kind's own noise.
Rows of one log share a part of their noise: what a run is slow by, all its sizes are slow by. That part is a
correlation, learnt for each band of sizes, and each row is tested by what the rows before it in its log do not tell
(the innovations of an equicorrelated vector). Of these the log-likelihood ratio of a step of `STEP` in k against none
is summed, and held at zero or above (Page 1954), once for each direction: all rows of a log count, with their signs.

Above the threshold h something has moved. The sums are looked at where a log ends, and not after each of its rows: the
fewer looks, the lower the threshold that so many false alarms need. A CUSUM of steps of information m^2/2 a log comes
back to h without a change after about 2 exp(h + 1.166 m) / m^2 logs (Siegmund 1985, section II.6). Summed over
constants and directions that is a rate of false alarms, and h is where it comes to less than one in `A_YEAR` logs or
single rows.

The baseline is itself a mean of noise. Where it holds the information B on a constant, and the sum since the change the
information G, the likelihood ratio is the sum over 1 + G/B: what is as little known before as after is no change.

Which constant it was (`suspects` until it is known): those whose best step explains the residuals since the change
within `SURE` nats of the best. The alarm waits up to `PATIENCE` logs or single rows since the change for others that
so many will tell apart to fall behind; then the likelier counts, and those that cannot be told apart are named
together. Constants whose columns are nearly the same are one group from the start. Where the rows are explained as well
by taking a step back that was raised before, it was a false one, and is taken back as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    EffectsOf = Callable[[str], tuple[str, Mapping[str, float]]]

STEP = 0.03
A_YEAR = 36_500
"""Logs and single rows of a year, in which at most one alarm may be a false one."""
SURE = 2.5
PATIENCE = 20
LARGE = 0.3
"""Steps of more are rare: a constant that hardly matters explains anything by a step that is large enough."""
CLIP = 3.0
"""A residual counts as at most so many standard deviations: one slow run is no drift."""
LEAST_BASELINE, MOST_BASELINE = 16, 400
FLOOR = 1e-3
"""Least noise that is believed, relative."""
SHRINK, MOST_SHRINK = 10.0, 500.0
"""A kind's variance is its own and, as so many measurements would, that of all kinds of its band: see `_pooled`."""
NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""A band of which nothing is known."""
QUIET = 0.5
"""While the largest sum is below this part of the threshold, measurements go on to teach the baseline."""
WINDOW = 256
"""Logs or single rows, of which a change is named by those since it; and rows of a log, and rows that wait."""
ALIKE = 0.99
"""Cosine from which two constants are one group from the start."""
WEAK = 0.02
"""A constant that changes no kind by more than this share of its own change is not watched."""
TELLS = 3.29
"""Standard deviations between two steps that the best test takes for each other in less than one case of twenty."""
JUDGED = 400
"""Kinds, spread over all of them, by which it is judged what can be told apart."""
LEAST_THRESHOLD = 8.0
SPARE = math.log(4.0)
"""Nats above what one false alarm a year needs: a false one is followed by one that takes its step back, and half of
what is left is for noise that is known from few rows, or is not normal."""
RATE_OVER = 512
"""Logs or single rows over which the mean information is taken."""
TAUGHT = 8
"""Measurements of a kind after which it tells how rows of a log go together."""
PAIRS = 200
"""Pairs of rows that as many uncorrelated ones stand beside, so that few do not tell of a correlation."""


@dataclass(frozen=True)
class Alarm:
    """A constant that has moved, or several of which one has."""

    name: str
    """Joined by ` | `, the likeliest first."""
    step: float
    """By how much, of the logarithm of the likeliest."""
    deviation: float
    """Standard deviation of `step`."""
    since: int
    """Measurements since the change, about."""
    ahead: float
    """Nats by which it explains the residuals better than the best that is not named."""
    logs: int = 0
    """Logs and single measurements since the change, about."""


def groups(columns: Mapping[str, Sequence[float]]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Constants that can be told apart, each with its column, and those that no kind depends on.

    `columns` gives each constant's d ln t / d ln value over the kinds that are measured. A group has the names of its
    members joined by ` | ` and the column of the strongest.
    """
    weak = [name for name, column in columns.items() if not len(column) or np.abs(column).max() < WEAK]
    kept = {name: np.asarray(column, float) for name, column in columns.items() if name not in weak}
    found: list[tuple[list[str], np.ndarray]] = []
    for name, column in sorted(kept.items(), key=lambda item: -float(np.linalg.norm(item[1]))):
        for members, other in found:
            if abs(float(column @ other)) > ALIKE * float(np.linalg.norm(column) * np.linalg.norm(other)):
                members.append(name)
                break
        else:
            found.append(([name], column))
    return {" | ".join(members): column for members, column in found}, sorted(weak)


@dataclass
class Detector:
    """The state of a system's detector; plain numbers, so that it can be written down at any time."""

    kinds: dict[str, list[float]] = field(default_factory=dict)
    """Of a kind: residuals seen, their mean and their sum of squares around it, while nothing seems to move."""
    bands: dict[str, list[float]] = field(default_factory=dict)
    """Of a band of kinds: degrees of freedom and sum of squares of all; pairs of rows of a log and their products;
    squared variances of kinds by their degrees of freedom, and kinds that have some."""
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Of a group: the sum upwards and downwards; how many logs ago each left zero, and the information since."""
    reference: dict[str, float] = field(default_factory=dict)
    """Of the strongest constant of a group: the information on it in the baselines, see `known`."""
    log: dict[str, Any] = field(default_factory=dict)
    """The log that is being heard: see `_begun`."""
    window: list[Any] = field(default_factory=list)
    """Of each of the latest logs: its rows, and by group filtered residual, information, typical step."""
    waiting: list[list[Any]] = field(default_factory=list)
    """Residuals that came while a sum was up: kind, band, value, and the information on each group."""
    shifts: dict[str, float] = field(default_factory=dict)
    """Steps that were raised as alarms and are not in the set yet, by group."""
    suspects: list[str] = field(default_factory=list)
    """Groups of which one has moved, while more logs are waited for to tell which."""
    noticed: int = 0
    """`logs` when that was found."""
    last: str = ""
    """The constant of the alarm before, since which `window` goes."""
    pace: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Logs and single rows that were tested, and the false alarms' rate in one at a threshold of zero, their mean."""
    told: dict[str, list[float]] = field(default_factory=dict)
    """Of a group: the information of the rows that were tested, and the logs before the first of them."""
    logs: int = 0
    """Logs and single measurements that were tested."""
    rows: int = 0
    """Measurements that were tested."""
    seen: int = 0

    def __post_init__(self) -> None:
        """Nothing is known yet that is asked for again."""
        self._effects_of: EffectsOf | None = None
        self._apart: dict[tuple[str, str], bool] = {}

    def record(self) -> dict[str, Any]:
        """As it is written down."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def asks(self, effects_of: EffectsOf) -> None:
        """Tells what to ask for a kind's band and what a step in each group does to it.

        By this the detector knows which constants its measurements will tell apart: for these it waits, where it cannot
        tell them yet, and for no others.
        """
        self._effects_of = effects_of

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Detector:
        """As it was written down. Of an earlier version's only baselines and steps are taken."""
        if record and "bands" not in record:
            return cls(kinds=dict(record["kinds"]), shifts=dict(record["shifts"]), seen=int(record["seen"]))
        found = cls(**record)
        found.bands = {band: [*known, *NOTHING[len(known) :]] for band, known in found.bands.items()}
        if "learns" not in found.log:
            # Of an earlier version, whose rows were taken one by one.
            found.log = {}
        return found

    def forget_sums(self) -> None:
        """Begins anew to look for what has moved; what is known of the kinds stays."""
        self.sums, self.window, self.waiting, self.log = {}, [], [], {}
        self.suspects, self._apart = [], {}

    def noise(self, kind: str, band: str = "") -> float:
        """Standard deviation of a kind's residuals."""
        pooled, like = self._pooled(band)
        count, _, squares = self.kinds.get(kind, [0.0, 0.0, 0.0])
        own = max(0.0, count - 1)
        # A residual over a deviation that is itself estimated has heavier tails: four degrees fewer make up for them in
        # the mean of exp(sum), by which sums come back to the threshold.
        return max(FLOOR, math.sqrt((squares + like * pooled) / (own + like - 4)))

    def _pooled(self, band: str) -> tuple[float, float]:
        """Variance of a band's kinds, and as how many measurements of a kind it counts: the more, the less they differ.

        The variances of kinds of one noise differ by 2 over their degrees of freedom; what they differ by beyond that
        is their own (empirical Bayes by moments: Smyth 2004).
        """
        spare, total, _, _, fourth, kinds = self.bands.get(band, NOTHING)
        if not spare or not total:
            return 0.01**2, SHRINK
        pooled, chance = total / spare, 2 * kinds / spare
        beyond = (fourth / spare / pooled**2 - 1 - chance) / (1 + chance)
        return pooled, min(MOST_SHRINK, max(SHRINK, 4 + 2 / max(beyond, 1e-3)))

    def ready(self, kind: str, band: str = "") -> bool:
        """Whether a kind's baseline is known so well that its error is no step."""
        count = self.kinds.get(kind, [0.0])[0]
        needed = (8 * self.noise(kind, band) / STEP) ** 2
        return count >= min(MOST_BASELINE, max(LEAST_BASELINE, math.ceil(needed)))

    def shared(self, band: str) -> float:
        """How far rows of one log go together: the correlation of their noise."""
        _, _, pairs, products, *_ = self.bands.get(band, NOTHING)
        return min(0.95, max(0.0, products / (pairs + PAIRS)))

    def threshold(self) -> float:
        """The sum in nats at which false alarms are fewer than one in `A_YEAR`, with some to spare."""
        return max(LEAST_THRESHOLD, math.log(2 * A_YEAR * max(self.pace[1], 1e-9)) + SPARE)

    def hear(
        self, kind: str, residual: float, effects: Mapping[str, float], log: str | None = None, band: str = ""
    ) -> Alarm | None:
        """Takes a measurement: ln(measured/predicted), and what a step in each group does to its kind.

        `log` is a name that all rows of one log have, which come one behind the other; none where each is a run of its
        own. `band` is what kinds of about the same noise have, and rows of one log that are slow together. Returns an
        alarm where a group has moved; its step is taken off what comes after.
        """
        self.seen += 1
        alarm = self.end() if log is None or self.log.get("name") != log else None
        off = float(residual) - sum(step * effects.get(name, 0.0) for name, step in self.shifts.items())
        if not self.log:
            self.log = _begun(log)
        if self.log["band"] != band:
            self._together()
            self.log.update(band=band, count=0, residual=0.0, effects={}, tells=[])
        count, mean, _ = self.kinds.get(kind, [0.0, 0.0, 0.0])
        deviation = self.noise(kind, band) * math.sqrt(1 + 1 / max(1.0, count))
        plain = off - mean
        scaled = max(-CLIP, min(CLIP, plain / deviation))
        if count >= TAUGHT:
            _kept(self.log["tells"], scaled)
        if self.ready(kind, band):
            self._tested(scaled, deviation, effects)
            _kept(self.log["rows"], [plain, deviation, dict(effects)])
            _kept(self.log["learns"], [kind, band, off, _information(effects, deviation)])
        else:
            self._learn(kind, band, off, _information(effects, deviation))
        # A run of its own is over with its row.
        return alarm if log is not None else alarm or self.end()

    def _tested(self, scaled: float, deviation: float, effects: Mapping[str, float]) -> None:
        """Adds a row to the scores of its log by what those before it do not tell of it."""
        log = self.log
        before, shared = log["count"], self.shared(log["band"])
        gain = shared / (1 + (before - 1) * shared) if before else 0.0
        left = math.sqrt(1 - gain * shared * before)
        new = (scaled - gain * log["residual"]) / left
        told = log["effects"]
        names: Iterable[str] = effects if not gain else {**told, **effects}
        for name in names:
            # A step is expected to do no more than a residual counts.
            own = max(-CLIP, min(CLIP, effects.get(name, 0.0) * STEP / deviation))
            move = (own - gain * told.get(name, 0.0)) / left
            told[name] = told.get(name, 0.0) + own
            scores = log["scores"].setdefault(name, [0.0, 0.0])
            scores[0] += move * new
            scores[1] += move * move
        log.update(heard=log["heard"] + 1, count=before + 1, residual=log["residual"] + scaled)

    def _sum(self, name: str, at: int) -> float:
        """A sum in nats, less what the baseline itself may be off by."""
        sums = self.sums[name]
        return sums[at] / (1 + sums[4 + at] / self.known(name))

    def known(self, name: str) -> float:
        """Information on a group in the baselines, in squared standard deviations that `STEP` makes."""
        return self.reference.get(strongest(name), 0.0) + 1e-9

    def end(self) -> Alarm | None:
        """Ends the log that is being heard, if one is: its rows count together. An alarm where a group has moved."""
        log = self.log
        if not log:
            return None
        self._together()
        if not log["rows"]:
            self.log = {}
            return None
        self.window = [*self.window[1 - WINDOW :], self._summary()]
        self.log = {}
        rate = 0.0
        for name, (score, information) in log["scores"].items():
            self.told.setdefault(name, [0.0, self.logs])[0] += information
            rate += information / 2 * math.exp(-1.166 * math.sqrt(information))
            sums = self.sums.setdefault(name, [0.0, 0.0, 0, 0, 0.0, 0.0])
            for at, gained in ((0, score - information / 2), (1, -score - information / 2)):
                if sums[at] + gained > 0:
                    sums[at], sums[4 + at] = sums[at] + gained, sums[4 + at] + information
                else:
                    sums[at], sums[2 + at], sums[4 + at] = 0.0, 0, 0.0
        logs, mean = self.pace
        logs = min(logs + 1, RATE_OVER)
        self.pace = [logs, mean + (rate - mean) / logs]
        self.logs += 1
        self.rows += log["heard"]
        if self.suspects and self.logs - self.noticed > 2 * PATIENCE:
            # It never came to a name: the sum has fallen again.
            self.suspects = []
        for sums in self.sums.values():
            for at in (0, 1):
                sums[2 + at] += sums[at] > 0
        largest = {name: max(self._sum(name, at) for at in (0, 1)) for name in self.sums}
        threshold = self.threshold()
        # What comes while a sum is up waits: it teaches the baseline if the sum falls again, else it is of the change.
        up = {strongest(name) for name, value in largest.items() if value >= QUIET * threshold}
        waited, self.waiting = [*self.waiting, *log["learns"]][-WINDOW:], []
        for each in waited:
            if up.isdisjoint(each[3]):
                self._learn(*each)
            else:
                self.waiting.append(each)
        worst = max(largest.values(), default=0.0)
        return self._named(worst) if worst > threshold else None

    def _summary(self) -> list[Any]:
        """Of the open log its rows, and by group filtered residual, information and typical step."""
        rows = self.log["rows"]
        return [
            len(rows),
            {
                name: [*scores, _typical([(r / e[name], (e[name] / s) ** 2) for r, s, e in rows if e.get(name)])]
                for name, scores in self.log["scores"].items()
                if scores[1] > 0
            },
        ]

    def _together(self) -> None:
        """Takes how far the rows of a band of the open log went together."""
        tells = self.log["tells"]
        if len(tells) < 2 or self.waiting:
            return
        known = self.bands.setdefault(self.log["band"], [*NOTHING])
        known[2] += len(tells) * (len(tells) - 1) / 2
        known[3] += (sum(tells) ** 2 - sum(x * x for x in tells)) / 2

    def _learn(self, kind: str, band: str, off: float, information: Mapping[str, float]) -> None:
        """Takes a residual into its kind's baseline (Welford 1962)."""
        for name, gained in information.items():
            self.reference[name] = self.reference.get(name, 0.0) + gained
        count, mean, squares = self.kinds.get(kind, [0.0, 0.0, 0.0])
        before = off - mean
        mean += before / (count + 1)
        around = before * (off - mean)
        self.kinds[kind] = [count + 1, mean, squares + around]
        known = self.bands.setdefault(band, [*NOTHING])
        known[0] += count > 0
        known[1] += around
        known[4] += (squares + around) ** 2 / count if count else 0.0
        known[4] -= squares**2 / (count - 1) if count > 1 else 0.0
        known[5] += count == 1

    def apart(self, first: str, second: str) -> bool:
        """Whether `PATIENCE` logs, as they come, tell a step in one group from a step in another.

        The best test takes the two for each other in less than one case of twenty.
        """
        if self._effects_of is None:
            return True
        if (first, second) not in self._apart:
            own = other = both = total = 0.0
            for kind in [*self.kinds][:: -(-len(self.kinds) // JUDGED)]:
                band, effects = self._effects_of(kind)
                count = self.kinds[kind][0]
                a, b = (STEP * effects.get(name, 0.0) / self.noise(kind, band) for name in (first, second))
                own, other, both, total = (
                    own + count * a * a,
                    other + count * b * b,
                    both + count * a * b,
                    total + count,
                )
            # Whichever of the two it was, and by how far.
            left = max(own, other) * (1 - both * both / (own * other)) if own and other else max(own, other)
            rows = PATIENCE * self.rows / max(1, self.logs)
            self._apart[first, second] = rows * left / total >= TELLS**2
        return self._apart[first, second]

    def _named(self, worst: float) -> Alarm | None:
        up = [(name, at) for name in self.sums for at in (0, 1) if self._sum(name, at) >= worst]
        logs = int(max(self.sums[name][2 + at] for name, at in up))
        # Newest first; a change is between two logs, and each constant has the one that explains most.
        whole = [*reversed(self.window)]
        latest = whole[:logs]
        names = [name for name in self.sums if any(name in scores for _, scores in latest)]
        parts = np.array([[scores.get(name, [0.0] * 3) for name in names] for _, scores in latest])
        residual, information = parts[:, :, 0].cumsum(axis=0), parts[:, :, 1].cumsum(axis=0)
        off = 1 + information / np.array([self.known(name) for name in names])
        explained = residual**2 / (information + (STEP / LARGE) ** 2) / off / 2
        scores = explained.max(axis=0)
        order = np.argsort(-scores, kind="stable")
        best = order[0]
        likely = scores[best] - SURE
        # A step that was raised before may have been a false one: that it is taken back is likelier than another one.
        back = np.array([-self.shifts.get(name, 0.0) / STEP for name in names])
        undone = (residual * back - information * back**2 / 2) / off
        again = int(undone.max(axis=0).argmax())
        taken_back = back[again] != 0 and undone[:, again].max() >= likely
        if taken_back:
            best, explained = again, undone
            order = np.array([again, *(i for i in order if i != again)])
        named = [names[i] for i in order if i == best or scores[i] >= likely]
        since = int(explained[:, best].argmax()) + 1
        told_apart = [one for one in named[1:] if self.apart(named[0], one)]
        if told_apart and since < PATIENCE:
            if not self.suspects:
                self.suspects, self.noticed = named, self.logs
            return None
        # After so many logs the likelier of two is right in nineteen cases of twenty.
        named = [one for one in named if one not in told_apart]
        others = [
            score for score, one in zip(scores[order], (names[i] for i in order), strict=True) if one not in named
        ]
        name = names[best]
        if not taken_back and strongest(name) == self.last and len(whole) < WINDOW:
            # What was left of the step before has been there since: a part of it that stands out says too much.
            rest = [scores.get(name, [0.0] * 3) for _, scores in whole]
            left, all_ = (sum(part[at] for part in rest) for at in (0, 1))
            if left**2 / all_ / (1 + all_ / self.known(name)) / 2 >= scores[best] - SURE:
                latest, since = whole, len(whole)
        used = [scores.get(name, [0.0] * 3) for _, scores in latest[:since]]
        step = -self.shifts.pop(name) if taken_back else _typical([(part[2], part[1]) for part in used])
        self.last = strongest(name)
        if not taken_back:
            self.shifts[name] = self.shifts.get(name, 0.0) + step
        self.forget_sums()
        rows = sum(rows for rows, _ in latest[:since])
        deviation = STEP * float(sum(part[1] for part in used)) ** -0.5
        ahead = float(explained[:, best].max() - max(others, default=0.0))
        return Alarm(" | ".join(named), step, deviation, rows, ahead, since)


@lru_cache(maxsize=4096)
def strongest(group: str) -> str:
    """The constant whose column stands for a group."""
    return group.partition(" | ")[0]


def _kept(values: list[Any], new: object) -> None:
    """Adds a value to the latest ones."""
    values.append(new)
    del values[:-WINDOW]


def _begun(name: str | None) -> dict[str, Any]:
    """A log of which nothing was heard: what its band's rows come to so far, and what all its rows do."""
    return {
        "name": name, "band": None, "count": 0, "residual": 0.0, "effects": {}, "tells": [],
        "rows": [], "learns": [], "scores": {}, "heard": 0,
    }  # fmt: skip


def _information(effects: Mapping[str, float], deviation: float) -> dict[str, float]:
    """Of a row on each group, by the name of its strongest constant."""
    return {strongest(name): min(CLIP, abs(e) * STEP / deviation) ** 2 for name, e in effects.items()}


def _typical(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of values by their weights: one slow run does not move it, and nothing is cut off of large steps."""
    ordered = sorted(pairs)
    half = sum(weight for _, weight in ordered) / 2
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return 0.0
