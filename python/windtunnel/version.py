"""The version of the installed package.

The name of its `dist-info` folder says it; `importlib.metadata` would too, for more than Python takes to start.
"""

from __future__ import annotations

import os
import sys

_START, _END = "windtunnel-", ".dist-info"


def _installed() -> str:
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.startswith(_START) and name.endswith(_END):
                return name[len(_START) : -len(_END)]
    return "0+unknown"  # a checkout on the path that was never installed


__version__ = _installed()
