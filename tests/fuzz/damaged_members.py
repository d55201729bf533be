"""Members of wheels with one damage each, and the answer of dlopen in the target's Python, against the word of `verify`.

Ten members make a wheel. A damage is one of :data:`KINDS`; it changes a library that the compiler made, which loads. `verify`
must have an error where dlopen fails, and should have none where dlopen succeeds. The libraries have no initialisers, and no
function is made an IFUNC: whether such code crashes is not known before it runs.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relink.loader import dryrun
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system.errors import RelinkError
from relink.system.findings.model import Finding
from tests.support.cc import cc, shared
from tests.support.elf_builder import gnu_hash, sysv_hash
from tests.support.elf_patching import Elf
from tests.support.wheels import make_wheel

SECONDS: Final = 10
"""For the loader to answer about one member, and for dlopen: some hash tables have chains without an end."""

MEMBERS: Final = 10
"""Members of one wheel."""

_BASE = (
    "int old(void) { return 1; } int later(void) { return 2; } int shown = 3; __thread int own_tls[4] = {1};"
)
_USER = """
extern int old(void), later(void), shown, puts(const char *);
extern unsigned long strlen(const char *); extern char **environ;
static int table[8] = {1, 2, 3};
int *pointers[4] = {&table[0], &table[2], &shown, 0};
int (*calls[3])(void) = {old, later, 0};
__thread int counter[SIZE] = {7};
int visible(void) { return counter[1] + *pointers[1] + later(); }
int user(char *text) { puts(text); return (int)strlen(text) + (environ != 0) + visible() + old(); }
"""
# A process of its own for each file: one that crashes, or does not end, has not loaded. What loads is asked for the names that
# its source defines, as Python asks for the function of a module, and one is called.
_ASK = r"""
import ctypes, json, os, resource, signal, sys
NAMES = ("user", "visible", "pointers", "counter"), ("old", "later", "shown", "own_tls")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
libc, blocks, answers = ctypes.CDLL(None), [], {}
libc.malloc.restype = ctypes.c_void_p
for size in range(24, 1024, 16) if sys.argv[1] == "used" else ():
    for _ in range(40):
        blocks.append(libc.malloc(size))
        ctypes.memset(blocks[-1], 255, size)
for block in blocks[::2]:
    libc.free(ctypes.c_void_p(block))
for path in sys.argv[2:]:
    end, begin = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(10)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the answers' place; a damaged call may print
        try:
            library = ctypes.CDLL(path)
            os.write(begin, b"loads")
            [ctypes.c_char.in_dll(library, name) for name in NAMES[os.path.basename(path) == "libbase.so"]]
            (library.later if os.path.basename(path) == "libbase.so" else library.visible)()
            os.write(begin, b" and works")
        except ValueError:
            pass
        except OSError as error:
            os.write(begin, str(error).encode(errors="replace")[:500])
        os._exit(0)
    os.close(begin)
    with open(end, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    answers[path] = said if said else f"status {status}"
print(json.dumps(answers))
"""


def make_sources(directory: Path) -> dict[str, bytes]:
    """Compile libraries that load, by name; ``libbase.so`` is what the others need."""
    script = directory / "base.map"
    directory.mkdir(parents=True, exist_ok=True)
    script.write_text("BASE_1 { global: old; shown; own_tls; }; BASE_2 { global: later; } BASE_1;")
    base = shared(directory / "libbase.so", _BASE, flags=[f"-Wl,--version-script={script}"])
    made = {"libbase.so": base.read_bytes()}
    for name, size, flags in (
        ("gnu", 4, ["-Wl,--hash-style=gnu", "-Wl,-z,now"]),
        ("both", 40, ["-Wl,--hash-style=both", "-Wl,-z,lazy"]),
        ("sysv", 4, ["-Wl,--hash-style=sysv", "-Wl,-z,lazy"]),
        ("relr", 4, ["-Wl,-z,pack-relative-relocs"]),
        ("fixed", 4, ["-ftls-model=initial-exec", "-Wl,--hash-style=both"]),
        ("desc", 40, ["-mtls-dialect=gnu2"]),
        ("level", 4, ["-Wl,-z,x86-64-v2"]),
    ):
        usual = ["-shared", "-fPIC", "-O1", "-nostartfiles", "-Wl,-rpath,$ORIGIN", f"-DSIZE={size}"]
        made[name] = cc(_USER, directory / f"{name}.so", *usual, *flags, needed=[base]).read_bytes()
    return made


WORKS: Final = "loads and works"
Damage = Callable[[Elf, random.Random], None]


def _ident(elf: Elf, rng: random.Random) -> None:
    elf.put(rng.randrange(4, 16), rng.choice((0, 1, 2, 3, 9, 255)), "B")


def _header(elf: Elf, rng: random.Random) -> None:
    at, kind = rng.choice(
        ((16, "H"), (18, "H"), (20, "I"), (32, "Q"), (48, "I"), (52, "H"), (54, "H"), (56, "H"))
    )
    elf.put(at, rng.choice((0, 1, 2, 3, 7, 62, 64, 183, 0xFFFF)), kind)


def _segment(elf: Elf, rng: random.Random) -> None:
    at = rng.choice(elf.headers)
    where, kind = rng.choice(
        ((0, "I"), (4, "I"), (8, "Q"), (16, "Q"), (24, "Q"), (32, "Q"), (40, "Q"), (48, "Q"))
    )
    elf.put(
        at + where,
        rng.choice((0, 1, 2, 4, 5, 6, 7, 0x1000, 0x6474E551, 0x6474E553, elf.word(at + where, kind) + 8)),
        kind,
    )


def _dropped(elf: Elf, rng: random.Random) -> None:
    elf.put(elf.dynamic[rng.choice([*elf.dynamic])], 0x6FFFFEF0)


def _entry(elf: Elf, rng: random.Random) -> None:
    at = elf.dynamic[rng.choice([*elf.dynamic])] + 8
    elf.put(at, rng.choice((0, 1, 3, 7, 8, 17, 24, elf.word(at) + 8, elf.word(at) - 24, 1 << 40)))


def _pltrel(elf: Elf, rng: random.Random) -> None:
    for tag in (20, 9, 11, 37):
        if tag in elf.dynamic and rng.random() < 0.6:
            elf.put(elf.dynamic[tag] + 8, rng.choice((0, 7, 8, 16, 17, 24, 25, 99)))


def _flags(elf: Elf, rng: random.Random) -> None:
    tag = rng.choice((0x6FFFFFFB, 30))
    place = elf.dynamic.get(tag) or elf.dynamic[0x6FFFFFF0]
    elf.put(place, tag)
    elf.put(place + 8, rng.choice((1, 2, 4, 8, 0x10, 0x40, 0x800, 0x08000000, 0x28, rng.getrandbits(32))))


def _relocation_type(elf: Elf, rng: random.Random) -> None:
    at = rng.choice(elf.relocations()) + 8
    elf.put(at, rng.choice((*range(44), 100, 255, 1 << 20)), "I")


def _relocation_symbol(elf: Elf, rng: random.Random) -> None:
    at = rng.choice(elf.relocations()) + 12
    elf.put(at, rng.choice((0, 1, 2, 3, 5, 8, 12)), "I")


def _relocation_place(elf: Elf, rng: random.Random) -> None:
    at = rng.choice(elf.relocations()) + rng.choice((0, 16))
    elf.put(at, elf.word(at) + rng.choice((-8, 4, 8, 1, 1 << 36)))


def _symbol(elf: Elf, rng: random.Random) -> None:
    table = elf.place(6)
    if not table:
        return
    named = {elf.word(at + 12, "I") for at in elf.relocations()} - {0}
    at = table + 24 * rng.choice(sorted(named))
    where, kind, values = rng.choice(
        (
            (0, "I", (0, 1, elf.word(at, "I") + 1)),
            (4, "B", (0x10, 0x11, 0x12, 0x16, 0x20, 0x22, 0xA1, 0x02, 0x31)),
            (5, "B", (0, 1, 2, 3)),
            (6, "H", (0, 1, 5, 0xFFF1, 0xFFF2)),
        )
    )
    elf.put(at + where, rng.choice(values), kind)


def _renamed(elf: Elf, rng: random.Random) -> None:
    """Have a symbol that nothing has imported."""
    place = elf.data.find(b"\0" + rng.choice((b"puts", b"strlen", b"later", b"environ", b"shown")) + b"\0")
    if place >= 0:
        elf.put(place + 1, ord("z"), "B")


def _need(elf: Elf, rng: random.Random) -> None:
    """Change a version that is required: its record, or its name to one that nothing has."""
    record = elf.place(0x6FFFFFFE)
    if not record:
        return
    for _ in range(rng.randrange(2)):
        record += elf.word(record + 12, "I")
    version = record + elf.word(record + 8, "I")
    chosen = rng.randrange(6)
    if chosen == 0:
        elf.put(record, rng.choice((0, 2, 9)), "H")
    elif chosen == 1:
        elf.put(record + rng.choice((2, 4, 8, 12)), rng.choice((0, 1, 2, 16)), "H")
    elif chosen == 2:
        elf.put(version + 4, rng.choice((0, 1, 2, 3)), "H")
    elif chosen == 3:
        elf.put(version + 6, rng.choice((0, 1, 2, 3, 9, 0x8002)), "H")
    elif chosen == 4:
        elf.put(version, rng.getrandbits(32), "I")
    else:
        name = elf.text(elf.word(version + 8, "I"))
        place = elf.place(5) + elf.word(version + 8, "I")
        new = name[:-1] + rng.choice("9xZ")
        elf.data[place : place + len(new)] = new.encode()
        if rng.random() < 0.8:
            elf.put(version, sysv_hash(new), "I")


def _definition(elf: Elf, rng: random.Random) -> None:
    record = elf.place(0x6FFFFFFC)
    if record:
        where, kind = rng.choice(((0, "H"), (2, "H"), (4, "H"), (6, "H"), (8, "I"), (12, "I"), (16, "I")))
        elf.put(record + where, rng.choice((0, 1, 2, 3, 20, 28, 1000)), kind)


def _versym(elf: Elf, rng: random.Random) -> None:
    table = elf.place(0x6FFFFFF0)
    named = sorted({elf.word(at + 12, "I") for at in elf.relocations()} - {0})
    if table and named:
        elf.put(table + 2 * rng.choice(named), rng.choice((0, 1, 2, 3, 4, 5, 9, 0x8001, 0x8002, 0x8003)), "H")


def _gnu_hash(elf: Elf, rng: random.Random) -> None:
    table = elf.place(0x6FFFFEF5)
    chosen = rng.randrange(3) if table else 3
    if chosen == 0:
        elf.put(table + 4 * rng.randrange(4), rng.choice((0, 1, 2, 3, 4, 7)), "I")
    elif chosen == 1:
        for number in range(elf.word(table + 8, "I")):
            elf.put(table + 16 + 8 * number, 0)
    elif chosen == 2:
        start = table + 16 + 8 * elf.word(table + 8, "I")
        elf.put(start + 4 * rng.randrange(6), rng.choice((0, 1, 2, 5, gnu_hash("visible"))), "I")


def _sysv_hash(elf: Elf, rng: random.Random) -> None:
    table = elf.place(4)
    if table:
        elf.put(table + 4 * rng.randrange(12), rng.choice((0, 1, 2, 5)), "I")


def _tls(elf: Elf, rng: random.Random) -> None:
    header = elf.header(7)
    if header is not None:
        where, values = rng.choice(
            ((40, (0, 16, 1000, 1400, 2000, 4096, 1 << 16, 1 << 20)), (48, (0, 1, 3, 64, 128, 4096)))
        )
        elf.put(header + where, rng.choice(values))


def _property(elf: Elf, rng: random.Random) -> None:
    header = elf.header(0x6474E553) or elf.header(4)
    if header is None:
        return
    note = elf.word(header + 8)
    place = elf.data.find(struct.pack("<I", 0xC0008002), note, note + 0x80)
    if place >= 0 and rng.random() < 0.7:
        elf.put(place + 8, rng.choice((1, 2, 4, 8, 15, 16, 0x100, 1 << 31)), "I")
    else:
        elf.put(note + 4 * rng.randrange(10), rng.choice((0, 1, 4, 5, 8, 0xC0008002, 0xC0000002)), "I")


def _whole(elf: Elf, rng: random.Random) -> None:
    """Leave a file as it is: what is sound must not be refused."""


KINDS: Final[Mapping[str, Damage]] = {
    "ident": _ident,
    "header": _header,
    "segment": _segment,
    "dropped entry": _dropped,
    "entry": _entry,
    "entry sizes": _pltrel,
    "flags": _flags,
    "relocation type": _relocation_type,
    "relocation symbol": _relocation_symbol,
    "relocation place": _relocation_place,
    "symbol": _symbol,
    "open symbol": _renamed,
    "required version": _need,
    "defined version": _definition,
    "version of a symbol": _versym,
    "GNU hash": _gnu_hash,
    "hash": _sysv_hash,
    "TLS": _tls,
    "property": _property,
    "none": _whole,
}


def make_members(sources: Mapping[str, bytes], number: int) -> dict[str, tuple[str, bytes]]:
    """Return the members of a wheel, each with the kind of its damage; the same for the same number."""
    rng = random.Random(f"damaged {number}")
    users = [name for name in sources if name != "libbase.so"]
    made = {}
    base = ("none", sources["libbase.so"])
    if rng.random() < 0.2:
        kind = rng.choice(("defined version", "GNU hash", "symbol", "property", "TLS", "entry"))
        elf = Elf(bytearray(base[1]))
        if kind != "symbol":
            KINDS[kind](elf, rng)
        base = (f"base: {kind}", bytes(elf.data))
    made["demo/libbase.so"] = base
    for index in range(1, MEMBERS):
        kind, source = rng.choice([*KINDS]), rng.choice(users)
        elf = Elf(bytearray(sources[source]))
        KINDS[kind](elf, rng)
        made[f"demo/m{index}.so"] = (f"{kind} ({source})", bytes(elf.data))
    return made


def ask_dlopen(python: str, paths: Sequence[Path]) -> dict[str, str]:
    """Return by name what dlopen says of each file: ``loads and works``, ``loads``, or why not.

    It is asked twice, the second time with a heap of holes between memory that is not zero: what loads because of what happens to
    lie behind a table is one that loads, and does not work.
    """
    answers: dict[str, str] = {}
    for heap in ("new", "used"):
        ended = subprocess.run([python, "-c", _ASK, heap, *paths], capture_output=True, text=True, check=True)
        for path, said in json.loads(ended.stdout).items():
            before = answers.setdefault(Path(path).name, said)
            if said != before:
                both = said.startswith("loads") and before.startswith("loads")
                answers[Path(path).name] = "loads" if both else "loads by chance"
    return answers


@dataclass
class Compared:
    """What came of some wheels.

    :ivar loads: what dlopen takes; `works`: and has the names that its source defines, and its function can be called.
    :ivar accepted: lines about what verify accepts and dlopen does not; `refused`: about what it refuses and works.
    """

    members: int = 0
    loads: int = 0
    works: int = 0
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)


def _is_about(reported: Finding, name: str) -> bool:
    """Whether a finding is about a member: its subject, one that is not asked about for it, or needs what is not there."""
    texts = [reported.subject, *reported.subjects]
    texts += (
        [reported.message]
        if reported.code == "RLK101"
        else [reported.message.partition("Not asked about either")[2]]
    )
    return any(name in text for text in texts)


def compare(sources: Mapping[str, bytes], number: int, directory: Path, compared: Compared) -> None:
    """Make a wheel, verify it, and open its members by dlopen in the Python that it is verified for."""
    members = make_members(sources, number)
    wheel = make_wheel(
        directory, {name: data for name, (_, data) in members.items()}, tag="py3-none-linux_x86_64"
    )
    try:
        found = verify_wheel(wheel, Options(python=sys.executable)).findings
    except RelinkError as error:
        compared.accepted.append(f"wheel {number}: {error}")
        return
    paths = []
    for name, (_, data) in members.items():
        path = directory / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        paths.append(path)
    answers = ask_dlopen(sys.executable, paths)
    # What is for another machine, or no library at all, is said to be left alone.
    errors = [reported for reported in found if reported.level == "error" or reported.code == "RLK505"]
    for name, (kind, _) in members.items():
        said = answers[Path(name).name]
        about = [one for one in errors if _is_about(one, name)] or [
            one for one in errors if said not in ("loads", WORKS) and _is_about(one, "demo/libbase.so")
        ]
        # What is found of a member because the library that it needs is damaged has the reason of that.
        about = [one for one in errors if about and _is_about(one, "demo/libbase.so")] or about
        compared.members += 1
        loads, works = said in ("loads", WORKS), said == WORKS
        compared.loads += loads
        compared.works += works
        if not loads and not about:
            compared.accepted.append(f"wheel {number} {name} {kind}: {said}")
        elif works and about:
            compared.codes[about[0].code] += 1
            compared.refused.append(f"wheel {number} {name} {kind}: {about[0].code} {about[0].message[:200]}")


def main() -> None:
    """``damaged_members FIRST COUNT DIRECTORY``: compare wheels, and print what differs."""
    first, count, directory = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    sources = make_sources(directory / "sources")
    dryrun.DRY_RUN_TIMEOUT = SECONDS
    compared = Compared()
    for number in range(first, first + count):
        compare(sources, number, directory, compared)
    for line in (
        *(f"ACCEPTED {line}" for line in compared.accepted),
        *(f"refused {line}" for line in compared.refused),
    ):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(
        f"{count} wheels, {compared.members} members, {compared.loads} load, {compared.works} work; "
        f"accepted wrongly {len(compared.accepted)}, "
        f"refused wrongly {len(compared.refused)} {dict(compared.codes)}\n"
    )


if __name__ == "__main__":
    main()
