"""relink diff against an attacker who makes the new wheel, its plan and its SBOM alike, and hides something in the archive."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relink import relink
from relink.comparison import diff
from relink.comparison.reference import Reference, plan_again, plan_of_file
from relink.elf.image import read_image
from relink.elf.patchelf import apply_edit
from relink.errors import RelinkError, UsageError
from relink.plans.model import Plan, RpathChange, from_json, to_json
from relink.provenance import PLAN_MEMBER, SBOM_MEMBER, json_bytes
from relink.report import diff_text
from relink.report.diff_text import WheelDiff
from relink.report.model import to_json as report_json
from relink.report.sbom import bill_of_materials
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Addition, Changes, Replacement
from relink.wheel.naming import parse_wheel_name
from relink.wheel.writer import write_wheel
from tests.support.command import Run
from tests.support.plans import planned_as
from tests.support.works import Works

INFO = "demo-1.0+rocm7.2.4.dist-info"
EVIL = "/tmp/evil/lib"  # noqa: S108 never made


@pytest.fixture(scope="module")
def pair(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("pair")
    vendor = works.wheel(directory)
    report = relink(vendor, works.options(directory / "out"))
    assert report.output is not None
    (directory / "report.json").write_text(json.dumps(report_json(report)))
    return vendor, Path(report.output.path)


def plan_inside(wheel: Path) -> Plan:
    with zipfile.ZipFile(wheel) as archive:
        return from_json(archive.read(f"{INFO}/{PLAN_MEMBER}").decode())


def written(old: Path, plan: Plan, directory: Path) -> Path:
    """What relink itself would write if `plan` were what it had decided."""
    directory.mkdir()
    name = parse_wheel_name(plan.output)
    with WheelArchive(old) as archive:
        replacements = {}
        for number, file in enumerate(file for file in plan.files if file.changed):
            data = archive.read(file.path)
            path = directory / f"{number}.elf"
            path.write_bytes(data)
            apply_edit(path, file.edit, read_image(data, file.path), data)
            replacements[file.path] = Replacement(path.read_bytes())
        additions = {
            f"{INFO}/{PLAN_MEMBER}": Addition(json_bytes(to_json(plan))),
            f"{INFO}/{SBOM_MEMBER}": Addition(json_bytes(bill_of_materials(plan, str(name.version)))),
        }
        return write_wheel(archive, directory, Changes(name, replacements, additions)).path


def attacked(pair: tuple[Path, Path], directory: Path) -> Path:
    """The plan with one more directory, in front; ELF file, plan and SBOM say the same."""
    plan = plan_inside(pair[1])
    files = []
    for file in plan.files:
        if file.path == "demo/a.so":
            after = f"{EVIL}:{file.rpath.after}"
            rpath = RpathChange(file.rpath.before, after, file.rpath.kind_before, file.rpath.kind_after)
            files.append(planned_as(file, rpath=rpath))
        else:
            files.append(file)
    return written(pair[0], replace(plan, files=tuple(files)), directory)


def shown(found: WheelDiff) -> list[str]:
    return [line.plain for line in diff_text.to_text(found)]


def references(pair: tuple[Path, Path], works: Works, directory: Path) -> dict[str, Reference]:
    saved = directory / "plan.json"
    saved.write_bytes(json_bytes(to_json(plan_inside(pair[1]))))
    dry = json.loads((pair[0].parent / "report.json").read_text()) | {"output": None}
    (directory / "dry.json").write_text(json.dumps(dry))
    return {
        "a saved plan": plan_of_file(saved),
        "a report": plan_of_file(pair[0].parent / "report.json"),
        "a report of a dry run": plan_of_file(directory / "dry.json"),
        "a wheel": plan_of_file(pair[1]),
        "made anew": plan_again(pair[0], works.options(directory)),
    }


def test_what_the_attacker_brings_in_is_told(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    """The plan inside explains everything, since the attacker wrote it: the verdict says whose it is, and names the directory."""
    new = attacked(pair, tmp_path / "new")
    found = diff(pair[0], new)
    assert (found.verdict, found.unexplained, found.reference) == ("only what the plan says", (), None)
    lines = shown(found)
    assert lines[-1].startswith("only what the plan inside of NEW says")
    assert "whoever made NEW wrote that plan" in lines[-1]
    assert f"brings in  {EVIL}  search path of demo/a.so" in lines
    assert {(place.path, place.kind) for place in found.brings} == {
        (EVIL, "search path"),
        (str(works.prefix / "lib"), "search path"),
        (plan_inside(new).target.interpreter, "interpreter"),
    }


@pytest.mark.few(2, reason="the same comparison with a plan from elsewhere")
@pytest.mark.parametrize(
    "kind", ["a saved plan", "a report", "a report of a dry run", "a wheel", "made anew"]
)
def test_a_plan_of_ones_own_tells_the_attackers(
    pair: tuple[Path, Path], works: Works, tmp_path: Path, kind: str
) -> None:
    reference = references(pair, works, tmp_path)[kind]
    good = diff(*pair, reference=reference)
    assert (good.verdict, good.unexplained, good.reference) == (
        "only what the plan says",
        (),
        reference.source,
    )
    assert shown(good)[-1].endswith(f"; the plan is {reference.source}")
    found = diff(pair[0], attacked(pair, tmp_path / "new"), reference=reference)
    assert not found.ok
    assert any(text.startswith("demo/a.so: bytes ") for text in found.unexplained), found.unexplained
    assert any(
        text.startswith(f"{INFO}/{PLAN_MEMBER}: demo/a.so: another edit") for text in found.unexplained
    )


@pytest.mark.few(3, reason="other fields of the same plan")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: replace(plan, target=replace(plan.target, interpreter="/evil/ld.so")), "interpreter of the target"),
        (lambda plan: replace(plan, target=replace(plan.target, sysroot="/evil")), "root of the target"),
        (lambda plan: replace(plan, providers=()), "providers"),
        (lambda plan: replace(plan, files=plan.files[1:]), "demo/a.so: is not in it"),
        (lambda plan: replace(plan, files=(replace(plan.files[0], path="x"), *plan.files[1:])), "does not have it"),
        (lambda plan: replace(plan, files=(replace(plan.files[0], closure=()), *plan.files[1:])), "another closure"),
        (lambda plan: replace(plan, output="x.whl"), "output 'x.whl'"),
    ],
)  # fmt: skip
def test_a_plan_inside_that_says_otherwise(
    pair: tuple[Path, Path], tmp_path: Path, change: Callable[[Plan], Plan], said: str
) -> None:
    """`relink verify` asks the loader that the plan inside names: it counts, though no edit comes of it."""
    plan = plan_inside(pair[1])
    inside = json_bytes(to_json(change(plan)))
    name = f"{INFO}/{PLAN_MEMBER}"
    forged = rezipped(pair[1], tmp_path / "forged", contents={name: inside})
    found = diff(pair[0], forged, reference=Reference(plan, "mine"))
    assert any(text.startswith(f"{name}: ") and said in text for text in found.unexplained), found.unexplained


def test_no_plan_inside(pair: tuple[Path, Path], tmp_path: Path) -> None:
    reference = Reference(plan_inside(pair[1]), "mine")
    name = f"{INFO}/{PLAN_MEMBER}"
    without = diff(pair[0], rezipped(pair[1], tmp_path / "1", without={name}), reference=reference)
    assert f"{name}: is not there" in without.unexplained
    broken = diff(pair[0], rezipped(pair[1], tmp_path / "2", contents={name: b"{"}), reference=reference)
    assert f"{name}: is no JSON" in broken.unexplained
    same = diff(pair[0], pair[0], reference=reference)
    assert "demo/a.so: the plan changes it, and it has not changed" in same.unexplained


def test_a_plan_that_cannot_be_compared_with(pair: tuple[Path, Path], works: Works, tmp_path: Path) -> None:
    other = works.small(tmp_path / "other")
    with pytest.raises(UsageError, match="the plan was made for another wheel"):
        diff(other, pair[1], reference=Reference(plan_inside(pair[1]), "mine"))
    with pytest.raises(UsageError, match="there is no plan in it"):
        plan_of_file(pair[0])
    for content in (b"{}", b"x", b"[1]", b"\xff"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(RelinkError):
            plan_of_file(tmp_path / "x.json")
    with pytest.raises(UsageError, match="cannot be read"):
        plan_of_file(tmp_path / "none.json")


def test_the_command(pair: tuple[Path, Path], works: Works, run: Run, tmp_path: Path) -> None:
    new = attacked(pair, tmp_path / "new")
    code, out, _ = run("diff", pair[0], new)
    assert code == 0
    assert f"brings in  {EVIL}  search path of demo/a.so" in out.splitlines()
    for words in (("--prefix", works.prefix), ("--plan", pair[1])):
        code, out, _ = run("diff", pair[0], new, *words)
        assert code == 1
        assert "another edit" in out
    code, out, _ = run("diff", "--help")
    assert "written by whoever made NEW" in " ".join(out.split())


# The archive itself


def rezipped(
    wheel: Path,
    directory: Path,
    *,
    entry: Callable[[zipfile.ZipInfo], object] = lambda _: None,
    order: Callable[[list[str]], list[str]] = lambda names: names,
    contents: dict[str, bytes] | None = None,
    without: set[str] | frozenset[str] = frozenset(),
    comment: bytes = b"",
) -> Path:
    """The wheel once more by :mod:`zipfile`, everything but the compressed bytes as it was, or as it is asked for."""
    directory.mkdir()
    path = directory / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as sink:
        sink.comment = comment
        for name in order([name for name in source.namelist() if name not in without]):
            old = source.getinfo(name)
            item = zipfile.ZipInfo(name, old.date_time)
            item.compress_type, item.create_system = old.compress_type, old.create_system
            item.external_attr = old.external_attr
            entry(item)
            sink.writestr(item, (contents or {}).get(name, source.read(name)))
    return path


def on(member: str, **facts: object) -> Callable[[zipfile.ZipInfo], object]:
    def edit(item: zipfile.ZipInfo) -> None:
        if item.filename == member:
            for name, value in facts.items():
                setattr(item, name, value)

    return edit


def unlike(found: WheelDiff) -> set[str]:
    """What is said beside that zlib's bytes are not those that were there."""
    return {text for text in found.unexplained if "compressed anew" not in text}


ARCHIVES = {
    "time of a copied member": (
        {"entry": on("demo/plain.so", date_time=(2001, 2, 3, 4, 5, 6))},
        "time of 1 members: demo/plain.so: ",
        "demo/plain.so: time 2001-02-03 04:05:06, relink writes",
    ),
    "time of a written member": (
        {"entry": on("demo/a.so", date_time=(2001, 2, 3, 4, 5, 6))},
        "time of 1 members: demo/a.so: ",
        "have several times",
    ),
    "system": (
        {"entry": on("demo/plain.so", create_system=0)},
        "create_system of 1 members: demo/plain.so: Unix -> DOS",
        "demo/plain.so: create_system DOS, relink writes Unix",
    ),
    "system of an added member": (
        {"entry": on(f"{INFO}/{PLAN_MEMBER}", create_system=0)},
        "create_system of 1 members: ",
        "create_system DOS, relink writes Unix",
    ),
    "method of a copied member": (
        {"entry": on("demo/plain.so", compress_type=0)},
        "method of 1 members: demo/plain.so: deflated -> stored",
        "demo/plain.so: method stored, relink writes deflated",
    ),
    "method of a written member": (
        {"entry": on("demo/a.so", compress_type=0)},
        "method of 1 members: demo/a.so: ",
        "demo/a.so: method stored, relink writes deflated",
    ),
    "extra fields": (
        {"entry": on("demo/plain.so", extra=b"\xfe\xca\x04\x00evil")},
        "extra fields of 1 members: demo/plain.so: none -> 0xcafe (4 bytes), local 0xcafe (4 bytes)",
        "demo/plain.so: extra fields 0xcafe (4 bytes)",
    ),
    "bytes that are no field": (
        {"entry": on("demo/plain.so", extra=b"abc")},
        "extra fields of 1 members: demo/plain.so: none -> 3 bytes that are no field",
        "demo/plain.so: extra fields 3 bytes that are no field",
    ),
    "comment of a member": (
        {"entry": on("demo/plain.so", comment=b"evil\n")},
        "comment of 1 members: demo/plain.so: none -> 5 bytes b'evil\\n'",
        "demo/plain.so: comment 5 bytes",
    ),
    "comment of the archive": (
        {"comment": b"evil"},
        "comment of the archive: none -> 4 bytes b'evil'",
        "the archive has a comment, 4 bytes b'evil'",
    ),
    "order": (
        {"order": lambda names: [names[1], names[0], *names[2:]]},
        "order of members: demo/a.so where demo/__init__.py was",
        "relink does not write demo/a.so where demo/__init__.py was",
    ),
    "RECORD is not last": (
        {"order": lambda names: [names[-1], *names[:-1]]},
        "order of members: ",
        "order of members: relink does not write",
    ),
    "attributes": (
        {"entry": on("demo/plain.so", external_attr=0o100755 << 16 | 0x22)},
        "attributes of 1 members: demo/plain.so: 0x0000, internal 0x0000 -> 0x0022",
        "demo/plain.so: attributes 0x0022",
    ),
    "internal attributes": (
        {"entry": on("demo/plain.so", internal_attr=1)},
        "attributes of 1 members: demo/plain.so: ",
        "demo/plain.so: attributes 0x0000, internal 0x0001",
    ),
    "version": (
        {"entry": on("demo/plain.so", create_version=63)},
        "ZIP versions of 1 members: demo/plain.so: ",
        "demo/plain.so: ZIP versions 63, 20",
    ),
}


@pytest.mark.few(4, reason="other fields of the same headers; test_container reads each")
@pytest.mark.parametrize("kind", ARCHIVES)
def test_what_the_archive_has_beside_its_contents(pair: tuple[Path, Path], tmp_path: Path, kind: str) -> None:
    """Told of any two wheels; and not accounted for where relink does not write it."""
    how, told, unexplained = ARCHIVES[kind]
    base = rezipped(pair[1], tmp_path / "base")
    assert unlike(diff(pair[0], base)) == set()
    new = rezipped(pair[1], tmp_path / "new", **how)  # type: ignore[arg-type]
    assert any(unexplained in text for text in unlike(diff(pair[0], new)))
    found = diff(base, new)
    assert (found.verdict, found.ok) == ("same content", True)
    assert any(line.startswith(told) for line in found.archive), found.archive
    assert {f"archive  {line}" for line in found.archive} <= {*shown(found)}


def test_bytes_compressed_anew(works: Works, tmp_path: Path) -> None:
    """A member that relink copies has the vendor's compressed bytes."""
    vendor = works.wheel(tmp_path, {"demo/a.so": works.library, "demo/x.py": b"x = 1\n" * 5000})
    report = relink(vendor, works.options(tmp_path / "out"))
    assert report.output is not None
    new = rezipped(
        Path(report.output.path), tmp_path / "new", entry=lambda item: setattr(item, "_compresslevel", 1)
    )
    assert "demo/x.py: compressed anew, relink copies it" in diff(vendor, new).unexplained
    assert any(line.startswith("compressed anew: ") for line in diff(Path(report.output.path), new).archive)


def reversed_lines(data: bytes) -> bytes:
    *lines, last = data.splitlines(keepends=True)
    return b"".join([*reversed(lines), last])


@pytest.mark.few(1, reason="other forms of the same file")
@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda data: data.replace(b"\n", b"\r\n"), r"line ends of RECORD: \n -> \r\n"),
        (lambda data: data[:-1], r"line ends of RECORD: \n -> \n, the last line without"),
        (reversed_lines, "order of RECORD's lines"),
        (lambda data: data.replace(b"demo/a.so,", b'"demo/a.so",'), None),
    ],
)  # fmt: skip
def test_the_form_of_record(
    pair: tuple[Path, Path], tmp_path: Path, edit: Callable[[bytes], bytes], line: str | None
) -> None:
    name = f"{INFO}/RECORD"
    with zipfile.ZipFile(pair[1]) as archive:
        record = edit(archive.read(name))
    new = rezipped(pair[1], tmp_path / "new", contents={name: record})
    (text,) = unlike(diff(pair[0], new))
    assert (
        text == f"{name}: its lines are not in the order of the members, or not written as relink writes them"
    )
    found = [text for text in diff(pair[1], new).archive if not re.search("compressed", text)]
    assert found == ([line] if line else [])
