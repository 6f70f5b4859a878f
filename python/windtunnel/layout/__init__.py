"""Layouts: which (tp, cp, ep, pp, dp, zero, schedule, chunks, micro-batch, recomputation) of a job is fastest.

Life cycle: a *job* is read from a scenario (`job.py`); a *space* (`space.py`) says which values are tried and makes the
candidates; each is *examined* (`examine.py`): refused with a reason, or its memory and least time; the *search*
(`search.py`) runs those that can be among the best, as points of a study, and gives a row for every one.

Invariants: every candidate is a row; the best are those of a search that runs all, as far as no least time is above the
time of a run, which tests hold the two to. Stands on `studies`, which knows nothing of it.
"""
