"""The least that relinking a wheel can take: every changed file inflated, hashed and deflated once, the rest copied."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.cost import Cost, measured
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import NewContent
from relink.wheel.writer import ZipWriter
from relink.wheel.zipformat import STORED


def floor(wheel: Path, changed: Sequence[str], level: int, place: Path) -> Cost:
    """Do it in a process of its own, by the same libraries as relink; `level` is deflate's."""
    (place / "out").mkdir()
    command = [sys.executable, "-m", "benchmarks.floor", str(wheel), "|".join(changed), str(level)]
    root = Path(__file__).resolve().parent.parent
    return measured([[*command, str(place / "out")]], place, cwd=root)


def _hashed(chunks: Iterator[bytes], pool: ThreadPoolExecutor) -> Iterator[bytes]:
    """Yield the chunks, which are hashed meanwhile."""
    digest = hashlib.sha256()
    for chunk in chunks:
        hashing = pool.submit(digest.update, chunk)
        yield chunk
        hashing.result()


def _work(wheel: Path, changed: list[str], level: int, place: Path) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        WheelArchive(wheel) as archive,
        (place / wheel.name).open("wb") as file,
    ):
        writer = ZipWriter(file, level)
        for name, member in archive.members.items():
            if name in changed and member.method != STORED:
                writer.add(member, NewContent(_hashed(archive.chunks(name), pool), member.size))
            elif not member.is_directory:
                writer.copy(member, archive.raw(name))
        writer.finish()


if __name__ == "__main__":
    _work(Path(sys.argv[1]), sys.argv[2].split("|"), int(sys.argv[3]), Path(sys.argv[4]))
