"""Small wheels made on the spot."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

EPOCH = (2024, 5, 1, 12, 0, 0)


def make_wheel(
    directory: Path,
    files: Mapping[str, bytes | Path],
    *,
    name: str = "demo",
    version: str = "1.0",
    tag: str = "cp311-cp311-manylinux_2_34_x86_64",
    hashes: bool = True,
    requires: tuple[str, ...] = (),
) -> Path:
    """Write NAME-VERSION-TAG.whl with `files` (content, or a file to take it from) and a dist-info."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    contents = {
        member: data.read_bytes() if isinstance(data, Path) else data for member, data in files.items()
    }
    requirements = "".join(f"Requires-Dist: {item}\n" for item in requires)
    contents[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}\nVersion: not this one\n".encode()
    )
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    rows = []
    for member, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{member},sha256={digest},{len(data)}" if hashes else f"{member},,")
    contents[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    path = directory / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in contents.items():
            entry = zipfile.ZipInfo(member, EPOCH)
            entry.external_attr = (
                0o100755
                if member.endswith((".so", ".sh")) or "/bin/" in member or ".data/scripts/" in member
                else 0o100644
            ) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def changed(
    wheel: Path,
    directory: Path,
    edits: Mapping[str, bytes | None],
    *,
    name: str | None = None,
    modes: Mapping[str, int] | None = None,
    record: bool = True,
) -> Path:
    """Copy a wheel with other contents (None: left out), and a RECORD that is right again unless `record` is false."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (name or wheel.name)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as sink:
        items = {item.filename: item for item in source.infolist()}
        contents = {key: source.read(key) for key in items} | dict(edits)
        at = next(key for key in contents if key.endswith(".dist-info/RECORD"))
        rows = []
        for key, data in contents.items():
            if data is not None and key != at:
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                rows.append(f"{key},sha256={digest},{len(data)}\n")
        if record:
            contents[at] = ("".join(rows) + f"{at},,\n").encode()
        for key, data in contents.items():
            if data is not None:
                old = items.get(key, zipfile.ZipInfo(key, EPOCH))
                item = zipfile.ZipInfo(key, old.date_time)
                mode = old.external_attr >> 16 if key in items else 0o100644
                item.external_attr = (modes or {}).get(key, mode) << 16
                item.compress_type = old.compress_type if key in items else zipfile.ZIP_DEFLATED
                sink.writestr(item, data)
    return path
