"""resolve.strategy: a second prefix serves what the first one lacks, and nothing else; seen by the real loader."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from relink.library import relink
from relink.loader.seen_files import Files
from relink.loader.target import find_target
from relink.planning.resolve.strategy import ResolveContext
from relink.providers.prefix import NIX_STORE, open_prefix
from relink.report.model import Report
from relink.vendors.rocm import vendor as rocm
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.two_prefixes import BESIDE, HELP, HIP, HSA, RCCL, TwoPrefixes, build_two_prefixes

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

_ASK = """\
import ctypes, json, sys
total = ctypes.CDLL(sys.argv[1]).total()
paths = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps([total, sorted(path for path in paths if path.startswith(sys.argv[2]))]))
"""
WAYS = {"nothing": "", "runpath": BESIDE, "rpath": "-Wl,--disable-new-dtags,-rpath,$ORIGIN"}
"""How the second prefix's library looks for its own."""


@pytest.fixture
def both(tmp_path: Path) -> TwoPrefixes:
    return build_two_prefixes(tmp_path)


def written(report: Report) -> Path:
    assert report.ok, report.findings
    assert report.verified == 1  # by the real loader
    return Path(report.path or "")


def errors(report: Report) -> list[tuple[str, str]]:
    return [(found.code, found.subject) for found in report.findings if found.level == "error"]


def loaded(both: TwoPrefixes, wheel: Path) -> tuple[int, list[str]]:
    """Call the wheel's library in a process of its own: what it answers, and what of the prefixes the loader has mapped."""
    site = both.root / "site"
    shutil.rmtree(site, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    command = [sys.executable, "-c", _ASK, str(site / "demo/a.so"), str(both.root)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    total, paths = json.loads(run.stdout)
    return total, [path.removeprefix(f"{both.root}/") for path in paths if "/site/" not in path]


COHERENT = (101001, [f"rocm/lib/{HIP}", f"rocm/lib/{HELP}", f"second/lib/{RCCL}"])


@pytest.mark.parametrize("way", WAYS)
def test_a_later_prefix_serves_only_what_no_earlier_one_has(both: TwoPrefixes, way: str) -> None:
    """What its library needs and the first prefix has comes from the first, however that library looks for it."""
    both.rccl(*filter(None, [WAYS[way]]))
    assert errors(relink(both.wheel, both.options("x", prefixes=(str(both.first),), dry_run=True))) == [
        ("RLK101", RCCL)
    ]
    assert loaded(both, written(relink(both.wheel, both.options("out")))) == COHERENT


@pytest.mark.parametrize("order", [(RCCL, HELP, HIP), (HIP, RCCL, HELP)])
@pytest.mark.parametrize("way", WAYS)
def test_the_search_path_has_the_first_prefix_first(
    both: TwoPrefixes, order: tuple[str, ...], way: str
) -> None:
    """In the vendor's search path the second prefix comes first, and in NEEDED its library."""
    both.rccl(*filter(None, [WAYS[way]]))
    path = f"-Wl,--enable-new-dtags,-rpath,{both.second}/lib:{both.first}/lib"
    wheel = both.wheel_of([both.second / "lib" / name for name in order], path=path)
    assert loaded(both, written(relink(wheel, both.options("out")))) == COHERENT


def test_what_only_the_later_library_needs_comes_of_the_first_prefix(both: TwoPrefixes) -> None:
    """No member needs HIP itself: it is added to NEEDED, since the later prefix's library would find its own."""
    both.rccl(BESIDE)
    user = "extern int ncclCount(void); int total(void){return 1 + 1000 * ncclCount();}"
    wheel = both.wheel_of([both.second / "lib" / RCCL], user)
    report = relink(wheel, both.options("out"))
    assert loaded(both, written(report)) == COHERENT
    assert set(report.files[0].edit.add) == {HIP, HELP}


@pytest.mark.parametrize(("runtime", "name"), [(HIP, "hipOne"), (HSA, "hsa_init")])
def test_a_later_prefix_serves_no_runtime(both: TwoPrefixes, runtime: str, name: str) -> None:
    """Needed by the wheel itself, with and without a search path of the vendor's that leads there."""
    (both.first / "lib" / HIP).unlink()
    library = both.put(both.second / "lib" / runtime, f"int {name}(void){{return 2;}}")
    user = f"extern int {name}(void); int total(void){{return {name}();}}"
    for path in (f"{both.second}/lib", "/build/lib"):
        wheel = both.wheel_of([library], user, f"-Wl,--enable-new-dtags,-rpath,{path}")
        report = relink(wheel, both.options("out"))
        assert report.output is None
        assert [subject for _, subject in errors(report)] == [runtime]
        (found,) = (found for found in report.findings if found.subject == runtime)
        assert "a process has one runtime of ROCm, and no later --prefix serves it" in found.message
        assert found.remedy == "Name the prefix that has the runtime first: its --prefix before the others."
    other_way = both.options("out", prefixes=(str(both.second), str(both.first)))
    assert loaded(both, written(relink(wheel, other_way))) == (2, [f"second/lib/{runtime}"])


@pytest.mark.parametrize("runtime", [HIP, HSA])
@pytest.mark.parametrize("way", WAYS)
def test_nor_to_its_own_libraries(both: TwoPrefixes, runtime: str, way: str) -> None:
    """The first prefix lacks the runtime; the second prefix's library would load the one beside it."""
    (both.first / "lib" / HIP).unlink()
    both.put(both.second / "lib" / runtime, "int hipOne(void){return 2;}")
    both.rccl(*filter(None, [WAYS[way]]), needed=(runtime, HELP))
    user = "extern int ncclCount(void); int total(void){return ncclCount();}"
    wheel = both.wheel_of([both.second / "lib" / RCCL], user)
    report = relink(wheel, both.options("out"))
    assert report.output is None
    assert runtime in {subject for _, subject in errors(report)}


def test_a_runtime_that_the_first_prefix_loads_by_itself_is_its_own(both: TwoPrefixes) -> None:
    """Spack has a prefix for each package: HIP's own search path leads to the HSA runtime in another one."""
    driver = both.put(both.second / "lib" / HSA, "int hsa(void){return 1;}")
    to_driver = f"-Wl,--enable-new-dtags,-rpath,{both.second}/lib"
    hip = "extern int hsa(void); int hipOne(void){return hsa();}"
    both.put(both.first / "lib" / HIP, hip, [driver], [to_driver])
    both.rccl()
    total, paths = loaded(both, written(relink(both.wheel, both.options("out"))))
    assert (total, paths) == (101001, sorted([*COHERENT[1], f"second/lib/{HSA}"]))


OPENS = f"""\
extern void *dlopen(const char *, int), *dlsym(void *, const char *);
const char *name(void){{return "{HELP}";}}
int ncclCount(void){{return 100 + ((int (*)(void))dlsym(dlopen(name(), 1), "collect"))();}}
"""


def test_what_a_later_prefix_dlopens(both: TwoPrefixes) -> None:
    """Its library opens by name what lies beside it; the first prefix's own is there only if it was loaded before."""
    both.rccl(BESIDE, source=OPENS, needed=())
    report = relink(both.wheel, both.options("out"))
    assert (report.output, errors(report)) == (None, [("RLK111", HELP)])
    (found,) = (found for found in report.findings if found.code == "RLK111")
    assert (found.step, found.remedy) == (
        f"--preload {HELP}",
        f"Say --preload {HELP}: the prefix's own is then loaded before.",
    )
    preloaded = written(relink(both.wheel, both.options("out", preload=(HELP,))))
    assert loaded(both, preloaded) == COHERENT


def test_a_runtime_that_a_later_prefix_dlopens(both: TwoPrefixes) -> None:
    (both.first / "lib" / HIP).unlink()
    both.rccl(BESIDE, source=OPENS.replace(HELP, HIP).replace('"collect"', '"hipOne"'), needed=())
    user = "extern int ncclCount(void); int total(void){return ncclCount();}"
    report = relink(both.wheel_of([both.second / "lib" / RCCL], user), both.options("out"))
    assert (report.output, errors(report)) == (None, [("RLK111", HIP)])


def test_what_comes_of_one_closure_counts_as_one_prefix(both: TwoPrefixes) -> None:
    """Each store path of a Nix closure is a provider, and the runtimes lie in several; so they do where each is named."""
    shared(both.second / "lib" / HSA, "int hsa(void){return 1;}")
    target = find_target()
    first, second = (open_prefix(str(path), target) for path in (both.first, both.second))
    context = ResolveContext(target, Files(), (first, second), {}, vendor=rocm)
    of_one = tuple(replace(provider, closure="/store/x") for provider in (first, second))
    packages = tuple(replace(provider, kind=NIX_STORE) for provider in (first, second))
    mixed = (first, replace(second, kind=NIX_STORE))
    identity = context.files.open(str(both.second / "lib" / HELP)).identity
    assert identity is not None
    driver = str(both.second / "lib" / HSA)
    for providers, expected in (
        ((first, second), (None, driver, False)),
        (of_one, (driver, None, True)),
        (packages, (driver, None, False)),
        (mixed, (None, driver, False)),
    ):
        context = replace(context, providers=providers)
        assert context.provider_path(HELP) == str(both.first / "lib" / HELP)
        assert (
            context.provider_path(HSA),
            context.withheld_path(HSA),
            context.is_providers(identity, HELP),
        ) == expected
