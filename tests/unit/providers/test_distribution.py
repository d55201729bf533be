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
