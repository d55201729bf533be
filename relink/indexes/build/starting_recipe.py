"""A recipe to begin with: the ROCm, the Pythons and the GPUs of this machine, and the wheels of a directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from relink.gpu import seen_gpus
from relink.loader.python import ask_python
from relink.loader.target import Target, find_target
from relink.system.errors import RelinkError
from relink.vendors.registry import VENDORS, find_places, products

__all__ = ["starting_recipe"]

_NEWEST = 20  # minor versions of Python 3 that are looked for
_OLDEST = 9
_EXAMPLE = "onnxruntime-rocm>=1.20"
_HEAD = """\
# What `relink index build` makes an index of. docs/index-building.md explains every key.

"""


def starting_recipe(directory: Path, environment: Mapping[str, str]) -> str:
    """Return the text of a recipe for this machine.

    :param directory: where it will lie; a uv.lock and wheels in it become sources.
    :raises TargetError: this machine's loader cannot be asked.
    """
    target = find_target()
    lines = [f"pythons = {_list(_pythons())}", 'originals = "mirror"  # or link, or omit', ""]
    sources = list(_sources(directory))
    lines += [line for source in sources for line in ("[[sources]]", *source, "")]
    lines += _targets(target, environment)
    return _HEAD + "\n".join(lines)


def _sources(directory: Path) -> Iterable[tuple[str, ...]]:
    found = False
    if any(directory.glob("*.whl")):
        found = True
        yield ('directory = "."',)
    if (directory / "uv.lock").is_file():
        found = True
        yield ('lock = "uv.lock"',)
    if not found:
        note = "# as pip is configured here; an address takes another index"
        yield (f'index = "pip"  {note}', f"requirements = [{_text(_EXAMPLE)}]", "latest = 3")


def _targets(target: Target, environment: Mapping[str, str]) -> list[str]:
    gpus = sorted({str(gpu.target) for gpu in seen_gpus()})
    places = find_places(target, environment)
    lines: list[str] = []
    if not places:
        lines.append(f"# No {products()} was found on this machine; name the prefix of the one to link to.")
    for number, path in enumerate([place.path for place in places] or [f"/opt/{VENDORS[0].table}"]):
        name = re.sub(r"[^a-z0-9]", "", os.path.basename(os.path.realpath(path)).lower())
        name = name if name[:1].isalpha() and name not in ("all", "usr") else VENDORS[0].table
        if any(line == f"[targets.{name}]" for line in lines):
            name = f"{name}x{number}"
        lines += [f"[targets.{name}]", f"prefixes = [{_text(path)}]"]
        note = "" if gpus else '  # GPUs of the matrix: "gfx1031", "RX 6750 XT"'
        lines += [f"gpus = {_list(gpus)}{note}", ""]
    return lines


def _pythons() -> list[str]:
    """The versions of the CPythons of this machine; relink's own counts."""
    found = {sys.version_info[:2]}
    for minor in range(_OLDEST, _NEWEST):
        path = shutil.which(f"python3.{minor}")
        try:
            facts = ask_python(path) if path else None
        except RelinkError:  # a name on PATH that stands for no Python
            continue
        if facts is not None and facts.implementation == "cpython":
            found.add(facts.version)
    return [f"{major}.{minor}" for major, minor in sorted(found)]


def _text(text: str) -> str:
    return json.dumps(text)


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"
