"""The explorer: how a job is best laid out, over one hall or several buildings.

Life cycle: a *space* (`space.py`) says which layouts there are and which rules leave some out; the *cost model*
(`model.py`, in the engine) answers what each takes; the *search* (`search.py`) ranks them and tries layers moved from
stage to stage; the best are *proven* (`prove.py`): run at flow fidelity, and the first of those at packet fidelity, as
points of a study; the outcome is a table, a page (`page.py`), a scenario, and settings of frameworks (`export.py`).

Invariants: every layout of the space has a row or is counted under the reason that left it out; the same space and seed
give the same rows. What a search stopped half-way gives is marked. Stands on `studies` and `layout`.
"""
