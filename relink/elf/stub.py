"""A stub: a shared library with a soname and functions that do nothing but refuse, written directly as ELF for x86-64.

A call returns a fixed number or a constant text, or writes one sentence to standard error and ends the process. Nothing is
needed, nothing is relocated, nothing runs when it is loaded; the same functions give the same bytes. Sources: the System V gABI
and its AMD64 supplement; for versions the LSB ("Symbol Versioning"); Linux's system calls write(2) and exit_group(2).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from relink.elf.symbols import elf_hash

EXIT_STATUS: Final = 127
"""Of a process that a stub ends; the one of ld.so where a symbol is missing at a call (elf/dl-minimal.c, _exit (127))."""
_PAGE: Final = 0x1000
_ENDBR64: Final = b"\xf3\x0f\x1e\xfa"
# mov $2,%edi; mov $1,%eax; syscall; mov $127,%edi; mov $231,%eax; syscall; ud2
_END: Final = b"\xbf\2\0\0\0\xb8\1\0\0\0\x0f\5\xbf\x7f\0\0\0\xb8\xe7\0\0\0\x0f\5\x0f\x0b"
_TRAP: Final = b"\x0f\x0b"  # ud2
_TEXT_TO_RAX: Final = b"\x48\x8d\x05"  # lea text(%rip),%rax
# test %rsi,%rsi; je over the store; lea. A caller may pass NULL for the place of the text.
_UNLESS_NULL: Final = b"\x48\x85\xf6\x74\x0a" + _TEXT_TO_RAX
_FUNC_GLOBAL: Final = 0x12  # STB_GLOBAL, STT_FUNC
_BLOOM_SHIFT: Final = 6
# Version numbers have 15 bits, since the 16th hides a symbol (VERSYM_HIDDEN); 0 and 1 are taken.
_MAX_NODES: Final = 0x7FFF - 2
_HIDDEN: Final = 0x8000


class StubFunction(msgspec.Struct, frozen=True):
    """One function of a stub.

    :ivar version: the version node that it is in, or None.
    :ivar answer: what it returns, an int of C; None: it writes `sentence` and ends the process, unless it has a text.
    :ivar text: what it returns, a string of C; one with an answer stores its address where the second argument points.
    """

    name: str
    version: str | None = None
    answer: int | None = None
    sentence: str = ""
    text: str | None = None


def build_stub(
    soname: str,
    functions: Sequence[StubFunction],
    versions: Sequence[str] = (),
    needed: Sequence[str] = (),
    search_path: tuple[str, str] | None = None,
    *,
    hidden: bool = False,
) -> bytes:
    """Return the bytes of a stub, or of a forwarder: a library without functions that needs others.

    :param versions: version nodes that are defined in any case, besides those of the functions.
    :param needed: the sonames of its NEEDED, in order.
    :param search_path: ``rpath`` or ``runpath``, and its text.
    :param hidden: a function in a version node answers who asks for that version, and nobody else.
    :raises ValueError: there are more version nodes than ``.gnu.version`` has numbers for.
    """
    nodes = list(
        dict.fromkeys([*versions, *(function.version for function in functions if function.version)])
    )
    if hidden and nodes:
        # ld.so takes what is in the first node for a reference without a version, hidden or not (elf/dl-lookup.c, check_match).
        nodes.insert(0, soname)
    if len(nodes) > _MAX_NODES:
        raise ValueError(f"{len(nodes)} version nodes")
    buckets = max(1, len(functions) // 2)
    # The symbols of one bucket of DT_GNU_HASH lie side by side: ld.so walks from the first to an end mark (elf/dl-lookup.c).
    ordered = sorted(
        functions,
        key=lambda function: (_gnu_hash(function.name) % buckets, function.name, function.version or ""),
    )
    strings = bytearray(b"\0")

    def string(text: str) -> int:
        at = len(strings)
        strings.extend(text.encode("utf-8", "surrogateescape") + b"\0")
        return at

    soname_at = string(soname)
    needed_at = [string(name) for name in needed]
    path_at = string(search_path[1]) if search_path else 0
    node_at = {node: string(node) for node in nodes}
    names_at = [string(function.name) for function in ordered]
    hashes = _gnu_table([function.name for function in ordered], buckets)
    number = {node: number_of_node for number_of_node, node in enumerate(nodes, 2)}
    flag = _HIDDEN if hidden else 0
    versyms = struct.pack(
        f"<{len(ordered) + 1}H",
        0,
        *(number[function.version] | flag if function.version else 1 for function in ordered),
    )
    verdefs = _definitions([(soname, soname_at), *((node, node_at[node]) for node in nodes)])

    tables: dict[str, bytes] = {".gnu.hash": hashes, ".dynsym": bytes(24 * (len(ordered) + 1))}
    tables[".dynstr"] = bytes(strings)
    if nodes:
        tables |= {".gnu.version": versyms, ".gnu.version_d": verdefs}
    end = 64 + 56 * 6
    places = {}
    for table, data in tables.items():
        places[table] = _aligned(end, 8)
        end = places[table] + len(data)
    text_at = _aligned(end, _PAGE)
    text, offsets, lengths = _code(ordered)
    # A forwarder has no code, and a PT_LOAD must not be empty.
    text = text or _TRAP
    dynamic_at = _aligned(text_at + len(text), _PAGE)
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", at, _FUNC_GLOBAL, 0, len(tables) + 1, text_at + offset, length)
        for at, offset, length in zip(names_at, offsets, lengths, strict=True)
    )
    entries = [*((1, at) for at in needed_at), (14, soname_at)]
    if search_path:
        entries.append((15 if search_path[0] == "rpath" else 29, path_at))
    entries += [(0x6FFFFEF5, places[".gnu.hash"]), (5, places[".dynstr"])]
    entries += [(6, places[".dynsym"]), (10, len(strings)), (11, 24)]
    if nodes:
        entries += [(0x6FFFFFF0, places[".gnu.version"]), (0x6FFFFFFC, places[".gnu.version_d"])]
        entries.append((0x6FFFFFFD, len(nodes) + 1))
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in (*entries, (0, 0)))

    image = bytearray(dynamic_at + len(dynamic))
    for name, data in (tables | {".dynsym": symbols}).items():
        image[places[name] : places[name] + len(data)] = data
    image[text_at : text_at + len(text)] = text
    image[dynamic_at:] = dynamic
    sizes = {name: len(data) for name, data in tables.items()}
    sections, names = _sections(places, sizes, (text_at, len(text)), (dynamic_at, len(dynamic)), len(nodes))
    names_place = len(image)
    image += names
    image += bytes(-len(image) % 8)
    sections_at = len(image)
    for row in sections:
        image += struct.pack("<IIQQQQIIQQ", *(names_place if field is None else field for field in row))
    segments = [
        (6, 4, 64, 56 * 6, 8),
        (1, 4, 0, end, _PAGE),
        (1, 5, text_at, len(text), _PAGE),
        (1, 6, dynamic_at, len(dynamic), _PAGE),
        (2, 6, dynamic_at, len(dynamic), 8),
        (0x6474E551, 6, 0, 0, 16),
    ]
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_at, 0, 64, 56, 6, 64, len(sections), len(sections) - 1
    )
    for kind, flags, at, size, align in segments:
        header += struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
    image[: len(header)] = header
    return bytes(image)


def _aligned(value: int, to: int) -> int:
    return value + -value % to


def _code(functions: Sequence[StubFunction]) -> tuple[bytes, list[int], list[int]]:
    """Return code with its texts behind it, and where each function begins and how long it is."""
    rows = [_instructions(function) for function in functions]
    offsets, lengths, at = [], [], 0
    for before, after, data in rows:
        at = _aligned(at, 16)
        offsets.append(at)
        lengths.append(len(before) + 4 + len(after) if data else len(before))
        at += lengths[-1]
    text = bytearray(at)
    for (before, after, data), offset in zip(rows, offsets, strict=True):
        code = before
        if data:
            code += struct.pack("<i", len(text) - offset - len(before) - 4) + after
            text += data
        text[offset : offset + len(code)] = code
    return bytes(text), offsets, lengths


def _instructions(function: StubFunction) -> tuple[bytes, bytes, bytes]:
    """Return a function's code up to the address of its text, the code after it, and the text: empty where it has none."""
    returning = (
        b"\xb8" + struct.pack("<I", (function.answer or 0) & 0xFFFFFFFF) + b"\xc3"
    )  # mov $answer,%eax; ret
    text = (function.text or "").encode("utf-8", "replace") + b"\0"
    if function.answer is not None and function.text is not None:
        return _ENDBR64 + _UNLESS_NULL, b"\x48\x89\x06" + returning, text  # mov %rax,(%rsi)
    if function.answer is not None:
        return _ENDBR64 + returning, b"", b""
    if function.text is not None:
        return _ENDBR64 + _TEXT_TO_RAX, b"\xc3", text
    sentence = function.sentence.encode("utf-8", "replace") + b"\n"
    # lea sentence(%rip),%rsi; mov $length,%edx
    return _ENDBR64 + b"\x48\x8d\x35", b"\xba" + struct.pack("<I", len(sentence)) + _END, sentence


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode("utf-8", "surrogateescape"):
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _gnu_table(names: Sequence[str], buckets: int) -> bytes:
    """Return DT_GNU_HASH of symbols 1 and up, which are sorted by bucket."""
    words = 1 << max(0, (len(names) - 1).bit_length() - 3)
    bloom, heads, chain = [0] * words, [0] * buckets, []
    values = [_gnu_hash(name) for name in names]
    for number, value in enumerate(values):
        bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> _BLOOM_SHIFT) % 64
        heads[value % buckets] = heads[value % buckets] or number + 1
        last = number + 1 == len(values) or values[number + 1] % buckets != value % buckets
        # The lowest bit of a hash in the chain is that end mark.
        chain.append(value & ~1 | last)
    form = f"<IIII{words}Q{buckets}I{len(chain)}I"
    return struct.pack(form, buckets, 1, words, _BLOOM_SHIFT, *bloom, *heads, *chain)


def _definitions(nodes: Sequence[tuple[str, int]]) -> bytes:
    """Return DT_VERDEF; the first node is the file's own (VER_FLG_BASE)."""
    packed = b""
    for number, (name, at) in enumerate(nodes, 1):
        following = 28 if number < len(nodes) else 0
        packed += struct.pack("<HHHHIII", 1, number == 1, number, 1, elf_hash(name), 20, following)
        packed += struct.pack("<II", at, 0)
    return packed


def _sections(
    places: dict[str, int],
    sizes: dict[str, int],
    text: tuple[int, int],
    dynamic: tuple[int, int],
    nodes: int,
) -> tuple[list[tuple[int | None, ...]], bytes]:
    """Return the section headers, for tools that want them, and their names; None stands for the place of the names."""
    order = ["", *places, ".text", ".dynamic", ".shstrtab"]
    names, at = b"\0".join(name.encode() for name in order) + b"\0", 0
    name_at = {}
    for name in order:
        name_at[name] = at
        at += len(name) + 1
    # sh_type, sh_entsize, the section of sh_link (the first, "", for none), sh_info.
    known = {
        ".gnu.hash": (0x6FFFFFF6, 0, ".dynsym", 0),
        ".dynsym": (11, 24, ".dynstr", 1),
        ".dynstr": (3, 0, "", 0),
        ".gnu.version": (0x6FFFFFFF, 2, ".dynsym", 0),
        ".gnu.version_d": (0x6FFFFFFD, 0, ".dynstr", nodes + 1),
    }
    rows: list[tuple[int | None, ...]] = [(0,) * 10]
    for name, address in places.items():
        kind, entry, other, info = known[name]
        link = order.index(other)
        rows.append((name_at[name], kind, 2, address, address, sizes[name], link, info, 8, entry))
    rows.append((name_at[".text"], 1, 6, text[0], text[0], text[1], 0, 0, 16, 0))
    strings = order.index(".dynstr")
    rows.append((name_at[".dynamic"], 6, 3, dynamic[0], dynamic[0], dynamic[1], strings, 0, 8, 16))
    rows.append((name_at[".shstrtab"], 3, 0, 0, None, len(names), 0, 0, 1, 0))
    return rows, names
