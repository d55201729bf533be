"""The whole road on small compiled wheels, with the host's own loader at its end."""

from __future__ import annotations

import email
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from installer.sources import WheelFile
from msgspec.structs import replace
from packaging.version import Version

from relink.elf.constants import DT_SYMENT
from relink.elf.edit import VersionEdit
from relink.elf.image import read_image
from relink.elf.patchelf import Patchelf
from relink.elf.symbol_reader import read_symbols
from relink.library import diff, relink
from relink.loader.target import find_target
from relink.make.verification import verify
from relink.planning.case import Case, open_providers
from relink.planning.model import Plan, add_digests, embed_plan, read_plan
from relink.planning.options import Options
from relink.planning.resolve import evidence
from relink.planning.wheel_plan import plan_wheel
from relink.report.model import Report
from relink.report.summary import verdict
from relink.system.errors import RelinkError, UsageError, WheelError
from relink.vendors.protocol import Place
from relink.vendors.registry import requested_gpus
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.elf_patching import Elf
from tests.support.wheels import make_wheel
from tests.support.works import (
    MACHINE,
    OUTPUT,
    PYTHON_TAG,
    VENDOR_PATH,
    Works,
    copy_glibc,
    installed,
    open_wheel,
)

SLOW = pytest.mark.slow(reason="a whole run; the other runs are alike")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files go below the test's own directory; none may be left there."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    assert os.listdir(directory) == []


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def content(wheel: Path, member: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)


def codes(report: Report) -> list[str]:
    return [found.code for found in report.findings]


def planned(wheel: Path, options: Options) -> Plan:
    with ExitStack() as stack:
        target = find_target(interpreter=options.interpreter, sysroot=options.sysroot)
        read = open_wheel(wheel, stack, target)
        case = Case(read, target, open_providers(options, target), options, "run")
        return plan_wheel(case, open_providers).plan


@pytest.fixture(scope="module")
def pair(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A vendor's wheel and what relink makes of it."""
    directory = tmp_path_factory.mktemp("pair")
    vendor = works.wheel(directory)
    report = relink(vendor, works.options(directory / "out"))
    assert report.ok, report.findings
    assert report.output is not None
    return vendor, Path(report.output.path)


# The main job


@pytest.mark.slow(reason="pip installs the output")
def test_what_is_installed_runs(pair: tuple[Path, Path], tmp_path: Path) -> None:
    python = installed(pair[1], tmp_path / "venv")
    load = "import ctypes, demo, os; print(ctypes.CDLL(os.path.dirname(demo.__file__) + '/a.so').g())"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}

    def said(*command: str | Path) -> str:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return run.stdout + run.stderr

    assert said(python, "-c", load) == "42\n"
    assert said(python.parent / "demo-prog") == "41\n"
    (program,) = (tmp_path / "venv").glob("lib/*/site-packages/demo/bin/prog")
    assert said(program) == "41\n"


def test_the_vendors_wheel_does_not_load_here(works: Works) -> None:
    """Else the test above shows nothing."""
    run = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(works.library)!r})"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "libhip.so.7: cannot open shared object file" in run.stderr


def test_name_tags_and_version(pair: tuple[Path, Path]) -> None:
    assert pair[1].name == OUTPUT
    info = "demo-1.0+rocm7.2.4.dist-info"
    metadata = email.message_from_bytes(content(pair[1], f"{info}/METADATA"))
    assert metadata["Version"] == "1.0+rocm7.2.4"
    assert metadata.get_payload() == "Version: not this one\n"
    wheel = email.message_from_bytes(content(pair[1], f"{info}/WHEEL"))
    assert wheel.get_all("Tag") == [f"{PYTHON_TAG}-{PYTHON_TAG}-linux_{MACHINE}"]


def test_other_tools_accept_it(pair: tuple[Path, Path], tmp_path: Path) -> None:
    run = [sys.executable, "-m", "wheel", "unpack", "--dest", str(tmp_path / "unpacked"), str(pair[1])]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    with WheelFile.open(pair[1]) as source:
        source.validate_record(validate_contents=True)
        listed = {elements[0] for elements, _, _ in source.get_contents()}
    with zipfile.ZipFile(pair[1]) as archive:
        assert listed == set(archive.namelist())


def test_members_modes_and_order_are_kept(pair: tuple[Path, Path]) -> None:
    vendor, output = (zipfile.ZipFile(path) for path in pair)
    with vendor, output:
        before = [(item.filename, item.external_attr) for item in vendor.infolist()]
        after = [(item.filename.replace("+rocm7.2.4", ""), item.external_attr) for item in output.infolist()]
    added = [name for name, _ in after if name not in dict(before)]
    names = ("relink.json", "sboms/relink.cdx.json")
    assert added == [f"demo-1.0.dist-info/{name}" for name in names]
    assert [item for item in after if item[0] not in added] == before
    assert stat.S_IMODE(dict(before)["demo/bin/prog"] >> 16) == 0o755


def test_what_does_not_change_is_not_compressed_anew(pair: tuple[Path, Path]) -> None:
    with WheelArchive(pair[0]) as vendor, WheelArchive(pair[1]) as output:
        for name in ("demo/__init__.py", "demo/plain.so"):
            assert b"".join(vendor.raw(name)) == b"".join(output.raw(name)), name
        assert vendor.read("demo/a.so") != output.read("demo/a.so")


def test_no_search_path_names_what_is_not_there(pair: tuple[Path, Path], works: Works) -> None:
    image = read_image(content(pair[1], "demo/a.so"), "demo/a.so")
    assert (image.search_path or "").split(":") == [str(works.prefix / "lib")]


def test_the_plan_inside_is_the_plan(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    with WheelArchive(pair[1]) as archive:
        inside = read_plan(archive)
    assert inside is not None
    assert inside == embed_plan(add_digests(planned(pair[0], works.options(tmp_path))))
    assert [file.path for file in inside.files if file.changed] == [
        "demo/a.so",
        "demo/bin/prog",
        "demo-1.0.data/scripts/demo-prog",
    ]
    with WheelArchive(pair[0]) as archive:
        assert read_plan(archive) is None


def test_bill_of_materials(pair: tuple[Path, Path], works: Works) -> None:
    document = json.loads(content(pair[1], "demo-1.0+rocm7.2.4.dist-info/sboms/relink.cdx.json"))
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert uuid.UUID(document["serialNumber"].removeprefix("urn:uuid:")).version == 5
    component = document["metadata"]["component"]
    assert component["purl"] == "pkg:pypi/demo@1.0%2Brocm7.2.4"
    (ancestor,) = component["pedigree"]["ancestors"]
    assert ancestor["hashes"] == [{"alg": "SHA-256", "content": sha256(pair[0])}]
    references = [item["bom-ref"] for item in document["components"]]
    assert len(set(references)) == len(references)
    assert {str(works.prefix / "lib" / name) for name in ("libhip.so.7", "libdeep.so.1")} <= {*references}
    (dependency,) = document["dependencies"]
    assert dependency == {"ref": component["bom-ref"], "dependsOn": references}
    assert all(os.path.isfile(reference) for reference in references)


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("epoch", [None, 1_700_000_000])
def test_same_input_same_bytes(works: Works, tmp_path: Path, epoch: int | None) -> None:
    sums = set()
    for name in ("one", "two"):
        vendor = works.small(tmp_path / name)
        report = relink(vendor, works.options(tmp_path / name / "out", epoch=epoch, command=(name,)))
        assert report.output is not None
        assert report.output.sha256 == sha256(Path(report.output.path))
        sums.add(report.output.sha256)
    assert len(sums) == 1
    with zipfile.ZipFile(tmp_path / "one" / "out" / OUTPUT) as archive:
        moments = {item.date_time for item in archive.infolist()}
    assert ((2023, 11, 14, 22, 13, 20) in moments) == (epoch is not None)


def test_versions(works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    names = {}
    for label, options in {
        "kept": works.options(tmp_path / "kept", keep_version=True),
        "mine": works.options(tmp_path / "mine", local_version="mine.3"),
    }.items():
        report = relink(vendor, options)
        assert report.output is not None
        names[label] = Path(report.output.path).name.split("-")[1]
    assert names == {"kept": "1.0", "mine": "1.0+mine.3"}
    with pytest.raises(UsageError, match="'no label!' cannot be a local version label"):
        relink(vendor, works.options(tmp_path / "bad", local_version="no label!"))
    assert not (tmp_path / "bad").exists()


def test_a_prefix_that_is_a_link(works: Works, tmp_path: Path) -> None:
    """It is followed, and told: what it leads to may be another release tomorrow."""
    (tmp_path / "rocm").symlink_to(works.prefix)
    report = relink(
        works.small(tmp_path), Options(prefixes=(str(tmp_path / "rocm"),), output_directory=tmp_path / "out")
    )
    (provider,) = report.providers
    assert (provider.path, provider.link_to) == (str(tmp_path / "rocm"), str(works.prefix))
    assert not provider.has_none
    assert report.files[0].rpath.after == f"{tmp_path}/rocm/lib"


def test_a_prefix_without_any_library_of_the_vendor(tmp_path: Path) -> None:
    shared(tmp_path / "p" / "lib" / "libother.so.1", "int other(void){return 1;}")
    hip = shared(tmp_path / "libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    source = "int hipMalloc(void); int f(void){return hipMalloc();}"
    wheel = make_wheel(tmp_path, {"demo/a.so": shared(tmp_path / "a.so", source, needed=[hip])})
    report = relink(wheel, Options(prefixes=(str(tmp_path / "p"),), output_directory=tmp_path / "out"))
    assert [provider.has_none for provider in report.providers] == [True]
    assert verdict(report).text == f"Cannot work yet: no ROCm is in {tmp_path}/p; 1 library is missing."


def test_a_prefix_of_unknown_release(works: Works, tmp_path: Path) -> None:
    shared(tmp_path / "p" / "lib" / "libhip.so.7", "int hip(void){return 41;}")
    report = relink(
        works.small(tmp_path), Options(prefixes=(str(tmp_path / "p"),), output_directory=tmp_path / "out")
    )
    assert report.output is not None
    assert "+relinked-" in report.output.path
    assert "RLK508" in codes(report)


def test_the_callers_library_path_changes_nothing(
    pair: tuple[Path, Path], works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libhip.so.7 in LD_LIBRARY_PATH would come before a RUNPATH, and a preload before everything."""
    decoy = shared(tmp_path / "decoy" / "libhip.so.7", "int hip(void){return 7;}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(decoy.parent))
    monkeypatch.setenv("LD_PRELOAD", str(decoy))
    monkeypatch.setenv("LD_DEBUG", "libs")
    report = relink(pair[0], works.options(tmp_path / "out"))
    assert report.ok
    assert report.output is not None
    assert report.output.sha256 == sha256(pair[1])


# Nothing is written


def nothing_in(directory: Path) -> bool:
    return not directory.exists() or os.listdir(directory) == []


def test_a_missing_library_forbids_writing_unless_forced(works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    report = relink(vendor, works.options(tmp_path / "out"))
    assert not report.ok
    assert report.output is None
    assert [(found.code, found.subject) for found in report.findings if found.level == "error"] == [
        ("RLK101", "libnowhere.so.1")
    ]
    assert not (tmp_path / "out").exists()
    forced = relink(vendor, works.options(tmp_path / "out", force=True))
    assert not forced.ok
    assert codes(forced).count("RLK101") == 1
    assert os.listdir(tmp_path / "out") == [OUTPUT]


def test_a_dry_run_writes_nothing(works: Works, tmp_path: Path) -> None:
    report = relink(works.small(tmp_path), works.options(tmp_path / "out", dry_run=True))
    assert report.ok
    assert report.output is None
    assert any(file.changed for file in report.files)
    assert not (tmp_path / "out").exists()


def _truncated(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-100])
    return path


def _renamed(path: Path) -> Path:
    return path.rename(path.with_name("demo.whl"))


def _no_zip(path: Path) -> Path:
    path.write_bytes(b"not a zip file at all" * 10)
    return path


def _gone(path: Path) -> Path:
    path.unlink()
    return path


def _directory(path: Path) -> Path:
    path.unlink()
    path.mkdir()
    return path


@pytest.mark.parametrize("damage", [_truncated, _renamed, _no_zip, _gone, _directory])
def test_unreadable_input(works: Works, tmp_path: Path, damage: Callable[[Path], Path]) -> None:
    vendor = damage(works.small(tmp_path / "in"))
    with pytest.raises(WheelError, match=vendor.name):
        relink(vendor, works.options(tmp_path / "out", force=True))
    assert not (tmp_path / "out").exists()


def test_no_prefix(works: Works, tmp_path: Path) -> None:
    with pytest.raises(RelinkError, match="no such directory"):
        relink(
            works.small(tmp_path),
            Options(prefixes=(str(tmp_path / "none"),), output_directory=tmp_path / "out"),
        )
    assert not (tmp_path / "out").exists()


def test_an_output_directory_that_is_none(works: Works, tmp_path: Path) -> None:
    """Not by permissions: root may write everywhere."""
    place = tmp_path / "file"
    place.write_text("in the way")
    with pytest.raises(UsageError, match=r"file: cannot be written to .*--output"):
        relink(works.small(tmp_path), works.options(place))
    assert place.read_text() == "in the way"


def test_a_directory_under_the_results_name(works: Works, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / OUTPUT).mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be written"):
        relink(works.small(tmp_path), works.options(out))
    assert os.listdir(out) == [OUTPUT]


def test_the_prefix_stays_as_it_is(works: Works, tmp_path: Path) -> None:
    def all_of_it() -> dict[Path, tuple[int, int, int, int, int]]:
        facts = {path: path.lstat() for path in (works.prefix, *works.prefix.rglob("*"))}
        return {
            path: (at.st_ino, at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
            for path, at in facts.items()
        }

    before = all_of_it()
    assert len(before) > 3
    assert relink(works.small(tmp_path), works.options(tmp_path / "out")).output is not None
    assert all_of_it() == before


def test_the_input_is_never_written_over(works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(
        tmp_path, {"demo/a.so": works.library}, tag=f"{PYTHON_TAG}-{PYTHON_TAG}-linux_{MACHINE}"
    )
    before = vendor.read_bytes()
    with pytest.raises(UsageError, match="take the input's place"):
        relink(vendor, works.options(tmp_path, keep_version=True))
    assert vendor.read_bytes() == before


def test_an_empty_plan_in_place_leaves_the_file_itself(works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/plain.so": works.plain})
    inode = vendor.stat().st_ino
    report = relink(vendor, works.options(tmp_path))
    assert report.output is not None
    assert report.output.path == str(vendor)
    assert vendor.stat().st_ino == inode


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'patchelf: cannot do that' >&2; exit 1", r"patchelf \S+ failed: cannot do that"),
        ("for last; do :; done; echo broken > $last", "does not hold up; not an ELF file"),
        ("exit 0", "does not hold up"),
    ],
)
@pytest.mark.usefixtures("unconfined")
def test_patchelf_fails(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    fake = tmp_path / "patchelf"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr("relink.elf.patchelf.find_patchelf", lambda: Patchelf(str(fake), Version("0.19.1")))
    report = relink(works.small(tmp_path), works.options(tmp_path / "out", force=True))
    (found,) = (found for found in report.findings if found.code == "RLK516")
    assert (found.subject, found.level) == ("demo/a.so", "error")
    assert re.search(message, found.message)
    assert nothing_in(tmp_path / "out")


@pytest.mark.few(8, reason="other stages and signals")
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
@pytest.mark.parametrize("stage", ["target", "read", "plan", "edit", "write", "verify", "publish"])
def test_stopped_at_any_stage(works: Works, tmp_path: Path, stage: str, error: type[BaseException]) -> None:
    seen = []

    def stop(name: str) -> None:
        seen.append(name)
        if name == stage:
            raise error

    with pytest.raises(error):
        relink(works.small(tmp_path), works.options(tmp_path / "out"), on_stage=stop)
    assert seen[-1] == stage
    assert nothing_in(tmp_path / "out")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    "place",
    [
        "relink.loader.dryrun.read_answer",
        "relink.make.editing.whole_edit",
        "relink.wheel.writer.ReadBack.entries",
        "relink.make.verification.extract_member",
    ],
)
def test_interrupted_in_the_middle_of_a_stage(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    with pytest.raises(KeyboardInterrupt):
        relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert nothing_in(tmp_path / "out")


def test_the_output_appears_after_it_was_verified(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = verify
    present: list[bool] = []

    def spy(*arguments: Any) -> Any:
        present.append((tmp_path / "out" / OUTPUT).exists())
        return real(*arguments)

    monkeypatch.setattr("relink.runs.relink_wheel.verify", spy)
    relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert present == [False]
    assert os.listdir(tmp_path / "out") == [OUTPUT]


def test_a_pattern_that_the_plan_has_used_is_not_unused(works: Works, tmp_path: Path) -> None:
    report = relink(works.small(tmp_path), works.options(tmp_path / "out", ignore=("demo/*",)))
    assert codes(report) == []


# Members that are not the target's business


def _for_machine(path: Path, machine: int) -> bytes:
    data = bytearray(path.read_bytes())
    data[18:20] = machine.to_bytes(2, "little")
    return bytes(data)


def test_other_machines_code_is_left_alone(works: Works, tmp_path: Path) -> None:
    other = 183 if MACHINE == "x86_64" else 62
    members: dict[str, bytes | Path] = {
        "demo/a.so": works.library,
        "demo/other.so": _for_machine(works.library, other),
        "demo/kernels.hsaco": _for_machine(works.library, 224),
    }
    report = relink(works.wheel(tmp_path, members), works.options(tmp_path / "out"))
    assert report.ok
    alone = [found.subject for found in report.findings if found.code == "RLK505"]
    assert alone == ["demo/other.so"]  # kernels are GPU code
    for name in alone:
        assert content(tmp_path / "out" / OUTPUT, name) == members[name]


def test_damaged_elf_forbids_writing(works: Works, tmp_path: Path) -> None:
    damaged = bytearray(works.library.read_bytes())
    damaged[32:40] = (1 << 60).to_bytes(8, "little")  # e_phoff
    vendor = works.wheel(tmp_path, {"demo/a.so": works.library, "demo/bad.so": bytes(damaged)})
    report = relink(vendor, works.options(tmp_path / "out"))
    assert [(found.code, found.subject) for found in report.findings if found.level == "error"] == [
        ("RLK506", "demo/bad.so")
    ]
    assert not (tmp_path / "out").exists()
    relink(vendor, works.options(tmp_path / "out", force=True))
    assert content(tmp_path / "out" / OUTPUT, "demo/bad.so") == bytes(damaged)


def test_tables_that_the_loader_does_not_read(works: Works, tmp_path: Path) -> None:
    """A damage of a file that stays as it is is a warning; a file that patchelf has to edit must be sound."""
    damaged: dict[str, bytes | Path] = {}
    for name, path in (("demo/plain.so", works.plain), ("demo/a.so", works.library)):
        elf = Elf(bytearray(path.read_bytes()))
        elf.put(elf.dynamic[DT_SYMENT] + 8, 17)
        damaged[name] = bytes(elf.data)
    for stays, level in ((True, "warning"), (False, "error")):
        members = damaged | ({"demo/a.so": works.library} if stays else {})
        report = relink(works.wheel(tmp_path, members), works.options(tmp_path / "out"))
        found = {one.subject: one.level for one in report.findings if one.code == "RLK506"}
        assert found == ({} if stays else {"demo/a.so": level}) | {"demo/plain.so": "warning"}
        assert report.ok == stays


def test_programs_take_the_targets_interpreter(pair: tuple[Path, Path]) -> None:
    for name in ("demo/bin/prog", "demo-1.0+rocm7.2.4.data/scripts/demo-prog"):
        assert read_image(content(pair[1], name), name).interpreter == find_target().interpreter


# Other targets


def test_a_python_by_its_path(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    report = relink(pair[0], works.options(tmp_path / "out", python=sys.executable))
    assert report.target.python == os.path.realpath(sys.executable)
    assert report.output is not None
    assert report.output.sha256 == sha256(pair[1])
    with pytest.raises(RelinkError, match=r"--python .*nothing: cannot be run"):
        relink(pair[0], works.options(tmp_path / "out", python=str(tmp_path / "nothing")))


@SLOW
def test_the_hosts_loader_by_its_path(works: Works, tmp_path: Path) -> None:
    interpreter = find_target().interpreter
    report = relink(works.wheel(tmp_path), works.options(tmp_path / "out", interpreter=Path(interpreter)))
    assert report.ok, report.findings
    assert report.target.python is None
    assert "RLK602" not in codes(report)


@SLOW
def test_a_loader_in_the_prefix(works: Works, tmp_path: Path) -> None:
    """As on Nix, and as with an unpacked distribution: the C library comes from beside the loader."""
    prefix = tmp_path / "system"
    loader = copy_glibc(prefix / "lib", "libc.so.6")
    for name in ("libhip.so.7", "libdeep.so.1"):
        (prefix / "lib" / name).write_bytes((works.prefix / "lib" / name).read_bytes())
    options = Options(prefixes=(str(prefix),), interpreter=str(loader), output_directory=tmp_path / "out")
    report = relink(works.wheel(tmp_path), options)
    assert report.ok, report.findings
    assert "RLK602" not in codes(report)
    assert report.output is not None
    python = installed(Path(report.output.path), tmp_path / "venv")
    program = python.parent / "demo-prog"
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("41\n", "")
    traced = subprocess.run(
        [program], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, check=True
    )
    assert f"libc.so.6 => {prefix}/lib/libc.so.6" in traced.stdout


@SLOW
def test_a_loader_that_does_not_look_beside_itself(works: Works, tmp_path: Path) -> None:
    loader = copy_glibc(tmp_path / "glibc", "libc.so.6")
    wheel = works.wheel(tmp_path, {"demo-1.0.data/scripts/demo-prog": works.program})
    report = relink(wheel, works.options(tmp_path / "out", interpreter=str(loader)))
    assert [item.code for item in report.findings if item.level != "info"] == []
    python = installed(Path(report.path or ""), tmp_path / "venv")
    program = python.parent / "demo-prog"
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "41\n"
    traced = {"LD_TRACE_LOADED_OBJECTS": "1"}
    run = subprocess.run([program], env=traced, capture_output=True, text=True, check=True)
    assert f"libc.so.6 => {tmp_path}/glibc/libc.so.6" in run.stdout


def _sysroot(works: Works, root: Path) -> Path:
    """A system of a C library and a ROCm, with absolute links that mean something else outside."""
    target = find_target()
    libraries = Path(target.libc_directory)
    if target.libc_directory not in target.directories:
        pytest.skip("this host's C library is not in its loader's own directories")
    loader = copy_glibc(root / libraries.relative_to("/"), "libc.so.6")
    named = root / target.interpreter.lstrip("/")
    if not named.exists():
        named.parent.mkdir(parents=True, exist_ok=True)
        named.symlink_to("/" + str(loader.relative_to(root)))
    rocm = root / "opt" / "rocm-7.2.4"
    (rocm / ".info").mkdir(parents=True)
    (rocm / ".info" / "version").write_text("7.2.4\n")
    (rocm / "lib").mkdir()
    for name in ("libhip.so.7", "libdeep.so.1"):
        (rocm / "lib" / name).write_bytes((works.prefix / "lib" / name).read_bytes())
    (root / "opt" / "rocm").symlink_to("/opt/rocm-7.2.4")
    return root


def _can_enter_sysroots() -> bool:
    enter = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    try:
        return (
            subprocess.run([*enter, "chroot", "/", "true"], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("outside", [False, True])
def test_a_sysroot(works: Works, tmp_path: Path, outside: bool) -> None:
    """The prefix may be given as seen from outside or inside; what is written is as seen inside."""
    root = _sysroot(works, tmp_path / "root")
    prefix = f"{root}/opt/rocm" if outside else "/opt/rocm"
    options = Options(prefixes=(prefix,), sysroot=str(root), output_directory=tmp_path / "out")
    report = relink(works.wheel(tmp_path), options)
    assert report.ok, report.findings
    assert ("RLK602" in codes(report)) == (not _can_enter_sysroots())
    assert (report.target.sysroot, report.target.interpreter) == (str(root), find_target().interpreter)
    image = read_image(content(tmp_path / "out" / OUTPUT, "demo/a.so"), "demo/a.so")
    assert image.search_path == "/opt/rocm/lib"
    assert not list(root.rglob("relink-*"))


@SLOW
def test_a_sysroot_entered_by_a_plain_user(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if subprocess.run(["unshare", "--map-root-user", "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    root = _sysroot(works, tmp_path / "root")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    options = Options(prefixes=("/opt/rocm",), sysroot=str(root), output_directory=tmp_path / "out")
    report = relink(works.wheel(tmp_path), options)
    assert report.ok, report.findings
    assert "RLK602" not in codes(report)


@SLOW
def test_what_runs_in_a_sysroot_runs(works: Works, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change its root directory")
    root = _sysroot(works, tmp_path / "root")
    options = Options(prefixes=("/opt/rocm",), sysroot=str(root), output_directory=tmp_path / "out")
    relink(works.wheel(tmp_path), options)
    program = root / "prog"
    program.write_bytes(content(tmp_path / "out" / OUTPUT, "demo/bin/prog"))
    program.chmod(0o755)
    run = subprocess.run(["chroot", root, "/prog"], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("41\n", "")


def test_a_listener_is_told_how_far_it_is(works: Works, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    stages: list[str] = []
    vendor = works.wheel(tmp_path)
    relink(
        vendor,
        works.options(tmp_path / "out"),
        on_stage=stages.append,
        on_bytes=lambda done, total: heard.append((stages[-1], done, total)),
    )
    with WheelArchive(vendor) as archive:
        sizes = {name: member.size for name, member in archive.members.items()}
    elf = [size for name, size in sizes.items() if name.endswith((".so", "prog"))]
    reading = [(done, total) for stage, done, total in heard if stage == "read"]
    assert reading[-1] == (sum(elf), sum(elf))
    assert len(reading) >= len(elf)
    writing = [(done, total) for stage, done, total in heard if stage != "read"]
    (total,) = {total for _, total in writing}
    assert sum(sizes.values()) < total <= 2 * sum(sizes.values())
    assert writing[-1][0] > 0.9 * total
    for reported in (reading, writing):
        assert reported == sorted(reported)
    # What has been edited is deflated from then on.
    assert {stage for stage, _, _ in heard} <= {"read", "edit", "write", "verify", "publish"}
    assert stages == ["target", "read", "plan", "edit", "write", "verify", "publish"]


def test_the_gpus_of_this_machine_are_looked_at_unasked(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(requested_gpus(["gfx1031"])[0], local=True, asked=False)
    monkeypatch.setattr("relink.runs.relink_wheel.find_local_gpus", lambda: (here,))

    def targets(**more: Any) -> list[str]:
        report = relink(works.small(tmp_path), works.options(tmp_path, dry_run=True, **more))
        assert report.isa is not None
        return [gpu["target"] for gpu in report.isa["gpus"]]

    assert targets() == ["gfx1031"]
    assert targets(gpus=("gfx1100",)) == ["gfx1100"]
    assert targets(sysroot="/") == []


# Version records


@pytest.fixture
def copies(works: Works, tmp_path: Path) -> tuple[Path, Options]:
    """A wheel that was built against AMD's copy of libnuma, and a prefix with the system's."""
    nodes, copied = tmp_path / "numa.map", tmp_path / "copy.map"
    nodes.write_text("libnuma_1.1 { global: numa_available; };")
    copied.write_text("AMDROCM_SYSDEPS_1.0_libnuma_1.1 { global: numa_available; };")
    source = "int numa_available(void){return 1;}"
    prefix = shutil.copytree(works.prefix, tmp_path / "rocm")
    shared(prefix / "lib/libnuma.so.1", source, flags=[f"-Wl,--version-script={nodes}"])
    script = f"-Wl,--version-script={copied}"
    copy = shared(tmp_path / "old/librocm_sysdeps_numa.so.1", source, flags=[script])
    user = "extern int hip(void), numa_available(void); int g(void){return hip() + numa_available();}"
    library = shared(
        tmp_path / "members/a.so", user, needed=[works.prefix / "lib/libhip.so.7", copy], flags=[VENDOR_PATH]
    )
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": library})
    return wheel, Options(prefixes=(str(prefix),), output_directory=tmp_path / "out")


@pytest.mark.usefixtures("works")
def test_the_systems_library_takes_the_place_of_amds_copy(copies: tuple[Path, Options]) -> None:
    wheel, options = copies
    report = relink(wheel, options)
    assert report.ok, report.findings
    assert report.verified == 1
    assert report.output is not None
    output = Path(report.output.path)
    with zipfile.ZipFile(output) as archive:
        symbols = read_symbols(archive.read("demo/a.so"))
    numa = next(item for item in symbols.imports if item.name == "numa_available")
    assert (numa.version, numa.file) == ("libnuma_1.1", "libnuma.so.1")
    assert diff(wheel, output, options).ok


@pytest.mark.usefixtures("works")
def test_a_version_record_that_the_loader_does_not_take_is_not_published(
    copies: tuple[Path, Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an edit was planned that the loader refuses, nothing is written."""
    wheel, options = copies
    wrong = VersionEdit("librocm_sysdeps_numa.so.1", "AMDROCM_SYSDEPS_1.0_libnuma_1.1", "libnuma.so.1", "1.1")
    monkeypatch.setattr(evidence, "version_moves", lambda *_: ([wrong], []))
    report = relink(wheel, options)
    assert not report.ok
    assert report.output is None


@SLOW
def test_of_several_places_the_one_that_fits_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is taken, since another wheel may need another one; the command was planned."""
    runtime = "int hipMalloc(void){return 0;}"
    new, old = (shared(tmp_path / f"rocm{major}/lib/libamdhip64.so.{major}", runtime) for major in (7, 6))
    places = [Place(str(path.parents[1]), "/opt") for path in (old, new)]
    monkeypatch.setattr("relink.vendors.rocm.places.find_places", lambda *_: places)
    source = "int hipMalloc(void); int f(void){return hipMalloc();}"
    wheel = make_wheel(tmp_path, {"demo/a.so": shared(tmp_path / "a.so", source, needed=[new])})
    code, out, err = run(wheel, "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    first, *_, last = err.splitlines()
    assert first == "relink: several ROCms are here; choose one by --prefix, or set ROCM_PATH"
    assert (
        f"  - --prefix {places[0].path}  ROCm of an unknown release, found in /opt; lacks {new.name}" in err
    )
    command = shlex.join(["relink", str(wheel), "-o", str(tmp_path / "out"), "--prefix", places[1].path])
    assert last == f"Next: {command}"
    assert run(*shlex.split(command)[1:])[0] == 0
    with pytest.raises(UsageError) as caught:
        relink(wheel, Options(output_directory=tmp_path / "out"))
    assert "Next" not in str(caught.value), "the library has no command to repeat"
    new.unlink()
    shared(new, "int hipOther(void){return 0;}")
    assert "Next" not in run(wheel)[2], "it would be refused"
