"""providers.platform, and the contract with auditwheel, which has no public API: a new release that breaks it fails here."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest
from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import Policy, WheelPolicies
from packaging.version import Version

from relink.elf.image import EM_AMDGPU, EM_X86_64
from relink.providers.platform import is_platform_library, manylinux_tag, satisfies_tag

AARCH64, I386, RISCV = 183, 3, 243


# auditwheel


def test_the_release_is_of_the_range_that_was_looked_at() -> None:
    assert Version("6.8") <= Version(version("auditwheel")) < Version("7")


def test_what_is_called_is_there_with_the_same_arguments() -> None:
    parameters = inspect.signature(WheelPolicies.__init__).parameters
    assert {name: one.kind for name, one in parameters.items() if name in ("libc", "arch")} == {
        "libc": inspect.Parameter.KEYWORD_ONLY,
        "arch": inspect.Parameter.KEYWORD_ONLY,
    }
    others = [one for name, one in parameters.items() if name not in ("self", "libc", "arch")]
    assert all(one.default is not inspect.Parameter.empty for one in others)
    assert list(inspect.signature(WheelPolicies.versioned_symbols_policy).parameters) == [
        "self",
        "versioned_symbols",
    ]
    assert list(inspect.signature(WheelPolicies.get_policy_by_name).parameters) == ["self", "name"]
    assert {"name", "priority", "whitelist", "symbol_versions"} <= set(inspect.get_annotations(Policy))
    assert {"x86_64", "aarch64", "i686"} <= {one.value for one in Architecture}


def test_how_it_behaves() -> None:
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64)
    names = [policy.name for policy in policies]
    assert {"linux_x86_64", "manylinux_2_17_x86_64", "manylinux_2_34_x86_64", "manylinux_2_35_x86_64"} <= set(
        names
    )
    assert policies.get_policy_by_name("manylinux2014_x86_64").name == "manylinux_2_17_x86_64"
    with pytest.raises(LookupError):
        policies.get_policy_by_name("manylinux_1_0_x86_64")
    priorities = [
        policies.get_policy_by_name(f"manylinux_2_{minor}_x86_64").priority for minor in (17, 28, 34, 35)
    ]
    assert priorities == sorted(priorities, reverse=True)  # an older platform has the higher priority
    assert policies.get_policy_by_name("linux_x86_64").priority < priorities[-1]
    assert all(isinstance(policy.whitelist, frozenset) for policy in policies)


# relink's own words for it


@pytest.mark.parametrize(
    ("versions", "tag"),
    [
        ([], "manylinux_2_5"),
        (["GLIBC_2.2.5"], "manylinux_2_5"),
        (["GLIBC_2.17", "GLIBC_2.14"], "manylinux_2_17"),
        (["GLIBC_2.34"], "manylinux_2_34"),
        (["GCC_12.0.0"], "manylinux_2_35"),  # onnxruntime-rocm 1.22.2.post3, which claims 2_34
        (["GLIBC_2.27", "GCC_12.0.0", "hip_6.0", "MIOPEN_HIP_1", "ROCTX_4.1"], "manylinux_2_35"),
        (["GLIBCXX_3.4.30"], "manylinux_2_35"),
        (["hip_4.2", "no family", ""], "manylinux_2_5"),
        (["GLIBC_2.999"], "linux"),
        (["GLIBC_PRIVATE"], "linux"),
    ],
)
def test_manylinux_tag(versions: list[str], tag: str) -> None:
    assert manylinux_tag(versions, EM_X86_64) == f"{tag}_x86_64"


def test_tags_of_other_machines() -> None:
    assert manylinux_tag(["GLIBC_2.34"], AARCH64) == "manylinux_2_34_aarch64"
    assert manylinux_tag(["GLIBC_2.17"], I386) == "manylinux_2_17_i686"
    assert manylinux_tag(["GLIBC_2.17"], RISCV) == "linux_riscv"
    assert manylinux_tag([], EM_AMDGPU) == "linux_amdgpu"
    assert manylinux_tag([], 9999) == "linux_machine 9999"
    assert satisfies_tag("manylinux_2_34_riscv64", "linux_riscv", RISCV)


@pytest.mark.parametrize(
    ("claimed", "found", "true"),
    [
        ("manylinux_2_34_x86_64", "manylinux_2_35_x86_64", False),
        ("manylinux_2_34_x86_64", "manylinux_2_34_x86_64", True),
        ("manylinux_2_34_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux2014_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux2014_x86_64", "manylinux_2_24_x86_64", False),
        ("manylinux_2_34_x86_64", "linux_x86_64", False),
        ("linux_x86_64", "linux_x86_64", True),
        ("linux_x86_64", "manylinux_2_35_x86_64", True),
        ("musllinux_1_2_x86_64", "linux_x86_64", True),
        ("win_amd64", "linux_x86_64", True),
    ],
)
def test_satisfies_tag(claimed: str, found: str, true: bool) -> None:
    assert satisfies_tag(claimed, found, EM_X86_64) is true


@pytest.mark.parametrize(
    ("soname", "machine", "expected"),
    [
        ("libc.so.6", EM_X86_64, True),
        ("libstdc++.so.6", EM_X86_64, True),
        ("libgcc_s.so.1", AARCH64, True),
        ("ld-linux-x86-64.so.2", EM_X86_64, True),
        ("ld-linux-aarch64.so.1", AARCH64, True),
        ("ld-linux.so.2", I386, True),
        ("libz.so.1", EM_X86_64, True),
        ("libamdhip64.so.7", EM_X86_64, False),
        ("libc.so", EM_X86_64, False),
        ("libc.so.6", EM_AMDGPU, False),
        ("ld-linux-x86-64.so.2", EM_AMDGPU, False),
    ],
)
def test_platform_libraries(soname: str, machine: int, expected: bool) -> None:
    assert is_platform_library(soname, machine) is expected
