"""Recording of PyTorch programs: the profiler, set up right in every process of a command."""

from windtunnel.recorder.capture import Captured, capture
from windtunnel.recorder.launch import Recorded, record

__all__ = ["Captured", "Recorded", "capture", "record"]
