"""ZIP, deflate and zstd files that others made to tell readers apart: what is valid is read, what is not is refused.

`scripts/fetch-zip-corpora DIR` checks them out, RELINK_ZIP_CORPORA=DIR names them. None of them is a wheel, so their structure
and the content of their members are read.
"""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.bundle import CompressedHeader, Inflater
from relink.system.errors import WheelError
from relink.wheel.deflate.stream import content
from relink.wheel.directory import read_directory
from relink.wheel.limits import WheelLimits
from tests.unit.wheel.build import Entry, RawZip

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CORPORA = os.environ.get("RELINK_ZIP_CORPORA")
pytestmark = pytest.mark.skipif(CORPORA is None, reason="RELINK_ZIP_CORPORA names no checkouts")

MALO, PYPI = "malo", "warehouse/tests/unit/utils/zipdata"
# PyPI's reader does not read the members; Malo has these two among the malicious ones: a size that is not that of the content.
MALICIOUS = {"short_usize.zip", "short_usize_zip64.zip"}
# PyPI takes no data descriptors; they are valid, and wheels have them.
VALID = {"data_descriptor.zip", "data_descriptor_zip64.zip"}


def read(data: bytes) -> dict[str, bytes]:
    """Return the content of a ZIP file's members.

    :raises WheelError: it is refused.
    """

    def pread(offset: int, length: int) -> bytes:
        found = data[offset : offset + length]
        if len(found) < length:
            raise WheelError("cut")
        return found

    members, defects = read_directory(pread, len(data), WheelLimits())
    if defects:
        raise WheelError("refused", defects)
    return {name: b"".join(content(pread, member)) for name, member in members.items()}


def is_read(path: Path) -> bool:
    """Whether a file is read, and as :mod:`zipfile` reads it."""
    try:
        found = read(path.read_bytes())
    except WheelError:
        return False
    with zipfile.ZipFile(path) as archive:
        assert found == {name: archive.read(name) for name in archive.namelist()}, path
    return True


def files(place: str, *groups: str, kinds: str = "*") -> list[Path]:
    found = [path for group in groups for path in (Path(CORPORA or "") / place / group).glob(kinds)]
    assert found, f"no files in {place}"
    return found


def test_malo() -> None:
    assert [path.name for path in files(f"{MALO}/zip", "accept") if not is_read(path)] == []
    bad = files(f"{MALO}/zip", "malicious", "reject")
    bad += [
        Path(CORPORA or "") / MALO / "zip/iffy" / name
        for name in ("extra3byte.zip", "non_ascii_original_name.zip")
    ]
    assert [path.name for path in bad if is_read(path)] == []


def test_what_malo_calls_iffy_is_read_as_others_do_or_refused() -> None:
    assert sum(map(is_read, files(f"{MALO}/zip", "iffy", kinds="*.zip"))) > 0


def test_pypi() -> None:
    refused = {path.name for path in files(PYPI, "accept") if not is_read(path)}
    assert refused == MALICIOUS
    assert {path.name for path in files(PYPI, "reject") if is_read(path)} == VALID


def test_deflate() -> None:
    for group in ("accept", "malicious", "reject"):
        for path in files(f"{MALO}/deflate", group):
            stream = path.read_bytes()
            inflater = zlib.decompressobj(-15)
            try:
                data = inflater.decompress(stream)
            except zlib.error:
                data = b""
            raw = RawZip([Entry(b"a", data, compressed=stream)]).build()
            if group == "accept":
                assert read(raw) == {"a": data}, path
            else:
                with pytest.raises(WheelError):
                    read(raw)


def inflated(path: Path, size: int) -> tuple[bool, bytes]:
    """Return whether a frame is read as the payload of a bundle that claims a size, and what has come of it."""
    data = path.read_bytes()
    header = CompressedHeader(3, "zstd", 0, len(data), size)
    inflater = Inflater(BufferSource(data), header, 0, len(data), 1 << 26)
    return inflater.at_least(size) and not inflater.problem, inflater.data


def test_zstd() -> None:
    """A payload of several frames, or of one behind what is to be skipped, is of another size than it says."""
    refused = set()
    for path in files(f"{MALO}/zstd", "accept"):
        content_of = zstd.decompress(path.read_bytes())
        is_whole, found = inflated(path, len(content_of))
        assert content_of.startswith(found)
        refused |= set() if is_whole else {path.name}
    assert refused == {"multi_frame.zst", "skippable_magic_max.zst", "skippable_prefix.zst"}
    taken = set()
    for path in files(f"{MALO}/zstd", "malicious", "reject"):
        try:
            size = zstd.get_frame_info(path.read_bytes()[:18]).decompressed_size
        except zstd.ZstdError:
            size = None
        taken |= {path.name} if inflated(path, size or 1)[0] else set()
    assert taken == set()
