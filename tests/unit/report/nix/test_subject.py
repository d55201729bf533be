"""What a package is made from: places of members, the ROCm that libraries were linked with, and names of symbols as globs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relink.elf.image import Image, read_image
from relink.planning.resolve.layout import Layout
from relink.report.nix.subject import Attributes, hip_major, literal, place
from tests.support.amount import amount
from tests.support.elf_builder import Library, build

ROOT = Path(__file__).parents[4]


def needing(*sonames: str) -> Image:
    return read_image(build(Library("libx.so", sonames)), "x.so")


@pytest.mark.parametrize(
    ("needed", "major"),
    [
        (("libamdhip64.so.7", "libc.so.6"), 7),
        (("libamdhip64.so.6", "libamdhip64.so.7"), 7),  # the newest
        (("librocblas.so.5",), 7),  # one release alone has it
        (("librocblas.so.4",), 6),
        (("librocblas.so.5", "libamdhip64.so.6"), 6),  # the runtime comes first
        (("libc.so.6",), None),
        (("libamdhip64.so.7junk",), None),
    ],
)
def test_the_rocm_that_it_was_linked_with(needed: tuple[str, ...], major: int | None) -> None:
    assert hip_major([needing("libm.so.6"), needing(*needed)]) == major


def test_where_members_are_put() -> None:
    layout = Layout("/env", "3.12")
    assert place(layout, "demo/a.so") == ("site-packages", "demo/a.so")
    assert place(layout, "demo-1.0.data/scripts/prog") == ("root", "bin/prog")


def test_an_attribute_has_each_soname_once_in_order() -> None:
    attributes = Attributes()
    assert attributes.use("rocmPackages.clr", ["libb.so", "liba.so"]) == "rocmPackages.clr"
    attributes.use("rocmPackages.clr", ["liba.so", "libc.so"])
    assert list(attributes.used["rocmPackages.clr"]) == ["libb.so", "liba.so", "libc.so"]


@settings(max_examples=amount(30), deadline=None)
@given(
    st.text(st.sampled_from("ab*?[]\\!-^{}()|+@ '\"$"), min_size=1, max_size=8),
    st.text(st.sampled_from("ab*"), max_size=4),
)
@example("*", "anything")
@example("[!x]", "a")
def test_a_symbol_is_no_glob(name: str, other: str) -> None:
    """A wheel whose symbol is called * must not switch the dry run off."""
    ask = 'for one in "$1" "$3"; do relinkMatches "$one" "$2" && echo yes || echo no; done'
    script = f"source {ROOT}/nix/relink.sh; {ask}"
    command = ["bash", "-euc", script, "-", name, literal(name), other]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["yes", "yes" if name == other else "no"]
