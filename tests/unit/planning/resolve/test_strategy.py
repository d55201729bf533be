"""resolve.strategy: a second prefix serves only what the first one lacks, seen by the real loader; the entries of a search path.

Which edges are issues is tested with the strategies that solve them, in test_decide.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.image import Header, read_image
from relink.elf.symbol_reader import read_symbols
from relink.library import relink
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from relink.planning.resolve.context import Layout, ResolveContext
from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.strategy import (
    EntryKind,
    SearchPathEntry,
    classify,
    find_own_libc,
    matches_library,
    search_path_findings,
)
from relink.providers.prefix import Provider
from relink.providers.profiles import NO_PROFILE, Profile
from relink.report.model import Report
from relink.system.errors import WheelError
from tests.support.cc import cc
from tests.support.effort import lines_run
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export, Import, Library, build
from tests.support.two_prefixes import BESIDE, HELP, HIP, HSA, RCCL, TwoPrefixes, build_two_prefixes
from tests.unit.planning.resolve.scenes import Scene, call, codes, define

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


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("way", WAYS)
def test_a_later_prefix_serves_only_what_no_earlier_one_has(both: TwoPrefixes, way: str) -> None:
    """What its library needs and the first prefix has comes from the first, however that library looks for it."""
    both.rccl(*filter(None, [WAYS[way]]))
    assert errors(relink(both.wheel, both.options("x", prefixes=(str(both.first),), dry_run=True))) == [
        ("RLK101", RCCL)
    ]
    assert loaded(both, written(relink(both.wheel, both.options("out")))) == COHERENT


@pytest.mark.few(2, reason="the same of other values")
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


@pytest.mark.few(1, reason="the same of other values")
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


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.provide("lib/libelse.so.1", source=define("other"))
    return made


def carrying(scene: Scene, *places: str, exports: tuple[str, ...] = ("shared",)) -> PlanDraft:
    """A member that needs libown.so.1 and has no search path, and the places where the wheel has such a file."""
    for place in places:
        scene.member(f"{place}/libown.so.1", source=define(*exports))
    scene.member("demo/sub/a.so", ["libown.so.1"], call("shared"))
    return scene.decide()


def test_a_library_that_one_other_member_is(scene: Scene) -> None:
    draft = carrying(scene, "demo/lib")
    (file,) = (item for item in draft.files if item.path == "demo/sub/a.so")
    assert (file.edit.search_path, file.edit.search_kind) == ("$ORIGIN/../lib", "runpath")
    assert [(item.soname, item.origin) for item in file.needed if item.soname == "libown.so.1"] == [
        ("libown.so.1", "wheel")
    ]
    (told,) = (item for item in draft.findings if item.code == "RLK123")
    assert told.message == (
        "libown.so.1 is $WHEEL/demo/lib/libown.so.1; search path entry $ORIGIN/../lib added"
    )
    assert not [item for item in draft.findings if item.level == "error"]
    again = scene.decide_again(draft)
    assert not any(item.changed for item in again.files)
    assert "RLK123" not in codes(again)


def test_a_library_beside_the_member(scene: Scene) -> None:
    draft = carrying(scene, "demo/sub")
    assert [item.edit.search_path for item in draft.files if item.edit] == ["$ORIGIN"]


def test_two_members_of_the_name_are_refused_and_named(scene: Scene) -> None:
    draft = carrying(scene, "demo/lib", "demo/old")
    (error,) = (item for item in draft.findings if item.level == "error")
    assert (error.code, error.subject) == ("RLK101", "libown.so.1")
    assert "the wheel has it 2 times: demo/lib/libown.so.1, demo/old/libown.so.1" in error.message


def test_a_member_that_lacks_the_symbol_is_refused(scene: Scene) -> None:
    draft = carrying(scene, "demo/lib", exports=("something_else",))
    (error,) = (item for item in draft.findings if item.level == "error")
    assert error.code == "RLK302"
    assert "shared" in error.message


def test_what_a_prefix_has_comes_from_there(scene: Scene) -> None:
    scene.provide("lib/libown.so.1", source=define("shared"))
    draft = carrying(scene, "demo/lib")
    assert "RLK123" not in codes(draft)
    (file,) = (item for item in draft.files if item.path == "demo/sub/a.so")
    assert [item.origin for item in file.needed if item.soname == "libown.so.1"] == ["provider"]


def test_a_file_of_that_name_that_is_another_library(scene: Scene) -> None:
    scene.member("demo/lib/libown.so.1", source=define("shared"), flags=["-Wl,-soname,libother.so.1"])
    draft = carrying(scene)
    assert [item.code for item in draft.findings if item.level == "error"] == ["RLK101"]


def test_a_program_of_that_name_is_no_library(scene: Scene) -> None:
    program = cc(
        "int shared(void){return 1;} int main(void){return 0;}", scene.root / "libown.so.1", "-rdynamic"
    )
    data = program.read_bytes()
    name = "demo/bin/libown.so.1"
    scene.images[name], scene.tables[name] = read_image(data, name), read_symbols(data)
    draft = carrying(scene)
    assert "RLK123" not in codes(draft)
    assert [item.code for item in draft.findings if item.level == "error"] == ["RLK101"]


def test_what_a_library_of_the_prefix_lacks_is_not_taken_from_the_wheel(scene: Scene) -> None:
    scene.provide("lib/libelse.so.1", ["libown.so.1"], call("shared") + define("other"))
    scene.member("demo/lib/libown.so.1", source=define("shared"))
    scene.member("demo/sub/a.so", ["libelse.so.1"], call("other"), [f"-Wl,-rpath,{scene.prefix}/lib"])
    draft = scene.decide()
    assert [item.subject for item in draft.findings if item.code == "RLK101"] == ["libown.so.1"]
    assert not any("$ORIGIN" in (file.edit.search_path or "") for file in draft.files)


def test_another_member_that_is_dlopened_is_found(scene: Scene) -> None:
    scene.member("demo/targets/libmigraphx_gpu.so.2", source=define("target"))
    scene.member("demo/libmigraphx.so.2", source=define("program"), flags=["-Wl,-rpath,/nowhere/lib"])
    draft = scene.decide()
    assert [item.subject for item in draft.findings if item.code == "RLK120"] == ["libmigraphx_ref.so.*"]
    assert [item.edit.search_path for item in draft.files if item.edit] == ["$ORIGIN/targets"]


MANY: dict[str, Callable[[int], dict[str, Library]]] = {
    "alone": lambda number: {f"m{number}.so": module(number)},
    "one soname": lambda number: {f"m{number}.so": module(number, soname="libsame.so.1")},
    "own soname, own search path": lambda number: {
        f"m{number}.so": module(number, soname=f"m{number}.so", runpath=f"/opt/rocm{number}/lib:$ORIGIN")
    },
    "of a library that is missing": lambda number: {
        f"m{number}.so": module(number, needed=(f"libnowhere{number}.so.1",))
    },
    "in a star": lambda number: {
        f"m{number}.so": module(number, soname=f"m{number}.so", needed=("m0.so",) if number else ())
    },
    "the same exports, by relocations": lambda number: {
        f"m{number}.so": dataclasses.replace(
            module(number), exports=(Export("same"), Export("other")), relocations=((0x200, 1, 2, 0),)
        )
    },
    "each with its own copy of a library": lambda number: {
        f"m{number}.so": module(number, needed=("libcopy.so.1",), runpath=f"$ORIGIN/d{number}"),
        f"d{number}/libcopy.so.1": Library(soname="libcopy.so.1", exports=(Export("copied"),)),
    },
    "with an open import": lambda number: {
        f"m{number}.so": dataclasses.replace(module(number), imports=(Import(f"lost{number}"), Import("f0")))
    },
    "with a forgotten NEEDED": lambda number: {
        f"m{number}.so": dataclasses.replace(module(number), needed=() if number % 9 else ("libgen.so.1",))
    },
    "with versions that nothing defines": lambda number: {
        f"m{number}.so": dataclasses.replace(
            module(number), imports=(Import("f0", f"V{number}", "libgen.so.1"),)
        )
    },
    "with a NEEDED that is replaced": lambda number: {
        f"m{number}.so": dataclasses.replace(module(number), needed=("libgen.so.0",))
    },
}
"""Members of a wheel by their number; each is a root."""


def module(
    number: int, needed: tuple[str, ...] = (), soname: str | None = None, runpath: str = "$ORIGIN"
) -> Library:
    return Library(
        soname,
        ("libgen.so.1", *needed),
        runpath=runpath,
        imports=(Import("f0"), Import("f1")),
        exports=(Export(f"init{number}"),),
    )


def many(root: Path, members: Callable[[int], dict[str, Library]], count: int) -> Scene:
    made = Scene(root, substitutes=(("libgen.so.0", "libgen.so.1"),))
    versions = ("V",) if members is MANY["with versions that nothing defines"] else ()
    Library("libgen.so.1", exports=(Export("f0"), Export("f1")), versions=versions).write(
        made.prefix / "lib/libgen.so.1"
    )
    for number in range(count):
        for path, library in members(number).items():
            data, name = build(library), f"pkg/{path}"
            made.images[name], made.tables[name] = read_image(data, name), read_symbols(data)
    return made


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("kind", MANY)
def test_many_elf_hang(tmp_path: Path, kind: str) -> None:
    """Each root more takes the same work, however many there are."""
    many(tmp_path, MANY[kind], 3).decide()  # what is read once in a process is read now
    counts = [lines_run(many(tmp_path, MANY[kind], count).decide) for count in (10, 20, 30)]
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert 0 < second <= 1.015 * first


def limited(context: ResolveContext, loads: int) -> ResolveContext:
    context.files.budget.most_loads = loads
    return context


@pytest.mark.slow(reason="1,100 members")
def test_many_elf_hang_in_a_row(tmp_path: Path) -> None:
    """What is n files for each of n members has a limit, and no recursion goes along it."""

    def member(number: int) -> dict[str, Library]:
        name = f"m{number}.so"
        return {name: module(number, soname=name, needed=(f"m{number + 1}.so",), runpath="$ORIGIN")}

    scene = many(tmp_path, member, 1100)
    with pytest.raises(
        WheelError, match="load more than 500 files, added up over all of them; --limit loads=1000"
    ):
        decide(limited(scene.context(), 500))
    assert decide(limited(many(tmp_path, member, 30).context(), 500)).files


def test_many_elf_hang_in_vain(tmp_path: Path) -> None:
    """100 files of 1,000 missing libraries each, 0.5 MB of wheel, took 15 s: each NEEDED counts before any is looked for."""

    def member(number: int) -> dict[str, Library]:
        needed = tuple(f"libmissing{each}.so" for each in range(10))
        return {f"m{number}.so": module(number, soname=f"m{number}.so", needed=needed)}

    scene = many(tmp_path, member, 5)
    entries = sum(len(image.needed) for image in scene.context().images.values())
    assert entries >= 50
    assert decide(limited(scene.context(), 4 * entries)).files
    with pytest.raises(WheelError, match=f"more than {4 * entries - 1} files"):
        decide(limited(scene.context(), 4 * entries - 1))


def test_what_members_that_need_each_other_load_is_as_planned(tmp_path: Path) -> None:
    """The first of them is planned when the second is as the vendor left it."""

    def circle(_: int) -> dict[str, Library]:
        path = "/opt/rocm/lib:$ORIGIN"
        return {
            "liba.so": module(0, soname="liba.so", needed=("libb.so",), runpath=path),
            "libb.so": module(1, soname="libb.so", needed=("liba.so",), runpath=path),
        }

    draft = many(tmp_path, circle, 1).decide()
    assert all(image.runpath != "/opt/rocm/lib:$ORIGIN" for image in draft.context.images.values())
    for closure in draft.closures.values():
        found = {item.image.path: item.image for item in closure.objects if item.identity[0] == "member"}
        assert found == draft.context.images


LAYOUT = Layout("/env", "lib/python3.12/site-packages")
SITE = LAYOUT.site_packages
PROFILE = Profile("p", rpath_drop=("$ORIGIN/*_rocm_sdk_*", "$ORIGIN/../../rocm/*"))
TARGET = Target(
    interpreter="/lib64/ld-linux-x86-64.so.2",
    sysroot="/",
    header=Header(64, little_endian=True, osabi=0, abi_version=0, kind=3, machine=62),
    glibc="2.36",
    directories=("/lib",),
    subdirectories=(),
    lib="lib/x86_64-linux-gnu",
    platform="",
    cache=None,
    cache_path="/etc/ld.so.cache",
    python=None,
)


def entries_of(
    path: str | None,
    *,
    member: str = "pkg/capi/a.so",
    profile: Profile = PROFILE,
    serving: tuple[str, ...] = (),
    rpath: str | None = None,
) -> list[SearchPathEntry]:
    image = read_image(build(Library(runpath=path, rpath=rpath)), member)
    directories = ("/opt/rocm/lib", "/opt/rocm/lib/x86_64-linux-gnu", f"{SITE}/_rocm")
    packages = ("pkg/capi", "pkg/lib", "pkg.libs", "_solib_pkg")
    context = ResolveContext(
        target=TARGET,
        seen=Tables(Files()),
        providers=(Provider("prefix", "/opt/rocm", directories, {}),),
        images={member: image},
        layout=LAYOUT,
        profile=profile,
        member_directories=frozenset((*(f"{SITE}/{package}" for package in packages), "/env/bin")),
    )
    return classify(context, image, LAYOUT.path_of(member), serving)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("$ORIGIN", "wheel"),
        ("$ORIGIN/", "wheel"),
        ("${ORIGIN}/../lib", "wheel"),
        ("$ORIGIN/../../pkg.libs", "wheel"),
        ("$ORIGIN/.././lib//", "wheel"),
        ("$ORIGIN/../../../../../bin", "wheel"),  # .data/scripts
        ("$ORIGIN/../../torch/lib", "sibling"),
        ("$ORIGIN/../..", "sibling"),  # site-packages itself
        ("$ORIGIN/a.so.runfiles/rocm/lib", "vendor"),  # Bazel's build tree, below the wheel's package
        ("$ORIGIN/../_solib_local/_U_S_Srocm", "vendor"),
        ("$ORIGIN/../../torch/_solib_local/x", "sibling"),  # of another package
        (
            "$ORIGIN/../../_solib_pkg/plugin",
            "sibling",
        ),  # of a package that is called so, and that another wheel may fill
        ("$ORIGIN/../plugin", "sibling"),  # another wheel may have that in a common namespace
        ("$ORIGIN/../my_solib_local", "sibling"),
        ("$ORIGIN/../../nvidia_rocm_sdk_core/lib", "sibling-dropped"),
        ("$ORIGIN/../../rocm/lib", "sibling-dropped"),
        ("/opt/rocm/lib", "provider"),
        ("//opt/rocm/lib", "provider"),
        ("/opt/rocm/./lib/", "provider"),
        ("/opt/rocm/$LIB", "provider"),
        ("$ORIGIN/../../../../../../opt/rocm/lib", "provider"),
        ("/opt/rocm/lib64", "vendor"),
        ("/opt/rocm", "vendor"),
        ("$ORIGIN/../../../../../lib", "vendor"),  # the environment's own lib: outside of site-packages
        ("/env/lib/python3.12/site-packages-old/x", "vendor"),
        ("$ORIGIN/../../../site-packages-old/lib", "vendor"),
        ("/home/builder/ORIGIN/lib", "vendor"),
        ("/srv/serving", "serving"),
        ("", "empty"),
        (".", "relative"),
        ("../lib", "relative"),
        ("lib", "relative"),
        ("$ORIGINAL/lib", "relative"),
        ("$origin/lib", "relative"),
        ("$LIB/x", "relative"),
        ("$PLATFORM", "relative"),
        ("/opt/$PLATFORM/lib", "relative"),  # stands for nothing, so ld.so leaves the entry out
    ],
)
def test_the_kind_of_an_entry(text: str, kind: EntryKind) -> None:
    found = entries_of(f"{text}:/last", serving=("/srv/serving",))
    assert found == [SearchPathEntry(text, kind), SearchPathEntry("/last", "vendor")]


def test_what_serves_stays_what_it_is_otherwise() -> None:
    """That a directory serves counts only where nothing else is known of it."""
    texts = ("$ORIGIN", "/opt/rocm/lib", "/somewhere", "$ORIGIN/../../torch/lib", "relative")
    found = entries_of(":".join(texts), serving=texts)
    assert [entry.kind for entry in found] == ["wheel", "provider", "serving", "sibling", "relative"]


def test_without_a_profile_siblings_stay() -> None:
    (found,) = entries_of("$ORIGIN/../../rocm/lib", profile=NO_PROFILE)
    assert (found.kind, found.kept) == ("sibling", True)


def test_a_provider_in_site_packages_is_reached_as_a_sibling() -> None:
    assert [one.kind for one in entries_of(f"$ORIGIN/../../_rocm:{SITE}/_rocm")] == ["sibling", "provider"]


def test_the_origin_is_the_members() -> None:
    (found,) = entries_of("$ORIGIN/../lib", member="pkg/a.so")
    assert found.kind == "sibling"
    (found,) = entries_of("$ORIGIN/lib", member="pkg/a.so")
    assert found.kind == "wheel"
    (found,) = entries_of("$ORIGIN", member="pkg-1.data/scripts/tool")
    assert found.kind == "wheel"


def test_order_and_doubles_stay() -> None:
    texts = ["/b", "$ORIGIN", "", "/b", "$ORIGIN", ""]
    assert [entry.text for entry in entries_of(":".join(texts))] == texts


def test_the_path_that_ld_so_uses() -> None:
    assert [entry.text for entry in entries_of("/n", rpath="/r")] == ["/n"]
    assert [entry.text for entry in entries_of(None, rpath="/r")] == ["/r"]
    assert entries_of(None) == []
    assert entries_of("") == []  # an empty path has no entry, not even an empty one


KEPT: dict[EntryKind, bool] = {
    "wheel": True,
    "sibling": True,
    "provider": True,
    "serving": True,
    "sibling-dropped": False,
    "vendor": False,
    "empty": False,
    "relative": False,
}


@pytest.mark.parametrize(("kind", "kept"), KEPT.items())
def test_what_is_kept(kind: EntryKind, kept: bool) -> None:
    assert SearchPathEntry("x", kind).kept is kept


# What is said


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], []),
        ([("$ORIGIN", "wheel"), ("/p", "provider"), ("/s", "serving")], []),
        ([("/a", "vendor"), ("$ORIGIN", "wheel"), ("/b", "vendor")], [("RLK201", "/a, /b")]),
        (
            [(f"/{number}", "vendor") for number in range(6)],
            [("RLK201", "/0, /1, /2, /3 and 2 more")],
        ),
        (
            [(f"/{number}", "vendor") for number in range(4)],
            [("RLK201", "found there: /0, /1, /2, /3")],
        ),
        ([("", "empty"), ("", "empty")], [("RLK202", "the current directory; removed")]),
        ([(".", "relative"), ("lib", "relative")], [("RLK203", "., lib")]),
        (
            [("$ORIGIN/a", "sibling-dropped"), ("$ORIGIN/b", "sibling-dropped")],
            [("RLK204", "2 entries to sibling packages removed")],
        ),
        ([("$ORIGIN/a", "sibling")], [("RLK204", "kept: $ORIGIN/a")]),
        (
            [
                ("$ORIGIN/a", "sibling"),
                ("", "empty"),
                ("/v", "vendor"),
                ("$ORIGIN/b", "sibling-dropped"),
                ("r", "relative"),
            ],
            [("RLK201", "/v"), ("RLK202", ""), ("RLK203", "r"), ("RLK204", "1 entry"), ("RLK204", "kept")],
        ),
    ],
)
def test_one_finding_a_kind(entries: list[tuple[str, EntryKind]], said: list[tuple[str, str]]) -> None:
    found = list(search_path_findings("pkg/a.so", [SearchPathEntry(text, kind) for text, kind in entries]))
    assert [one.code for one in found] == [code for code, _ in said]
    for one, (_, words) in zip(found, said, strict=True):
        assert words in one.message
        assert "0 more" not in one.message
        assert one.subject == "pkg/a.so"


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("libhip.so.7", True),
        ("libhip.so", True),
        ("libhip", True),
        ("libh*", True),
        ("/opt/lib/*", True),
        ("hip", False),
        ("libhip.so.6", False),
    ],
)
def test_by_which_names_a_glob_names_a_library(pattern: str, matches: bool) -> None:
    assert matches_library(pattern, "libhip.so.7", "/opt/lib/libhip.so.7") is matches


def test_the_c_library_lies_beside_the_loader(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.provide("lib/libelse.so.1")
    assert find_own_libc(scene.context()) == f"{find_target().libc_directory}/libc.so.6"
    assert find_own_libc(scene.context(), "libnothing.so.6") is None


@pytest.mark.parametrize("path", ["$ORIGIN/../lib", "$ORIGIN/../lib/.", "$ORIGIN/../demo/../lib"])
def test_a_member_that_a_preloaded_one_has_mapped_by_another_path(scene: Scene, path: str) -> None:
    """The loader finds the file that it has mapped already, by its identity (elf/dl-load.c, _dl_map_object_from_fd)."""
    scene.profile = Profile("p", preload=("demo/first.so",))
    scene.member("lib/libown.so.1", ["libelse.so.1"], define("own") + call("other"))
    scene.member("demo/first.so", ["libown.so.1"], call("own"), [f"-Wl,--enable-new-dtags,-rpath,{path}"])
    python = cc("int main(void){return 0;}", scene.root / "python")
    context = replace(scene.context(), target=replace(find_target(), python=str(python)))
    draft = decide(context)
    own = draft.outcomes["lib/libown.so.1"]
    assert own.closure.objects[own.root].identity == ("member", "lib/libown.so.1")
    assert own.closure.objects[own.root].path.endswith(f"{path.removeprefix('$ORIGIN')}/libown.so.1")
    assert own.edit.search_path == f"{scene.prefix}/lib"


@pytest.mark.parametrize("also", [(), ("libhipblas.so.3",)])
def test_a_wheels_own_copy_leads_nobody_to_the_prefix(scene: Scene, also: tuple[str, ...]) -> None:
    """The prefix's directory in the RUNPATH of a wheel's own runtime brings a second one: what it opens is found there."""
    for name in ("libamdhip64.so.7", "libhipblas.so.3"):
        scene.provide(f"lib/{name}")
    scene.member("demo.libs/libamdhip64.so.7")
    scene.member("demo.libs/libamd_comgr-ca8d.so.3")
    scene.member("demo/a.so", ["libamdhip64.so.7", "libamd_comgr-ca8d.so.3", *also])
    outcome = scene.decide().outcomes["demo/a.so"]
    assert outcome.loads
    assert outcome.image.search_path == ":".join(
        ["$ORIGIN/../demo.libs", *([f"{scene.prefix}/lib"] if also else [])]
    )
