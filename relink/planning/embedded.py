"""The plan inside of the output wheel: without the facts that hold on the machine of its maker only.

What stays is about the result: the target's loader and its directories, the providers, search paths, and the libraries that were
found. A report (``relink WHEEL --json``) keeps everything.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from relink.planning.model import FilePlan, Plan, from_json
from relink.system.bounded_json import JSON_LIMIT
from relink.wheel.source import MemberSource, read_member

PLAN_MEMBER: Final = "relink.json"
"""The plan's member in the dist-info of an output."""
ANY_PYTHON: Final = "$PYTHON"
"""Stands for the path of the Python that the plan was made for."""
BASE_PREFIX: Final = "$BASE_PREFIX"
"""Stands for ``sys.base_prefix`` of that Python, before what it loads from there."""
SITE: Final = "$SITE"
"""Stands for the site-packages that had the packages which the result finds beside it."""
_OF_THE_PLACE: Final = frozenset({"RLK210", "RLK520", "RLK522"})
"""Findings about the Python that the plan was made for, and about the shell that it was made in."""
_ENDS: Final = r"(?![^/\s:;,)])"  # behind a path
# Every machine has these directories, so they say nothing of the maker.
_SHARED: Final = frozenset({"", "/", "/usr", "/usr/local"})


def embed_plan(plan: Plan) -> Plan:
    """Return the plan for the wheel: no path of a Python, no directory that stands for the root, and not how a prefix was found.

    Edits stay as they are to the byte.
    """
    target, python = plan.target, plan.target.python
    plan = replace(
        plan,
        target=replace(target, python=ANY_PYTHON if python else None, sysroot="/"),
        providers=tuple(replace(provider, found_by=None) for provider in plan.providers),
        findings=tuple(found for found in plan.findings if found.code not in _OF_THE_PLACE),
        basis=None,
    )
    base = posixpath.dirname(posixpath.dirname(python)) if python else ""
    sites = list(plan.sites)
    if base in _SHARED and not sites:
        return plan
    # A provider may lie inside of the Python's directory, or around it. Its paths stay, since the plan is about them.
    kept = _any_of(provider.path for provider in plan.providers if provider.path not in sites)
    hidden = _any_of([] if base in _SHARED else [base])
    # Where several match, the first alternative counts: site-packages are hidden even inside of a provider, and a provider
    # stays even inside of the Python's directory.
    pattern = re.compile(rf"(?P<site>{_any_of(sites)}){_ENDS}|(?:{kept}){_ENDS}|(?P<base>{hidden})(?=/)")

    def shown(text: str) -> str:
        return pattern.sub(
            lambda match: SITE if match["site"] else BASE_PREFIX if match["base"] else match[0], text
        )

    return replace(
        plan,
        providers=tuple(replace(provider, path=shown(provider.path)) for provider in plan.providers),
        files=tuple(_file(file, shown) for file in plan.files),
        sites=tuple(shown(site) for site in plan.sites),
        findings=map_strings(plan.findings, shown),
        loads=tuple(replace(map_strings(load, shown), soname=load.soname) for load in plan.loads),
        opened=tuple(replace(map_strings(edge, shown), name=edge.name) for edge in plan.opened),
    )


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return `value` with every str in it changed: in facts, tuples, lists and mappings, their keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(map_strings(part, change) for part in value)
    if isinstance(value, Mapping):
        return {map_strings(key, change): map_strings(part, change) for key, part in value.items()}
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return replace(value, **{name: map_strings(getattr(value, name), change) for name in names})
    return value


def _any_of(paths: Iterable[str]) -> str:
    # (?!) matches nothing; an empty alternative would match everywhere.
    return "|".join(map(re.escape, paths)) or "(?!)"


def _file(file: FilePlan, shown: Callable[[str], str]) -> FilePlan:
    return replace(
        file,
        needed=tuple(
            replace(map_strings(entry, shown), soname=entry.soname, soname_after=entry.soname_after)
            for entry in file.needed
        ),
        closure=tuple((soname, shown(path)) for soname, path in file.closure),
    )


def read_plan(source: MemberSource) -> Plan | None:
    """Return the plan that a relinked wheel carries, or None for a vendor's wheel.

    :raises UsageError: the plan has another format than this relink reads, or is damaged.
    :raises WheelError: the member is larger than :data:`relink.system.bounded_json.JSON_LIMIT`, or damaged.
    """
    name = f"{source.dist_info}/{PLAN_MEMBER}"
    if name not in source.members:
        return None
    # Another release may have had more keys, such as that of libraries which it copied in: nothing is carried out of it.
    return from_json(read_member(source, name, JSON_LIMIT).decode("utf-8", "replace"), strict=False)
