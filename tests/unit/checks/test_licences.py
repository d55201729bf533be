"""checks.licences: which text is of which library, the names in it, and what they allow."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from relink.checks.licences import LICENCE_LIMIT, licence_names, licence_of, why_not_copied
from relink.plans.additions import LicenceFacts

DEP5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"


def put(prefix: Path, place: str, text: str | bytes = "License text") -> Path:
    path = prefix / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("soname", "place", "package"),
    [
        ("librccl.so.1", "share/doc/librccl1/copyright", "librccl1"),
        ("libamdhip64.so.7", "share/doc/libamdhip64-7/copyright", "libamdhip64-7"),
        ("libelf.so.1", "share/doc/libelf1t64/copyright", "libelf1t64"),
        ("libmigraphx_c.so.3", "share/doc/libmigraphx-c3/copyright", "libmigraphx-c3"),
        ("libfoo.so.1.2", "share/doc/libfoo1.2/copyright", "libfoo1.2"),
        ("libfoo.so.1.2", "share/doc/libfoo1/copyright", "libfoo1"),
        ("libfoo.so", "share/licenses/libfoo/LICENSE.md", "libfoo"),
        ("librccl.so.1", "share/doc/rccl/LICENSE.txt", "rccl"),
        ("librccl.so.1", "share/licenses/rccl/COPYING", "rccl"),
    ],
)
def test_where_the_text_lies(tmp_path: Path, soname: str, place: str, package: str) -> None:
    path = put(tmp_path, place)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert licence_of(soname, str(tmp_path)) == LicenceFacts(package, str(path), (), digest)


def test_what_is_not_a_library_s_own_text(tmp_path: Path) -> None:
    put(tmp_path, "share/doc/librccl2/copyright")
    put(tmp_path, "share/doc/librccl1/README")
    put(tmp_path, "share/doc/librccl1-dev/copyright")
    assert licence_of("librccl.so.1", str(tmp_path)) == LicenceFacts()


@pytest.mark.parametrize("soname", ["../../etc.so.1", "lib/x.so.1", ".so.1", ""])
def test_a_soname_leads_nowhere_else(tmp_path: Path, soname: str) -> None:
    put(tmp_path, "share/etc1/copyright")
    put(tmp_path, "share/doc/x/copyright")
    assert licence_of(soname, str(tmp_path)).file is None


def test_a_text_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    put(tmp_path, "share/doc/librccl1/copyright", b"x" * (LICENCE_LIMIT + 1))
    assert licence_of("librccl.so.1", str(tmp_path)) == LicenceFacts()


def test_the_paragraph_of_all_files_speaks() -> None:
    text = (
        DEP5
        + "Files: *\nCopyright: x\nLicense: Expat and BSD-3-clause\n text\n\nFiles: debian/*\nLicense: GPL-3+\n"
    )
    assert licence_names(text + "\nLicense: GPL-3+\n On Debian systems …\n") == ("Expat and BSD-3-clause",)


def test_without_it_each_paragraph_does() -> None:
    text = (
        DEP5
        + "Files: a.c\n b.c\nLicense: GPL-2\n\nFiles: debian/*\nLicense: X\n\nFiles: c.c\nLicense: Expat\n"
    )
    assert licence_names(text) == ("GPL-2", "Expat")


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("Expat", True),
        ("LGPL-2.1+", True),
        ("GPL-3+", False),
        ("gpl-2", False),
        ("GPL", False),
        ("AGPL-3", False),
        ("GPL-3+ with GCC-exception", True),
        ("GPL-2+-with-link-exception", True),
        ("Expat or GPL-2", True),
        ("Expat and GPL-2", False),
        ("GPL-2 or AGPL-3", False),
        ("CC-BY-NC-4.0", False),
        ("AMD-EULA", False),
        ("proprietary", False),
        ("BSD-3-Clause-Nvidia", True),
    ],
)
def test_what_a_licence_allows(name: str, allowed: bool) -> None:
    reason = why_not_copied(LicenceFacts("p", "/p", (name,)))
    assert (reason is None) == allowed
    assert allowed or name in str(reason)


def test_words_of_a_text_without_a_form() -> None:
    text = "AMD Software End User\nLicense Agreement\n…"
    names = licence_names(text)
    assert names == ("end user license agreement",)
    assert "does not allow copies" in str(why_not_copied(LicenceFacts("p", "/p", names)))


def test_what_is_not_known_allows_it() -> None:
    assert why_not_copied(LicenceFacts()) is None
    assert licence_names("Permission is hereby granted, free of charge") == ()
