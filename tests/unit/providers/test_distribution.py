"""Which distribution it is: os-release(5), here and in a directory that will be / elsewhere."""

from __future__ import annotations

import itertools
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import auditwheel
import pytest
from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies
from packaging.version import Version

from relink.elf.constants import EM_AMDGPU, EM_X86_64
from relink.providers import distribution
from relink.providers.distribution import (
    Distribution,
    find_manylinux_tag,
    is_platform_library,
    list_debian_names,
    read_distribution,
    satisfies_tag,
)
from relink.system.errors import RelinkError

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nNAME="Debian GNU/Linux"\nID=debian\n'
UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n'
FEDORA = 'NAME="Fedora Linux"\nID=fedora\n'
ROCKY = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'
ARCH = 'NAME="Arch Linux"\nID=arch\n'
MANJARO = 'NAME="Manjaro Linux"\nID=manjaro\nID_LIKE=arch\n'
NIXOS = "NAME=NixOS\nID=nixos\n"
SUSE = 'NAME="openSUSE Tumbleweed"\nID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n'


def below(root: Path, text: str, place: str = "etc/os-release") -> Path:
    path = root / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "name", "family"),
    [
        (DEBIAN, "Debian GNU/Linux", "debian"),
        (UBUNTU, "Ubuntu", "debian"),
        (FEDORA, "Fedora Linux", "fedora"),
        (ROCKY, "Rocky Linux", "fedora"),
        (ARCH, "Arch Linux", "arch"),
        (MANJARO, "Manjaro Linux", "arch"),
        (NIXOS, "NixOS", "nixos"),
        (SUSE, "openSUSE Tumbleweed", None),
        ("# nothing\n\nwhat is this\nNAME='open\n", "linux", None),
        ("ID=\n", "linux", None),
    ],
)
def test_families(text: str, name: str, family: str | None, tmp_path: Path) -> None:
    assert read_distribution(str(below(tmp_path, text))) == Distribution(name, family)


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    assert read_distribution(str(tmp_path)) is None
    below(tmp_path, FEDORA, "usr/lib/os-release")
    assert read_distribution(str(tmp_path)) == Distribution("Fedora Linux", "fedora")
    below(tmp_path, ARCH)
    assert read_distribution(str(tmp_path)) == Distribution("Arch Linux", "arch")


def test_a_link_is_followed_inside_of_the_sysroot(tmp_path: Path) -> None:
    below(tmp_path, NIXOS, "usr/lib/os-release")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").symlink_to("/usr/lib/os-release")
    assert read_distribution(str(tmp_path)) == Distribution("NixOS", "nixos")


def test_commands() -> None:
    assert Distribution("x", "debian").command("p") == "apt install p"
    assert Distribution("x", "fedora").command("p") == "dnf install p"
    assert Distribution("x", "arch").command("p") == "pacman -S p"


POLICY = """\
librccl1:
  Installed: (none)
  Candidate: 5.4.3-3+b1
  Version table:
     7.2.4-1~exp3 1
          1 http://mirror.invalid/debian experimental/main amd64 Packages
     5.4.3-3+b1 500
        500 http://mirror.invalid/debian sid/main amd64 Packages
"""
"""What apt-cache says in Debian sid with the lists of experimental."""
OTHER = """\
other:
  Installed: (none)
  Candidate: 7.20.0
  Version table:
     7.20.0 500
        500 http://mirror.invalid/debian sid/main amd64 Packages
     6.4.1 500
        500 http://mirror.invalid/debian sid/main amd64 Packages
"""
"""The same of a package that is asked for with it."""


@pytest.mark.parametrize(
    ("policy", "release", "command"),
    [
        (POLICY, "7.2.4", "apt install -t experimental librccl1"),
        (POLICY, "7.2", "apt install -t experimental librccl1"),
        (POLICY, "5.4.3", "apt install librccl1"),
        (POLICY, "7.20", None),
        (POLICY, "6.4", None),
        (POLICY, None, "apt install librccl1"),
        ("", "7.2", None),
        ("", None, None),
        (POLICY.replace("7.2.4-1", "1:7.2.4-1"), "7.2", "apt install -t experimental librccl1"),
        (
            POLICY.replace("     7.2.4-1~exp3 1", " *** 7.2.4-1~exp3 100"),
            "7.2",
            "apt install -t experimental librccl1",
        ),
    ],
)
def test_the_suite_that_has_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, release: str | None, command: str | None
) -> None:
    program = tmp_path / "apt-cache"
    said = OTHER + policy + OTHER.replace("other", "z")
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    debian = Distribution("Debian", "debian", is_here=True)
    assert debian.command("librccl1", release) == command


def test_apt_is_asked_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, asked = tmp_path / "apt-cache", tmp_path / "asked"
    said = POLICY + POLICY.replace("librccl1", "libhsa1").replace("         1 http", "       500 http")
    program.write_text(f"#!/bin/sh\necho >>{asked}\ncat <<'END'\n{said}END\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    debian, all_known = Distribution("Debian", "debian", is_here=True), ("librccl1", "libhsa1", "no")
    told = [debian.command(name, "7.2", all_known) for name in all_known]
    assert told == ["apt install -t experimental librccl1", "apt install libhsa1", None]
    assert asked.read_text() == "\n"


@pytest.mark.parametrize(
    ("soname", "name"),
    [
        ("libodbc.so.2", "libodbc2"),
        ("libusb-1.0.so.0", "libusb-1.0-0"),
        ("libX11.so.6", "libx11-6"),
        ("lib_a.so.1", "lib-a1"),
        ("libfst-1.8.so", "libfst-1.8"),
    ],
)
def test_the_package_by_the_soname(soname: str, name: str) -> None:
    assert list_debian_names(soname) == (f"{name}t64", name)


@pytest.mark.parametrize("soname", ["/opt/rocm/lib/liba.so.1", "-o=liba.so.1", "a.so", "lib a.so.1", ""])
def test_no_package_is_asked_for_by_another_name(soname: str) -> None:
    assert list_debian_names(soname) == ()


@pytest.mark.parametrize(("family", "command"), [("fedora", "dnf install"), ("arch", "pacman -S")])
def test_a_package_that_no_list_has_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, command: str
) -> None:
    program = tmp_path / "manager"
    program.write_text('#!/bin/sh\nfor last; do :; done\ncase $last in there*) echo "$last-1";; esac\n')
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    distribution = Distribution("X", family, is_here=True)
    assert distribution.command("there") == f"{command} there"
    assert distribution.command("not-there") is None


def test_without_apt_cache_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    debian = Distribution("Debian", "debian", is_here=True)
    assert debian.command("without-apt", "7.2") == "apt install without-apt"


AARCH64, I386, RISCV = 183, 3, 243


# auditwheel


def test_the_release_is_of_the_range_that_was_looked_at() -> None:
    assert Version("6.8") <= Version(version("auditwheel")) < Version("7")


@pytest.mark.parametrize("machine", [EM_X86_64, AARCH64, I386])
def test_the_tables_are_read_as_auditwheel_reads_them(machine: int) -> None:
    architecture = {EM_X86_64: Architecture.x86_64, AARCH64: Architecture.aarch64, I386: Architecture.i686}[
        machine
    ]
    theirs = WheelPolicies(libc=Libc.GLIBC, arch=architecture)
    names = [name for policy in theirs for name in (policy.name, *policy.aliases)]
    assert f"manylinux_2_17_{architecture}" in names
    versions = {
        f"{family}_{version}"
        for policy in theirs
        for family, known in policy.symbol_versions.items()
        for version in known
    }
    assert len(versions) > 100
    for some in [{one} for one in sorted(versions)] + [set[str](), versions, {"GLIBC_2.999"}, {"hip_4.2"}]:
        assert find_manylinux_tag(some, machine) == theirs.versioned_symbols_policy({"": some}).name
    for one, other in itertools.product(names, repeat=2):
        older = theirs.get_policy_by_name(other).priority >= theirs.get_policy_by_name(one).priority
        assert satisfies_tag(one, other, machine) is older
    libraries = {soname for policy in theirs for soname in policy.whitelist}
    assert all(is_platform_library(soname, machine) for soname in libraries)


def test_auditwheel_itself_is_not_loaded() -> None:
    program = (
        "import sys; from relink.providers.distribution import find_manylinux_tag; find_manylinux_tag(['GLIBC_2.34'], 62); "
        "print([name for name in sys.modules if name.startswith(('auditwheel.', 'elftools'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"


def test_tables_that_are_damaged_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditwheel, "__path__", [str(tmp_path)])
    path = tmp_path / "policy" / "manylinux-policy.json"
    path.parent.mkdir()
    for text in (None, "{", "3", "[3]", "[{}]", '[{"name": "linux", "aliases": 3, "symbol_versions": {}}]'):
        if text is not None:
            path.write_text(text)
        with pytest.raises(RelinkError, match=r"manylinux-policy\.json: .* reinstall it"):
            distribution.read_policies.__wrapped__(EM_X86_64)


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
    assert find_manylinux_tag(versions, EM_X86_64) == f"{tag}_x86_64"


def test_tags_of_other_machines() -> None:
    assert find_manylinux_tag(["GLIBC_2.34"], AARCH64) == "manylinux_2_34_aarch64"
    assert find_manylinux_tag(["GLIBC_2.17"], I386) == "manylinux_2_17_i686"
    assert find_manylinux_tag(["GLIBC_2.17"], RISCV) == "linux_riscv"
    assert find_manylinux_tag([], EM_AMDGPU) == "linux_amdgpu"
    assert find_manylinux_tag([], 9999) == "linux_machine 9999"
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
