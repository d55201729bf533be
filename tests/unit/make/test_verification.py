"""The real loader against the plan: agreement, and every way in which there is none."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.image import Image
from relink.library import relink
from relink.loader import dryrun
from relink.loader.closure import Closure
from relink.loader.dryrun import LoaderMap, LoaderRefusal, dry_run, dry_runs, refusal, start_loader
from relink.loader.loading import trace
from relink.loader.search import Environment
from relink.loader.target import Target, find_target
from relink.make import verification as laid_out
from relink.make import verification as relink_verify
from relink.make.verification import Verification, list_mapped, verify
from relink.planning.case import Case, build_context
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system.errors import TargetError
from relink.system.findings.model import Finding
from relink.system.programs import Steps
from relink.system.sandbox.start import KINDS, Sandbox, why_not
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Library
from tests.support.forking import run as forked
from tests.support.works import OUTPUT, VENDOR_PATH, Works, open_wheel

SLOW = pytest.mark.slow(reason="a whole run; test_a_relinked_wheel has one")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    assert os.listdir(directory) == []


@pytest.fixture(scope="module")
def relinked(works: Works, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("relinked")
    report = relink(works.wheel(directory), works.options(directory / "out"))
    assert report.ok, report.findings
    return directory / "out" / OUTPUT


def only(findings: Sequence[Finding], code: str) -> Finding:
    (found,) = (item for item in findings if item.code == code)
    return found


# As its own command


def test_a_relinked_wheel(relinked: Path, works: Works) -> None:
    result = verify_wheel(relinked, Options())
    assert result.findings == ()
    assert [*result.maps] == [
        "demo/a.so",
        "demo/plain.so",
        "demo/bin/prog",
        "demo-1.0+rocm7.2.4.data/scripts/demo-prog",
    ]
    objects = dict(result.maps["demo/a.so"].objects)
    assert objects["$WHEEL/demo/a.so"] == "$WHEEL/demo/a.so"
    for name in ("libhip.so.7", "libdeep.so.1"):
        assert objects[name] == str(works.prefix / "lib" / name)
    assert result.maps["demo/a.so"].missing == ()
    assert not result.maps["demo/a.so"].died


def test_a_vendors_wheel(works: Works, tmp_path: Path) -> None:
    """Prediction and loader agree that it does not load."""
    result = verify_wheel(works.wheel(tmp_path), Options())
    assert [(found.code, found.subject) for found in result.findings] == [("RLK101", "libhip.so.7")]
    assert "needed by $WHEEL/demo/a.so, $WHEEL/demo/bin/prog" in result.findings[0].message
    assert result.maps["demo/a.so"].missing == ("libhip.so.7",)


@SLOW
def test_the_target_is_this_machines_own(works: Works, tmp_path: Path) -> None:
    target = find_target()
    for options in (
        works.options(tmp_path / "python"),
        works.options(tmp_path / "loader", interpreter=target.interpreter),
    ):
        relink(works.small(tmp_path), options)
        result = verify_wheel(options.output_place / OUTPUT, Options())
        assert (result.target.interpreter, result.target.python) == (target.interpreter, target.python)
        assert result.findings == ()


def test_another_target_can_be_named(relinked: Path) -> None:
    result = verify_wheel(relinked, Options(interpreter=find_target().interpreter))
    assert result.target.python is None


@SLOW
def test_the_callers_library_path_changes_nothing(
    relinked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = verify_wheel(relinked, Options())
    decoy = shared(tmp_path / "decoy" / "libhip.so.7", "int hip(void){return 7;}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(decoy.parent))
    monkeypatch.setenv("LD_PRELOAD", str(decoy))
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.nns=x")
    assert verify_wheel(relinked, Options()) == expected


def test_initialisers_are_not_run(works: Works, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    source = (
        "#include <fcntl.h>\n#include <unistd.h>\n"
        f'__attribute__((constructor)) static void f(void) {{ close(open("{trace}", O_CREAT | O_WRONLY, 0644)); }}'
    )
    library = shared(tmp_path / "lib.so", source, needed=["-lc"])
    result = verify_wheel(works.wheel(tmp_path, {"demo/lib.so": library}), Options())
    assert result.maps["demo/lib.so"].objects
    assert not trace.exists()


@pytest.mark.parametrize("files", [{"demo/plain.so"}, {"demo/plain.so", "demo/bin/prog"}])
def test_a_file_that_needs_nothing(works: Works, tmp_path: Path, files: set[str]) -> None:
    """The loader alone prints nothing then, not even the C library that it was told to preload."""
    sources: dict[str, bytes | Path] = {"demo/plain.so": works.plain, "demo/bin/prog": works.program}
    vendor = works.wheel(tmp_path, {name: sources[name] for name in sorted(files)})
    result = verify_wheel(vendor, Options(interpreter=find_target().interpreter))
    assert "RLK601" not in {found.code for found in result.findings}
    assert result.maps["demo/plain.so"].objects == ()


def test_versions_that_are_not_there(works: Works, tmp_path: Path) -> None:
    script = tmp_path / "v.map"
    versioned = f"-Wl,--version-script={script}"
    script.write_text("V_1 { global: f; };")
    old = shared(tmp_path / "old" / "libv.so.1", "int f(void){return 1;}", flags=[versioned])
    script.write_text("V_1 { }; V_2 { global: f; } V_1;")
    new = shared(tmp_path / "new" / "libv.so.1", "int f(void){return 1;}", flags=[versioned])
    library = shared(
        tmp_path / "lib.so",
        "extern int f(void); int g(void){return f();}",
        needed=[new],
        flags=[f"-Wl,-rpath,{old.parent}"],
    )
    result = verify_wheel(works.wheel(tmp_path, {"demo/lib.so": library}), Options())
    found = only(result.findings, "RLK301")
    assert (found.level, found.subject) == ("error", "$WHEEL/demo/lib.so")
    assert found.message == f"needs V_2 of libv.so.1; {old} goes up to V_1"


def test_what_was_foreseen_is_told_once(works: Works, tmp_path: Path) -> None:
    """A plan that says that the loader will refuse, carried out by force: the loader agrees."""
    (tmp_path / "prefix" / "lib").mkdir(parents=True)
    script = tmp_path / "v.map"
    versioned = f"-Wl,--version-script={script}"
    script.write_text("V_1 { global: f; };")
    shared(tmp_path / "prefix" / "lib" / "libv.so.1", "int f(void){return 1;}", flags=[versioned])
    script.write_text("V_1 { }; V_2 { global: f; } V_1;")
    new = shared(tmp_path / "new" / "libv.so.1", "int f(void){return 1;}", flags=[versioned])
    library = shared(tmp_path / "lib.so", "extern int f(void); int g(void){return f();}", needed=[new])
    vendor = works.wheel(tmp_path, {"demo/lib.so": library})
    prefixes = (str(tmp_path / "prefix"),)
    report = relink(vendor, Options(prefixes=prefixes, output_directory=tmp_path / "out", force=True))
    assert report.output is not None
    assert "goes up to V_1" in only(report.findings, "RLK301").message
    assert "RLK601" not in {found.code for found in report.findings}


def test_open_symbols_are_told(works: Works, tmp_path: Path) -> None:
    library = shared(
        tmp_path / "lib.so", "extern int nowhere(void); int g(void){return nowhere();}", needed=["-lc"]
    )
    result = verify_wheel(works.wheel(tmp_path, {"demo/lib.so": library}), Options())
    (problem,) = result.maps["demo/lib.so"].problems
    assert problem.split() == ["undefined", "symbol:", "nowhere", "($WHEEL/demo/lib.so)"]


def test_a_file_that_the_loader_dies_of(works: Works, tmp_path: Path) -> None:
    bad = tmp_path / "bad" / "libhip.so.7"
    bad.parent.mkdir()
    bad.write_text("/* GNU ld script */ INPUT(-lhip)\n" * 10)
    library = shared(
        tmp_path / "lib.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[works.prefix / "lib" / "libhip.so.7"],
        flags=[f"-Wl,-rpath,{bad.parent}"],
    )
    result = verify_wheel(works.wheel(tmp_path, {"demo/lib.so": library}), Options())
    assert result.maps["demo/lib.so"].died
    assert [found.code for found in result.findings] == ["RLK101", "RLK105"]
    assert "invalid ELF header" in result.findings[1].message


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_names_that_no_preload_list_can_hold(
    works: Works, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / name
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    report = relink(works.wheel(tmp_path), works.options(tmp_path / "out"))
    assert report.ok, report.findings
    assert not {"RLK601", "RLK602"} & {found.code for found in report.findings}
    vendor = works.wheel(tmp_path, {f"demo/{name}/a.so": works.plain})
    assert verify_wheel(vendor, Options()).findings == ()


# Where the loader and the plan differ


def _verified(wheel: Path, *, pretend: dict[str, dict[str, object]]) -> Verification:
    """Verify a wheel as if the plan had said something else of its members."""
    with ExitStack() as stack:
        target = find_target()
        read = open_wheel(wheel, stack, target)
        context = build_context(Case(read, target, (), Options(), "verify"))
        changed = {name: replace(image, **pretend.get(name, {})) for name, image in context.images.items()}
        return verify(
            "x.whl",
            lambda name: (read.archive.chunks(name), ()),
            [*changed],
            replace(context, images=changed),
        )


def test_agreement(relinked: Path) -> None:
    assert _verified(relinked, pretend={}).findings == ()


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    ("pretend", "odd"),
    [
        ({"needed": ("libhip.so.7", "libghost.so.1")}, "libghost.so.1 => not found"),
        ({"needed": ()}, "libhip.so.7 => {prefix}/lib/libhip.so.7"),
        ({"rpath": None, "runpath": None}, "libhip.so.7 => not found"),
    ],
)
def test_a_file_that_is_not_what_was_planned(
    relinked: Path, works: Works, pretend: dict[str, object], odd: str
) -> None:
    findings = _verified(relinked, pretend={"demo/a.so": pretend}).findings
    assert {(item.code, item.level, item.subject) for item in findings} == {("RLK601", "error", "demo/a.so")}
    found = findings[0]
    what, _, rest = found.message.partition(" Predicted: ")
    predicted, _, loader = rest.partition(" The loader: ")
    odd = odd.format(prefix=works.prefix)
    assert odd in what
    assert (odd in predicted) != (odd in loader)
    for known in ("$WHEEL/demo/a.so => $WHEEL/demo/a.so", "libc.so.6 => "):
        assert known in predicted
        assert known in loader


def test_another_order_is_a_difference(works: Works, tmp_path: Path) -> None:
    for name in ("libone.so.1", "libtwo.so.1"):
        shared(tmp_path / "lib" / name)
    both = [tmp_path / "lib" / name for name in ("libone.so.1", "libtwo.so.1")]
    library = shared(tmp_path / "lib.so", needed=both, flags=[f"-Wl,-rpath,{tmp_path / 'lib'}"])
    vendor = works.wheel(tmp_path, {"demo/lib.so": library})
    assert _verified(vendor, pretend={}).findings == ()
    swapped: dict[str, object] = {"needed": ("libtwo.so.1", "libone.so.1")}
    found = only(_verified(vendor, pretend={"demo/lib.so": swapped}).findings, "RLK601")
    assert found.message.startswith("the order differs. Predicted: ")


def test_a_death_that_was_not_foreseen(relinked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    death = LoaderMap((), (), ("killed by signal 11",), died=True)
    monkeypatch.setattr("relink.loader.dryrun.read_answer", lambda *_: death)
    found = _verified(relinked, pretend={}).findings
    assert {(item.code, item.level) for item in found} == {("RLK116", "error")}
    assert found[0].message == "the loader does not load it: killed by signal 11"


def test_a_death_that_does_not_come(relinked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(environment: Environment, program: str, preloads: Sequence[str]) -> Closure:
        return replace(trace(environment, program, preloads), fatal="/x/libhip.so.7: invalid ELF header")

    monkeypatch.setattr("relink.make.verification.trace", dying)
    found = _verified(relinked, pretend={}).findings
    assert {item.code for item in found} == {"RLK601"}
    assert "/x/libhip.so.7: invalid ELF header" in found[0].message


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_a_difference_forbids_the_output(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """patchelf's checks are switched off and its result is another than planned: the loader tells."""

    def unedited(_path: Path, _edit: object, before: Image, *_: object) -> Steps[Image]:
        yield
        return before

    vendor = works.small(tmp_path)
    monkeypatch.setattr("relink.make.editing.whole_edit", unedited)
    report = relink(vendor, works.options(tmp_path / "out", jobs=jobs))
    assert not report.ok
    assert report.output is None
    assert only(report.findings, "RLK601").subject == "demo/a.so"
    assert not (tmp_path / "out").exists()


# Where the loader cannot be asked


def test_a_loader_that_cannot_be_run(relinked: Path, tmp_path: Path) -> None:
    """It could when it was asked what it is."""
    with ExitStack() as stack:
        target = find_target()
        read = open_wheel(relinked, stack, target)
        context = build_context(
            Case(read, replace(target, interpreter=str(tmp_path / "gone")), (), Options(), "verify")
        )
        result = verify(OUTPUT, lambda name: (read.archive.chunks(name), ()), [*read.images], context)
    (found,) = result.findings
    assert (found.code, found.level, found.subject) == ("RLK602", "error", OUTPUT)
    assert "No such file or directory" in found.message


def test_files_that_cannot_be_laid_out(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def extract(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/there/.relink-1-0f.dir/lib/a.so")

    monkeypatch.setattr(relink_verify, "extract_member", extract)
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    told = [found.message for found in report.findings if found.code == "RLK602"]
    said = "/there: the members cannot be laid out (No space left on device); set TMPDIR to where there is room for them"
    assert told == [said]
    assert not (tmp_path / "out").exists()


def test_not_verified_is_an_error_and_nothing_is_written(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> LoaderMap:
        raise TargetError("no")

    monkeypatch.setattr("relink.loader.dryrun.read_answer", refuse)
    report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert not report.ok
    assert only(report.findings, "RLK602").message == "no"
    assert not (tmp_path / "out").exists()
    assert relink(works.small(tmp_path), works.options(tmp_path / "out", verify=False)).ok
    assert os.listdir(tmp_path / "out") == [OUTPUT]


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, unconfined: None) -> Callable[[str], Target]:
    """Have a shell script stand for the loader; under LD_TRACE_LOADED_OBJECTS no shell would run."""

    del unconfined

    def make(script: str) -> Target:
        def started(
            _: Target, _sandbox: object, program: str, _preloads: object, *, symbols: bool
        ) -> subprocess.Popen[str]:
            assert symbols
            command = ["sh", "-c", script, "ld.so", program]
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            )

        monkeypatch.setattr("relink.loader.dryrun.start_loader", started)
        return find_target()

    return make


def test_a_loader_that_crashes(loader: Callable[[str], Target]) -> None:
    found = dry_run(loader("kill -SEGV $$"), "/program")
    assert (found.died, found.problems) == (True, ("killed by signal 11",))


def test_a_loader_that_answers_strangely(loader: Callable[[str], Target]) -> None:
    found = dry_run(loader("echo what >&2; exit 3"), "/program")
    assert (found.died, found.problems) == (True, ("the loader ended with 3", "what"))


def test_a_loader_that_aborts(loader: Callable[[str], Target]) -> None:
    """An assertion ends it with the status that a fatal error has, and other words."""
    found = dry_run(loader("echo Inconsistency detected by ld.so >&2; exit 127"), "/program")
    assert (found.died, found.problems[1:]) == (True, ("Inconsistency detected by ld.so",))


def test_a_loader_that_does_not_end(loader: Callable[[str], Target], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.loader.dryrun.DRY_RUN_TIMEOUT", 0.2)
    found = dry_run(loader("exec sleep 99"), "/program")
    assert (found.died, found.problems) == (True, ("the loader did not end within 0.2 s and was stopped",))


@pytest.mark.parametrize(
    ("line", "path", "reason"),
    [
        ("x: error while loading shared libraries: /a/b.so: file too short", "/a/b.so", "file too short"),
        (
            "ERROR: ld.so: object '/a/b.so' from LD_PRELOAD cannot be preloaded (cannot map zero-fill pages): ignored.",
            "/a/b.so",
            "cannot map zero-fill pages",
        ),
    ],
)
def test_what_the_loader_refused(loader: Callable[[str], Target], line: str, path: str, reason: str) -> None:
    found = dry_run(loader(f'echo "{line}" >&2; exit 1'), "/program")
    assert refusal(found) == LoaderRefusal(path, reason)


def test_loaders_run_beside_each_other_and_answer_in_order(
    loader: Callable[[str], Target], tmp_path: Path
) -> None:
    """The first waits for the second."""
    mark = tmp_path / "mark"
    wait = f"i=0; while ! test -e {mark} && test $i -lt 1000; do sleep 0.01; i=$((i + 1)); done"
    target = loader(f"case $1 in /one) {wait};; *) : > {mark};; esac; echo $1 $i >&2")
    with dry_runs(target, [(name, []) for name in ("/one", "/two", "/three")]) as answers:
        said = [found.problems[0].split() for found in answers]
    assert [words[0] for words in said] == ["/one", "/two", "/three"]
    assert int(said[0][1]) < 1000


def test_loaders_end_with_the_one_who_asked(loader: Callable[[str], Target], tmp_path: Path) -> None:
    target = loader(
        f"echo $$ > {tmp_path}/pid-$1.new; mv {tmp_path}/pid-$1.new {tmp_path}/pid-$1; exec sleep 99"
    )
    end = time.monotonic() + 30

    def give_up() -> None:
        with dry_runs(target, [("1", []), ("2", [])]):
            while len([*tmp_path.glob("pid-?")]) < 2 and time.monotonic() < end:
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_up()
    pids = [int(path.read_text()) for path in tmp_path.glob("pid-?")]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_another_place_is_taken_where_nothing_may_be_run(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "noexec"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "noexec,size=8m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        report = relink(works.small(tmp_path), works.options(tmp_path / "out"))
        assert not {"RLK601", "RLK602"} & {found.code for found in report.findings}
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("kind", [*KINDS, "off"])
def test_a_sysroot_that_cannot_be_entered(tmp_path: Path, kind: str) -> None:
    if kind != "off" and (reason := why_not(kind)):
        pytest.skip(reason)
    target = replace(find_target(), sysroot=str(tmp_path / "gone"))
    with pytest.raises(TargetError, match=r"gone: cannot be entered \(chroot .*gone: No such file"):
        dry_run(target, "/program", sandbox=Sandbox(kind))


def test_archives_are_closed(relinked: Path) -> None:
    """filterwarnings = error would tell of an open file only when it is collected."""
    before = len(os.listdir("/proc/self/fd"))
    verify_wheel(relinked, Options())
    with WheelArchive(relinked):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def noexec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory from which no file may be mapped as a program, taken although that can be seen."""
    place = tmp_path / "noexec"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "noexec,size=16m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    monkeypatch.setattr(laid_out, "choose_temporary_directory", lambda _: str(place))
    yield place
    assert os.listdir(place) == []
    subprocess.run(["umount", str(place)], check=True)


@SLOW
@pytest.mark.parametrize("named", [{}, {"interpreter": "/lib64/ld-linux-x86-64.so.2"}])
def test_a_place_where_nothing_may_be_run(
    works: Works, tmp_path: Path, noexec: Path, named: dict[str, str]
) -> None:
    """Not even the target's own C library is mapped from there, so no member is blamed, and nothing is proved."""
    report = relink(works.wheel(tmp_path), works.options(tmp_path / "out", **named))
    (found,) = (item for item in report.findings if item.level == "error")
    assert (found.code, report.output) == ("RLK602", None)
    assert found.message.startswith(f"{noexec}: the loader may not map files from there")
    assert "set TMPDIR to where programs may be run" in found.message
    assert "relink-probe" not in found.message
    assert not (tmp_path / "out").exists()
    told = verify_wheel(works.wheel(tmp_path), Options(**named)).findings  # type: ignore[arg-type]
    assert "RLK602" in [item.code for item in told if item.level == "error"]


@SLOW
def test_the_place_is_asked_about_once(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Less than the static scan refuses, and more than any machine maps.
    bad = Library(soname="libbad.so.1", memory=1 << 46).write(tmp_path / "bad.so").read_bytes()
    asked: list[str] = []

    def noted(target: Target, path: str, sandbox: Sandbox | None) -> LoaderMap:
        asked.append(path)
        return dry_run(target, path, sandbox=sandbox)

    monkeypatch.setattr(laid_out, "dry_run", noted)
    files: dict[str, bytes | Path] = {f"demo/bad{number}.so": bad for number in range(3)}
    findings = verify_wheel(works.wheel(tmp_path, files), Options()).findings
    assert [found.subject for found in findings if found.code == "RLK116"] == list(files)
    assert len(asked) == 1


def test_too_little_address_space_is_no_fact_about_the_wheel(works: Works, tmp_path: Path) -> None:
    """A library that fits into the memory of any machine does not fit into this process: exit code 2, and the limit is named."""
    if not SUPPORTED:
        pytest.skip(WHY_NOT)
    large = Library(soname="liblarge.so.1", memory=3 << 30).write(tmp_path / "liblarge.so.1")
    wheel = works.wheel(tmp_path, {"demo/large.so": large})

    assert forked("verify", wheel).returncode == 0
    ended = forked("verify", wheel, limits={resource.RLIMIT_AS: 2 << 30})
    assert ended.returncode == 2, ended.stdout
    assert "there is not enough memory" in ended.stderr
    assert f"(its limit is {2 << 30})" in ended.stderr
    assert "RLK" not in ended.stdout
    assert "fault of relink" not in ended.stderr


def test_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert laid_out.choose_temporary_directory("/") == str(tmp_path)


MEMBERS = ("one", "two", "three")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have members asked about together however little that saves; notes of each start whether symbols are looked up."""
    calls: list[bool] = []

    def start(*arguments: object, symbols: bool) -> object:
        calls.append(symbols)
        return start_loader(*arguments, symbols=symbols)  # type: ignore[arg-type]

    monkeypatch.setattr(dryrun, "START_COST", 0)
    monkeypatch.setattr("relink.loader.dryrun.start_loader", start)
    return calls


@pytest.fixture
def wheel(works: Works, tmp_path: Path) -> Callable[..., Path]:
    def make(**calls: str) -> Path:
        members: dict[str, bytes | Path] = {}
        for name in MEMBERS:
            source = f"extern int {calls.get(name, 'hip')}(void); int in_{name}(void) {{ return {calls.get(name, 'hip')}(); }}"
            flags = [VENDOR_PATH, "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
            hip = works.prefix / "lib" / "libhip.so.7"
            members[f"demo/{name}.so"] = shared(tmp_path / f"{name}.so", source, needed=[hip], flags=flags)
        return works.wheel(tmp_path, members)

    return make


def errors(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    return {(item.code, item.subject) for item in findings if item.level == "error"}


@SLOW
def test_symbols_are_looked_up_once(
    works: Works, wheel: Callable[..., Path], started: list[bool], tmp_path: Path
) -> None:
    report = relink(wheel(), works.options(tmp_path / "out"))
    assert (report.ok, report.verified) == (True, 3)
    assert sorted(started) == [False, False, False, True]


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("faulty", MEMBERS)
def test_an_open_symbol_of_one_of_them(
    works: Works, wheel: Callable[..., Path], started: list[bool], tmp_path: Path, faulty: str
) -> None:
    vendor = wheel(**{faulty: "vanished"})
    relink(vendor, works.options(tmp_path / "out", force=True))
    result = verify_wheel(tmp_path / "out" / OUTPUT, Options())
    for name in MEMBERS:
        lines = [line for line in result.maps[f"demo/{name}.so"].problems if "vanished" in line]
        assert bool(lines) is (name == faulty)
    assert started.count(True) == 2  # once for each of the two verifications


@SLOW
def test_each_is_asked_alone_where_the_joint_answer_is_another(
    works: Works,
    wheel: Callable[..., Path],
    started: list[bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulation of the joint run names a library that the loader does not map."""

    def mapped(closure: Closure) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        return ((), ("libother.so",)) if len(closure.roots) > 2 else list_mapped(closure)

    monkeypatch.setattr("relink.make.verification.list_mapped", mapped)
    report = relink(wheel(), works.options(tmp_path / "out"))
    assert started == [True, True, True, True]
    assert report.verified == 3
