"""A changed soname is an ABI claim, so it needs evidence (docs/architecture.md, decision 4). When a NEEDED may go or be replaced.

Replacing ``libX.so.A`` by ``libX.so.B`` takes three things: (a) B exports every symbol, with its version, that the image imports
from A; (b) the same stem; (c) a profile that knows the two as one ABI, or the user's word. With (a) and (b) alone it stays an
error that names the flag. Dropping takes two: no version record names the library, and every strong import binds without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from relink.elf.symbols import Import, SymbolTable, match
from relink.providers.prefix import soname_stem

__all__ = ["Candidate", "SubstitutionDecision", "evaluate_substitution"]

_MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A library that could take the place of a missing one.

    :ivar reason: why it counts as the same ABI: a profile's sentence or the user's flag; None where nobody says so.
    :ivar profile: the profile that says so, None where it is the user.
    """

    soname: str
    path: str
    table: SymbolTable
    reason: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class SubstitutionDecision:
    """What may be done about one missing NEEDED.

    :ivar action: ``substitute``, ``drop`` or ``keep`` (nothing is proved, so it stays missing).
    :ivar candidate: the soname that would replace it, where there is one.
    :ivar evidence: one sentence a fact, for the plan.
    :ivar wanted: how many imports are laid at this library's door, `found` how many of them the candidate exports.
    :ivar lacking: those that it does not export, as ``name`` or ``name@VERSION``.
    :ivar profile: the profile that the action rests on, besides the symbols.
    """

    soname: str
    action: str
    candidate: str | None = None
    evidence: tuple[str, ...] = ()
    wanted: int = 0
    found: int = 0
    lacking: tuple[str, ...] = ()
    profile: str | None = None


def evaluate_substitution(
    missing: Sequence[str],
    imports: Sequence[Import],
    unbound: Collection[Import],
    candidates: Mapping[str, Sequence[Candidate]],
) -> dict[str, SubstitutionDecision]:
    """Say of every missing NEEDED of one image what the evidence allows.

    :param missing: its NEEDED entries that nothing serves.
    :param imports: all imports of the image.
    :param unbound: its strong imports that bind to nothing in the closure without the missing libraries, and that no outside
        supplier is known for.
    :param candidates: by missing soname, the libraries of the same stem that there are, the preferred one first.
    """
    named = {
        soname: [item for item in imports if item.file == soname] for soname in missing
    }  # by version record: these are known to come from it
    open_imports = [item for item in unbound if item.file is None or item.file not in missing]
    chosen = {soname: _best(named[soname], open_imports, candidates.get(soname, ())) for soname in missing}
    claimed = {
        item
        for candidate in chosen.values()
        if candidate is not None
        for item in open_imports
        if _exports(candidate.table, item)
    }
    unexplained = [item for item in open_imports if item not in claimed]
    verdicts = {}
    for soname in missing:
        others = [name for name in missing if name != soname and chosen[name] is None]
        verdicts[soname] = _verdict(
            soname, named[soname], open_imports, unexplained, chosen[soname], standalone=not others
        )
    return verdicts


def _best(
    named: Sequence[Import], open_imports: Sequence[Import], candidates: Sequence[Candidate]
) -> Candidate | None:
    """The candidate that somebody vouches for, else the one that exports most of what may be wanted."""
    vouched = [candidate for candidate in candidates if candidate.reason]
    if vouched:
        return vouched[0]
    wanted = [*named, *open_imports]
    return max(
        candidates, key=lambda found: sum(_exports(found.table, item) for item in wanted), default=None
    )


def _exports(table: SymbolTable, item: Import) -> bool:
    return match(table.exports.get(item.name, ()), item.version) is not None


def _verdict(
    soname: str,
    named: Sequence[Import],
    open_imports: Sequence[Import],
    unexplained: Sequence[Import],
    candidate: Candidate | None,
    *,
    standalone: bool,
) -> SubstitutionDecision:
    if not named and not open_imports:
        return SubstitutionDecision(
            soname,
            "drop",
            evidence=(
                "no version record names it",
                "every strong import of the file binds without it: the file was linked against it and does not use it",
            ),
        )
    taken = [item for item in open_imports if candidate is not None and _exports(candidate.table, item)]
    if not named and not taken and not unexplained:
        # What is open belongs to another missing library, whose substitute exports it.
        return SubstitutionDecision(
            soname,
            "drop",
            evidence=("no version record names it", "every strong import of the file binds without it"),
        )
    if candidate is None:
        wanted = [*named, *unexplained]
        return SubstitutionDecision(soname, "keep", wanted=len(wanted), lacking=tuple(map(_label, wanted)))
    # An import that no library is known for counts against this one, unless another missing library may have had it.
    wanted = list(dict.fromkeys([*named, *taken, *(unexplained if standalone else ())]))
    found = [item for item in wanted if _exports(candidate.table, item)]
    lacking = tuple(_label(item) for item in wanted if item not in found)
    same_stem = soname_stem(candidate.soname) == soname_stem(soname)
    proved = bool(wanted) and not lacking and same_stem
    evidence = [
        f"{len(found)} of {len(wanted)} imported symbols are exported by {candidate.path}: {_some(found)}"
    ]
    if not named:
        evidence.append("no version record names it")
    if candidate.reason:
        named_by = f"profile {candidate.profile}: " if candidate.profile else ""
        evidence.append(f"{named_by}{candidate.reason}")
    return SubstitutionDecision(
        soname,
        "substitute" if proved and candidate.reason else "keep",
        candidate.soname,
        tuple(evidence),
        len(wanted),
        len(found),
        lacking,
        candidate.profile,
    )


def _label(item: Import) -> str:
    return f"{item.name}@{item.version}" if item.version else item.name


def _some(items: Sequence[Import]) -> str:
    shown = ", ".join(_label(item) for item in items[:_MAX_SHOWN])
    return shown + (" …" if len(items) > _MAX_SHOWN else "")
