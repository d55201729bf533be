"""Generated shims: every import that the real library serves binds as before, by LD_DEBUG=bindings of the real loader.

A wheel is built against two libraries and relinked for older ones that lack functions or whole versions. A member's imports must
bind as with the newer libraries, but for those that are lacking, which must bind to the shims; all other objects' as without the
member. RELINK_FUZZ_SHIMS (1,000) are made in `make fuzz`.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from relink.library import relink
from relink.planning.options import Options
from tests.fuzz.conftest import COUNTED
from tests.support.amount import amount
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.real_loader import build_helper
from tests.support.wheels import make_wheel

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

LONG = int(os.environ.get("RELINK_FUZZ_SHIMS", "1000"))
TOGETHER = 20  # cases of one wheel
_BINDING = re.compile(r"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `([^']+)'(?: \[([^\]]+)\])?")
Bound = dict[tuple[str, str, str | None], str]
_NOW = ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-Wl,-z,lazy"]


@dataclass
class Functions:
    """A library's functions: name → its versions, the default one last; none of a library without versions."""

    soname: str
    versions: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def pairs(self) -> set[tuple[str, str | None]]:
        return {(name, one) for name, several in self.versions.items() for one in several or (None,)}

    def compile(
        self, path: Path, pairs: Iterable[tuple[str, str | None]], nodes: Iterable[str], more: str = ""
    ) -> Path:
        lines, labels, own = [], [], list(nodes)
        for number, (name, version) in enumerate(sorted(pairs, key=str)):
            if version is None:
                lines.append(f"int {name}(void){{return {number};}}")
                continue
            mark = "@@" if version == self.versions[name][-1] else "@"
            lines.append(f"int own_{number}(void){{return {number};}}")
            labels.append(f'__asm__(".symver own_{number},{name}{mark}{version}");')
        flags = list(_NOW)
        if own:
            script = path.with_suffix(".map")
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(
                "".join(f"{node} {{ }};\n" for node in own[:-1]) + f"{own[-1]} {{ local: own_*; }};\n"
            )
            flags.append(f"-Wl,--version-script={script}")
        return shared(path, "\n".join([*labels, *lines, more]), soname=self.soname, flags=flags)


def _choose(chance: random.Random, number: int, letter: str) -> Functions:
    nodes = chance.choice([(), ("N_1", "N_2"), ("N_1", "N_2", "N_3")])
    made = Functions(f"lib{letter}{number}.so.1")
    for count in range(chance.randrange(2, 6)):
        versions: tuple[str, ...] = (chance.choice(nodes),) if nodes else ()
        if nodes and chance.random() < 0.3:
            versions = tuple(sorted(chance.sample(nodes, 2)))
        made.versions[f"{letter}{number}_{count}"] = versions
    return made


@dataclass
class Case:
    """One member with its libraries.

    :ivar lacking: by soname the functions and versions that the older library has not.
    """

    member: str
    lacking: dict[str, set[tuple[str, str | None]]]


def _build(root: Path, chance: random.Random, number: int) -> Case:
    """Compile the libraries of a case: newer ones, older ones in the ROCm, and the member."""
    libraries, lacking = [_choose(chance, number, "a"), _choose(chance, number, "b")], {}
    beside = Functions(f"libz{number}.so.1")
    newer = []
    for library in libraries:
        pairs = sorted(library.pairs, key=str)
        gone = set(chance.sample(pairs, chance.randrange(1, len(pairs) + 1)))
        lacking[library.soname] = gone
        nodes = sorted({node for several in library.versions.values() for node in several})
        newer.append(library.compile(root / "new" / library.soname, pairs, nodes))
        left = library.pairs - gone
        # A version without a function is still there, or it is not.
        still = [node for node in nodes if any(node == one for _, one in left) or chance.random() < 0.5]
        library.compile(root / "rocm" / "lib" / library.soname, left, still or nodes[:1])
        for name, versions in library.versions.items() if nodes else ():
            if chance.random() < 0.4 and versions:
                beside.versions[name] = ("Z_1",)
    # Another library has functions of the same names, and calls them; a third calls them without a version.
    calls = "".join(f"int {name}(void); " for name in beside.versions)
    for place in ("new", "rocm/lib"):
        beside.compile(root / place / beside.soname, beside.pairs, ["Z_1"])
        uses = (
            f"{calls} int uses{number}(void){{return 0{''.join(f'+{name}()' for name in beside.versions)};}}"
        )
        user = f"libu{number}.so.1"
        shared(root / place / user, uses, needed=[root / place / beside.soname], flags=_NOW)
    imports, labels = [], []
    for library in libraries:
        for name, versions in library.versions.items():
            for old in versions[:-1]:
                labels.append(f'__asm__(".symver {name}_{old},{name}@{old}");')
                imports.append(f"{name}_{old}")
            imports.append(name)
    declared = "".join(f"int {name}(void); " for name in imports)
    source = f"{''.join(labels)} {declared} int member(void){{return 0{''.join(f'+{name}()' for name in imports)};}}"
    needed = [*newer, root / "new" / user]
    shared(root / "members" / f"m{number}.so", source, needed=needed, flags=_NOW)
    shared(root / "members" / f"d{number}.so", "int nothing;", needed=needed, flags=_NOW)
    return Case(f"m{number}.so", lacking)


def _bindings(helper: str, path: Path, library_path: Path) -> Bound:
    """Return what each reference of what is loaded binds to, by the names of the files."""
    environment = {"LD_BIND_NOW": "1", "LD_DEBUG": "bindings", "LD_LIBRARY_PATH": str(library_path)}
    run = subprocess.run(
        [helper, str(path)], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    assert run.stdout.endswith(".so.1\n") or str(path) in run.stdout.split("\n\n")[-1], run.stdout
    return {
        (os.path.basename(found[1]), found[3], found[4]): os.path.basename(found[2])
        for found in _BINDING.finditer(run.stderr)
        if ".so.1" in found[2] or ".so.1" in found[1]
    }


def test_generated_shims(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    _run(amount(50), tmp_path, record_property)


@pytest.mark.fuzz
def test_many_shims(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    _run(LONG, tmp_path, record_property)


def _run(count: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    helper = str(build_helper(tmp_path / "helper"))
    counts: Counter[str] = Counter()
    for start in range(0, count, TOGETHER):
        root, chance = tmp_path / str(start), random.Random(f"54 {start}")
        cases = [_build(root, chance, number) for number in range(start, min(start + TOGETHER, count))]
        files: dict[str, bytes | Path] = {"demo/__init__.py": b""}
        files |= {f"demo/{case.member}": root / "members" / case.member for case in cases}
        stubs = [
            f"{soname}:{name}" for case in cases for soname, gone in case.lacking.items() for name, _ in gone
        ]
        options = Options(
            prefixes=(str(root / "rocm"),), output_directory=root / "out", stub=tuple(dict.fromkeys(stubs))
        )
        report = relink(make_wheel(root / "vendor", files), options)
        assert report.output is not None, [item for item in report.findings if item.level == "error"]
        with zipfile.ZipFile(report.output.path) as output:
            output.extractall(root / "site")
        for case in cases:
            _compare(helper, root, case, counts)
    for name, value in counts.items():
        record_property(COUNTED + name, value)


def _compare(helper: str, root: Path, case: Case, counts: Counter[str]) -> None:
    newer = _bindings(helper, root / "members" / case.member, root / "new")
    without = _bindings(helper, root / "members" / case.member.replace("m", "d"), root / "rocm" / "lib")
    now = _bindings(helper, root / "site" / "demo" / case.member, root / "rocm" / "lib")
    expected = {}
    for key, target in newer.items():
        if key[0] == case.member:
            gone = (key[1], key[2]) in case.lacking.get(target, ())
            expected[key] = f"relink-shim-{target}" if gone else target
            counts["imports of shims" if gone else "imports of real libraries"] += 1
    expected |= {key: target for key, target in without.items() if not key[0].startswith("d")}
    counts["imports of other objects"] += len(without)
    assert now == expected, case
    counts["shims"] += len({target for target in now.values() if target.startswith("relink-shim-")})
    counts["members"] += 1
