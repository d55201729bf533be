"""Which modules an extension imports while it is initialised, by the x86-64 code that does it; nothing is disassembled.

From ``PyInit_NAME`` and the functions in the slots of its PyModuleDef (PEP 489, PEP 793) direct calls lead to others. A call of
PyImport_ImportModule and its like has the name in the register of the first argument: a string's address, or the content of a
variable that Cython fills with a string. A function that hands on what it is given is such a call itself (``__Pyx_Import``). A
dlopen of a library by its name is found in the same way. What only other functions name is imported later, or never.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, islice, takewhile

import msgspec

from relink.elf import constants as c
from relink.elf.dynamic import Memory, Strings
from relink.python.cython_strings import EVERY, CythonStrings, split_strings

_X86_64 = 62
_NAME = re.compile(rb"[\w.]{1,200}")  # mypyc's may begin with a digit
_IMPORTING = re.compile(r"_?PyImport_(Import|GetModuleAttr)|PyCapsule_Import$|dlopen$")
_ELSEWHERE = "*"  # a function whose address stands in a variable: Cython has its own of another module, too
# R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
_NAMED = frozenset({1, 6, 7})
# Registers by their numbers: that of a result, and those of arguments in their order.
_RESULT, _ARGUMENTS = 0, (7, 6, 2, 1, 8, 9)
_FIRST, _THIRD, _FOURTH, _FIFTH = 7, 2, 1, 8


def _modes(mode: int) -> bytes:
    """Return a pattern of the bytes that say of an operand how it is addressed, for every register."""
    return b"[%s]" % re.escape(bytes(range(mode, mode + 64, 8)))


# What may be one of these instructions; of each the four bytes that follow say how far an address is from the next one.
_CALL = re.compile(rb"[\xe8\xe9]|\xff[\x15\x25]")
_LEA = re.compile(rb"[\x48\x4c]\x8d" + _modes(5))
_LOAD = re.compile(rb"(?:[\x48\x49\x4c\x4d]\x8b|\x0f[\x7e\x16\x6f])(?:%s|[\x80-\xbf])" % _modes(5))
_STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(....)", re.DOTALL)
# What writes something known into a register: lea and mov of an address relative to the next instruction, mov from a structure,
# mov of a register, mov of a number, and xor of a register with itself.
_WRITTEN = re.compile(
    rb"(?s:([\x48\x49\x4c\x4d])(?:([\x8b\x8d])(?:(%s)(....)|([\x80-\xbf])(....)|([\x40-\x7f])(.))|\x89([\xc0-\xff]))"
    rb"|(\x41?[\xb8-\xbf])(...)\0|(\x45?)\x31([\xc0\xc9\xd2\xdb\xe4\xed\xf6\xff]))" % _modes(5)
)
# How an address gets onto the stack: lea into a register, and from there, or by way of a half of a wide one.
_STACKED = rb"(?:%s\x24|%s\x24.|%s.|%s\x24....|%s....)" % tuple(map(_modes, (4, 0x44, 0x45, 0x84, 0x85)))
_STORED = re.compile(
    rb"(?s:(?P<lea>[\x48\x4c]\x8d%s....)|(?P<mov>[\x48\x4c]\x89%s)|(?P<low>\x66[\x48\x49\x4c\x4d]\x0f\x6e[\xc0-\xff])"
    rb"|(?P<join>\x66[\x41\x44\x45]?\x0f\x6c[\xc0-\xff])|(?P<high>\x66[\x48\x49\x4c\x4d]\x0f\x3a\x22[\xc0-\xff]\x01)"
    rb"|(?P<wide>\x44?\x0f[\x11\x29]%s))" % (_modes(5), _STACKED, _STACKED)
)
# A number of one, two or four bytes onto the stack; one of some bits, by way of a register.
_STACK = rb"(\x04\x24|\x44\x24.|\x84\x24....|\x45.|\x85....)"
_NUMBER = re.compile(
    rb"(?s:(\xc6|\x66?\xc7)%s(?=(....))"
    rb"|(?:\x66\x25..|\x83\xe0.|\x24.)(?:\x83\xc8|\x0c|\x66\x0d)(..?)(?:\x66\x89|\x88)%s)" % (_STACK, _STACK)
)
# Bytes of code, of a string, and before a call: for its arguments, for a copy of one, for a list of names. Bytes of an entry of
# Cython's tables of strings (__Pyx_StringTabEntry), and of a function that does nothing but hand on another.
_CODE, _STRING, _NEAR, _FAR, _LIST, _ENTRY, _PAIR, _SHORT = 4 << 20, 256, 160, 512, 700, 40, 16, 64
# Functions, calls inside of each other, calls that are looked at, functions that hand on a name to each other, addresses that may
# be those of slots, and what else is read.
_FUNCTIONS, _DEPTH, _CALLS, _PASSED, _SLOTS, _MOST, _MOST_ROWS = 4000, 40, 5000, 3, 2000, 10_000, 1 << 20


class InitImport(msgspec.Struct, frozen=True, array_like=True):
    """An import, or a dlopen.

    :ivar names: what may be the module's name, the likeliest first; "" is the package. Of a dlopen what it is given.
    :ivar level: at how many packages above the name begins; -1 where that is not read.
    :ivar taken: names that may be taken of the module.
    """

    names: tuple[str, ...]
    level: int = 0
    taken: tuple[str, ...] = ()


def read_init_imports(
    memory: Memory, name: str, read_cython: Callable[[], CythonStrings | None]
) -> tuple[tuple[InitImport, ...], tuple[str, ...]] | None:
    """Return what the initialisation of a module imports, and the names in its source that it uses; None where that is not read.

    :param name: the module's, without its package.
    :param read_cython: returns what a module of Cython has, and None for any other.
    """
    code = _Code(memory) if memory.machine == _X86_64 and memory.wide else None
    found = (code.find_symbol(f"{prefix}_{name}") for prefix in ("PyInit", "PyModExport") if code)
    entry = next((one for one in found if one is not None), None)
    if code is None or entry is None or not code.is_function(entry):
        return None
    cython = read_cython()
    walk = _Walk(code, entry, cython)
    words = walk.list_words() if cython is not None else ()
    # Where a module of Cython has its strings in another way, nothing is known of its imports.
    return None if cython is not None and not words else (tuple(walk.imports), words)


_OFFSET = struct.Struct("<i").unpack_from


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


class _Code:
    """The functions of a module, and what its addresses mean."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._strings = Strings(memory)
        self._symbols = memory.dynamic.get(c.DT_SYMTAB, 0)
        self._resolved: dict[int, int | str | None] = {}
        self._texts: dict[int, bytes] = {}
        self._calls: dict[int, list[tuple[int, int | str]]] = {}
        self._places: dict[int, list[int]] = {}
        self._left = _CODE
        # LSB, "Exception Frames": a version, three encodings, the address of .eh_frame, a number, and so many pairs: where a
        # function begins, and where its record lies, relative to the table.
        head = memory.read(memory.frames, 12)
        count = int.from_bytes(head[8:], "little") if head[:1] + head[2:4] == b"\1\3\x3b" else 0
        table = memory.words(memory.frames + 12, 2 * min(count, _MOST_ROWS), "i")
        self._starts, self._records = table[0::2], table[1::2]
        first = memory.frames + self._starts[0] if self._starts else 0
        loads = ((low, low + size) for low, size, _ in memory.loads if low <= first < low + size)
        self._low, self._high = next(loads, (0, 0))

    @cached_property
    def _relative(self) -> tuple[array[int], array[int]]:
        """The places of the relocations that add the base, in their order, and what it is added to."""
        dynamic = self._memory.dynamic
        count = min(dynamic.get(c.DT_RELACOUNT, 0), _MOST_ROWS)
        words = self._memory.words(dynamic.get(c.DT_RELA, 0), 3 * count, "Q")
        return words[0::3], words[2::3]

    @cached_property
    def _named(self) -> dict[int, int]:
        """By the place of a relocation the number of its symbol."""
        dynamic, words = self._memory.dynamic, array("Q")
        skipped = 24 * len(self._relative[0])
        for table, size, skip in ((c.DT_RELA, c.DT_RELASZ, skipped), (c.DT_JMPREL, c.DT_PLTRELSZ, 0)):
            count = min((dynamic.get(size, 0) - skip) // 24, _MOST_ROWS)
            words += self._memory.words(dynamic.get(table, 0) + skip, 3 * max(0, count), "Q")
        rows = zip(words[0::3], words[1::3], strict=False)
        return {place: info >> 32 for place, info in rows if info & 0xFFFFFFFF in _NAMED}

    @cached_property
    def _pointing(self) -> dict[int, int]:
        """By an address the place that has it at the start."""
        places, addresses = self._relative
        return dict(zip(addresses, places, strict=False))

    def pointer(self, place: int) -> int:
        """Return the address that is at a place when the module is loaded; 0 for that of another one."""
        places, addresses = self._relative
        number = bisect_left(places, place)
        if number < len(places) and places[number] == place:
            return addresses[number]
        if place in self._named:
            found = self._symbol(self._named[place])
            return found if isinstance(found, int) else 0
        return int.from_bytes(self._memory.read(place, 8), "little")

    def _symbol(self, number: int) -> int | str | None:
        """Return the address of a symbol, or the name of one that is elsewhere."""
        data = self._memory.read(self._symbols + 24 * number, 24)
        name, section, value = (
            int.from_bytes(data[at:end], "little") for at, end in ((0, 4), (6, 8), (8, 16))
        )
        return value if section else self._strings.get(name, _STRING)

    def find_symbol(self, name: str) -> int | None:
        """Return the address of a symbol that the module has."""
        count = self._memory.available(self._symbols) // 24
        names = self._memory.words(self._symbols, 6 * count)[0::6]
        for found in islice(re.finditer(re.escape(name.encode()) + b"\0", self._strings.data), _SHORT):
            if found.start() in names:
                address = self._symbol(names.index(found.start()))
                return address if isinstance(address, int) else None
        return None

    def string(self, address: int, size: int = 0) -> str:
        """Return the string at an address if it can be a module's name, else ""; one without an end has a size."""
        text, end, _ = self._memory.read(address, size or _STRING).partition(b"\0")
        return text.decode() if (end or size) and _NAME.fullmatch(text) else ""

    def filled(self, variable: int) -> str | None:
        """Return the string that a table (__Pyx_StringTabEntry) has for a variable; None where none has it."""
        place = self._pointing.get(variable)
        return None if place is None else self.string(self.pointer(place + 8))

    def tabled_strings(self) -> list[bytes]:
        """Return the strings of a table in the data that has their sizes and not their variables, as Cython 3.1 has it."""
        places, addresses = self._relative
        texts = {
            place: self._memory.read(address, _STRING).partition(b"\0")[0]
            for place, address in islice(zip(places, addresses, strict=False), _MOST)
        }
        for name in (place for place, text in texts.items() if text == EVERY[0]):
            first = next(place for place in count(name, -_PAIR) if place - _PAIR not in texts)
            found = [texts[place] for place in takewhile(texts.__contains__, count(first, _PAIR))]
            if all(one in found for one in EVERY):
                return found
        return []

    def is_function(self, address: int) -> bool:
        """Tell whether a function begins at an address."""
        offset = address - self._memory.frames
        at = bisect_left(self._starts, offset)
        return at < len(self._starts) and self._starts[at] == offset

    def text(self, start: int) -> bytes:
        """Return the bytes of a function, which the fourth word of its record counts."""
        if start not in self._texts:
            at = bisect_left(self._starts, start - self._memory.frames)
            record = self._memory.frames + self._records[at]
            size = min(int.from_bytes(self._memory.read(record + 12, 4), "little"), self._left)
            self._left -= size
            self._texts[start] = self._memory.read(start, size)
        return self._texts[start]

    def calls(self, start: int) -> list[tuple[int, int | str]]:
        """Return where a function calls or jumps to others, and these: their addresses, or the names of those elsewhere."""
        if start not in self._calls:
            text, resolved = self.text(start), self._resolved
            end, calls = start + len(text), self._calls.setdefault(start, [])
            for found in _CALL.finditer(text, 0, max(0, len(text) - 4)):
                at = found.end()
                target = start + at + 4 + _OFFSET(text, at)[0]
                to: int | str | None
                if text[at - 1] in (0x15, 0x25):
                    to = self._at(target) or _ELSEWHERE
                elif start <= target < end or not self._low <= target < self._high:
                    continue
                else:
                    to = resolved[target] if target in resolved else self._resolve(target)
                if to:
                    calls.append((found.start(), to))
            self._places[start] = [at for at, _ in calls]
        return self._calls[start]

    def _at(self, place: int) -> int | str | None:
        """Return the function whose address the loader writes to a place."""
        found = self._symbol(self._named[place]) if place in self._named else self.pointer(place)
        return found if isinstance(found, str) or (found and self.is_function(found)) else None

    def _resolve(self, target: int) -> int | str | None:
        found: int | str | None = target if self.is_function(target) else None
        if found is None and (stub := _STUB.match(self._memory.read(target, 16))):
            found = self._at(target + stub.end() + _signed(stub[1]))
        self._resolved[target] = found
        return found

    def addresses(self, start: int) -> Iterator[int]:
        """Yield the addresses that a function takes, of others' symbols by way of the loader."""
        text = self.text(start)
        for found in islice(_LEA.finditer(text), _MOST):
            yield start + found.end() + 4 + _signed(text[found.end() : found.end() + 4])
        yield from filter(None, map(self.pointer, islice(self.variables(start), _MOST)))

    def variables(self, start: int, low: int = 0, high: int = _CODE) -> Iterator[int]:
        """Yield the variables that a function reads, as :meth:`values` has them."""
        text = self.text(start)
        for found in _LOAD.finditer(text, low, min(high, max(0, len(text) - 4))):
            at = found.end()
            number: int = _OFFSET(text, at)[0]
            yield start + at + 4 + number if text[at - 1] & 0xC7 == 5 else number

    def functions(self, start: int) -> list[int]:
        """Return the functions whose addresses a function takes."""
        return [*filter(self.is_function, self.addresses(start))]

    def values(self, start: int, low: int, high: int) -> dict[int, tuple[str, int]]:
        """Return what is in registers at the end of a part of a function: address, variable, number, result, or copy.

        A variable is its address, or its place in a structure: Cython's may be in one that a function returns. A result is where
        it was called; a copy is where it was made, 16 times, and of which register.
        """
        found: dict[int, tuple[str, int]] = {}
        result_at = low
        for match in _WRITTEN.finditer(self.text(start), max(low, 0), high):
            (
                rex,
                opcode,
                near,
                relative,
                far,
                far_by,
                short,
                short_by,
                copied,
                moved,
                number,
                high_zero,
                zero,
            ) = match.groups(b"")
            written = "", 0
            if copied:
                source = copied[0] >> 3 & 7 | (rex[0] & 4) << 1
                register = copied[0] & 7 | (rex[0] & 1) << 3
                is_open = source == _RESULT or source not in found
                written = ("copy", match.start() << 4 | source) if is_open else found[source]
            elif rex:
                mode = (near or far or short)[0]
                register = mode >> 3 & 7 | (rex[0] & 4) << 1
                if near:
                    kind = "variable" if opcode == b"\x8b" else "address"
                    written = kind, start + match.end() + _signed(relative)
                elif opcode == b"\x8b" and mode & 7 != 4:
                    written = "variable", _signed(far_by or short_by)
            elif moved:
                register, written = moved[-1] & 7 | 8 * (len(moved) - 1), ("number", _signed(number))
            else:
                register, written = zero[0] & 7 | 8 * len(high_zero), ("number", 0)
            found[register] = written
            result_at = match.start() if register == _RESULT else result_at
        called = bisect_left(self._places[start], high) - 1
        if called >= 0 and self._places[start][called] >= result_at:
            found[_RESULT] = "result", self._places[start][called]
        return found

    def value(self, start: int, values: Mapping[int, tuple[str, int]], register: int) -> tuple[str, int]:
        """Return what one of these registers has, by way of copies."""
        found = values.get(register, ("", 0))
        for _ in range(_PASSED):
            if found[0] == "copy":
                at, source = found[1] >> 4, found[1] & 15
                found = self.values(start, at - _FAR, at).get(source, ("", 0))
        return found

    def stored_strings(self, start: int) -> list[bytes]:
        """Return the strings of a table that a function makes on the stack, as Cython 3.0 has it by some compilers."""
        known: dict[int, int] = {}
        # Of the wide registers the lower half, and the other one.
        low: dict[int, int] = {}
        high: dict[int, int] = {}
        stored: dict[int, int] = {}
        for found in islice(_STORED.finditer(self.text(start)), 8 * _MOST):
            kind, code = found.lastgroup, found[0].removeprefix(b"\x66")
            rex = code[0] if code[0] >> 4 == 4 else 0
            mode = code[{"lea": 2, "mov": 2, "low": 3, "high": 4}.get(kind or "", 2 + (rex > 0))]
            register, other = mode >> 3 & 7 | (rex & 4) << 1, mode & 7 | (rex & 1) << 3
            if kind == "lea":
                known[register] = start + found.end() + _signed(code[3:])
            elif kind == "low":
                low[register] = known.get(other, 0)
            elif kind == "high":
                high[register] = known.get(other, 0)
            elif kind == "join":
                high[register] = low.get(other, 0)
            else:
                operand = code[2 + (rex > 0 or kind == "mov") - (kind == "mov") :]
                place = _signed(operand[1 + (operand[0] & 7 == 4) :])
                stored[place] = (known if kind == "mov" else low).get(register, 0)
                if kind == "wide":
                    stored[place + 8] = high.get(register, 0)
        texts = {
            place: self._memory.read(one, _STRING).partition(b"\0")[0] for place, one in stored.items() if one
        }
        # Between them may be addresses of variables, which the file has no bytes for.
        name = next((place for place, text in texts.items() if text == EVERY[0]), 0)
        places = [place for place in texts if (place - name) % _ENTRY == 0]
        every = range(min(places, default=0), max(places, default=-1) + 1, _ENTRY)
        return [texts.get(place, b"") for place in every[:_MOST]]

    def stored_numbers(self, start: int) -> bytes:
        """Return what a function writes onto the stack as numbers of four bytes, without those that have 0 before them."""
        numbers: dict[int, bytes] = {}
        for found in islice(_NUMBER.finditer(self.text(start)), _MOST):
            opcode, place, number, bits, place_of_bits = found.groups()
            place = place or place_of_bits
            size = {b"\xc6": 1, b"\x66\xc7": 2}.get(opcode, 4)
            numbers.setdefault(_signed(place[1 + (place[0] & 7 == 4) :]), bits or number[:size])
        return b"".join(numbers[place].ljust(4, b"\0") for place in sorted(numbers))


class _Walk:
    """The way from the entry of a module to what it imports."""

    def __init__(self, code: _Code, entry: int, cython: CythonStrings | None) -> None:
        self._code = code
        self._passing: dict[int, int] = {}
        self._seen: set[int] = set()
        self._left = _CALLS
        # Cython's strings, and where the variable of the first one is.
        self._strings: Sequence[bytes] = ()
        self._base = 0
        self._starts = [entry, *dict.fromkeys(self._list_slots(entry))]
        self.imports: list[InitImport] = []
        if cython is not None:
            self.imports += (InitImport((one,)) for one in cython.inflating)
            self._find_variables(self._list_strings(cython))
        for start in self._starts:
            self._follow(start, 0)

    def _list_slots(self, entry: int) -> list[int]:
        """Return the functions that are called with the module when it is made."""
        code = self._code
        found: list[int] = []
        near = (entry, *(to for _, to in code.calls(entry)[:_SHORT] if isinstance(to, int)))
        for address in islice((one for start in near for one in code.addresses(start)), _SLOTS):
            # m_slots of a PyModuleDef, which Rust has in a structure of its own; slots themselves.
            for place in (*(code.pointer(address + more) for more in (72, 80, 88)), address):
                found += self._read_slots(place)
        # Where slots are put together, as by C++ and Rust, a function is told by its address; and Rust hands on another one.
        if not found and all(to != "PyModule_Create2" for _, to in code.calls(entry)):
            found += code.functions(entry)
        return found + [
            one for start in found if len(code.text(start)) <= _SHORT for one in code.functions(start)
        ]

    def _read_slots(self, place: int) -> Iterator[int]:
        """Yield the functions of Py_mod_exec in slots: each a number and an address, the last one 0."""
        for at in range(place, place + 16 * _SHORT, 16):
            kind, value = self._code.pointer(at), self._code.pointer(at + 8)
            if not 0 < kind < _SHORT:
                break
            if kind == 2 and self._code.is_function(value):
                yield value

    def _list_strings(self, cython: CythonStrings) -> Sequence[bytes]:
        """Return Cython's strings in the order of their variables."""
        if cython.strings:
            return cython.strings
        code, near, ring = self._code, dict.fromkeys(self._starts), self._starts
        if not cython.text and (found := code.tabled_strings()):
            return found
        for _ in range(2):
            ring = [*dict.fromkeys(to for one in ring for _, to in code.calls(one) if isinstance(to, int))]
            near |= dict.fromkeys(ring[: 4 * _SHORT])
        # A table of them takes more code than most else.
        makers = (
            [*near][: _SHORT // 2] if cython.text else sorted(near, key=lambda one: -len(code.text(one)))[:8]
        )
        for start in makers:
            numbers = code.stored_numbers(start) if cython.text else b""
            found = split_strings(cython.text, numbers) if cython.text else code.stored_strings(start)
            if all(one in found for one in EVERY):
                return found
        return ()

    def _find_variables(self, strings: Sequence[bytes]) -> None:
        """Find the variables of Cython's strings by ``__name__ = "__main__"``, which each of its modules has."""
        if not all(one in strings for one in EVERY):
            return
        name, main, test = (8 * strings.index(one) for one in EVERY)
        for start in self._starts:
            read = [*self._code.variables(start)]
            used = {*read}
            pairs = (pair for way in (1, 2, 3) for pair in zip(read, read[way:], strict=False))
            bases = (
                min(pair) - min(name, main) for pair in pairs if abs(pair[0] - pair[1]) == abs(name - main)
            )
            for base in bases:
                if base + test in used:
                    self._strings, self._base = strings, base
                    return

    def _word(self, variable: int) -> str | None:
        """Return the string of a variable of Cython; "" where it can be no name, None of other variables."""
        number, rest = divmod(variable - self._base, 8)
        if not rest and 0 <= number < len(self._strings):
            text = self._strings[number]
            return text.decode() if _NAME.fullmatch(text) else ""
        return self._code.filled(variable)

    def list_words(self) -> tuple[str, ...]:
        """Return the names in Cython's strings that are used where the walk begins."""
        used = dict.fromkeys(one for start in self._starts for one in self._code.variables(start))
        return tuple(dict.fromkeys(word for one in used if (word := self._word(one)) and "." not in word))

    def _follow(self, start: int, depth: int) -> None:
        """Add what a function imports, and those that it calls."""
        if start in self._seen or depth > _DEPTH or len(self._seen) >= _FUNCTIONS:
            return
        self._seen.add(start)
        before = after = 0
        for at, to in self._code.calls(start):
            if isinstance(to, str):
                passed = int(to == _ELSEWHERE or _IMPORTING.match(to) is not None)
            else:
                if to not in self._seen:
                    self._follow(to, depth + 1)
                passed = self._passing.get(to, 0)
            if passed and self._left > 0:
                self._left -= 1
                low = max(after, at - _NEAR)
                names = self._names(start, _ARGUMENTS[:1] if isinstance(to, str) else _ARGUMENTS, low, at)
                if names:
                    self._add(start, (max(before, at - _LIST), low, at), to, names)
                    before = at
                elif passed <= _PASSED:
                    self._passing.setdefault(start, passed + 1)
            after = at + 5

    def _add(self, start: int, places: tuple[int, int, int], to: int | str, names: list[str]) -> None:
        """Add an import.

        :param places: of the names that are taken of the module, of the arguments, and of the call.
        """
        code, (first, low, at) = self._code, places
        if to == "PyCapsule_Import":  # an attribute of the module
            names = [one.rpartition(".")[0] for one in names]
        is_api = isinstance(to, str) and to.startswith("PyImport_ImportModuleLevel")
        values = code.values(start, low, at)
        kind, level = code.value(start, values, _FIFTH if is_api else _THIRD)
        # The third argument is the level where there is no fourth one, as before Cython 3.2.
        is_level = kind == "number" and level < _SHORT and len(names) == 1
        is_level &= is_api or _FOURTH not in values
        words = (self._word(one) for one in code.variables(start, first, at))
        taken = dict.fromkeys(word for word in words if word and "." not in word and word not in names)
        is_open = not is_level and bool(self._strings)
        self.imports.append(InitImport(tuple(names), -1 if is_open else level * is_level, tuple(taken)))

    def _names(self, start: int, registers: Sequence[int], low: int, high: int) -> list[str]:
        """Return what may be the name of a module among the arguments of a call, the likeliest first."""
        code = self._code
        values = code.values(start, low, high)
        kind, place = code.value(start, values, _FIRST)
        if kind == "result" and registers != _ARGUMENTS:
            # A string that was made of another one just before.
            return self._names(start, _ARGUMENTS, place - _NEAR, place)
        if kind == "variable" and (word := self._word(place)) is not None:
            # From Cython 3.2 on the whole name of a relative import is another argument.
            others = (code.value(start, values, one) for one in _ARGUMENTS[1:])
            more = (self._word(one) or "" for kind, one in others if kind == "variable")
            full = next((one.rstrip(".") for one in more if one.endswith(f".{word}")), "")
            return [full, word] if full and word else [full or word]
        for register, following in zip(registers, (*registers[1:], None), strict=True):
            kind, place = code.value(start, values, register)
            if kind == "address":
                # Rust's strings have no end; their sizes are the next argument.
                kind, size = code.value(start, values, -1 if following is None else following)
                sizes = (0, size) if kind == "number" and 0 < size < _STRING else (0,)
                if names := [name for one in sizes if (name := code.string(place, one))]:
                    return names
        return []
