"""Writing a generated wheel file by file: content that does not fit into memory, and a RECORD with every hash."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from relink.wheel.changes import NewContent
from relink.wheel.writer import ZipWriter, new_member
from relink.wheel.zipformat import DEFLATED

TAG: Final = "py3-none-manylinux_2_17_x86_64"
NAME: Final = f"demo-1.0-{TAG}.whl"
_DIST_INFO: Final = "demo-1.0.dist-info"
_FILES: Final = {
    "METADATA": b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "WHEEL": f"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(),
}
_MOMENT: Final = (2026, 1, 1, 0, 0, 0)


def _sha256(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


class WheelFile:
    """A wheel that is being written, deflated at level 1; what it must have is added where the block ends."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._writer = ZipWriter(self._file, 1)
        self._rows: list[str] = []

    def __enter__(self) -> Self:
        return self

    def add(self, name: str, content: Path | bytes) -> None:
        self._put(name, content)
        text = base64.urlsafe_b64encode(_sha256(content)).rstrip(b"=").decode()
        self._rows.append(f"{name},sha256={text},{self._writer.members[-1].size}\n")

    def _put(self, name: str, content: Path | bytes) -> None:
        self._writer.add(new_member(name, DEFLATED, _MOMENT, 0o100644 << 16), _new(content))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is not None:
                return
            for name, content in _FILES.items():
                self.add(f"{_DIST_INFO}/{name}", content)
            record = f"{_DIST_INFO}/RECORD"
            self._put(record, "".join((*self._rows, f"{record},,\n")).encode())
            self._writer.finish()


def _new(content: Path | bytes) -> NewContent:
    """A file is read piece by piece: some have several GB."""
    if isinstance(content, bytes):
        return NewContent(content)
    return NewContent(_pieces(content), content.stat().st_size)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece
