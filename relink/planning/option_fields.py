"""What the command line knows of a field of a dataclass: the field carries it, and the commands' signatures come from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

# The groups of `relink COMMAND --help`.
LINK = "What to link to"
RUN = "Where the result will run"
KNOWN = "What only you can know"
GPUS = "GPUs"
OUTPUT = "What is written"
WORK = "How it is done"
SHOWN = "What is shown"


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is written on the command line, and which commands take it.

    A field that is False by default is a flag that sets it, and one that is True is a flag that clears it. A sequence is
    an option that can be repeated.

    :ivar commands: as a user writes them: ``run``, ``index build``.
    :ivar group: its heading in ``--help``; None for the first, which is called Options.
    :ivar names: ``--name`` and a letter; of the field's name where there are none.
    :ivar kind: of one value.
    :ivar repeatable: of a field that is not a sequence, but is made of several values.
    :ivar choices: the words that it can be.
    :ivar least: the smallest number.
    :ivar completion: the function of :mod:`relink.cli.options` that knows the values.
    :ivar parse: makes the field's value of what was passed.
    :ivar instead: the help of a command for which the option means something else.
    :ivar setting: the key of a project's settings that is its default; None where a file must not decide.
    :ivar decides: it changes how files are edited or what the result is called.
    :ivar default: of the field; :meth:`field` sets it.
    """

    commands: Sequence[str]
    group: str | None
    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    kind: type = str
    repeatable: bool = False
    choices: tuple[str, ...] = ()
    least: int | None = None
    completion: Literal["gpu_names", "profile_names", "rule_codes"] | None = None
    parse: Callable[[Any], Any] | None = None
    instead: Mapping[str, str] = field(default_factory=dict)
    setting: str | None = None
    decides: bool = False
    default: Any = None

    @property
    def is_list(self) -> bool:
        """Whether it can be repeated."""
        return self.repeatable or self.default == ()

    def field(self, default: Any) -> Any:
        """Return a field of a dataclass that has this option."""
        return field(default=default, metadata={"option": replace(self, default=default)})


@cache
def option_table(table: type) -> dict[str, Option]:
    """Return the options of a dataclass by the names of their fields, each with its names on the command line."""
    return {
        entry.name: replace(option, names=option.names or (f"--{entry.name.replace('_', '-')}",))
        for entry in fields(table)
        if (option := entry.metadata.get("option")) is not None
    }


def mebibytes(number: int | None) -> int | None:
    """Return bytes."""
    return number << 20 if number else None
