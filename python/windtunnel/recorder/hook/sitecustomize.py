"""Imported at the start of every process of `windtunnel record`, because this folder leads `PYTHONPATH`.

It must not fail and not import torch: most processes never do. A `sitecustomize` that this one hides is imported too.
"""

import os
import sys
from pathlib import Path


def _hidden() -> None:
    """Imports the `sitecustomize` that would have been found without this folder."""
    here = Path(__file__).resolve().parent
    rest = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    own = sys.modules.pop("sitecustomize", None)
    path, sys.path[:] = sys.path[:], rest
    try:
        __import__("sitecustomize")
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own
    finally:
        sys.path[:] = path


def _watch() -> None:
    name = os.environ.get("WINDTUNNEL_RECORDER")
    if not name:
        return
    import importlib.util

    spec = importlib.util.spec_from_file_location("_windtunnel_recorder", name)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["_windtunnel_recorder"] = module
    spec.loader.exec_module(module)
    module.watch()


_watch()
_hidden()
