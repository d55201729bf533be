"""The signatures of commands, from the dataclasses whose fields are options, and the options that belong to no dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from relink.planning.option_fields import LINK, WORK, Option, option_table

GivenWheel = Annotated[
    Path | None,
    typer.Option(
        "--wheel",
        metavar="FILE",
        help="The vendor's wheel, where what is named was installed or relinked from it; its SHA-256 must be that one's.",
        rich_help_panel=LINK,
    ),
]
NoImportTest = Annotated[
    bool,
    typer.Option(
        "--no-import-test",
        help="Do not import what was installed. The import test runs the wheel's code, in a process of its own.",
        rich_help_panel=WORK,
    ),
]

_NAMES: dict[str, frozenset[str]] = {}


def option_names(command: str) -> frozenset[str]:
    """Return the long options of a command that :func:`takes_options` was applied to: ``--prefix`` …."""
    return _NAMES[command]


def rule_codes(incomplete: str) -> list[tuple[str, str]]:
    """Return (code, title) of the rules that start so, for a shell that completes a word; the next two likewise."""
    from relink.system.findings.model import RULES

    return [(rule.code, rule.title) for rule in RULES.values() if rule.code.startswith(incomplete)]


def profile_names(incomplete: str) -> list[str]:
    """Return the names of the shipped profiles that start so."""
    from relink.providers.profiles import shipped_profiles

    return [name for name in sorted(shipped_profiles()) if name.startswith(incomplete)]


def gpu_names(incomplete: str) -> list[tuple[str, str]]:
    """Return (processor, its products) of the GPUs that start so, and ``auto``."""
    from relink.vendors.registry import gpu_products

    names = [("auto", "the GPUs of this machine")]
    names += [(name, ", ".join(products)) for name, products in gpu_products().items()]
    return [(name, what) for name, what in names if name.startswith(incomplete.lower())]


_COMPLETIONS: dict[str, Any] = {
    function.__name__: function for function in (gpu_names, profile_names, rule_codes)
}


def takes_options(command: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function the signature that typer reads: for each parameter whose type is a dataclass, the options of its fields.

    The function gets one object of that dataclass, made of what was passed. Its other parameters stay.

    :param command: as :attr:`relink.planning.option_fields.Option.commands` has it.
    """

    def derived(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        tables: dict[str, tuple[type, dict[str, Option]]] = {}
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            hint: Any = hints[parameter.name]
            if isinstance(hint, type) and is_dataclass(hint):
                table = {
                    name: option for name, option in option_table(hint).items() if command in option.commands
                }
                tables[parameter.name] = (hint, table)
                parameters += [
                    _parameter(hint, name, option.instead.get(command)) for name, option in table.items()
                ]
            else:
                parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

        def command_function(**given: Any) -> None:
            for parameter, (made, table) in tables.items():
                given[parameter] = made(
                    **{name: _value(option, given.pop(name)) for name, option in table.items()}
                )
            function(**given)

        signature: Any = command_function
        # typer reads the signature and the annotations of the function that it is given.
        signature.__signature__ = inspect.Signature(parameters)
        signature.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command_function.__name__, command_function.__doc__ = function.__name__, function.__doc__
        _NAMES[command] = frozenset(_long_names(parameters))
        return command_function

    return derived


def _long_names(parameters: list[inspect.Parameter]) -> Iterator[str]:
    for parameter in parameters:
        (option,) = parameter.annotation.__metadata__
        if isinstance(option, typer.models.OptionInfo):
            # typer.Option takes the first name for a default until typer sees the annotation.
            given = (option.default, *(option.param_decls or ()))
            names = [name for name in given if isinstance(name, str) and name.startswith("--")]
            yield from names or (f"--{parameter.name.replace('_', '-')}",)


@cache
def _parameter(table: type, name: str, help_text: str | None) -> inspect.Parameter:
    """The parameter of one field; commands in which it means the same share it."""
    option = option_table(table)[name]
    kind: Any = option.kind
    default = option.default
    if option.is_list:
        kind, default = list[kind], []
    elif isinstance(default, bool):
        kind, default = bool, False
    elif option.choices:
        # typer takes choices as an enumeration.
        choices: Any = StrEnum
        kind = choices("Choice", [(word, word) for word in option.choices])
        default = kind(default)
    elif default is None:
        kind |= None
    shown = help_text or option.help
    info = typer.Option(
        *option.names,
        metavar=option.metavar,
        # rich would take an unescaped [ for markup, and print nothing of it.
        help=shown.replace("[", "\\["),
        # Where the help says what holds "Without it", the default is not shown as well.
        show_default="Without it" not in shown,
        rich_help_panel=option.group,
        min=option.least,
        autocompletion=option.completion and _COMPLETIONS[option.completion],
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def _value(option: Option, given: Any) -> Any:
    """The value of a field, of what typer made of the words of the command line."""
    if option.parse is not None:
        return option.parse(given)
    if option.is_list:
        return tuple(given)
    if option.choices:
        return given.value
    # A flag of a field that is True by default clears it, and typer gives True where the flag was passed.
    return not given if option.default is True else given
