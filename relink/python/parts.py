"""The parts that files of a distribution have in a process: how each gets into one.

That a file belongs to a GPU is a vendor's to say; it is no part here.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from relink.elf.image import Image
from relink.python.modules import Interpreter

FilePart: TypeAlias = Literal["import", "guarded", "later", "carried", "program", "foreign", "unknown"]
"""``import``: the import maps it, or fails. ``guarded``: the import goes on without; what is conditional or inferred counts so.
``later``: something opens it after the import. ``carried``: only other files' NEEDED lead to it. ``program``: a user runs it.
``foreign``: for another Python or machine, debug data, or an example. ``unknown``: nothing is known to load it."""

_SOME_PYTHON = re.compile(r"\.(?:cpython-|cp|pypy|graalpy)\d[\w-]*\.so$")


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
