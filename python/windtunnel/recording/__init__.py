"""What a recording says when it is replayed: who came last, what the network costs, what would help."""

from windtunnel.recording.decompose import decompose
from windtunnel.recording.explain import Explanation, explain

__all__ = ["Explanation", "decompose", "explain"]
