"""Signatures of commands, from the dataclasses whose fields are options; options that belong to no dataclass; advice.

The advice is for words of a command line, or keys of a settings file, that relink does not know: misspelt, or removed.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

from relink.planning.options import LINK, WORK, Option, option_table

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"  # PEP 508
_EXACT = re.compile(rf"{_NAME}\s*(?:\[[^\]]*\])?\s*===?\s*[^\s/]+")
_BARE = re.compile(_NAME)
_EACH_BUILD = "each build of a package with autoRelinkHook plans anew and says what does not fit; `relink nix` writes the package"
REMOVED_OPTIONS: Final = {
    "--lock": _EACH_BUILD,
    "--lock-strict": _EACH_BUILD,
    "--rocm-major": "package.nix is for the ROCm that the wheel needs, and is broken with another",
    "--fix": "after a refusal relink prints a command that was tried and has no error. Run that one, or pass the option that a "
    "finding names, such as --preload SONAME",
    "--statement": "relink.json and the SBOM in the wheel say what the wheel was made of. To sign where the wheel comes from, "
    "let the platform that runs relink attest the wheel (actions/attest-build-provenance on GitHub)",
}
"""Options of earlier releases that relink has no more, each with what to do instead."""
# The least ratio of difflib: one letter of four may be another.
_CLOSE = 0.75


def removed_option_message(option: str) -> str | None:
    """Return the message about an option of an earlier release, with what to do instead; None for any other option.

    :param option: as on the command line: ``--statement``.
    """
    advice = REMOVED_OPTIONS.get(option)
    return advice and f"{option} was removed from relink: {advice}."


def is_requirement(word: str) -> bool:
    """Whether a word is a requirement that names a version, ``NAME==VERSION``, and no file of that name is there."""
    return _EXACT.fullmatch(word) is not None and not os.path.lexists(word)


def explain_unknown_word(word: str, commands: Iterable[str]) -> str | None:
    """Return what is wrong with the first word of a command line; None where it may be a wheel.

    A file that is there comes first, then a requirement with a version, then a command that is spelled almost so.
    """
    if os.path.lexists(word) or is_requirement(word) or word.startswith("-") or not _BARE.fullmatch(word):
        return None
    if word.lower().endswith(".whl"):
        # Opening the wheel says that it is not there.
        return None
    if close := difflib.get_close_matches(word.lower(), [*commands], n=1, cutoff=_CLOSE):
        return f"No such command or file: {word}. Did you mean `relink {close[0]}`?"
    if "." in word:
        return None
    return (
        f"No such command or file: {word}. A package is fetched by `relink fetch {word}` or `relink install {word}`, or as "
        f"'{word}==VERSION'."
    )


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


def list_option_names(command: str) -> frozenset[str]:
    """Return the long options of a command that :func:`takes_options` was applied to: ``--prefix`` …."""
    return _NAMES[command]


def complete_rule_code(incomplete: str) -> list[tuple[str, str]]:
    """Return (code, title) of the rules that start so, for a shell that completes a word; the next two likewise."""
    from relink.system.findings.model import RULES

    return [(rule.code, rule.title) for rule in RULES.values() if rule.code.startswith(incomplete)]


def complete_profile_name(incomplete: str) -> list[str]:
    """Return the names of the shipped profiles that start so."""
    from relink.providers.profiles import shipped_profiles

    return [name for name in sorted(shipped_profiles()) if name.startswith(incomplete)]


def complete_gpu_name(incomplete: str) -> list[tuple[str, str]]:
    """Return (processor, its products) of the GPUs that start so, and ``auto``."""
    from relink.vendors.registry import VENDORS

    names = [("auto", "the GPUs of this machine")]
    names += [
        (name, ", ".join(products)) for vendor in VENDORS for name, products in vendor.gpus.products().items()
    ]
    return [(name, what) for name, what in names if name.startswith(incomplete.lower())]


_COMPLETIONS: dict[str, Any] = {
    function.__name__: function for function in (complete_gpu_name, complete_profile_name, complete_rule_code)
}


def takes_options(command: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function the signature that typer reads: for each parameter whose type is a dataclass, the options of its fields.

    The function gets one object of that dataclass, made of what was passed. Its other parameters stay.

    :param command: as :attr:`relink.planning.options.Option.commands` has it.
    """

    def decorator(function: Callable[..., None]) -> Callable[..., None]:
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
        names: set[str] = set()
        for parameter in parameters:
            (option,) = parameter.annotation.__metadata__
            if isinstance(option, typer.models.OptionInfo):
                # typer.Option takes the first name for a default until typer sees the annotation.
                given = (option.default, *(option.param_decls or ()))
                own = {name for name in given if isinstance(name, str) and name.startswith("--")}
                names |= own or {f"--{parameter.name.replace('_', '-')}"}
        _NAMES[command] = frozenset(names)
        return command_function

    return decorator


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
