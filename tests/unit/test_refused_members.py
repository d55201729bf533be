"""Members that the loader does not load: each is a finding of its own, the others are asked, and nothing unproved is written."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relink.library import relink
from relink.loader import dryrun
from relink.planning.options import Options
from relink.runs.questions import explain, verify_wheel
from relink.system.findings.model import Finding
from tests.support.cc import cc, shared
from tests.support.elf_builder import DF_1_PIE, SUPPORTED, WHY_NOT, Import, Library, gnu_hash
from tests.support.elf_patching import Elf
from tests.support.forking import run as forked
from tests.support.works import OUTPUT, VENDOR_PATH, Works

SLOW = pytest.mark.slow(reason="a whole run; the parametrized tests have such")

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

BAD = Library(soname="libbad.so.1")
REFUSED = {
    "a TiB of zeros": (replace(BAD, memory=1 << 40), "failed to map segment from shared object"),
    "64 TiB of zeros": (replace(BAD, memory=1 << 46), "failed to map segment from shared object"),
    "aligned to 32 TiB": (replace(BAD, align=1 << 47), "failed to map segment from shared object"),
    "not page-aligned": (replace(BAD, skew=0x10), "ELF load command address/offset not page-aligned"),
}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    assert os.listdir(directory) == []


def only(findings: tuple[Finding, ...], code: str) -> Finding:
    (found,) = (item for item in findings if item.code == code)
    return found


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {found.code for found in findings if found.level == "error"}


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("case", REFUSED)
def test_verify(works: Works, tmp_path: Path, case: str) -> None:
    library, reason = REFUSED[case]
    bad = library.write(tmp_path / "libbad.so.1")
    files: dict[str, bytes | Path] = {"demo/bad.so": bad, "demo/plain.so": works.plain}
    result = verify_wheel(works.wheel(tmp_path, files), Options())
    found = only(result.findings, "RLK116")
    assert codes(result.findings) == {"RLK116"}
    assert (found.subject, found.level) == ("demo/bad.so", "error")
    assert found.message.startswith(f"the loader does not load it: {reason}")
    assert result.maps["demo/plain.so"].objects


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("case", [case for case in REFUSED if case != "not page-aligned"])
def test_one_that_a_relinked_member_needs(works: Works, tmp_path: Path, case: str) -> None:
    """What no simulation foresees keeps the wheel from being written, and names the file that is at fault."""
    library, reason = REFUSED[case]
    bad = library.write(tmp_path / "libbad.so.1")
    using = shared(
        tmp_path / "using.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[works.prefix / "lib" / "libhip.so.7", shared(tmp_path / "stub" / "libbad.so.1")],
        flags=[f"{VENDOR_PATH}:$ORIGIN", "-Wl,--no-as-needed"],
    )
    files: dict[str, bytes | Path] = {
        "demo/using.so": using,
        "demo/libbad.so.1": bad,
        "demo/a.so": works.library,
    }
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out"))
    assert codes(report.findings) == {"RLK116"}
    found = next(
        item for item in report.findings if item.subject == "demo/using.so" and item.code == "RLK116"
    )
    assert f"the loader does not load $WHEEL/demo/libbad.so.1, which it needs: {reason}" in found.message, (
        found
    )
    assert not (tmp_path / "out").exists()


def test_what_the_loader_says_of_another_member_stays_with_force(works: Works, tmp_path: Path) -> None:
    """An error of the plan about one member hides none of the same code that the loader finds about another."""
    foreseen = REFUSED["not page-aligned"][0].write(tmp_path / "libfore.so.1")
    unforeseen = REFUSED["a TiB of zeros"][0].write(tmp_path / "libbad.so.1")
    using = shared(
        tmp_path / "using.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[works.prefix / "lib" / "libhip.so.7", shared(tmp_path / "stub" / "libbad.so.1")],
        flags=[f"{VENDOR_PATH}:$ORIGIN", "-Wl,--no-as-needed"],
    )
    files: dict[str, bytes | Path] = {
        "demo/fore.so": foreseen,
        "demo/libbad.so.1": unforeseen,
        "demo/using.so": using,
    }
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out", force=True))
    assert report.output is not None
    found = {item.subject for item in report.findings if item.code == "RLK116"}
    assert found == {"demo/fore.so", "demo/libbad.so.1", "demo/using.so"}


def test_without_verification_it_is_written(works: Works, tmp_path: Path) -> None:
    """What was not asked about is the user's word."""
    bad = REFUSED["64 TiB of zeros"][0].write(tmp_path / "libbad.so.1")
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/bad.so": bad}
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out", verify=False))
    assert report.ok
    assert os.listdir(tmp_path / "out") == [OUTPUT]


@SLOW
def test_one_that_is_foreseen_ends_no_run(works: Works, tmp_path: Path) -> None:
    """A bundled library that is not page-aligned is a finding with JSON, by the member's name."""
    bad = REFUSED["not page-aligned"][0].write(tmp_path / "libbad.so.1")
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/libs/libbad.so.1": bad}
    wheel = works.wheel(tmp_path, files)
    words = [str(wheel), "--prefix", str(works.prefix), "-o", str(tmp_path / "out"), "--json"]
    ended = forked(*words)
    assert ended.returncode == 1, ended.stderr
    assert "relink.invalid" not in ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    errors = [found for found in report["findings"] if found["level"] == "error"]
    assert [(found["code"], found["subject"]) for found in errors] == [("RLK116", "demo/libs/libbad.so.1")]
    assert errors[0]["message"] == f"the loader does not load it: {REFUSED['not page-aligned'][1]}"
    assert [file["path"] for file in report["files"]] == ["demo/a.so"]
    assert not (tmp_path / "out").exists()
    ignoring = works.options(tmp_path / "out", ignore=("demo/libs/libbad*",))
    assert relink(wheel, ignoring).output is not None
    assert [item.file.path for item in explain(wheel, works.options(tmp_path)).trees] == ["demo/a.so"]


def test_statically_linked_programs_are_left_alone(works: Works, tmp_path: Path) -> None:
    """No loader loads them, so none is asked."""
    tool = Library(flags_1=DF_1_PIE).write(tmp_path / "tool")
    real = cc("int main(void) { return 0; }", tmp_path / "real", "-static-pie")
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/tool": tool, "demo/real": real}
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out"))
    assert report.ok, report.findings
    told = [found for found in report.findings if found.code == "RLK505"]
    assert {found.subject for found in told} == {"demo/tool", "demo/real"}
    assert {found.level for found in told} == {"info"}


def test_one_that_does_not_end(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up for this member alone."""
    started = dryrun.start_loader
    calls: list[str] = []

    def slow(*arguments: object, **options: object) -> subprocess.Popen[str]:
        calls.append(str(arguments[2]))
        if len(calls) == 1:
            return subprocess.Popen(
                ["sleep", "99"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return started(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(dryrun, "start_loader", slow)
    monkeypatch.setattr(dryrun, "DRY_RUN_TIMEOUT", 1)
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/b.so": works.library}
    report = relink(works.wheel(tmp_path, files), works.options(tmp_path / "out"))
    assert len(calls) == 2
    found = only(report.findings, "RLK116")
    assert found.subject == "demo/a.so"
    assert "did not end within 1 s" in found.message
    assert not (tmp_path / "out").exists()


# What the compiler made, with one field changed; nothing of it has to be edited


_USER = """
extern int old(void); extern int puts(const char *); extern char **environ;
static int table[4]; int shown; int *pointers[3] = {&table[1], &shown, 0};
int g(void) { puts("g"); return old() + *pointers[0] + (environ != 0); }
"""


def changed(library: Path, change: Callable[[Elf], None]) -> bytes:
    elf = Elf(bytearray(library.read_bytes()))
    change(elf)
    return bytes(elf.data)


def dropped(elf: Elf, text: str, new: str) -> None:
    """Have a record of another version."""
    at = elf.data.index(text.encode() + b"\0")
    elf.data[at : at + len(new)] = new.encode()


def relr_without_version(elf: Elf) -> None:
    record = elf.place(0x6FFFFFFE)
    while elf.text(elf.word(record + 4, "I")) != "libc.so.6":
        record += elf.word(record + 12, "I")
    version = record + elf.word(record + 8, "I")
    while elf.text(elf.word(version + 8, "I")) != "GLIBC_ABI_DT_RELR":
        version += elf.word(version + 12, "I")
    first = record + elf.word(record + 8, "I")
    while elf.text(elf.word(first + 8, "I")) != "GLIBC_2.2.5":
        first += elf.word(first + 12, "I")
    elf.data[version : version + 12] = elf.data[first : first + 12]


def nameless(elf: Elf) -> None:
    symbols = {elf.word(at + 12, "I") for at in elf.relocations()}
    for symbol in symbols - {0}:
        at = elf.place(6) + 24 * symbol
        if elf.text(elf.word(at, "I")) == "environ":
            elf.put(at, 0, "I")


def no_filter(elf: Elf) -> None:
    table = elf.place(0x6FFFFEF5)
    for number in range(elf.word(table + 8, "I")):
        elf.put(table + 16 + 8 * number, 0)


UNEDITED: dict[str, tuple[list[str], Callable[[Elf], None], str]] = {
    "an unknown relocation": (
        [],
        lambda elf: elf.put(elf.relocations()[-1] + 8, 99, "I"),
        "unexpected reloc type 0x63",
    ),
    "DT_RELR without its version": (
        ["-Wl,-z,pack-relative-relocs"],
        relr_without_version,
        "DT_RELR without GLIBC_ABI_DT_RELR dependency",
    ),
    "a filter of zeros": ([], no_filter, "shown"),
    "a symbol without a name": ([], nameless, "undefined symbol:"),
    "static TLS without room": (
        ["-DTLS", "-ftls-model=initial-exec"],
        lambda elf: elf.put((elf.header(7) or 0) + 40, 1 << 16),
        "cannot allocate memory in static TLS block",
    ),
    "a level above the processor's": (
        ["-Wl,-z,x86-64-baseline"],
        lambda elf: elf.put(elf.data.index(struct.pack("<II", 0xC0008002, 4)) + 8, 1 << 20, "I"),
        "CPU ISA level is lower than required",
    ),
    "a symbol that nothing has": ([], lambda elf: dropped(elf, "puts", "zuts"), "imports zuts"),
    "a version that nothing has": ([], lambda elf: dropped(elf, "BASE_1", "BASE_9"), "BASE_9"),
}


@pytest.fixture
def unedited(tmp_path: Path) -> Callable[[str], dict[str, bytes | Path]]:
    """Return a function that makes the members of a wheel: a sound library, and one that it needs, which has a fault."""
    script = tmp_path / "base.map"
    script.write_text("BASE_1 { global: old; };")
    base = shared(
        tmp_path / "libbase.so", "int old(void) { return 1; }", flags=[f"-Wl,--version-script={script}"]
    )

    def make(case: str) -> dict[str, bytes | Path]:
        flags, change, _ = (UNEDITED | TAKEN)[case]
        source = _USER + ("__thread int own = 1; int *h(void) { return &own; }" if "-DTLS" in flags else "")
        user = cc(
            source,
            tmp_path / "user.so",
            "-shared",
            "-fPIC",
            "-nostartfiles",
            "-Wl,-rpath,$ORIGIN",
            *flags,
            needed=[base],
        )
        return {"demo/libbase.so": base, "demo/user.so": changed(user, change)}

    return make


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside an edited one"])
@pytest.mark.parametrize("case", UNEDITED)
def test_what_is_not_edited_is_shown_to_the_loader(
    works: Works, tmp_path: Path, unedited: Callable[[str], dict[str, bytes | Path]], case: str, beside: bool
) -> None:
    files = unedited(case)
    report = relink(
        works.wheel(tmp_path, files | ({"demo/a.so": works.library} if beside else {})),
        works.options(tmp_path / "out"),
    )
    errors = [item for item in report.findings if item.level == "error"]
    assert any(UNEDITED[case][2] in item.message for item in errors), report.findings
    assert {item.subject.removeprefix("$WHEEL/") for item in errors} == {"demo/user.so"}
    assert report.output is None


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("case", UNEDITED)
def test_verify_has_the_same_errors(
    works: Works, tmp_path: Path, unedited: Callable[[str], dict[str, bytes | Path]], case: str
) -> None:
    result = verify_wheel(works.wheel(tmp_path, unedited(case)), Options())
    errors = [item for item in result.findings if item.level == "error"]
    assert any(UNEDITED[case][2] in item.message for item in errors), result.findings


def empty_file_name(elf: Elf) -> None:
    """The main program has this name, and is the first that ld.so compares."""
    elf.put(elf.place(0x6FFFFFFE) + 4, 0, "I")


def another_bucket(elf: Elf) -> None:
    """Lead a bucket without `shown`, which relocations name, to the words before the chains."""
    table = elf.place(0x6FFFFEF5)
    count, words = elf.word(table, "I"), elf.word(table + 8, "I")
    assert count > 1
    other = (gnu_hash("shown") + 1) % count
    elf.put(table + 16 + 8 * words + 4 * other, 1, "I")


def first_tls(elf: Elf) -> None:
    """Make a note the first PT_TLS, for which there would be no room."""
    at = elf.header(4) or 0
    assert at < (elf.header(7) or 0)
    elf.put(at, 7, "I")
    elf.put(at + 40, 1 << 20)


TAKEN: dict[str, tuple[list[str], Callable[[Elf], None], str]] = {
    "an empty name of a version's file": ([], empty_file_name, ""),
    "a bucket outside of the table": ([], another_bucket, ""),
    "a long PT_DYNAMIC": ([], lambda elf: elf.put((elf.header(2) or 0) + 32, 1 << 20), ""),
    "two PT_TLS": (["-DTLS", "-ftls-model=initial-exec"], first_tls, ""),
}


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("case", TAKEN)
def test_what_the_loader_takes_is_not_refused(
    works: Works, tmp_path: Path, unedited: Callable[[str], dict[str, bytes | Path]], case: str
) -> None:
    files = unedited(case)
    result = verify_wheel(works.wheel(tmp_path, files), Options(python=sys.executable))
    assert [item for item in result.findings if item.level == "error"] == []
    (tmp_path / "user.so").write_bytes(bytes(files["demo/user.so"]))
    # What C has written comes out before what Python writes, buffered or not.
    value = f"value = ctypes.CDLL({str(tmp_path / 'user.so')!r}).g(); ctypes.CDLL(None).fflush(None)"
    said = subprocess.run(
        [sys.executable, "-c", f"import ctypes; {value}; print(value)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["g", "2"]


@SLOW
def test_a_definition_of_unknown_layout_is_read_for_what_requires_it(
    works: Works, tmp_path: Path, unedited: Callable[[str], dict[str, bytes | Path]]
) -> None:
    files = unedited("a long PT_DYNAMIC")
    base = changed(Path(str(files["demo/libbase.so"])), lambda elf: elf.put(elf.place(0x6FFFFFFC), 2, "H"))
    alone = verify_wheel(works.wheel(tmp_path, {"demo/libbase.so": base}), Options())
    assert [(item.code, item.level) for item in alone.findings] == [("RLK506", "warning")]
    result = verify_wheel(works.wheel(tmp_path, {**files, "demo/libbase.so": base}), Options())
    (found,) = (item for item in result.findings if item.level == "error")
    assert found.subject == "demo/user.so"
    assert "unsupported version 2 of Verdef record" in found.message


def test_a_loader_that_prints_without_end(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of a MiB that nothing has are printed for each relocation."""
    monkeypatch.setattr(dryrun, "MOST_PRINTED", 1 << 20)
    name = "x" * (1 << 16)
    imports = tuple(Import(f"{name}{number}") for number in range(40))
    library = Library(soname="libout.so", imports=imports).write(tmp_path / "libout.so")
    result = verify_wheel(works.wheel(tmp_path, {"demo/libout.so": library}), Options())
    assert "the loader printed more than 1 MiB and was stopped" in only(result.findings, "RLK116").message


def test_a_library_that_a_note_calls_required(works: Works, tmp_path: Path) -> None:
    broken = shared(tmp_path / "libopened.so", "extern int nowhere(void); int o(void) { return nowhere(); }")
    note = '[{"soname":["libopened.so"],"priority":"required"}]'
    source = (
        '__attribute__((section(".note.dlopen"), aligned(4), used)) static const struct { unsigned n, d, t; char o[4]; '
        f'char j[{(len(note) + 4) // 4 * 4}]; }} note = {{4, {len(note) + 1}, 0x407c0c0a, "FDO", {json.dumps(note)}}};'
        "extern void *dlopen(const char *, int); void *g(void) { return dlopen(0, 1); }"
    )
    opener = shared(tmp_path / "opener.so", source, needed=["-lc"], flags=["-Wl,-rpath,$ORIGIN"])
    files: dict[str, bytes | Path] = {"demo/opener.so": opener, "demo/libopened.so": broken}
    found = only(verify_wheel(works.wheel(tmp_path, files), Options()).findings, "RLK132")
    assert (found.level, found.subject) == ("error", "libopened.so")
    assert "does not load: libopened.so imports nowhere" in found.message
