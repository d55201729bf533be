"""added_members: what an output has beyond the vendor's members, and nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from relink.library import relink
from relink.make.added_members import SBOM_MEMBER, STORE_MEMBER
from relink.planning.model import PLAN_MEMBER
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.two_prefixes import RCCL, build_two_prefixes

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

STUB = f"demo.libs/relink-stubs/{RCCL}"
KEY = b"PRIVATE KEY that no output has"


@pytest.mark.parametrize("with_stub", [False, True])
def test_graft_licence_link(tmp_path: Path, *, with_stub: bool) -> None:
    """A licence in a prefix that is a link to a private key: no library and no licence of a prefix is copied into an output."""
    both = build_two_prefixes(tmp_path)
    key = tmp_path / "id_ed25519"
    key.write_bytes(KEY)
    for path in (f"doc/{RCCL}", "doc/librccl1", "doc/rccl", "licenses/librccl1"):
        for prefix in (both.first, both.second):
            directory = prefix / "share" / path
            directory.mkdir(parents=True)
            for name in ("copyright", "LICENSE", "LICENSE.txt", "COPYING"):
                (directory / name).symlink_to(key)
    more = {"prefixes": (str(both.first),), "stub": (RCCL,)} if with_stub else {}
    report = relink(both.wheel, both.options("out", **more))
    assert report.path is not None, report.findings
    with zipfile.ZipFile(both.wheel) as vendor, zipfile.ZipFile(report.path) as archive:
        names = {name.replace("+rocm7.2.4.dist-info", ".dist-info") for name in archive.namelist()}
        added = names - set(vendor.namelist())
        assert added <= {
            STUB,
            *(f"demo-1.0.dist-info/{name}" for name in (PLAN_MEMBER, SBOM_MEMBER, STORE_MEMBER)),
        }
        assert (STUB in added) == with_stub
        assert not [name for name in archive.namelist() if KEY in archive.read(name)]
    output = Path(report.path).parent
    assert not [path for path in output.rglob("*") if path.is_file() and KEY in path.read_bytes()]
