"""The commands, each imported when it is called, and the one place where errors become messages.

Calls that are plain are read by `declare`; all others, and requests for help, by Typer (`tree`), which takes longer to
start than many a run.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from windtunnel.interrupts import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.cli.declare import Call, Commands

COMMANDS = {
    "run": ("windtunnel.cli.run", "Run a scenario and say where the time goes"),
    "topology": ("windtunnel.cli.topology", "Build a topology and count what is in it"),
    "collective": ("windtunnel.cli.collective", "Print times and bandwidths of a collective, as nccl-tests does"),
    "record": ("windtunnel.cli.record", "Record every rank of a distributed PyTorch program"),
    "import": ("windtunnel.cli.import_", "Make a workload of recordings of a real application"),
    "workload": ("windtunnel.cli.workload", "Count, convert, scale, cut and merge workloads"),
    "goal": ("windtunnel.cli.goal", "Check, count, convert, merge or run GOAL files"),
    "sweep": ("windtunnel.cli.sweep", "Run a scenario at many points, into one table"),
    "layouts": ("windtunnel.cli.layouts", "List the layouts of a job on its GPUs, the fastest first"),
    "explore": ("windtunnel.cli.explore", "Search for the best layout of a job, and prove it by simulation"),
    "fabrics": ("windtunnel.cli.fabrics", "Try fabrics for a job mix: what each costs and takes"),
    "runs": ("windtunnel.cli.runs", "List, show and remove the runs of studies"),
    "report": ("windtunnel.cli.report", "Write the HTML report of a run"),
    "trace": ("windtunnel.cli.trace", "Write the Perfetto trace of a run"),
    "pcap": ("windtunnel.cli.pcap", "Write the packets that a run captured, for Wireshark"),
    "experiments": ("windtunnel.cli.experiments", "List experiments, or run one and check its claims"),
    "calibrate": ("windtunnel.cli.calibrate", "Fit the constants of a system on measured rows"),
    "testbed": ("windtunnel.cli.testbed", "Build a real network in namespaces, and compare with it"),
    "validate": ("windtunnel.cli.validate", "Predict published measurements and say how far off that is"),
    "whatif": ("windtunnel.cli.whatif", "Ask what a change would cost: is this drain safe?"),
    "example": ("windtunnel.cli.example", "List the examples that come with Windtunnel, or write one"),
    "new": ("windtunnel.cli.new", "Write a crate of your own: a transport to begin with"),
    "init": ("windtunnel.cli.init", "Write a first scenario for the answers to three questions"),
    "list": ("windtunnel.cli.names", "List what a scenario may name: gpus, models, topologies, …"),
    "schema": ("windtunnel.cli.schema", "Print the JSON Schema of a scenario"),
    "doctor": ("windtunnel.cli.doctor", "Say what is installed and what each part is for"),
}
"""Command → its module (whose `app` is what it declares) and its line in the help."""

DONE, FAILED, BAD_INPUT, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141


def commands_of(name: str) -> Commands:
    """The command or group of this name, imported."""
    found: Commands = import_module(COMMANDS[name][0]).app
    return found


def plain_call(arguments: Sequence[str]) -> Call | None:
    """What `arguments` call, None if that takes Typer to find out."""
    if not arguments or arguments[0] not in COMMANDS or "_WINDTUNNEL_COMPLETE" in os.environ:
        return None
    return commands_of(arguments[0]).quick(arguments[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status; whatever goes wrong is one message on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        with watched():
            call = plain_call(arguments)
            if call is not None:
                from windtunnel.cli.declare import invoke

                status = invoke(*call)
            else:
                from windtunnel.cli.tree import app

                status = app(args=arguments, prog_name="windtunnel", standalone_mode=False)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except SystemExit as error:
        # Typer's way of saying that nobody reads on.
        if isinstance(error.__context__, OSError) and error.__context__.errno == errno.EPIPE:
            return CLOSED_PIPE
        raise
    except ImportError as error:
        return _complain_of_import(error)
    except OSError as error:
        return _complain_of_system(error)
    except Exception as error:  # noqa: BLE001
        return _complain_of(error)
    return status if isinstance(status, int) else DONE


def _interrupted(error: BaseException) -> int:
    return _complain("interrupted", 128 + getattr(error, "number", INTERRUPTED - 128))


def _complain_of(error: Exception) -> int:
    """Of what Typer and the engine raise; the rest is a defect, which is raised."""
    typer: Any = sys.modules.get("typer")
    if typer is not None and isinstance(error, typer.TyperException):
        return _complain(_usage_message(error), error.exit_code)
    if typer is not None and isinstance(error, typer.Abort):
        return _interrupted(error)
    if isinstance(error, ValueError | RuntimeError):
        from windtunnel.engine import InputError, RunError

        if isinstance(error, InputError):
            return _full_disk(str(error)) or _complain(str(error), BAD_INPUT)
        if isinstance(error, RunError):
            return _complain(str(error), FAILED)
    raise error


def _complain_of_import(error: ImportError) -> int:
    if (error.name or "").startswith("windtunnel._engine"):
        return _complain("the engine is not built\n\nhint: run `make setup` in the checkout", FAILED)
    own = os.environ.get("WINDTUNNEL_ENGINE")
    if own and error.name == own.partition(".")[0]:
        return _complain(
            f"no module `{own}`, which `WINDTUNNEL_ENGINE` names\n\nhint: is it on `PYTHONPATH`?", BAD_INPUT
        )
    raise error


def _full_disk(message: str) -> int | None:
    """Complains of a disk that the engine found full; None if `message` is another."""
    found = re.fullmatch(rf"`?([^`\n]+)`?: [^\n]*\(os error {errno.ENOSPC}\)", message)
    return found and _complain_of_system(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), found[1]))


def _complain_of_system(error: OSError) -> int:
    if isinstance(error, BrokenPipeError):
        # Whoever read has seen enough, as with `head`; 128 and SIGPIPE is what shells say of others.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    where = f": `{error.filename}`" if error.filename else ""
    if error.errno == errno.ENOSPC:
        hint = "free some space, or write elsewhere with `--out`"
        left = "; ".join(getattr(error, "__notes__", ())) or "nothing was left there"
        return _complain(f"the disk is full{where}; {left}\n\nhint: {hint}", FAILED)
    return _complain(f"{(error.strerror or str(error)).lower()}{where}", BAD_INPUT)


def _complain(message: str, status: int) -> int:
    sys.stdout.flush()
    prefix = "error: "
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        prefix = "\x1b[1;31merror:\x1b[0m "
    sys.stderr.write(f"{prefix}{message.rstrip()}\n")
    return status


def _usage_message(error: Any) -> str:  # noqa: ANN401
    """Typer's message in the house's grammar: lower-case start, no full stop, literals in backticks, hint apart."""
    option = getattr(error, "option_name", None)
    possibilities = getattr(error, "possibilities", None)
    if option is not None and possibilities is not None:
        near = f"\n\nhint: did you mean `{min(possibilities, key=len)}`?" if possibilities else ""
        return f"no such option: `{option}`{near}"
    message = error.format_message().strip()
    text, separator, hint = message.partition("\n\nhint: ")
    context = getattr(error, "ctx", None)
    if not separator and context is not None:
        hint = f"`{context.command_path} --help` shows how it is used"
        text, suggested, names = text.partition(". Did you mean ")
        hint = f"did you mean {_quoted(names)}" if suggested else hint
    text = re.sub(r": Input should be ([^,]*).*", r": expected \1", text)
    text = _quoted(text).rstrip(".")
    return text[:1].lower() + text[1:] + (f"\n\nhint: {hint}" if hint else "")


def _quoted(text: str) -> str:
    return re.sub(r"'([^']*)'", r"`\1`", text)
