"""`windtunnel topology`: what is asked of the engine, what is printed, and the drawing."""

from windtunnel.topology.draw import draw

__all__ = ["draw"]
