"""Which modules an extension imports in C: by the code that initialises it, or where that cannot be read by names in its data.

A name in the data may be that of a module which a function imports later, so only those of the own package count, and what
PyCapsule_Import takes: an attribute of a module (``datetime.datetime_CAPI``).
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache, cached_property
from itertools import islice
from typing import Any

import msgspec

from relink.elf.dynamic import Buffer, open_memory
from relink.elf.image import DAMAGE, read_sections
from relink.python.cython_strings import CythonStrings, read_cython_strings
from relink.python.evaluation import Evaluation
from relink.python.facts_cache import FactsCache
from relink.python.init_code import InitImport, read_init_imports
from relink.python.modules import Disk, Interpreter, Spec, find_module
from relink.python.syntax import Nodes, UnreadableSourceError
from relink.python.values import Frame, Module, Raised, items
from relink.system.errors import ElfError, RelinkError, raise_if_machine_fault
from relink.system.safe_open import map_file

_DATA = (".rodata", ".data")
_CAPSULE = re.compile(rb"\0([A-Za-z_][\w.]*)\.\w*C_?API(?=\0)")
# What the modules that cffi makes import (cffi/_cffi_include.h, _cffi_init); no distribution's name leads to it.
_CFFI = "_cffi_backend"
_MYPYC = "__mypyc."  # in the name of what has the bodies of a package's modules
_LIBRARY = re.compile(r"lib(\w+)\.so")
_NAME = re.compile(rb"\0(\w[\w.]{2,80})(?=\0)")
_PLAIN_NAME = re.compile(rb"[A-Za-z_][\w.]{2,80}")
# Bytes that are searched of a section, and names that are taken of an extension.
_SEARCHED, _NAMES = 64 << 20, 5_000
# By an extension what it loads while it is initialised in a way that its code does not show: modules, and libraries beside it, as
# these releases were seen to do.
_IN_CODE: Mapping[str, tuple[str, ...]] = {
    # 1.20 to 1.32: a path that is put together (ProviderSharedLibrary in core/session/provider_bridge_ort.cc).
    "onnxruntime.capi.onnxruntime_pybind11_state": ("libonnxruntime_providers_shared.so",),
    # certifi.where() is called while they are made.
    "netCDF4._netCDF4": ("importlib.readers",),
    "rasterio._env": ("importlib.readers",),
    # 18 and 26: pandas is asked for by an object of pyarrow.lib (pandas-shim.pxi).
    "pyarrow._dataset": ("pandas",),
    # 6.12: libshiboken6 has the sources compiled and compressed (signature_bootstrap.py).
    "shiboken6.Shiboken": ("inspect", "datetime"),
}
# What of the module platform runs a program: uname()[4], and not uname().machine.
_RUNNING = frozenset({"processor", "uname"})


class ExtensionNames(msgspec.Struct, frozen=True, array_like=True):
    """What stands in an extension's data, or in its code.

    :ivar certain: modules that it imports for sure.
    :ivar names: whole strings, in the order of the file.
    :ivar imports: what its initialisation imports, with the `words` that it uses; None where that cannot be read.
    """

    certain: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    imports: tuple[InitImport, ...] | None = None


class ExtensionImports:
    """What the extensions of one environment import.

    :param read_statements: returns the statements of a source file.
    """

    def __init__(
        self, interpreter: Interpreter, disk: Disk, cache: FactsCache, read_statements: Callable[[str], Nodes]
    ) -> None:
        self._interpreter, self._disk, self._cache = interpreter, disk, cache
        self._read_statements = read_statements

    def follow(self, evaluation: Evaluation, module: Module) -> None:
        """Import what an extension imports, and follow the source that it was made from, where that lies beside it."""
        path = module.spec.file
        source = re.sub(r"\.[^/]*$", ".py", path)
        if path in self._disk.members:  # which nothing is read of
            return
        if self._disk.exists(source):
            with suppress(OSError, UnreadableSourceError), evaluation.at_least("inferred"):
                statements, module.bodies = self._read_statements(source), [*evaluation.read_bodies(source)]
                with suppress(Raised):
                    evaluation.block(Frame(module, module.names), statements)
        names = self._names(path)
        imports = names.imports
        if imports is None:
            imports = tuple(InitImport((name,)) for name in self.imported_by(path))
        for imported in imports:
            self._follow_one(evaluation, module, imported, names.words)
        for name in _IN_CODE.get(module.name, ()):
            beside = posixpath.join(posixpath.dirname(path), name)
            if not name.endswith(".so"):
                self._follow_one(evaluation, module, InitImport((name,)), ())
            elif self._disk.exists(beside):
                with suppress(Raised), evaluation.at_least("inferred"):
                    evaluation.record("library", beside, "strings", flags=os.RTLD_NOW, caller=path)

    def _follow_one(
        self, evaluation: Evaluation, module: Module, one: InitImport, words: Collection[str]
    ) -> None:
        """Follow an import of an extension, and what it takes of the module; or a dlopen of what the loader's cache has."""
        if (library := _LIBRARY.match(one.names[0])) and (soname := evaluation.find_soname(library[1])):
            with evaluation.at_least("inferred"):
                evaluation.record("library", soname, "strings", flags=os.RTLD_NOW, caller=module.spec.file)
        name = self._resolve(module, one)
        if not name:
            return
        with suppress(Raised), evaluation.at_least("inferred"):
            found = evaluation.import_module(name, "strings")
            if name == "platform" and not _RUNNING.isdisjoint(words):
                evaluation.import_module("subprocess", "strings")
            for word in one.taken:
                if self._find(f"{name}.{word}"):
                    evaluation.import_from(found, word)
            if "__getattr__" in found.names and name.partition(".")[0] in self._standard:
                # What it has by its hook alone is asked for in C, too (concurrent.futures).
                for public in items(found.names.get("__all__")) or ():
                    if public in words:
                        evaluation.attribute(found, public)

    def _resolve(self, module: Module, one: InitImport) -> str:
        """Return the first module with a name of an import that is there, or ""."""
        package = module.name if module.spec.search is not None else module.name.rpartition(".")[0]
        parts = package.split(".")
        above = ".".join(parts[: len(parts) - one.level + 1]) if one.level > 0 else ""
        names = [f"{above}.{name}".rstrip(".") for name in one.names if above]
        names += [*one.names, *(f"{package}.{name}" for name in one.names if package and one.level < 0)]
        return next((name for name in names if name and self._find(name)), "")

    def imported_by(self, path: str) -> list[str]:
        """Return the modules that an extension names: those that it imports for sure, and those of its own package."""
        found = self._names(path)
        if _MYPYC in path:  # the bodies of a package's modules, which import when they are called by these
            return [*found.certain]
        site = next((one for one in self._interpreter.site_packages if path.startswith(f"{one}/")), "")
        own = path[len(site) + 1 :].split("/", maxsplit=1)[0].partition(".")[0]
        named = (
            name
            for name in found.names
            if name.partition(".")[0] == own
            or (name == _CFFI and not posixpath.basename(path).startswith(f"{_CFFI}."))
        )
        return [*dict.fromkeys((*found.certain, *named))]

    def _names(self, path: str) -> ExtensionNames:
        def read() -> dict[str, Any]:
            try:
                # A package may be an extension, whose entry has the package's name.
                name = posixpath.basename(re.sub(r"/__init__(?=\.)[^/]*$", "", path))
                with map_file(path) as buffer:
                    found = read_extension_names(buffer, name)
            except (OSError, RelinkError) as error:
                raise_if_machine_fault(error, path)
                found = ExtensionNames()
            return {"names": msgspec.to_builtins(found)}

        self._disk.look(path)
        return msgspec.convert(self._cache.facts("names", path, read), ExtensionNames)

    @cached_property
    def _standard(self) -> frozenset[str]:
        """The names at the top of the standard library's directories."""
        names = (one for directory in self._interpreter.standard for one in self._disk.names(directory))
        return frozenset(name.partition(".")[0] for name in names)

    def _find(self, name: str) -> Spec | None:
        """Return where a module lies, by the directories alone."""
        spec, search = None, self._interpreter.path
        for end in (*(dot.start() for dot in re.finditer(r"\.", name)), None):
            spec = find_module(name[:end], search, self._interpreter, self._disk)
            search = spec.search or () if spec else ()
        return spec


def read_extension_names(buffer: Buffer, name: str = "") -> ExtensionNames:
    """Return what an extension imports, and where that cannot be read the names in its data; none without section headers.

    :param name: the file's, which begins with that of the module.
    """
    # Inflating the strings of Cython takes most of the time, and both ways ask for them.
    read_cython = cache(lambda: read_cython_strings(buffer))
    with suppress(ElfError, *DAMAGE), open_memory(buffer) as memory:
        stem = "" if _MYPYC in name else name.partition(".")[0]
        read = read_init_imports(memory, stem, read_cython)
        if read is not None:
            return ExtensionNames(words=read[1], imports=read[0])
    try:
        sections = [one for one in read_sections(buffer, "") if one.name.startswith(_DATA)]
    except ElfError:
        return ExtensionNames()
    certain: dict[str, None] = {}
    names: dict[str, None] = {}
    for section in sections:
        end = min(section.offset + min(section.file_size, _SEARCHED), len(buffer))
        data = bytes(buffer[section.offset : end])
        certain |= dict.fromkeys(found[1].decode("ascii", "replace") for found in _CAPSULE.finditer(data))
        for found in islice(_NAME.finditer(b"\0" + data), _NAMES):  # looking for a byte takes half the time
            names[found[1].decode("ascii", "replace")] = None
    cython = read_cython() or CythonStrings()
    certain |= dict.fromkeys(cython.inflating)
    names |= dict.fromkeys(one.decode() for one in cython.strings if _PLAIN_NAME.fullmatch(one))
    return ExtensionNames(tuple(certain), tuple(names))
