"""The loop of continuous calibration: measurements come in, are predicted, and say when a constant has moved.

`readers` turn what production leaves (logs, records, tables) into measurements, `models` predict them by a set of
constants, `drift` watches the residuals, `ledger` keeps everything in one SQLite file, and `watch` ties them: a chunk
of a source, its measurements, its alarms and the detector's state are one transaction, so that a process that is killed
at any instant loses nothing and counts nothing twice. No set is adopted but by `windtunnel calibrate adopt`.
"""
