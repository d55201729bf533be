"""Which distribution it is: os-release(5), here and in a directory that will be / elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.providers.distribution import Distribution, read_distribution

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


@pytest.mark.parametrize(
    ("policy", "release", "command"),
    [
        (POLICY, "7.2.4", "apt install -t experimental p"),
        (POLICY, "7.2", "apt install -t experimental p"),
        (POLICY, "5.4.3", "apt install p"),
        (POLICY, "7.20", None),
        (POLICY, "6.4", None),
        (POLICY, None, "apt install p"),
        ("", "7.2", None),
        (POLICY.replace("7.2.4-1", "1:7.2.4-1"), "7.2", "apt install -t experimental p"),
        (
            POLICY.replace("     7.2.4-1~exp3 1", " *** 7.2.4-1~exp3 100"),
            "7.2",
            "apt install -t experimental p",
        ),
    ],
)
def test_the_suite_that_has_the_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, release: str | None, command: str | None
) -> None:
    program = tmp_path / "apt-cache"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{policy}END\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    package = f"p{abs(hash((policy, release)))}"  # the answers are remembered
    debian = Distribution("Debian", "debian", is_here=True)
    told = debian.command(package, release, ["/usr", "/opt/more"])
    assert (told and told.replace(package, "p")) == command
    assert debian.command(package, release, ["/opt/rocm"]) is None


def test_without_apt_cache_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    debian = Distribution("Debian", "debian", is_here=True)
    assert debian.command("without-apt", "7.2", ["/usr"]) == "apt install without-apt"
