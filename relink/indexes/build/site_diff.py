"""`relink index diff`: what is in one site and not in the other, and what works in one and not in the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from relink.indexes.build.matrix import CELL_STATES, MATRIX_LIMIT, MATRIX_SCHEMA
from relink.indexes.build.matrix_page import CELL_WORDS, PROJECTS
from relink.system.bounded_json import parse_json
from relink.system.errors import UsageError
from relink.system.safe_open import read_text

__all__ = ["SiteChange", "site_diff"]


_REFUSED = CELL_STATES.index("refused")


@dataclass(frozen=True, slots=True)
class SiteChange:
    """What differs for one wheel, target and GPU.

    :ivar gpu: a target id; None where the target names none.
    :ivar before: in words; None where the old site does not have it. `after`: the same of the new one.
    :ivar worse: something that worked does so no more, or less.
    """

    wheel: str
    target: str
    gpu: str | None
    before: str | None
    after: str | None
    worse: bool


def site_diff(old: Path, new: Path) -> tuple[SiteChange, ...]:
    """Compare two sites.

    :raises UsageError: one of them is none.
    """
    before, after = _cells(old), _cells(new)
    found = []
    for key in sorted({**before, **after}, key=lambda one: (one[0], one[1], one[2] or "")):
        was, now = before.get(key), after.get(key)
        if was != now:
            worse = was is not None and (now if now is not None else _REFUSED) > was
            found.append(SiteChange(*key, _word(was), _word(now), worse))
    return tuple(found)


def _word(state: int | None) -> str | None:
    return None if state is None else CELL_WORDS[CELL_STATES[state]]


def _cells(site: Path) -> dict[tuple[str, str, str | None], int]:
    try:
        return {key: state for data in _matrices(site) for key, state in _flat(data)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"{site}: is no site that this relink reads ({error})") from error


def _matrices(site: Path) -> Iterator[Mapping[str, Any]]:
    """All data of a site: that of each project, where they have it."""
    data = _read(site / "matrix.json")
    if PROJECTS not in data:
        yield data
    for project in data.get(PROJECTS, ()):
        yield _read(site / PROJECTS / f"{canonicalize_name(project, validate=True)}.json")


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = parse_json(read_text(path, MATRIX_LIMIT), MATRIX_LIMIT)
    if data["schema"] != MATRIX_SCHEMA:
        raise ValueError(f"its form is {str(data['schema'])[:60]!r}")
    return data


def _flat(data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str | None], int]]:
    gpus: dict[str, list[str | None]] = {
        target["target"]: [str(gpu["id"]) for gpu in target["gpus"]] or [None] for target in data["targets"]
    }
    for row in data["rows"]:
        for target, cell in row["cells"].items():
            for gpu, state in zip(gpus[target], cell["states"], strict=True):
                if type(state) is not int or not 0 <= state < len(CELL_STATES):
                    raise ValueError(f"there is no state {str(state)[:20]!r}")
                yield (str(row["wheel"]), str(target), gpu), state
