"""checks.executable_stack: one answer about a member that asks for an executable stack, whoever asks and with what target."""

from __future__ import annotations

import ctypes
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.image import read_image
from relink.library import relink
from relink.loader.loading import asks_executable_stack
from relink.loader.target import Target, find_target
from relink.planning.checks.executable_stack import stack_findings
from relink.planning.model import from_json, to_json
from relink.planning.options import Options
from relink.providers.profiles import DlopenEntry, OptionalMembers, Profile
from relink.runs.questions import verify_wheel
from relink.system.findings.model import Finding
from relink.wheel.archive import WheelArchive
from tests.support.cc import cc, shared
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, TAG, Works
from tests.unit.planning.resolve.scenes import Scene

SLOW = pytest.mark.slow(reason="several runs; test_a_flag_is_cleared has one")

BAD = "demo/libbad.so.1.2"
STACK = "-Wl,-z,execstack"
PLAIN = "int p(void){return 1;}"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader of glibc 2.41 or newer; whether this machine's is one does not matter."""
    monkeypatch.setattr(Target, "refuses_stacks", property(lambda _: True))


def wheel(works: Works, directory: Path, case: str) -> Path:
    """A wheel with a library that asks for such a stack, and what loads it."""
    made = directory / "made"
    source = "void *PyInit_libbad(void){return 0;}" if case in ("module", "entry point") else PLAIN
    bad = shared(made / "libbad.so.1.2", source, soname="libbad.so.1", flags=[STACK])
    link = shared(made / "link" / "libbad.so.1", PLAIN)
    files: dict[str, bytes | Path] = {"demo/__init__.py": b"", "demo/a.so": works.library, BAD: bad}
    again = ["-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]
    match case:
        case "needed":
            # By a file of its soname, as a wheel that has no links has it
            files["demo/libbad.so.1"] = bad
            files["demo/user.so"] = shared(
                made / "user.so", "int u(void){return 2;}", needed=[link], flags=again
            )
        case "dlopened":
            text = 'extern void *dlopen(const char *, int); void *u(void){return dlopen("libbad.so.1", 1);}'
            files["demo/user.so"] = shared(made / "user.so", text, needed=["-ldl"])
        case "ctypes":
            files["demo/low.py"] = b"import ctypes\nctypes.CDLL(str(here / 'libbad.so.1.2'))\n"
        case "entry point":
            files["demo-1.0.dist-info/entry_points.txt"] = b"[console_scripts]\nbad = demo.libbad:main\n"
        case "program":
            files["demo/libbad.so.1"] = bad
            flags = [*again, f"-Wl,--dynamic-linker,{find_target().interpreter}"]
            files["demo/bin/tool"] = cc("int main(void){return 0;}", made / "tool", *flags, needed=[link])
        case "similar":
            files["demo/low.py"] = b"ctypes.CDLL('libbad_more.so'); 'my-libbad'; notlibbad\n"
            files["demo/README.txt"] = b"libbad.so.1"
    return make_wheel(directory, files, tag=TAG)


def of_the_stack(findings: tuple[Finding, ...]) -> list[Finding]:
    return [found for found in findings if found.code == "RLK116" and found.subject == BAD]


def answers(works: Works, vendor: Path, directory: Path) -> list[list[Finding]]:
    """What is said with --python, with --interpreter, and by verify, alone and in an environment."""
    loader = find_target().interpreter
    by_python = works.options(directory / "python", python=sys.executable, force=True)
    by_loader = works.options(directory / "loader", interpreter=loader, force=True)
    found = [of_the_stack(relink(vendor, options).findings) for options in (by_python, by_loader)]
    environment = directory / "venv"
    (environment / "lib" / f"python3.{sys.version_info[1]}" / "site-packages").mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin" / "python").symlink_to(sys.executable)
    output = directory / "python" / OUTPUT
    every = (Options(), Options(interpreter=loader), Options(environment=str(environment)))
    return [*found, *(of_the_stack(verify_wheel(output, options).findings) for options in every)]


LOADED = {
    "module": "it is a Python module",
    "entry point": "it is a Python module",
    "needed": "demo/user.so names it",
    "dlopened": "demo/user.so names it",
    "ctypes": "demo/low.py names it",
}
UNUSED = "it is no Python module, and no other library and no Python file of the wheel names it"


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("case", [*LOADED, "nothing", "similar", "program"])
@pytest.mark.usefixtures("newer")
def test_one_answer_about_an_executable_stack(works: Works, tmp_path: Path, case: str) -> None:
    vendor = wheel(works, tmp_path, case)
    level = "error" if case in LOADED else "warning"
    why = LOADED.get(case, UNUSED)
    text = f"dlopen does not load it: cannot enable executable stack as shared object requires; {why}"
    found = answers(works, vendor, tmp_path)
    assert [[(one.level, one.message) for one in item] for item in found] == [[(level, text)]] * 5


@SLOW
def test_older_loaders_make_the_stack_executable(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "refuses_stacks", property(lambda _: False))
    assert answers(works, wheel(works, tmp_path, "module"), tmp_path) == [[]] * 5


@pytest.mark.parametrize(
    ("glibc", "refuses"), [("2.36", False), ("2.40", False), ("2.41", True), ("2.44", True), ("3.0", True)]
)
def test_the_glibc_since_which_it_is_refused(glibc: str, refuses: bool) -> None:
    assert replace(find_target(), glibc=glibc).refuses_stacks is refuses


def findings(scene: Scene, tmp_path: Path, closures: dict[str, list[str]]) -> list[Finding]:
    vendor = make_wheel(tmp_path, {name: scene.root / "members" / name for name in scene.images})
    with WheelArchive(vendor) as archive:
        return [*stack_findings(archive, scene.context(), closures)]


@pytest.mark.parametrize(
    "profile",
    [
        Profile("p", preload=("demo/libbad.so",)),
        Profile("p", variants=("demo/lib*.so",)),
        Profile("p", brings=("demo/*bad.so",)),
        Profile("p", optional=(OptionalMembers(("demo/libbad.so",), "it does without"),)),
        Profile("p", dlopen=(DlopenEntry("demo/a.so", ("libbad*",), "it says so"),)),
    ],
)
@pytest.mark.usefixtures("newer")
def test_what_a_profile_says_is_loaded(tmp_path: Path, profile: Profile) -> None:
    scene = Scene(tmp_path, profile=profile)
    scene.provide("lib/libelse.so.1")
    scene.member("demo/libbad.so", flags=[STACK])
    (found,) = findings(scene, tmp_path, {"demo/libbad.so": []})
    assert (found.level, found.subject) == ("error", "demo/libbad.so")
    assert found.message.endswith("; profile p says that the package loads it")


@pytest.mark.usefixtures("newer")
def test_a_library_of_the_prefix_that_asks_for_it(tmp_path: Path) -> None:
    """The member that needs it is the subject."""
    scene = Scene(tmp_path)
    bad = scene.provide("lib/libbad.so.1", flags=[STACK])
    scene.member("demo/a.so", ["libbad.so.1"], "void *PyInit_a(void){return 0;}")
    (found,) = findings(scene, tmp_path, {"demo/a.so": ["$WHEEL/demo/a.so", str(bad)]})
    assert (found.level, found.subject) == ("error", "demo/a.so")
    assert found.message.startswith(f"dlopen does not load {bad}, which it needs: cannot enable executable")


@pytest.mark.usefixtures("newer")
def test_many_of_them_are_not_searched_for(tmp_path: Path) -> None:
    """What is not known to be unused is an error: the search has a bound."""
    scene = Scene(tmp_path)
    scene.provide("lib/libelse.so.1")
    names = [f"demo/libbad{number}.so" for number in range(9)]
    for name in names:
        scene.member(name, flags=[STACK])
    found = findings(scene, tmp_path, {name: [] for name in names})
    assert {one.level for one in found} == {"error"}
    assert {one.level for one in findings(scene, tmp_path, {name: [] for name in names[:8]})} == {"warning"}


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("much", [("MODULES", 1), ("MODULE_BYTES", 3)])
def test_more_python_than_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, much: tuple[str, int]
) -> None:
    scene = Scene(tmp_path)
    scene.provide("lib/libelse.so.1")
    scene.member("demo/libbad.so", flags=[STACK])
    files: dict[str, bytes | Path] = {"demo/libbad.so": scene.root / "members" / "demo/libbad.so"}
    vendor = make_wheel(tmp_path, files | {"demo/a.py": b"a=1", "demo/b.py": b"b=1"})

    def level() -> str:
        with WheelArchive(vendor) as archive:
            return next(stack_findings(archive, scene.context(), {"demo/libbad.so": []})).level

    assert level() == "warning"
    monkeypatch.setattr(f"relink.planning.checks.executable_stack.{much[0]}", much[1])
    assert level() == "error"


NESTED = "int call(int (*f)(int)); int call(int (*f)(int)){return f(1);} "
NESTED += "int g(int a){int n(int b){return a + b;} return call(n);}"


def test_a_flag_is_cleared(works: Works, tmp_path: Path) -> None:
    """With the search path and NEEDED in one call; what else the file is stays, and its functions are called."""
    vendor = wheel(works, tmp_path, "needed")
    result = relink(vendor, works.options(tmp_path / "out", clear_execstack=["libbad*"]))
    found = {item.subject: item for item in result.findings if item.code == "RLK135"}
    assert {item.level for item in found.values()} == {"info"}
    assert found.keys() == {BAD, "demo/libbad.so.1"}
    with zipfile.ZipFile(tmp_path / "out" / OUTPUT) as output:
        for name in found:
            path = Path(output.extract(name, tmp_path / "x"))
            assert not asks_executable_stack(read_image(path.read_bytes(), name))
            assert ctypes.CDLL(str(path)).p() == 1
    assert result.plan.options == ("--clear-execstack", "libbad*")
    assert from_json(to_json(result.plan)) == result.plan


@SLOW
@pytest.mark.usefixtures("newer")
def test_clearing_the_flag_is_the_way_out(works: Works, tmp_path: Path) -> None:
    """The printed command succeeds: the finding is gone, and no other is there."""
    vendor = wheel(works, tmp_path, "module")
    refused = relink(vendor, works.options(tmp_path / "no"))
    (found,) = of_the_stack(refused.findings)
    assert found.step == f"--clear-execstack {BAD}"
    assert refused.way_out == ("--clear-execstack", BAD)
    taken = relink(vendor, works.options(tmp_path / "out", clear_execstack=[BAD]))
    assert taken.output is not None
    assert not [item for item in taken.findings if item.level == "error"]
    assert not of_the_stack(verify_wheel(tmp_path / "out" / OUTPUT, Options()).findings)


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("flags", [[], ["-O0"], ["-O2"], ["-Os"], ["-O3", "-mavx2"]])
def test_trampolines_keep_their_stack(works: Works, tmp_path: Path, flags: list[str]) -> None:
    bad = shared(tmp_path / "bad.so", f"{NESTED} void *PyInit_bad(void){{return 0;}}", flags=flags)
    assert asks_executable_stack(read_image(bad.read_bytes(), "bad.so"))
    vendor = make_wheel(tmp_path, {"demo/__init__.py": b"", BAD: bad, "demo/a.so": works.library}, tag=TAG)
    refused = relink(vendor, works.options(tmp_path / "no"))
    (found,) = of_the_stack(refused.findings)
    assert found.step is None
    assert "(trampolines), and would crash without" in found.remedy
    assert not refused.way_out
    taken = relink(vendor, works.options(tmp_path / "out", clear_execstack=[BAD]))
    errors = [(item.code, item.subject) for item in taken.findings if item.level == "error"]
    assert errors == [("RLK135", BAD)]
    assert taken.output is None


def test_a_flag_of_a_wheel_without_a_vendors_library_is_cleared(works: Works, tmp_path: Path) -> None:
    bad = shared(tmp_path / "bad.so", PLAIN, flags=[STACK])
    vendor = works.wheel(tmp_path / "vendor", {"demo/bad.so": bad})
    result = relink(vendor, works.options(tmp_path / "out", clear_execstack=["bad.so"]))
    assert [file.clear_stack for file in result.files] == [True]
    assert [(item.code, item.level) for item in result.findings if item.subject == "demo/bad.so"] == [
        ("RLK135", "info")
    ]


def test_a_pattern_that_clears_nothing(works: Works, tmp_path: Path) -> None:
    result = relink(works.small(tmp_path), works.options(tmp_path / "out", clear_execstack=["a.so"]))
    assert [item.subject for item in result.findings if item.code == "RLK109"] == ["a.so"]
