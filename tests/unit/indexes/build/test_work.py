"""index.work: one task in this process; tests/unit/indexes/build/test_building.py has whole runs."""

from __future__ import annotations

import hashlib
import os
import pickle
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from relink.indexes.build.recipe import IndexTarget
from relink.indexes.build.web import FetchError, ListedWheel, PipSettings, Web
from relink.indexes.build.work import (
    TargetState,
    TargetTask,
    TaskOutcome,
    WheelTask,
    digest_of,
    fetch_wheel,
    fingerprints,
    is_still_valid,
    number_version,
    open_digests,
    record_of,
    record_of_error,
    relink_wheel,
    state_of,
)
from relink.indexes.install.installers import cache_directory
from relink.python.facts_cache import FactsCache
from relink.report.model import Report
from relink.system import safe_open as files
from relink.system.errors import RelinkError, UsageError, WheelError
from relink.system.findings.model import Finding
from relink.vendors.registry import VENDORS
from relink.wheel.naming import parse_wheel_name, relinked_name
from tests.support.cc import shared
from tests.support.reports import isa_block, sample_report
from tests.support.web_server import Answer, WebServer
from tests.support.works import Works


def test_content_and_not_time(works: Works, tmp_path: Path) -> None:
    prefix = tmp_path / "rocm"
    shutil.copytree(works.prefix, prefix)
    target = IndexTarget("one", (str(prefix),))
    first = state_of(target, FactsCache(None))
    assert sorted(map(os.path.basename, first.libraries)) == ["libdeep.so.1", "libhip.so.7"]
    assert first.paths == (str(prefix),)
    for path in prefix.rglob("*"):
        os.utime(path)
    assert state_of(target, FactsCache(None)).fingerprint == first.fingerprint
    (prefix / "lib" / "rocblas").mkdir()
    (prefix / "lib" / "rocblas" / "kernels.dat").write_bytes(b"x")
    with_data = state_of(target, FactsCache(None))
    # A whole /usr has files of any other package below its lib.
    (prefix / "lib" / "python3").mkdir()
    (prefix / "lib" / "python3" / "other.txt").write_bytes(b"x")
    assert state_of(target, FactsCache(None)).data == with_data.data
    assert (with_data.libraries, with_data.data == first.data) == (first.libraries, False)
    shared(prefix / "lib" / "libdeep.so.1", "int deep(void){return 7;}")
    assert state_of(target, FactsCache(None)).fingerprint != with_data.fingerprint
    (prefix / ".info" / "version").write_text("7.2.5-1\n")
    assert state_of(target, FactsCache(None)).release != with_data.release


STATE = TargetState(
    {"/r/libx.so.1": "aa", "/r/liby.so.1": "bb"},
    "data",
    "loader",
    "release",
    "x86_64",
    "/",
    ("/r",),
    "rocm7.2.4",
)
RESTS = {
    "library /r/libx.so.1": "aa",
    "stem libx.so": "/r/libx.so.1",
    "stem libz.so": "",
    "loader": "loader",
    "release": "release",
}


@pytest.mark.parametrize(
    ("rests", "state", "expected"),
    [
        (RESTS, STATE, True),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/liby.so.1": "cc"}), True),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/libx.so.1": "cc"}), False),
        (RESTS, replace(STATE, libraries={"/r/liby.so.1": "bb"}), False),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/libz.so.3": "dd"}), False),
        (RESTS, replace(STATE, libraries={**STATE.libraries, "/r/liba.so.3": "dd"}), True),
        (RESTS | {"odd": "x"}, STATE, False),
        (RESTS, replace(STATE, data="other"), True),
        (RESTS | {"data": "data"}, replace(STATE, data="other"), False),
        (RESTS, replace(STATE, loader="other"), False),
        (RESTS, replace(STATE, release="other"), False),
        (RESTS | {"fingerprint": STATE.fingerprint}, STATE, True),
        (RESTS | {"fingerprint": STATE.fingerprint}, replace(STATE, libraries={"/r/libx.so.1": "aa"}), False),
        (RESTS | {"library /nowhere/libx.so.1": "aa"}, STATE, False),
    ],
)  # fmt: skip
def test_what_a_result_rests_on(rests: dict[str, str], state: TargetState, expected: bool) -> None:
    assert is_still_valid(rests, state, FactsCache(None)) is expected


def test_each_content_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = files.file_sha256

    def counted(path: str, limit: int) -> str:
        read.append(path)
        return real(path, limit)

    monkeypatch.setattr("relink.indexes.build.work.file_sha256", counted)
    file = tmp_path / "x"
    file.write_bytes(b"one")
    place = tmp_path / "d.sqlite"
    first = open_digests(place)
    expected = hashlib.sha256(b"one").hexdigest()
    assert digest_of(first, str(file)) == digest_of(first, str(file)) == expected
    first.close()
    second = open_digests(place)
    assert digest_of(second, str(file)) == expected
    assert len(read) == 1
    times = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # the same size and time: its ctime tells
    assert digest_of(second, str(file)) == hashlib.sha256(b"two").hexdigest()
    second.close()


def test_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one")
    (tmp_path / "d.sqlite").write_bytes(b"no database, but something else" * 100)
    for place in (tmp_path / "d.sqlite", tmp_path / "x" / "d.sqlite"):
        found = open_digests(place)
        assert digest_of(found, str(tmp_path / "x")) == hashlib.sha256(b"one").hexdigest()
        found.close()
    with pytest.raises(UsageError, match="cannot be read"):
        digest_of(FactsCache(None), str(tmp_path))


def copied(value: Any) -> Any:
    """What comes out of another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (relink's own)


def task_of(works: Works, wheel: Path, files: Path) -> WheelTask:
    target = IndexTarget("one", (str(works.prefix),))
    files.mkdir(exist_ok=True)
    listed = ListedWheel(parse_wheel_name(wheel.name), wheel.as_uri())
    own = TargetTask(target, fingerprints((target,), str(files))["one"], 3)
    return WheelTask(listed, (own,), str(files), True, PipSettings(), 1 << 30)


def outcome_of(task: WheelTask) -> TaskOutcome:
    (outcome,) = relink_wheel(task)[2].values()
    return outcome


def test_a_task_in_another_process_is_the_same(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    task = task_of(works, wheel, tmp_path / "files")
    first = relink_wheel(copied(task))
    again = copied(relink_wheel(task))
    assert first[:2] == (
        hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel.stat().st_size,
    )
    one, two = first[2]["one"], again[2]["one"]
    assert one.status == "written"
    assert one.record["file"]["filename"].startswith("demo-1.0+rocm7.2.4.3-")
    assert one.record["file"] == two.record["file"]
    assert one.rests == two.rests
    assert list((tmp_path / "files").glob(".relink-*")) == []


def test_labels_sort_by_their_number() -> None:
    """All that relink writes into one index: of each release, after whatever label the vendor's wheel has."""
    for release in ("rocm6.4", "rocm7.2.4", "rocm7.14.0", "rocm10.0.0", "relinked"):
        for vendor in ("1.0", "1.0+rocm6.1", "1.0+rocm7.2.4.git12ab", "1.0+cpu", "1!2.0rc1"):
            name = parse_wheel_name(f"demo-{vendor}-py3-none-linux_x86_64.whl")
            plain = relinked_name(
                name, local=release, platform="linux_x86_64", replaces=VENDORS[0].packages.version_label
            )
            versions = [parse_wheel_name(number_version(plain, number)).version for number in range(1, 120)]
            assert sorted(versions, key=lambda version: (version, str(version))) == versions
            assert len(set(versions)) == len(versions)
            assert plain.version < versions[0]
            assert str(versions[9]).startswith(f"{plain.version}")


def test_a_foreign_prefix(works: Works, tmp_path: Path) -> None:
    task = task_of(works, works.small(tmp_path), tmp_path / "files")
    (own,) = task.targets
    with pytest.raises(RelinkError, match="other content"):
        relink_wheel(replace(task, targets=(replace(own, fingerprint="0" * 64),)))
    gone = replace(own, target=replace(own.target, prefixes=("/nowhere",)))
    with pytest.raises(RelinkError, match="no such directory"):
        relink_wheel(replace(task, targets=(gone,)))
    said = fingerprints((own.target, gone.target), "/nowhere")
    assert said == {"one": "/nowhere cannot be written here"}


def test_a_wheel_that_is_gone_or_another_one(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    task = task_of(works, wheel, tmp_path / "files")
    with pytest.raises(FetchError, match="the source says 00"):
        relink_wheel(replace(task, wheel=replace(task.wheel, sha256="00")))
    wheel.write_bytes(b"none")
    assert outcome_of(task).status == "refused"
    wheel.unlink()
    with pytest.raises(FetchError):
        relink_wheel(task)
    for error in (FetchError("x", missing=True), WheelError("x", ["y"])):
        assert str(copied(error)) == str(error)


def test_what_a_machine_cannot_do_is_not_refused(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output that cannot be written (UsageError), a loader that disagrees, a cache that cannot be made."""
    task = task_of(works, works.small(tmp_path), tmp_path / "files")
    with monkeypatch.context() as patch:
        patch.setattr("relink.indexes.build.work.carry_out", full)
        outcome = outcome_of(task)
    assert (outcome.status, outcome.record["error"]) == ("failed", "/out: cannot be written (No space left)")
    with monkeypatch.context() as patch:
        finding = Finding("RLK602", "error", "demo/a.so", "the loader maps another file", "")
        patch.setattr("relink.indexes.build.work.carry_out", partial(disagreeing, finding))
        outcome = outcome_of(task)
    assert outcome.status == "failed"
    assert "the loader maps another file" in outcome.record["error"]
    fetched = replace(task, wheel=replace(task.wheel, url="http://127.0.0.1:1/x.whl"))
    (tmp_path / "no").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no"))
    with pytest.raises(UsageError, match="Not a directory"):
        relink_wheel(fetched)


def full(*_: Any) -> Any:
    raise UsageError("/out: cannot be written (No space left)")


def disagreeing(finding: Finding, _wheel: Any, planned: Any, *_: Any) -> Report:
    return Report((), replace(planned.plan, findings=(finding,)), None, planned.isa)


INPUT = parse_wheel_name("demo-1.0-py3-none-any.whl")
RECORDED = IndexTarget("one", ("/a b", "/c"), interpreter="/ld.so", gpus=("RX 6750 XT",), stub=("auto",))


def test_a_command_to_type() -> None:
    words = shlex.split(record_of(sample_report(), INPUT, RECORDED)["command"])
    assert words[:2] == ["relink", "demo==1.0"]
    assert words[2:] == [
        *("--prefix", "/a b", "--prefix", "/c", "--interpreter", "/ld.so"),
        *("--gpu", "RX 6750 XT", "--stub", "auto"),
    ]


def test_what_is_kept_is_short() -> None:
    block = isa_block()
    block["gpus"] = [{"target": "gfx9", "state": "slow"}]
    record = record_of(replace(sample_report(gone=20), isa=block), INPUT, RECORDED)
    assert record["gpus"] == {"gfx9": "slow"}
    assert {text.split()[1] for text in record["causes"]} <= {"error:", "warning:"}
    many = tuple(f"demo/{number}.so" for number in range(9))
    findings = tuple(Finding("RLK130", "error", name, "m" * 9999, "r.") for name in many)
    report = sample_report()
    (text,) = record_of(replace(report, plan=replace(report.plan, findings=findings)), INPUT, RECORDED)[
        "causes"
    ]
    assert text == f"RLK130 error: {'m' * 1200} ({', '.join(many[:6])} and 3 more). r."
    shown = record_of_error(WheelError("x" * 9999))
    assert len(shown["verdict"]["text"]) == len(shown["causes"][0]) - len("error: .") == 1200


def test_a_directory_of_a_task_is_not_kept() -> None:
    text = record_of(sample_report(output=True), INPUT, RECORDED)["verdict"]["text"]
    assert "Written to demo-1.0+rocm7.whl" in text


NAME = "demo-1.0-py3-none-any.whl"
CONTENT = bytes(range(256)) * 4096
SIZE = 1 << 30


def listed(server: WebServer, content: bytes = CONTENT) -> ListedWheel:
    server.answers[f"/{NAME}"] = Answer(content)
    return ListedWheel(
        parse_wheel_name(NAME), f"{server.url}/{NAME}", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
    )


def left_behind() -> list[str]:
    return [path.name for path in (cache_directory() / "partial").iterdir() if path.is_dir()]


@pytest.mark.parametrize("sized", [True, False])
def test_a_cut_connection_is_resumed(server: WebServer, sized: bool) -> None:
    wheel = listed(server)
    wheel = wheel if sized else replace(wheel, size=None)
    server.answers[f"/{NAME}"].cut = [700_000, 300_000]
    found = fetch_wheel(wheel, Web(), SIZE)
    assert found.path.read_bytes() == CONTENT
    assert found.path.name == NAME
    assert [headers.get("Range") for _, headers in server.asked] == [None, "bytes=300000-", "bytes=1000000-"]
    assert left_behind() == []
    assert fetch_wheel(wheel, Web(), SIZE) == found
    assert len(server.asked) == 3


def test_what_a_killed_process_left_is_used(server: WebServer) -> None:
    wheel = listed(server)
    place = cache_directory() / "partial" / str(wheel.sha256)
    place.mkdir(parents=True)
    (place / NAME).write_bytes(CONTENT[:500_000])
    assert fetch_wheel(wheel, Web(), SIZE).path.read_bytes() == CONTENT
    assert server.asked[0][1]["Range"] == "bytes=500000-"


def test_a_wrong_hash_is_not_taken(server: WebServer) -> None:
    wheel = listed(server, CONTENT[::-1])
    with pytest.raises(FetchError, match="and the source says"):
        fetch_wheel(wheel, Web(), SIZE)
    assert list(cache_directory().glob("**/*.whl")) == []
    server.answers[f"/{NAME}"] = Answer(CONTENT)
    assert fetch_wheel(wheel, Web(), SIZE).path.read_bytes() == CONTENT
    assert "Range" not in server.asked[-1][1]


def test_more_than_was_promised(server: WebServer) -> None:
    wheel = listed(server)
    server.answers[f"/{NAME}"] = Answer(CONTENT, endless=True)
    with pytest.raises(FetchError, match="larger than the 1048576 bytes"):
        fetch_wheel(wheel, Web(), SIZE)
    assert list(cache_directory().glob("**/*.whl")) == []
    assert len(server.asked) == 1


def test_a_server_that_never_sends_all(server: WebServer) -> None:
    wheel = listed(server)
    server.answers[f"/{NAME}"].cut = [10] * 100
    with pytest.raises(FetchError, match="cannot be read"):
        fetch_wheel(wheel, Web(), SIZE)


def test_a_file_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(CONTENT)
    wheel = ListedWheel(
        parse_wheel_name(NAME), (tmp_path / NAME).as_uri(), hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
    )
    assert fetch_wheel(wheel, Web(), SIZE).path == tmp_path / NAME
    (tmp_path / NAME).write_bytes(b"")
    with pytest.raises(FetchError, match="and the source says"):
        fetch_wheel(wheel, Web(), SIZE)


def test_the_cache_has_a_size(server: WebServer) -> None:
    first = fetch_wheel(listed(server), Web(), SIZE)
    other = "demo-2.0-py3-none-any.whl"
    server.answers[f"/{other}"] = Answer(b"other")
    second = fetch_wheel(ListedWheel(parse_wheel_name(other), f"{server.url}/{other}"), Web(), 10)
    assert second.path.exists()
    assert not first.path.exists()
