"""What somebody may do to a relinked wheel between its maker and its user: :data:`TAMPERINGS`, each by name.

A tampering of a member's content comes in three forms: alone; with RECORD made to match; and with plan, SBOM and RECORD made to
match. One of anything else comes alone and with plan, SBOM and RECORD made to match.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tests.unit.runs.pairs import INFO, flipped

PLAN, SBOM, RECORD = (f"{INFO}/{name}" for name in ("relink.json", "sboms/relink.cdx.json", "RECORD"))
DATA = f"{INFO.removesuffix('.dist-info')}.data"
STUB = "demo.libs/relink-stubs/libmany.so.1"
EVIL = "/tmp/evil/lib"  # noqa: S108 never made


@dataclass
class Draft:
    """A wheel as data: headers and contents in their order."""

    headers: dict[str, zipfile.ZipInfo]
    contents: dict[str, bytes]
    comment: bytes = b""
    order: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, wheel: Path) -> Draft:
        with zipfile.ZipFile(wheel) as archive:
            headers = {item.filename: item for item in archive.infolist()}
            return cls(headers, {name: archive.read(name) for name in headers}, archive.comment, [*headers])

    def add(self, name: str, content: bytes, mode: int = 0o100644) -> None:
        header = zipfile.ZipInfo(name, self.headers[PLAN].date_time)
        header.external_attr, header.compress_type = mode << 16, zipfile.ZIP_DEFLATED
        self.headers[name], self.contents[name] = header, content
        self.order.insert(len(self.order) - 1, name)

    def drop(self, name: str) -> None:
        self.order.remove(name)
        del self.contents[name], self.headers[name]

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.comment = self.comment
            for name in self.order:
                archive.writestr(self.headers[name], self.contents[name])
        return path


Change: TypeAlias = Callable[[Draft], None]


def listed(draft: Draft) -> None:
    """Make RECORD match."""
    rows = []
    for name in draft.order:
        content = draft.contents[name]
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if name != RECORD and not name.endswith("/"):
            rows.append(f"{name},sha256={digest},{len(content)}\n")
    draft.contents[RECORD] = ("".join(rows) + f"{RECORD},,\n").encode()


def claimed(name: str) -> Change:
    """Make the plan and the SBOM say that it is meant to be so."""

    def change(data: Any) -> None:
        data["findings"].append({**data["findings"][0], "subject": name, "message": "as it has to be"})
        data["providers"][0]["evidence"] = f"{name} is as it has to be"
        for file in data["files"]:
            if file["path"] == name:
                file["rpath"] = {**file["rpath"], "after": f"{EVIL}:{file['rpath']['after'] or ''}"}

    def more(data: Any) -> None:
        data["components"].append({**data["components"][0], "bom-ref": name, "name": name})

    def both(draft: Draft) -> None:
        if draft.contents.get(PLAN, b"").startswith(b"{\n"):
            of_json(PLAN, change)(draft)
        if SBOM in draft.contents:
            of_json(SBOM, more)(draft)
        listed(draft)

    return both


# Ways to change something


def content(name: str, change: Callable[[bytes], bytes]) -> Change:
    def apply(draft: Draft) -> None:
        before = draft.contents[name]
        draft.contents[name] = change(before)
        assert draft.contents[name] != before

    return apply


def of_json(name: str, change: Callable[[Any], object]) -> Change:
    def edited(data: bytes) -> bytes:
        value = json.loads(data)
        change(value)
        return json.dumps(value, indent=1).encode() + b"\n"

    return content(name, edited)


def header(name: str, **facts: object) -> Change:
    def apply(draft: Draft) -> None:
        draft.headers[name] = copy.copy(draft.headers[name])
        for key, value in facts.items():
            assert getattr(draft.headers[name], key) != value
            setattr(draft.headers[name], key, value)

    return apply


def mode(name: str, bits: int) -> Change:
    return header(name, external_attr=bits << 16)


def added(name: str, data: bytes = b"import evil\n", bits: int = 0o100644) -> Change:
    return lambda draft: draft.add(name, data, bits)


def dropped(name: str) -> Change:
    return lambda draft: draft.drop(name)


def moved(name: str, at: int) -> Change:
    def apply(draft: Draft) -> None:
        draft.order.remove(name)
        draft.order.insert(at, name)

    return apply


def flip(name: str, share: float) -> Change:
    return content(name, lambda data: flipped(data, int(share * (len(data) - 1))))


def swap(name: str, old: bytes, new: bytes) -> Change:
    return content(name, lambda data: data.replace(old, new))


def longer_path(data: bytes) -> bytes:
    """The file with another search path, of the same length."""
    (found,) = re.findall(rb"/[^\0]*/rocm/lib(?=\0)", data)[:1]
    return data.replace(found, (EVIL + "/" * len(found))[: len(found)].encode())


def renamed(old: str, new: str) -> Change:
    def apply(draft: Draft) -> None:
        at = draft.order.index(old)
        draft.order[at] = new
        draft.contents[new] = draft.contents.pop(old)
        draft.headers[new] = copy.copy(draft.headers.pop(old))
        draft.headers[new].filename = draft.headers[new].orig_filename = new

    return apply


def first(data: Any, **facts: object) -> None:
    data.update(facts)


A, EXT, PLAIN, PROG = "demo/a.so", "demo/ext.so", "demo/plain.so", "demo/bin/prog"
PY, BIN, SCRIPT = "demo/__init__.py", "demo/data.bin", f"{DATA}/scripts/demo-prog"
METADATA, WHEEL, POINTS = (f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt"))

CONTENTS: dict[str, tuple[str, Change]] = {
    "ELF: a bit of the header": (A, content(A, lambda data: flipped(data, 9))),
    "ELF: a bit at a third": (A, flip(A, 0.33)),
    "ELF: a bit in the middle": (A, flip(A, 0.5)),
    "ELF: the last bit": (A, flip(A, 1)),
    "ELF: bytes at the end": (A, content(A, lambda data: data + b"\0")),
    "ELF: cut": (A, content(A, lambda data: data[:-8])),
    "ELF: another search path": (A, content(A, longer_path)),
    "ELF: another NEEDED": (A, swap(A, b"libhip.so.7\0", b"libhip.so.9\0")),
    "ELF: of another member": (PLAIN, lambda draft: draft.contents.update({PLAIN: draft.contents[A]})),
    "ELF: a bit of one that relink leaves": (PLAIN, flip(PLAIN, 0.5)),
    "ELF: no ELF": (PLAIN, content(PLAIN, lambda _: b"#!/bin/sh\n")),
    "program: another interpreter": (
        PROG,
        content(PROG, lambda data: data.replace(b"ld-linux", b"ld-evil!")),
    ),
    "script: a bit": (SCRIPT, flip(SCRIPT, 0.4)),
    "Python: a line more": (PY, content(PY, lambda data: data + b"import evil\n")),
    "Python: a blank more": (PY, content(PY, lambda data: data + b" ")),
    "Python: other line ends": (PY, swap(PY, b"\n", b"\r\n")),
    "Python: empty": (PY, content(PY, lambda _: b"")),
    "data: a bit": (BIN, flip(BIN, 0.7)),
    "data: empty": (BIN, content(BIN, lambda _: b"")),
    "data: text": (BIN, content(BIN, lambda _: b"text\n")),
    "METADATA: a requirement more": (METADATA, swap(METADATA, b"\n\n", b"\nRequires-Dist: evil\n\n")),
    "METADATA: a requirement less": (METADATA, swap(METADATA, b"Requires-Dist: numpy\n", b"")),
    "METADATA: another body": (METADATA, content(METADATA, lambda data: data + b"evil\n")),
    "WHEEL: a tag more": (WHEEL, content(WHEEL, lambda data: data + b"Tag: py3-none-any\n")),
    "WHEEL: pure": (WHEEL, swap(WHEEL, b"Purelib: false", b"Purelib: true")),
    "entry points: another": (POINTS, swap(POINTS, b"demo:main", b"evil:main")),
    "entry points: one more": (POINTS, content(POINTS, lambda data: data + b"pip = evil:main\n")),
    "stub: a bit": (STUB, flip(STUB, 0.5)),
    "stub: another library": (STUB, lambda draft: draft.contents.update({STUB: draft.contents[PLAIN]})),
    "added: a module": ("demo/evil.py", added("demo/evil.py")),
    "added: a .pth": ("evil.pth", added("evil.pth")),
    "added: a .pth by the data directory": (f"{DATA}/purelib/evil.pth", added(f"{DATA}/purelib/evil.pth")),
    "added: a script": (f"{DATA}/scripts/evil", added(f"{DATA}/scripts/evil", b"#!python\n", 0o100755)),
    "added: sitecustomize": ("sitecustomize.py", added("sitecustomize.py")),
    "added: a file of the prefix": (f"{DATA}/data/etc/evil", added(f"{DATA}/data/etc/evil")),
    "added: a library": (
        "demo/libhip.so.7",
        lambda draft: draft.add("demo/libhip.so.7", draft.contents[PLAIN]),
    ),
    "added: a stub": (f"{STUB}0", lambda draft: draft.add(f"{STUB}0", draft.contents[STUB], 0o100755)),
    "added: direct_url.json": (f"{INFO}/direct_url.json", added(f"{INFO}/direct_url.json", b"{}")),
    "added: a signature": (f"{INFO}/RECORD.jws", added(f"{INFO}/RECORD.jws", b"{}")),
    "added: a directory": ("demo/more/", added("demo/more/", b"", 0o40755)),
    "left out: data": (BIN, dropped(BIN)),
    "left out: a library": (PLAIN, dropped(PLAIN)),
    "left out: entry points": (POINTS, dropped(POINTS)),
    "left out: the stub": (STUB, dropped(STUB)),
    "left out: the SBOM": (SBOM, dropped(SBOM)),
    "renamed: data": ("demo/data2.bin", renamed(BIN, "demo/data2.bin")),
    "renamed: a library": ("demo/plain.abi3.so", renamed(PLAIN, "demo/plain.abi3.so")),
}

EARLIER = (2001, 2, 3, 4, 5, 6)
ORDER = "the members are in another order"
OTHERWISE = "time, method, flags, extra fields, comment or attributes"
HEADERS: dict[str, tuple[str, Change]] = {
    "mode: everybody may write": (f"{PLAIN}: the mode is", mode(PLAIN, 0o100777)),
    "mode: a module runs": (f"{PY}: the mode is", mode(PY, 0o100755)),
    "mode: a library does not": (f"{A}: the mode is", mode(A, 0o100644)),
    "mode: a script does not": (f"{SCRIPT}: the mode is", mode(SCRIPT, 0o100644)),
    "mode: the stub": (f"{STUB}: the mode is", mode(STUB, 0o100777)),
    "mode: none": (f"{BIN}: the mode is", mode(BIN, 0)),
    "mode: the plan": (f"{PLAN}: the mode is", mode(PLAN, 0o100755)),
    "order: two members": (ORDER, moved(PLAIN, 0)),
    "order: RECORD first": (ORDER, moved(RECORD, 0)),
    "order: the plan first": (ORDER, moved(PLAN, 0)),
    "order: the stub first": (ORDER, moved(STUB, 0)),
    "archive: a comment": ("the comment of the archive", lambda draft: setattr(draft, "comment", b"evil")),
    "archive: a member's comment": (f"{PLAIN}: {OTHERWISE}", header(PLAIN, comment=b"evil")),
    "archive: an extra field": (f"{PLAIN}: {OTHERWISE}", header(PLAIN, extra=b"\xfe\xca\4\0evil")),
    "archive: a time that was copied": (f"{PLAIN}: {OTHERWISE}", header(PLAIN, date_time=EARLIER)),
    "archive: a time that was written": (f"{A}: {OTHERWISE}", header(A, date_time=EARLIER)),
    "archive: stored": (f"{BIN}: {OTHERWISE}", header(BIN, compress_type=zipfile.ZIP_STORED)),
    "archive: of another system": (f"{A}: {OTHERWISE}", header(A, create_system=0)),
    "archive: attributes": (f"{PLAIN}: {OTHERWISE}", header(PLAIN, external_attr=0o100755 << 16 | 0x22)),
    "archive: internal attributes": (f"{PLAIN}: {OTHERWISE}", header(PLAIN, internal_attr=1)),
    "archive: versions": (f"{PLAIN}: {OTHERWISE}", header(PLAIN, create_version=63)),
}  # fmt: skip

PLANS: dict[str, Callable[[Any], object]] = {
    "findings left out": lambda data: data["findings"].clear(),
    "a finding more": lambda data: data["findings"].append({**data["findings"][0], "code": "RLK102"}),
    "a finding's words": lambda data: first(data["findings"][0], message="all is well"),
    "a finding's level": lambda data: first(data["findings"][0], level="info"),
    "findings in another order": lambda data: data["findings"].reverse(),
    "evidence": lambda data: data["files"][0]["needed"][0]["evidence"].append("well"),
    "loads left out": lambda data: data["loads"].clear(),
    "a load": lambda data: first(data["loads"][0], resolved=f"{EVIL}/libhip.so.7"),
    "sites": lambda data: first(data, sites=[EVIL]),
    "kept": lambda data: first(data, kept=[PLAIN]),
    "relies_on": lambda data: first(data, relies_on=[{"name": "evil", "version": "1"}]),
    "metadata": lambda data: first(data, metadata=["Requires-Dist: evil"]),
    "relocatable": lambda data: first(data, relocatable=True),
    "a provider": lambda data: first(data["providers"][0], path=EVIL),
    "a provider's release": lambda data: first(data["providers"][0], rocm_version="9.9"),
    "the loader": lambda data: first(data["target"], interpreter="/evil/ld.so"),
    "the root": lambda data: first(data["target"], sysroot="/evil"),
    "a closure": lambda data: data["files"][0]["closure"].pop(),
    "an edit": lambda data: first(data["files"][0]["rpath"], after=EVIL),
    "a file left out": lambda data: data["files"].pop(),
    "the vendor's wheel": lambda data: first(data["wheel"], sha256="0" * 64),
    "the output": lambda data: first(data, output="evil-1-py3-none-any.whl"),
    "why there is a stub": lambda data: first(data["stubs"][0], why="well"),
    "no stub": lambda data: data.pop("stubs"),
    "a key of its own": lambda data: first(data, allow_missing=["*"]),
}  # fmt: skip

SBOMS: dict[str, Callable[[Any], object]] = {
    "a component less": lambda data: data["components"].pop(0),
    "a component's path": lambda data: first(data["components"][0], **{"bom-ref": EVIL}),
    "another serial number": lambda data: first(data, serialNumber="urn:uuid:0"),
    "another ancestor": lambda data: first(
        data["metadata"]["component"]["pedigree"]["ancestors"][0]["hashes"][0], content="0" * 64
    ),
}  # fmt: skip


def in_order(data: bytes) -> bytes:
    return b"".join(sorted(data.splitlines(keepends=True)))


def larger(data: bytes) -> bytes:
    return re.sub(rb"(demo/plain\.so.*)\n", rb"\g<1>0\n", data)


RECORDS: dict[str, Change] = {
    "RECORD: another hash": swap(RECORD, b"demo/plain.so,sha256=", b"demo/plain.so,sha256=A"),
    "RECORD: a line less": content(RECORD, lambda data: re.sub(rb"demo/plain\.so,.*\n", b"", data)),
    "RECORD: a line more": content(RECORD, lambda data: b"/etc/passwd,,\n" + data),
    "RECORD: no hash": content(RECORD, lambda data: re.sub(rb"(demo/plain\.so),.*\n", rb"\1,,\n", data)),
    "RECORD: in another order": content(RECORD, in_order),
    "RECORD: other line ends": swap(RECORD, b"\n", b"\r\n"),
    "RECORD: another size": content(RECORD, larger),
}

BYTES: dict[str, Change] = {
    "plan: no JSON": content(PLAN, lambda data: data[:-3]),
    "plan: written otherwise": content(PLAN, lambda data: json.dumps(json.loads(data)).encode()),
    "plan: a key twice": swap(PLAN, b'{\n "schema"', b'{\n "kept": [],\n "schema"'),
    "plan: binary": content(PLAN, lambda _: b"\xff\0"),
}


def _both(*changes: Change) -> Change:
    def apply(draft: Draft) -> None:
        for change in changes:
            change(draft)

    return apply


def _all() -> dict[str, tuple[str, Change]]:
    every: dict[str, tuple[str, Change]] = {}
    for name, (word, change) in CONTENTS.items():
        every[name] = (f"{word}: ", change)
        every[f"{name}, RECORD too"] = (f"{word}: ", _both(change, listed))
        every[f"{name}, plan too"] = (f"{word}: ", _both(change, claimed(word)))
    for name, (word, change) in HEADERS.items():
        every[name] = (word, change)
        every[f"{name}, plan too"] = (word, _both(change, claimed(PLAIN)))
    for kind, member, edits in (("plan", PLAN, PLANS), ("SBOM", SBOM, SBOMS)):
        for name, edit in edits.items():
            every[f"{kind}: {name}"] = (f"{member}: ", of_json(member, edit))
            every[f"{kind}: {name}, RECORD too"] = (f"{member}: ", _both(of_json(member, edit), listed))
    every |= {name: (f"{RECORD}: the content", change) for name, change in RECORDS.items()}
    for name, change in BYTES.items():
        every[name] = (f"{PLAN}: ", change)
        every[f"{name}, RECORD too"] = (f"{PLAN}: ", _both(change, listed))
    every["left out: the plan"] = (f"{PLAN}: is not there", dropped(PLAN))
    every["left out: the plan, RECORD too"] = (f"{PLAN}: is not there", _both(dropped(PLAN), listed))
    return every


TAMPERINGS = _all()
"""By name: the words that the difference begins with, and the change."""
