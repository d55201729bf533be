"""The way out of a refusal: the options with which the same command succeeds.

Takes a plan that has errors, and a function that makes the plan again with other options. Gives options that were tried: with
them the plan has no error. What is proposed for a finding is what the finding itself names, and for a missing library another
version of it, or a stub. Nothing is taken for granted: each proposal is planned, and one that is refused gives way to the next.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from relink.planning.options import Options
from relink.planning.resolve.context import ResolveContext
from relink.planning.wheel_plan import PreparedPlan
from relink.system.findings.model import Finding, causes

Replan: TypeAlias = Callable[[Options], PreparedPlan]
"""Makes the plan of the same wheel with other options."""
_Words: TypeAlias = tuple[tuple[str, str], ...]
"""Options, each with its value."""

_FIELDS: Final = {
    "--preload": "preload",
    "--substitute": "substitute",
    "--stub": "stub",
    "--forward": "forward",
    "--ignore": "ignore",
    "--interpreter": "interpreter",
    "--python": "python",
}
_ONE_VALUE: Final = {"--interpreter", "--python"}
# These commands take the target from the environment that they change.
_OF_A_TARGET: Final = {"install", "repair"}
# The most plans that are made: each takes as long as that of the run.
_ROUNDS: Final = 6


def find_ways_out(planned: PreparedPlan, options: Options, replan: Replan) -> tuple[tuple[str, ...], ...]:
    """Return the words of options with which the plan has no error, as they stand on a command line; nothing if none are known.

    Several where only a person can decide between them, which a finding says (`Finding.choices`). The GPUs that are not covered,
    a licence, a second runtime: what such a finding says is not changed by an option, so there is none then.
    """
    ways = max((len(error.choices) for error in planned.plan.findings if error.level == "error"), default=0)
    tried = (_way_out(planned, options, replan, number) for number in range(max(ways, 1)))
    return tuple(dict.fromkeys(filter(None, tried)))


def _way_out(planned: PreparedPlan, options: Options, replan: Replan, choice: int) -> tuple[str, ...]:
    """Return one way out: that with the choice of that number."""
    proposed: dict[tuple[str, str], list[_Words]] = {}
    attempt = planned
    for _ in range(_ROUNDS):
        errors = [error for error in attempt.plan.findings if error.level == "error"]
        if not errors:
            return tuple(word for words in _chosen(proposed) for word in words)
        # RLK104 only sums up. What the nearest variant lacks has findings too, and serving that is what helps.
        errors = [error for error in errors if error.code != "RLK104"] or errors
        subjects = {subject for _, subject in proposed}
        for cause in causes(errors):
            first = cause.findings[0]
            for subject in cause.subjects:
                key = _key(first, subject, proposed, subjects)
                if key not in proposed:
                    proposed[key] = list(_proposals(attempt.context, first, subject, options, choice))
                else:
                    # The first proposal was tried, and the finding is still an error: the next one has its turn.
                    proposed[key] = proposed[key][1:]
                if not proposed[key]:
                    return ()
        attempt = replan(_with(options, _chosen(proposed)))
    return ()


def _key(
    first: Finding,
    subject: str,
    proposed: Mapping[tuple[str, str], Sequence[_Words]],
    subjects: Iterable[str],
) -> tuple[str, str]:
    """Return what a finding is about; a refusal of what was proposed is about the same as the proposal."""
    if first.code in ("RLK114", "RLK126") and subject in subjects:
        return next(key for key in proposed if key[1] == subject)
    step = "; ".join(first.choices) or first.step
    return step or first.code, "" if step and step.startswith("--") else subject


def _proposals(
    context: ResolveContext, first: Finding, subject: str, options: Options, choice: int = 0
) -> Iterator[_Words]:
    """Yield options for one finding, the least that they ask to be believed first.

    :param choice: the number of the text that is taken where a finding has several.
    """
    step = first.choices[min(choice, len(first.choices) - 1)] if first.choices else first.step
    if step and step.startswith("--"):
        try:
            words = shlex.split(step)
        except ValueError:
            return
        inapplicable = words[0] in _ONE_VALUE and options.command[1:2] and options.command[1] in _OF_A_TARGET
        if len(words) % 2 == 0 and _FIELDS.keys() >= {*words[::2]} and not inapplicable:
            yield tuple(zip(words[::2], words[1::2], strict=True))
    elif first.code == "RLK101":
        for provider in context.providers if not context.vendor.libraries.is_runtime(subject) else ():
            yield from ((("--substitute", f"{subject}={near}"),) for near in provider.nearest(subject))
        if context.is_optional(subject):
            yield (("--stub", subject),)


def _chosen(proposed: Mapping[tuple[str, str], Sequence[_Words]]) -> _Words:
    """The proposal that is tried next for each finding, each option once."""
    return tuple(dict.fromkeys(words for several in proposed.values() if several for words in several[0]))


def _with(options: Options, chosen: _Words) -> Options:
    """Return the options with others added; they count as given by the user."""
    for word, value in chosen:
        name = _FIELDS[word]
        new = value if word in _ONE_VALUE else (*getattr(options, name), value)
        options = replace(options, **{name: new})  # type: ignore[arg-type]
    return options
