"""grafting: the contents of copies are streamed, and are those that were planned with."""

from __future__ import annotations

import hashlib
import random
import zipfile
from pathlib import Path

import pytest

from relink.contents import Contents
from relink.errors import UsageError
from relink.library import relink
from relink.pipeline import carry_out, make_plan
from relink.progress import Clock
from tests.support.donors import HIP, LICENCE, RCCL, Donors, build_donors, licence
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
_LARGE = """
extern int hipOne(void); int ncclCount(void){return hipOne();}
__asm__(".section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\nbundle: .incbin \\"PAYLOAD\\"\\n.previous\\n");
"""


@pytest.fixture
def donors(tmp_path: Path) -> Donors:
    return build_donors(tmp_path)


def carried_out_after(donors: Donors, path: Path, content: bytes) -> None:
    """Plan, change a file that is copied, and carry the plan out."""
    options = donors.options("out")
    with Contents(donors.wheel, reuse=True) as contents:
        wheel, planned = make_plan(contents, options, Clock())
        assert planned.plan.ok
        path.write_bytes(content)
        carry_out(wheel, planned, options, Clock())


def test_a_library_that_changes_before_it_is_copied(donors: Donors) -> None:
    path = donors.donor / "lib" / RCCL
    changed = path.read_bytes()[:-1] + b"!"
    with pytest.raises(UsageError, match=r"librccl\.so\.1 has changed since it was planned with"):
        carried_out_after(donors, path, changed)
    assert not list((donors.root / "out").glob("*"))


def test_a_licence_that_changes_before_it_is_copied(donors: Donors) -> None:
    path = licence(donors.donor, "librccl1")
    with pytest.raises(UsageError, match="copyright has changed since it was planned with"):
        carried_out_after(donors, path, LICENCE.encode() + b"!")


def test_gaps_are_taken_from_the_file(donors: Donors) -> None:
    """patchelf gets the copy without its device code, which comes from the file, byte by byte."""
    noise = random.Random(5).randbytes(3 << 20)
    payload = donors.root / "payload"
    payload.write_bytes(noise)
    source = _LARGE.replace("PAYLOAD", str(payload))
    original = donors.put(RCCL, source, [donors.prefix / "lib" / HIP]).read_bytes()
    report = relink(donors.wheel, donors.options("out"))
    assert report.output is not None, report.findings
    (graft,) = report.grafts
    assert (graft.size, graft.sha256) == (len(original), hashlib.sha256(original).hexdigest())
    with zipfile.ZipFile(report.output.path) as archive:
        copy = archive.read(graft.path)
        assert archive.getinfo(graft.path).external_attr >> 16 & 0o777 == 0o755
    assert graft.file.changed
    assert noise in copy
    assert copy != original
