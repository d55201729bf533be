"""How each file of a distribution gets into a process: its part.

That a file belongs to a GPU is a vendor's to say; it is no part here.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from relink.elf.image import Image
from relink.python.events import Event
from relink.python.modules import Interpreter

FilePart: TypeAlias = Literal["import", "guarded", "later", "carried", "program", "foreign", "unknown"]
"""``import``: the import maps it, or fails. ``guarded``: the import goes on without; what is conditional or inferred counts so.
``later``: something opens it after the import. ``carried``: only other files' NEEDED lead to it. ``program``: a user runs it.
``foreign``: for another Python or machine, debug data, or an example. ``unknown``: nothing is known to load it."""

_PART_OF: dict[str, FilePart] = {
    "certain": "import",
    "guarded": "guarded",
    "conditional": "guarded",
    "inferred": "guarded",
    "later": "later",
}
_SOME_PYTHON = re.compile(r"\.(?:cpython-|cp|pypy|graalpy)\d[\w-]*\.so$")


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of a file, and who loads it.

    :ivar event: what opens it; None where nothing is known to.
    :ivar by: the file whose NEEDED leads to one that is carried.
    """

    part: FilePart
    event: Event | None = None
    by: str | None = None


def find_parts(
    images: Mapping[str, Image],
    imported: Iterable[Event],
    later: Iterable[Event],
    interpreter: Interpreter,
    machine: int,
) -> dict[str, Reach]:
    """Return the part of each ELF file.

    :param images: by path, as the target sees it.
    :param imported: the events of the imports of the distribution's top-level modules.
    :param later: those of :meth:`relink.python.process.PythonProcesses.read_later`.
    :param machine: e_machine of the target.
    """
    real = {os.path.realpath(path): path for path in images}
    parts: dict[str, Reach] = {}
    for event in (*imported, *later):
        path = real.get(os.path.realpath(event.name)) if event.kind in ("extension", "library") else None
        path = path or next(
            (one for one in images if event.kind == "library" and _is_named(images[one], one, event.name)),
            None,
        )
        if path is not None and path not in parts:
            parts[path] = Reach(_PART_OF[event.when], event)
    by_soname = {image.soname or posixpath.basename(path): path for path, image in images.items()}
    pending = [*parts]
    while pending:
        owner = pending.pop()
        for soname in images[owner].needed:
            path = by_soname.get(soname)
            if path is not None and path not in parts:
                parts[path] = Reach("carried", parts[owner].event, owner)
                pending.append(path)
    return {
        path: parts.get(path) or Reach(find_part_alone(path, image, interpreter, machine))
        for path, image in images.items()
    }


def _is_named(image: Image, path: str, name: str) -> bool:
    """Whether a library is opened by its soname or the name of its file."""
    return "/" not in name and name in (image.soname, posixpath.basename(path))


def find_part_alone(path: str, image: Image, interpreter: Interpreter, machine: int) -> FilePart:
    """Return the part of a file that no event leads to: program, foreign or unknown.

    :param machine: e_machine of the target.
    """
    if image.header.machine != machine:
        return "foreign"
    if image.is_executable or image.is_static_program:
        return "program"
    is_other = _SOME_PYTHON.search(path) and not path.endswith(interpreter.own_suffixes)
    is_aside = ".so.debug" in path or "include" in path.split("/")[:-1]
    return "foreign" if is_other or is_aside else "unknown"
