"""Which modules an extension imports in C, by the names in its data.

Where they stand: PyImport_ImportModule and Cython's __Pyx_ImportModule take a C string; PyCapsule_Import takes the name of an
attribute of a module (``datetime.datetime_CAPI``); Cython before 3.2 has every name of the source as a C string. Later ones join
the strings, have the lengths in an array, and compress the text: from 3.3 on by an LZSS of its own, before by zlib, which the
module imports then (Cython/Compiler/Code.py, generate_pystring_constants; Cython/Utility/StringTools.c).
"""

from __future__ import annotations

import builtins
import io
import posixpath
import re
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, islice, pairwise, takewhile
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from relink.elf.dynamic import Buffer
from relink.elf.image import read_sections
from relink.python.evaluation import Evaluation
from relink.python.facts_cache import FactsCache
from relink.python.modules import Disk, Interpreter, Spec, find_module
from relink.python.syntax import SOURCE_LIMIT, Nodes, UnreadableSourceError
from relink.python.values import Frame, Module, Raised, items
from relink.system.errors import ElfError, RelinkError, WheelError, raise_if_machine_fault
from relink.system.safe_open import map_file
from relink.wheel.metadata import read_metadata

_RECORD_LIMIT = 64 << 20  # bytes of a RECORD or METADATA
_DATA = (".rodata", ".data", ".dynstr")
_ENTRIES = (b"PyInit", b"PyModExport")  # of PEP 3121 and PEP 793; a longer name may end in one of them
_CAPSULE = re.compile(rb"\0([A-Za-z_][\w.]*)\.\w*C_?API(?=\0)")
# What the modules that cffi makes import (cffi/_cffi_include.h, _cffi_init); no distribution's name leads to it.
_CFFI = "_cffi_backend"
_CYTHON = b"cython_runtime"  # a module that all of Cython's make
_NAME = re.compile(rb"\0(\w[\w.]{2,80})(?=\0)")
_PLAIN_NAME = re.compile(rb"[A-Za-z_][\w.]{2,80}")
_JOINED = re.compile(rb"(?<![^\0])[^\0]{80,}")
_WORD = re.compile(r"[\w.]{40,}")
_COMPRESSED = re.compile(rb"x[\x5e\x9c\xda]")
# The start of an LZSS stream: at least three bytes that refer to none before them, as the lowest bits say. The shortest strings
# come first, and "\0" and "\1" may be among them.
_LZSS = re.compile(
    rb"(?=[%s](?:\0\x01[\t\n -~]|[\0\t\n -~][\t\n -~]{2}))" % re.escape(bytes(range(7, 256, 8))), re.DOTALL
)
_ALIGNED = 32  # bytes, by which compilers align what is long
_LENGTHS = re.compile(rb"(?:[^\0][\0-\x7f]\0\0){6,}", re.DOTALL)
# What a source defines at its top, says that it has for others, and has from others by ``*``.
_DEFINED = re.compile(r"^(?:def |class |)(\w+)(?= =|\(|:)", re.MULTILINE)
_LISTED = re.compile(r"^__all__ = [\[(]([^])]*)", re.MULTILINE)
_STARS = re.compile(r"^ *from (\.?)([\w.]+) import \*", re.MULTILINE)
# Strings of all modules of Cython, in the order in which they are joined.
_EVERY = (b"__main__", b"__name__", b"__test__")
# Bytes that are searched of a section, names that are taken of an extension, and characters of joined strings.
_SEARCHED, _NAMES, _TEXT = 64 << 20, 5_000, 1 << 18
# Bytes that compressed strings give, those of all tries, the tries, and the bytes of the lengths of strings.
_INFLATED, _ALL_INFLATED, _TRIES, _INDEX = 1 << 20, 8 << 20, 2_000, 80_000
_WORDS = "array compress decompress error flags fromlist length mode offset register"
# What has a name in any source: that a module of the standard library has it, too, says nothing.
_OWN = (list, dict, str, bytes, memoryview, set, int, float, Exception, io.TextIOWrapper)
_GENERIC = frozenset(dir(builtins)).union(*map(dir, _OWN), _WORDS.split())
# Modules that Cython's own code imports when something is done with them, by a name that it uses of each.
_LATE = {"pickle": "PickleError", "asyncio.coroutines": "_is_coroutine", "struct": "View.MemoryView"}
# What of the module platform runs a program: uname()[4], and not uname().machine.
_OWN_NAMES = 9  # names that two modules of Cython have in common, where neither imports the other
_RUNNING = frozenset({"processor", "uname"})
# pybind11/numpy.h and eigen.h import these when an array is converted; import_array() of numpy itself, when the module is.
_CONVERTED, _ARRAYS = ("numpy.", "scipy."), "numpy._core._multiarray_umath"


class ExtensionNames(msgspec.Struct, frozen=True):
    """What stands in an extension's data.

    :ivar certain: modules that it imports for sure.
    :ivar names: whole strings, in the order of the file.
    :ivar joined: strings without ends, in which a name may stand anywhere.
    :ivar words: of the whole strings those that its source may have; none where they cannot be told from others.
    :ivar is_module: it may have the function that Python calls of an extension module.
    """

    certain: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    joined: str = ""
    words: tuple[str, ...] = ()
    is_module: bool = True


class ExtensionImports:
    """What the extensions of one environment import.

    :param read_statements: returns the statements of a source file.
    """

    def __init__(
        self, interpreter: Interpreter, disk: Disk, cache: FactsCache, read_statements: Callable[[str], Nodes]
    ) -> None:
        self._interpreter, self._disk, self._cache = interpreter, disk, cache
        self._read_statements = read_statements
        self._installed: dict[str, dict[str, tuple[frozenset[str], frozenset[str]]]] = {}
        self._public: dict[str, frozenset[str]] = {}
        self._in_c: set[str] = set()

    def follow(self, evaluation: Evaluation, module: Module) -> None:
        """Import what an extension imports, and follow the source that it was made from, where that lies beside it.

        :raises Raised: it is none.
        """
        path = module.spec.file
        source = re.sub(r"\.[^/]*$", ".py", path)
        if path in self._disk.members:  # which nothing is read of
            return
        if not self._names(path).is_module:
            entry = f"PyInit_{module.name.rpartition('.')[2]}"
            why = f"dynamic module does not define module export function ({entry})"
            raise Raised("ImportError", why, is_certain=True, opening=path)
        if self._disk.exists(source):
            with suppress(OSError, UnreadableSourceError), evaluation.at_least("inferred"):
                statements, module.bodies = self._read_statements(source), [*evaluation.read_bodies(source)]
                with suppress(Raised):
                    evaluation.block(Frame(module, module.names), statements)
        words = frozenset(self._names(path).words)
        for name in self.imported_by(path):
            count, before, module.needs = len(module.events), module.needs, set()
            with suppress(Raised), evaluation.at_least("inferred"):
                found = evaluation.import_module(name, "strings").names
                if name.partition(".")[0] in self._standard and "__getattr__" in found:
                    # What it has by its hook alone is asked for in C, too (concurrent.futures).
                    for one in sorted(words.intersection(items(found.get("__all__")) or ())):
                        evaluation.attribute(evaluation.modules[name], one)
                if name == "platform" and words & _RUNNING:
                    evaluation.import_module("subprocess", "strings")
            other = evaluation.modules.get(name, module)
            above = f"{(other if other.is_done else module).name}."
            begun = (one for one in module.needs if not evaluation.modules[one].is_done)
            is_needed = any(one == module.name or not above.startswith(f"{one}.") for one in begun)
            if is_needed and other.spec.kind == "source":
                # A source that needs this module is imported by it later (pyarrow.lib, pyarrow.compute).
                module.forget(count)
            else:
                before |= module.needs
            module.needs = before

    def imported_by(self, path: str) -> list[str]:
        """Return the modules that an extension names: those that it imports for sure, and those of installed packages."""
        found = self._names(path)
        wanted = dict.fromkeys(found.certain)
        if "__mypyc." in path:
            return [*wanted]  # the bodies of a package's modules, which import when they are called by these
        own, tops = self._packages_beside(path)
        words = frozenset(found.words)
        for name in dict.fromkeys((*found.names, *found.words)):
            top, dot, _ = name.partition(".")
            is_cffi = name == _CFFI and not posixpath.basename(path).startswith(f"{_CFFI}.")
            if is_cffi or (top in (tops if dot or name in words else own) and self._find(name)):
                wanted[name] = None
        standard = sorted(word for word in words if word.partition(".")[0] in self._standard)
        told = {name: names for name in standard if (names := self._told_names(name, words))}
        for name, names in told.items():
            # What another module has, too, may be of that one: asyncio.Queue.
            is_own = not any(names < more for more in told.values())
            if is_own and _LATE.get(name) not in words.union(found.names):
                wanted[name] = None
        for name in self._modules_below(path, [*wanted], words):
            if self._told_names(name, words):
                wanted[name] = None
        for match in re.finditer(
            rf"(?=({'|'.join(map(re.escape, sorted(tops)))})((?:\.\w+)+))", found.joined
        ):
            # The last part may have more than the name of a module, to which the next string is joined.
            ends = range(len(name := match[1] + match[2]), len(match[1]) + 1, -1)
            wanted |= dict.fromkeys(islice((name[:end] for end in ends if self._find(name[:end])), 1))
        return list(wanted)

    def _told_names(self, name: str, words: frozenset[str]) -> frozenset[str]:
        """Return the names of a module that stand among the words of an extension; none where they say nothing."""
        found = self._public_names(name) & words
        # In C stand the names of parameters, too, and in Cython's modules those of its own code.
        other = _OWN_NAMES if name.partition(".")[0] not in self._standard else 1
        return found if len(found) > other * (name in self._in_c) else frozenset()

    def _modules_below(self, path: str, wanted: Sequence[str], words: frozenset[str]) -> Iterator[str]:
        """Yield the modules with one of these names in the package of an extension, and in those that it imports."""
        site = next((one for one in self._interpreter.site_packages if path.startswith(f"{one}/")), "")
        package = posixpath.dirname(path[len(site) + 1 :]).replace("/", ".") if site else ""
        for above in dict.fromkeys((package, *(name for name in wanted if "." in name))):
            spec = self._find(above) if above and above.partition(".")[0] not in self._standard else None
            for directory in (spec.search or ()) if spec else ():
                names = (name.partition(".")[0] for name in self._disk.names(directory))
                yield from sorted(f"{above}.{name}" for name in words.intersection(names) if name[:2] != "__")

    def _names(self, path: str) -> ExtensionNames:
        def read() -> dict[str, Any]:
            try:
                with map_file(path) as buffer:
                    found = read_extension_names(buffer)
            except (OSError, RelinkError) as error:
                raise_if_machine_fault(error, path)
                found = ExtensionNames()
            return {"names": msgspec.structs.astuple(found)}

        self._disk.look(path)
        return ExtensionNames(*self._cache.facts("names", path, read))

    @cached_property
    def _standard(self) -> frozenset[str]:
        """The names at the top of the standard library's directories."""
        names = (one for directory in self._interpreter.standard for one in self._disk.names(directory))
        return frozenset(name.partition(".")[0] for name in names)

    def _public_names(self, name: str) -> frozenset[str]:
        """Return the names that a module has for others, less those of any source."""
        if name not in self._public:
            self._public[name] = frozenset()  # where the module is in a circle
            spec = self._find(name)
            found: set[str] = set()
            if spec is not None:
                if spec.kind == "extension":
                    found |= {one for one in self._names(spec.file).names if "." not in one}
                    self._in_c.add(name)
                with suppress(OSError, UnicodeDecodeError):
                    text = self._disk.read(spec.file, SOURCE_LIMIT).decode() if spec.kind == "source" else ""
                    found.update(_DEFINED.findall(text))
                    found.update(*(re.findall(r"\w+", listed) for listed in _LISTED.findall(text)))
                    package = name if spec.search is not None else name.rpartition(".")[0]
                    for dot, other in _STARS.findall(text):
                        found |= self._public_names(f"{package}.{other}" if dot else other)
            public = (one for one in found if len(one) > 3 and one[0] != "_" and one != name)
            self._public[name] = frozenset(public) - _GENERIC
        return self._public[name]

    def _packages_beside(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the top-level modules of an extension's distribution, and with those of what that requires."""
        site = next((one for one in self._interpreter.site_packages if path.startswith(f"{one}/")), "")
        own = path[len(site) + 1 :].split("/", maxsplit=1)[0].partition(".")[0]
        distributions = self._distributions(site)
        owner = next((names for names, _ in distributions.values() if own in names), frozenset[str]())
        required = (
            distributions[name][0]
            for tops, needs in distributions.values()
            if own in tops
            for name in needs
            if name in distributions
        )
        return owner, owner.union({own}, *required)

    def _distributions(self, site: str) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """Return by the name of each distribution its top-level names, and the distributions that it requires."""
        if site not in self._installed:
            found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
            for entry in self._disk.names(site) if site else ():
                name, _, kind = entry.rpartition(".")
                if kind == "dist-info":
                    directory = f"{site}/{entry}"
                    found[canonicalize_name(name.partition("-")[0])] = self._read_distribution(directory)
            self._installed[site] = found
        return self._installed[site]

    def _read_distribution(self, directory: str) -> tuple[frozenset[str], frozenset[str]]:
        try:
            record = self._disk.read(f"{directory}/RECORD", _RECORD_LIMIT).decode("utf-8", "replace")
            metadata = read_metadata(self._disk.read(f"{directory}/METADATA", _RECORD_LIMIT))
        except (OSError, WheelError) as error:
            raise_if_machine_fault(error, directory)
            return frozenset(), frozenset()
        tops = {line.partition("/")[0].partition(".")[0].partition(",")[0] for line in record.splitlines()}
        return frozenset(tops - {""}), frozenset(metadata.required())

    def _find(self, name: str) -> Spec | None:
        """Return where a module lies, by the directories alone."""
        spec, search = None, self._interpreter.path
        for end in (*(dot.start() for dot in re.finditer(r"\.", name)), None):
            spec = find_module(name[:end], search, self._interpreter, self._disk)
            search = spec.search or () if spec else ()
        return spec


def read_extension_names(buffer: Buffer) -> ExtensionNames:
    """Return the names in the data of an extension; none for a file without section headers."""
    try:
        sections = [one for one in read_sections(buffer, "") if one.name.startswith(_DATA)]
    except ElfError:
        return ExtensionNames()
    certain: dict[str, None] = {}
    names: dict[str, None] = {}
    words: dict[str, None] | None = None
    joined, imports, is_pybind, is_module = "", False, False, True
    for section in sections:
        end = min(section.offset + min(section.file_size, _SEARCHED), len(buffer))
        data = bytes(buffer[section.offset : end])
        if section.name == ".dynstr":
            imports = b"\0PyImport_ImportModule" in data
            is_module = any(one in data for one in _ENTRIES) or len(data) < section.file_size
            continue
        is_pybind |= b"pybind11" in data
        certain |= dict.fromkeys(found[1].decode("ascii", "replace") for found in _CAPSULE.finditer(data))
        for text, importing in islice(_joined_texts(data), _CYTHON in data):
            strings = _split(text, data)
            words = dict.fromkeys(one.decode() for one in strings if _PLAIN_NAME.fullmatch(one))
            # A sentence of a docstring names modules, too: names that are joined stand in words that no sentence has.
            joined = "" if strings else " ".join(_WORD.findall(text.decode("ascii", "replace")))[:_TEXT]
            certain |= dict.fromkeys(importing)
        for found in _NAME.finditer(b"\0" + data):  # looking for a byte takes half the time
            if len(names) >= _NAMES:
                break
            names[found[1].decode("ascii", "replace")] = None
    if is_pybind:
        names = {name: None for name in names if not f"{name}.".startswith(_CONVERTED) or name == _ARRAYS}
    elif words is None and imports:
        words = names
    return ExtensionNames(tuple(certain), tuple(names), joined, tuple(words or ()), is_module)


def _joined_texts(data: bytes) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """Yield texts in which Cython has joined the strings of a source, and the modules that inflate each."""
    for found in _JOINED.finditer(data):
        if all(one in found[0] for one in _EVERY):
            yield found[0], ()
    # A module that zlib inflates has the name of that; others would take the time for nothing.
    for found in islice(_COMPRESSED.finditer(data) if b"\0zlib\0" in data else (), _TRIES):
        decoder = zlib.decompressobj()
        with suppress(zlib.error):
            text = decoder.decompress(data[found.start() : found.start() + _INFLATED], _INFLATED)
            if decoder.eof and all(one in text for one in _EVERY):
                yield text, ("zlib",)
    left = _ALL_INFLATED
    heads = bytearray(4 * (len(data) // _ALIGNED))
    for number in range(4):
        heads[number::4] = data[number : len(data) // _ALIGNED * _ALIGNED : _ALIGNED]
    for start in (found.start() // 4 * _ALIGNED for found in _LZSS.finditer(heads) if found.start() % 4 == 0):
        if left > 0:
            text = inflate_lzss(data, start)
            left -= len(text)
            if all(one in text for one in _EVERY):
                yield text, ()
                break


def inflate_lzss(data: bytes, start: int) -> bytes:
    """Return what a stream gives up to the first reference to what is not there: its end, which no byte marks, and some more.

    A byte says of the next eight parts by a bit each, the lowest first, whether it is a byte (1) or a reference, of two or three
    bytes: how many bytes there are between its end and what it repeats, and how long that is, less 3.
    """
    text = bytearray()
    with suppress(IndexError):
        while len(text) < _INFLATED:
            bits, start = data[start] | 0x100, start + 1
            while bits > 1:
                if bits & 1:
                    text.append(data[start])
                    start += 1
                else:
                    between, size = data[start], data[start + 1]
                    start += 2
                    if between >= 0x80 and size < 0x80:
                        between, size = between + ((size & 0x60) << 2), size & 0x1F
                    elif between >= 0x80:
                        between, size = between + ((size & 0x7F) << 7), data[start]
                        start += 1
                    at = len(text) - between - size - 3
                    if at < 0:
                        return bytes(text)
                    text += text[at : at + size + 3]
                bits >>= 1
    return bytes(text)


def _split(text: bytes, data: bytes) -> list[bytes]:
    """Return the strings of a joined text, by the array of their lengths; none where it is not found, as where code makes it."""
    # One of them may begin with the end of the string before it.
    marks = [[*_places(one, text)] for one in _EVERY]
    done = 0
    for found in _LENGTHS.finditer(data):
        start = found.start() + -found.start() % 4
        if start < done:
            continue
        lengths = array("I", data[start : min(start + _INDEX, len(data) // 4 * 4)])
        ends = [0, *accumulate(takewhile(lambda length: length < 0x8000, lengths))]
        places, done = set(ends), start + 4 * len(ends)
        for first in (end - mark for mark in marks[0] for end in ends):
            if all(any({first + mark, first + mark + 8} <= places for mark in each) for each in marks):
                return [text[one - first : other - first] for one, other in pairwise(ends) if one >= first]
    return []


def _places(part: bytes, text: bytes) -> Iterator[int]:
    """Yield where a part begins in a text; it may overlap itself."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)
