"""Which Pythons take a wheel; that none of nixpkgs' takes it is told where packages for Nix are made."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from relink.wheel.naming import parse_wheel_name
from relink.wheel.pythons import find_minors, select_minors


@pytest.mark.parametrize(
    ("tags", "minors"),
    [
        ("cp312-cp312-manylinux_2_34_x86_64", [12]),
        ("cp38-cp38-linux_x86_64", [8]),
        ("cp312-abi3-manylinux_2_34_x86_64", [12, 13, 14, 15]),
        ("cp38-abi3-linux_x86_64", [10, 11, 12, 13, 14, 15]),
        ("py3-none-manylinux_2_34_x86_64", [10, 11, 12, 13, 14, 15]),
        ("py2.py3-none-any", [10, 11, 12, 13, 14, 15]),
        ("py313-none-any", [13, 14, 15]),
        ("cp312-none-linux_x86_64", [12]),
        ("cp311.cp312-cp311.cp312-linux_x86_64", [11, 12]),
        ("cp312-cp312-manylinux2014_x86_64.manylinux_2_17_x86_64", [12]),
        ("cp313-cp313t-manylinux_2_34_x86_64", []),
        ("pp310-pypy310_pp73-manylinux_2_17_x86_64", []),
        ("cp312-cp312-manylinux_2_34_aarch64", []),
        ("cp312-cp312-musllinux_1_2_x86_64", []),
        ("cp312-cp312-win_amd64", []),
    ],
)
def test_which_pythons_take_a_wheel(tags: str, minors: list[int]) -> None:
    assert list(find_minors(parse_wheel_name(f"demo-1.0-{tags}.whl"), 10, 15)) == minors


@pytest.mark.parametrize(
    ("marker", "minors"),
    [
        ("", {10, 11, 12}),
        ("; python_version < '3.12'", {10, 11}),
        ("; python_full_version >= '3.11.0'", {11, 12}),
        ("; sys_platform == 'win32'", set()),
        ("; platform_machine == 'x86_64' and platform_system == 'Linux'", {10, 11, 12}),
        ("; extra == 'x' and python_version > '3'", set()),
    ],
)
def test_for_which_pythons_something_is_required(marker: str, minors: set[int]) -> None:
    assert select_minors(Requirement(f"demo{marker}"), [10, 11, 12]) == minors
