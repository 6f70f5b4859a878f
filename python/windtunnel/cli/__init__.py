"""The command `windtunnel`. Exit status: 0 done, 1 a check or run failed, 2 bad input, 130 interrupted."""

from windtunnel.cli.app import main

__all__ = ["main"]
