"""The timeline of a run as a Perfetto trace."""

from windtunnel.trace.timeline import write_trace

__all__ = ["write_trace"]
