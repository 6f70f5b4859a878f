"""Many runs: what is asked (points), what is kept (the store), and who runs them (the runner).

Life cycle: a *study* (`study.py`) is a scenario, axes and metrics; a *design* (`design.py`) makes points of them. A
*point* (`point.py`) is a scenario with overrides and options. The *runner* (`runner.py`) asks the *store* (`store.py`)
for each; what the store does not have goes to a worker process, whose run folder the store then keeps and lists.

Invariants: a point's result does not depend on who ran it, or when; a stored result is served only if nothing that
decided its bytes has changed (`recipe.py`); a folder is whole or absent, and the index can be made again from the
folders. This package knows scenarios, options and summaries, and nothing of what is asked: experiments, validation and
what-if questions stand above it.

Failure modes: a refused scenario is a row with its message, as is a run that failed, ran out of its time or took its
worker along. Only an unusable store, a full disk or Ctrl-C ends a study, and what was done by then is kept.
"""
