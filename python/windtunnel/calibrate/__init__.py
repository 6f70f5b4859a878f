"""Calibration: the few constants of a system fitted on stated rows, written with their evidence.

`fit` is the method, `collectives` what is fitted of NCCL's model and on which rows. A constant that the rows do not
determine is refused by name and keeps its prior.
"""
