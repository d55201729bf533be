"""ZIP and deflate files that others made to tell readers apart: what is valid is read, what is not is refused.

`scripts/fetch-zip-corpora DIR` checks them out, RELINK_ZIP_CORPORA=DIR names them. None of them is a wheel, so their structure
and the content of their members are read.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import pytest

from relink.system.errors import WheelError
from relink.wheel.deflate.stream import content
from relink.wheel.directory import read_directory
from relink.wheel.limits import WheelLimits
from tests.unit.wheel.build import Entry, RawZip

CORPORA = os.environ.get("RELINK_ZIP_CORPORA")
pytestmark = pytest.mark.skipif(CORPORA is None, reason="RELINK_ZIP_CORPORA names no checkouts")

MALO, PYPI = "malo", "warehouse/tests/unit/utils/zipdata"
# PyPI's reader does not read the members; Malo has these two among what is ambiguous: a size that is not that of the content.
AMBIGUOUS = {"short_usize.zip", "short_usize_zip64.zip"}
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
    assert refused == AMBIGUOUS
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
