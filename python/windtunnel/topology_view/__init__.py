"""`windtunnel topology`: what is asked of the engine, what is printed, and the drawing."""

from windtunnel.topology_view.draw import draw

__all__ = ["draw"]
