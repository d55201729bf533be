"""The major release that libraries were linked with."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.vendors.majors import newest_major
from relink.vendors.rocm.vendor import rocm
from tests.support.cc import shared


@pytest.mark.parametrize(
    ("sonames", "major"),
    [
        ((), None),
        (("libstdc++.so.6", "libamdhip64.so"), None),
        (("libamdhip64.so.6",), 6),
        (("libamdhip64.so.6", "libamdhip64.so.7"), 7),
        # Without the runtime, by a soname that one major alone has.
        (("librocblas.so.5",), 7),
        (("librccl.so.1",), None),
    ],
)
def test_by_the_runtime_or_by_what_one_major_alone_has(
    tmp_path: Path, sonames: tuple[str, ...], major: int | None
) -> None:
    needed = [shared(tmp_path / name, "int a;") for name in sonames]
    library = shared(tmp_path / "a.so", "int b;", needed=needed, flags=["-Wl,--no-as-needed"])
    assert newest_major([read_image(library.read_bytes(), "a.so")], rocm) == major
    assert newest_major([], rocm) is None
