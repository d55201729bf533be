"""The part of each file of a distribution, over sources and ELF files that a test writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relink.elf.image import Image, read_image
from relink.python.facts_cache import FactsCache
from relink.python.parts import find_parts
from relink.python.process import PythonProcesses
from tests.support.elf_builder import Library, build
from tests.support.python_processes import python_of, write_files

SOURCE = """
import ctypes, os
here = os.path.dirname(__file__)
from . import core
try:
    from . import fast
except ImportError:
    pass
def connect():
    return ctypes.CDLL(os.path.join(here, "plugin.so"))
class Backend:
    def start(self):
        ctypes.CDLL("libnamed.so.1")
"""
ELF = {
    "package/core.so": Library(None, ("libcarried.so.1",)),
    "package/fast.so": Library(None, ()),
    "package/plugin.so": Library(None, ("libdeep.so.1",)),
    "package/sub/extra.so": Library(None, ()),
    "package.libs/libcarried.so.1": Library("libcarried.so.1", ()),
    "package.libs/libdeep-1234.so.1": Library("libdeep.so.1", ()),
    "package.libs/libnamed.so.1": Library("libnamed.so.1", ()),
    "package/unknown.so.2": Library("unknown.so.2", ()),
    "package/old.cpython-27m-x86_64-linux-gnu.so": Library(None, ()),
    "package/include/part.so": Library(None, ()),
    "package/core.so.debug": Library(None, ()),
    "package/bin/run": Library(None, (), interpreter="/lib64/ld-linux-x86-64.so.2"),
    "package/other_machine.so": Library(None, ()),
}


def test_each_file_has_a_part(tmp_path: Path) -> None:
    write_files(tmp_path, {"package/__init__.py": SOURCE, "package/sub/__init__.py": "from . import extra\n"})
    images: dict[str, Image] = {}
    for name, library in ELF.items():
        data = build(library)
        write_files(tmp_path, {name: data})
        images[str(tmp_path / name)] = read_image(data, name)
    other = str(tmp_path / "package/other_machine.so")
    images[other] = replace(images[other], header=replace(images[other].header, machine=183))
    python = python_of(tmp_path)
    processes = PythonProcesses(python, cache=FactsCache(None), variables={})
    imported = processes.read_import("package").events
    later = processes.read_later(["package", "package.sub", "package.absent"])
    found = find_parts(images, imported, later, python, 62)
    assert {path.removeprefix(f"{tmp_path}/"): reach.part for path, reach in found.items()} == {
        "package/core.so": "import",
        "package/fast.so": "guarded",
        "package/plugin.so": "later",
        "package/sub/extra.so": "later",
        "package.libs/libcarried.so.1": "carried",
        "package.libs/libdeep-1234.so.1": "carried",
        "package.libs/libnamed.so.1": "later",
        "package/unknown.so.2": "unknown",
        "package/old.cpython-27m-x86_64-linux-gnu.so": "foreign",
        "package/include/part.so": "foreign",
        "package/core.so.debug": "foreign",
        "package/bin/run": "program",
        "package/other_machine.so": "foreign",
    }
    plugin = found[str(tmp_path / "package/plugin.so")].event
    assert plugin is not None
    assert (plugin.module, plugin.line, plugin.by) == ("package", 10, "ctypes.CDLL")
    assert found[str(tmp_path / "package.libs/libcarried.so.1")].by == str(tmp_path / "package/core.so")
