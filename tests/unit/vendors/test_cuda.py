"""CUDA is known by names alone."""

from __future__ import annotations

import pytest

from relink.vendors.cuda import cuda
from relink.vendors.registry import RECOGNIZED, VENDORS, find_other_stack


@pytest.mark.parametrize(
    ("soname", "own"),
    [
        ("libcudart.so.12", True),
        ("libcublasLt.so.12", True),
        ("libcuda.so.1", True),
        ("libcudaless.so", False),
    ],
)
def test_libraries_are_known_by_their_sonames(soname: str, own: bool) -> None:
    assert cuda.libraries.is_own(soname) is own
    assert find_other_stack(soname) == ((cuda, soname) if own else None)


def test_packages_are_known_by_their_names_and_no_wheel_is_linked_to_them() -> None:
    assert cuda.packages.is_distribution("nvidia-cublas-cu12")
    assert cuda.packages.is_package("nvidia_cublas_cu12-12.8.4.1.dist-info")
    assert not cuda.packages.is_distribution("torch")
    assert cuda in RECOGNIZED
    assert cuda not in VENDORS
