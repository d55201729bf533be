"""Relinked wheels as earlier releases of relink wrote them."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.wheels import changed

__all__ = ["with_delta", "with_plan"]

INFO = "demo-1.0+rocm7.2.4.dist-info"


def with_plan(wheel: Path, directory: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """Copy a relinked wheel with another plan in it, and a RECORD that is right again.

    :param edit: changes the plan's JSON.
    """
    with zipfile.ZipFile(wheel) as archive:
        plan = json.loads(archive.read(f"{INFO}/relink.json"))
    edit(plan)
    return changed(wheel, directory, {f"{INFO}/relink.json": json.dumps(plan, indent=1).encode()})


def with_delta(wheel: Path, directory: Path, original: bytes) -> Path:
    """Copy a relinked wheel with the member that once had the vendor's bytes: here all of them, as copies of nothing.

    :param original: what comes out.
    """
    name = f"{INFO}/relink.delta"
    # RECORD is right for the delta, and the delta has the digest of all others.
    with zipfile.ZipFile(changed(wheel, directory / "others", {})) as archive:
        others = [item for item in archive.infolist() if item.filename not in (name, f"{INFO}/RECORD")]
    facts = "".join(f"{item.filename}\0{item.file_size} {item.CRC}\n" for item in others)
    size = len(original)
    numbers = struct.pack("<2Q", size, 1) + struct.pack("<3Q", 0, 0, size)
    delta = b"relink delta 1\n" + hashlib.sha256(facts.encode()).digest() + numbers + original
    output = directory / wheel.name
    with (
        zipfile.ZipFile(changed(wheel, directory / "whole", {name: delta})) as old,
        zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        record = f"{INFO}/RECORD"
        for entry in [*(item for item in old.infolist() if item.filename != record), old.getinfo(record)]:
            method = zipfile.ZIP_STORED if entry.filename == name else zipfile.ZIP_DEFLATED
            new.writestr(entry, old.read(entry), method)
    return output
