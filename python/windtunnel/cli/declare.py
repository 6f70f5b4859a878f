"""Commands as they are declared: once, for two readers.

Typer takes 0.14 CPU s to start, which is more than many a run. So commands are declared here, without it. `quick` reads
calls that are plain: known options, values of the right form, as many arguments as wanted. All others (help,
completion, whatever is wrong) go to Typer, built from the same declarations: it alone writes help and messages.

Invariant: where `quick` gives values, Typer gives equal ones (tests/test_docs.py compares them for every command of
every page).
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Function = Callable[..., Any]

Call = tuple["Function", dict[str, Any]]
"""A command and what it is called with."""


@dataclass(frozen=True)
class Declared:
    """What Typer's `Option` or `Argument` is to be called with."""

    kind: str
    names: tuple[str, ...]
    given: dict[str, Any]


def Option(*names: str, **given: Any) -> Declared:  # noqa: ANN401, N802
    """An option, as `typer.Option` has it."""
    return Declared("Option", names, given)


def Argument(**given: Any) -> Declared:  # noqa: ANN401, N802
    """An argument, as `typer.Argument` has it."""
    return Declared("Argument", (), given)


def invoke(function: Function, values: dict[str, Any]) -> Any:  # noqa: ANN401
    """Calls a command, whoever has read the call."""
    return function(**values)


@dataclass
class Command:
    """A function that is a command."""

    function: Function
    name: str
    settings: dict[str, Any]


@dataclass
class Commands:
    """A command, or a group of them if there are several or it has a callback."""

    settings: dict[str, Any] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    group: Function | None = None

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        """Takes the settings of `typer.Typer`."""
        self.settings = {"add_completion": False, "rich_markup_mode": None, **settings}
        self.commands = []

    def callback(self) -> Callable[[Function], Function]:
        """Makes this a group, whose help begins with the function's text."""

        def declare(function: Function) -> Function:
            self.group = function
            return function

        return declare

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:  # noqa: ANN401
        """Adds a command, called as its function is unless it has a `name`."""

        def declare(function: Function) -> Function:
            called = name or function.__name__.lower().replace("_", "-")
            self.commands.append(Command(function, called, settings))
            return function

        return declare

    def quick(self, words: Sequence[str]) -> Call | None:
        """The call that `words` are, None if they are none or have to be looked at closely."""
        if self.group is None and len(self.commands) == 1:
            (command,) = self.commands
        else:
            name, words = (words[0], words[1:]) if words else ("", ())
            found = next((each for each in self.commands if each.name == name), None)
            if found is None:
                return None
            command = found
        if command.settings:
            return None
        values = read(command.function, words)
        return None if values is None else (command.function, values)

    def typer(self) -> Any:  # noqa: ANN401
        """The same for Typer, as a command of its tree."""
        import typer
        import typer.main

        app = typer.Typer(**self.settings)
        if self.group is not None:
            app.callback()(self.group)
        for command in self.commands:
            app.command(command.name, **command.settings)(_for_typer(command.function))
        return typer.main.get_command(app)


def _for_typer(function: Function) -> Function:
    """`function` with Typer's own remarks in place of those of this module."""
    import typer

    def translated(hint: Any) -> Any:  # noqa: ANN401
        declared = _declared(hint)
        if declared is None:
            return hint
        made = getattr(typer, declared.kind)(*declared.names, **declared.given)
        return Annotated[typing.get_args(hint)[0], made]

    def called(**values: Any) -> Any:  # noqa: ANN401
        return invoke(function, values)

    hints = {name: translated(hint) for name, hint in typing.get_type_hints(function, include_extras=True).items()}
    signature = inspect.signature(function)
    parameters = [each.replace(annotation=hints[each.name]) for each in signature.parameters.values()]
    called.__name__, called.__doc__, called.__module__ = function.__name__, function.__doc__, function.__module__
    called.__annotations__ = hints
    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return called


def _declared(hint: Any) -> Declared | None:  # noqa: ANN401
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Declared)), None)


@dataclass(frozen=True)
class _Parameter:
    name: str
    declared: Declared
    kind: Any
    many: bool
    default: Any

    @property
    def options(self) -> dict[str, bool]:
        """Names of the option, with what each sets if it takes no value."""
        names = self.declared.names
        if not names:
            plain = self.name.replace("_", "-")
            return {f"--{plain}": True} | ({f"--no-{plain}": False} if self.kind is bool else {})
        return dict.fromkeys(names, True)

    def value(self, word: str) -> Any:  # noqa: ANN401
        """What `word` says; None if that has to be looked at closely."""
        form, given = _FORMS.get(self.kind), self.declared.given
        if form is None or not form.fullmatch(word):
            return None
        value = self.kind(word)
        if self.kind in (int, float) and not given.get("min", value) <= value <= given.get("max", value):
            return None
        return value


_FORMS = {
    str: re.compile(r"(?s).*"),
    Path: re.compile(r"(?s).+"),
    int: re.compile(r"-?[0-9]{1,30}"),
    float: re.compile(r"-?[0-9]{1,30}(\.[0-9]+)?(e[+-]?[0-9]{1,2})?"),
}
"""Words of which there is no doubt what they say, by type."""


def _parameters(function: Function) -> list[_Parameter] | None:
    """Parameters of a command; None if one is of a type that is not read here."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        declared = _declared(hints[name])
        if declared is None:
            return None
        kind = typing.get_args(hints[name])[0]
        if typing.get_origin(kind) in (types.UnionType, typing.Union):
            inner = [each for each in typing.get_args(kind) if each is not type(None)]
            kind = inner[0] if len(inner) == 1 else None
        many = typing.get_origin(kind) is list
        kind = typing.get_args(kind)[0] if many else kind
        strange = set(declared.given) & {"callback", "is_eager", "parser", "click_type", "envvar", "prompt"}
        if strange or (kind is not bool and kind not in _FORMS) or any("/" in each for each in declared.names):
            return None
        found.append(_Parameter(name, declared, kind, many, parameter.default))
    return found


def read(function: Function, words: Sequence[str]) -> dict[str, Any] | None:
    """What a command is called with by `words`; None if they have to be looked at closely."""
    parameters = _parameters(function)
    if parameters is None:
        return None
    options = {
        name: (each, sets)
        for each in parameters
        if each.declared.kind == "Option"
        for name, sets in each.options.items()
    }
    given: dict[str, Any] = {}
    plain: list[str] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        name, has_value, text = word.partition("=")
        if name not in options or not (name.startswith("--") or not has_value):
            return None
        option, sets = options[name]
        if option.kind is bool:
            value: Any = None if has_value else sets
        elif not has_value:
            text = left.pop() if left and (left[-1] == "-" or not left[-1].startswith("-")) else ""
            value = option.value(text) if text else None
        else:
            value = option.value(text) if text else None
        if value is None or (option.name in given and not option.many):
            return None
        if option.many:
            given.setdefault(option.name, []).append(value)
        else:
            given[option.name] = value
    return _completed(parameters, given, plain)


def _completed(parameters: list[_Parameter], given: dict[str, Any], plain: list[str]) -> dict[str, Any] | None:
    """`given` with the arguments, in their order, and with what was left out."""
    arguments = [each for each in parameters if each.declared.kind == "Argument"]
    if any(each.many for each in arguments[:-1]):
        return None
    for argument in arguments:
        if not plain:
            break
        taken = plain if argument.many else plain[:1]
        plain = plain[len(taken) :]
        values = [argument.value(word) for word in taken]
        if argument.kind is bool or any(value is None for value in values):
            return None
        given[argument.name] = values if argument.many else values[0]
    missing = [each for each in parameters if each.name not in given]
    if plain or any(each.default is inspect.Parameter.empty for each in missing):
        return None
    return {each.name: given.get(each.name, each.default) for each in parameters}
