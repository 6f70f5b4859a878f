"""Experiments: scenarios, what is varied in them, and claims that are checked.

`experiments/NAME/experiment.yaml`:

```yaml
title: Ring all-reduce reaches its bound
source: "Patarasuk and Yuan 2009"        # where the claims come from, unless a claim says otherwise
scenario: scenario.yaml                  # or scenarios: {name: file, …}
cases:                                   # optional: named sets of overrides
  small: {topology.hosts: 4}
vary:                                    # optional: axes; every combination is run
  - {name: algorithm, path: "jobs[0].workload.collective.algorithm", values: [ring, tree]}
options: {fidelity: message}             # optional: fidelity, seed, threads
claims:
  - claim: ring takes 2 (n-1)/n of the bytes at line rate
    observe: jobs[0].iteration_time_s.mean      # a key of the summary, or a name that observe() returned
    at: {algorithm: ring}                       # which run: scenario, case, or values of axes
    over: {algorithm: tree}                     # optional: divided by the same figure of that run
    expected: 0.0123                            # or {min: 0.9, max: 1.1}, or {order: [{…}, {…}]}: rising figures
    tolerance: 2 %                              # relative; or a number in the unit of the figure; default 0
figure: {x: algorithm, y: "jobs[0].iteration_time_s.mean", label: iteration time (s)}
```

`experiment.py` beside it may define `observe(results)`, which returns further figures by name (a polars frame among
them is printed as a table), and `draw(results, observed, axes)`, which draws the figure instead. An experiment without
scenarios is measured by its `observe`.
"""

from windtunnel.experiments.runner import Broken, Outcome, find, names, run_experiment, run_experiments

__all__ = ["Broken", "Outcome", "find", "names", "run_experiment", "run_experiments"]
