"""Several experiments on one paper as a Markdown page: claim by claim, what holds, in direction only, or not at all.

A claim whose text ends in "(direction)" is the weaker form of those that observe the same figure. `WHY` of an
experiment's module says, by figure observed, why a claim on it does not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.experiments.runner import Broken, module_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from windtunnel.experiments.check import Verdict
    from windtunnel.experiments.runner import Outcome

DIRECTION = "(direction)"


def markdown(title: str, intro: str, found: Sequence[Outcome | Broken]) -> str:
    """The page: verdicts of each experiment, then its tables."""
    sections = [_section(one) for one in found]
    counts = {"holds": 0, "holds in direction": 0, "does not hold": 0}
    for one in found:
        if not isinstance(one, Broken):
            for verdict, observe in _strict(one):
                counts[_word(one, verdict, observe)] += 1
    said = ", ".join(f"{count} {_plural(word) if count != 1 else word}" for word, count in counts.items())
    return f"# {title}\n\n{intro}\n\nOf {sum(counts.values())} claims: {said}.\n\n" + "\n\n".join(sections) + "\n"


def _strict(one: Outcome) -> list[tuple[Verdict, str]]:
    """Claims but for the weaker forms of others, with what they observe."""
    pairs = [(verdict, claim.observe) for verdict, claim in zip(one.verdicts, one.experiment.claims, strict=True)]
    observed = {observe for verdict, observe in pairs if not verdict.claim.endswith(DIRECTION)}
    return [(v, observe) for v, observe in pairs if not v.claim.endswith(DIRECTION) or observe not in observed]


def _word(one: Outcome, verdict: Verdict, observe: str) -> str:
    if verdict.holds:
        return "holds"
    weaker = [
        other.holds
        for other, claim in zip(one.verdicts, one.experiment.claims, strict=True)
        if claim.observe == observe and other.claim.endswith(DIRECTION)
    ]
    return "holds in direction" if any(weaker) else "does not hold"


def _plural(word: str) -> str:
    return {"holds": "hold", "holds in direction": "hold in direction", "does not hold": "do not hold"}[word]


def _section(one: Outcome | Broken) -> str:
    experiment = one.experiment
    head = f"## `{experiment.name}`: {experiment.title}"
    if isinstance(one, Broken):
        return f"{head}\n\nCould not be run: {one.message}"
    why = getattr(module_of(experiment.folder), "WHY", {})
    rows = ["| claim | expected | observed | verdict |", "|---|---|---|---|"]
    within = {
        claim.claim: f" ± {claim.tolerance:.0%}" for claim in experiment.claims if claim.relative and claim.tolerance
    }
    for verdict, observe in _strict(one):
        word = _word(one, verdict, observe)
        reason = f": {why[observe]}" if word != "holds" and observe in why else ""
        claim = verdict.claim.removesuffix(DIRECTION).rstrip()
        source = "" if verdict.source == experiment.source else f" *({verdict.source})*"
        expected = _value(verdict.expected) + within.get(verdict.claim, "")
        rows.append(f"| {claim}{source} | {expected} | {_value(verdict.observed)} | {word}{reason} |")
    tables = [_table(name, frame) for name, frame in one.tables.items()]
    return "\n\n".join([head, "\n".join(rows), *tables])


def _table(name: str, frame: pl.DataFrame) -> str:
    rows = [f"| {' | '.join(frame.columns)} |", "|" + "---|" * len(frame.columns)]
    rows += ["| " + " | ".join(_value(cell) for cell in row) + " |" for row in frame.iter_rows()]
    return f"{name.capitalize()}:\n\n" + "\n".join(rows)


def _value(value: object) -> str:
    if isinstance(value, dict):
        words = {"min": "at least", "max": "at most"}
        return ", ".join(f"{words.get(key, key)} {_value(item)}" for key, item in value.items())
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
