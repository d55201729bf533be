"""The plan as data: JSON and back, edits, digests of libraries in saved plans, the places of stubs; and as a wheel has it."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from relink.elf.edit import ElfEdit, VersionEdit
from relink.library import plan as make_plan
from relink.library import relink
from relink.planning.model import (
    ANY_PYTHON,
    Action,
    FilePlan,
    InterpreterChange,
    Load,
    NeededDecision,
    Plan,
    ProviderFacts,
    RpathChange,
    Stub,
    TargetFacts,
    WheelFacts,
    check_places,
    embed_plan,
    from_json,
    is_plain,
    to_data,
    to_json,
)
from relink.planning.options import Options
from relink.runs.questions import verify_wheel
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, Level, finding
from tests.support.amount import amount
from tests.support.works import OUTPUT, Works

# Names that are not UTF-8 come as surrogates, which JSON can carry as escapes.
TEXT = st.text(st.characters(codec="utf-8") | st.characters(categories=["Cs"]), max_size=8)


NEEDED = st.builds(NeededDecision).filter(lambda entry: entry.action != "substitute" or entry.soname_after)
FILES = st.builds(
    FilePlan,
    needed=st.lists(NEEDED, max_size=4, unique_by=lambda entry: entry.soname).map(tuple),
)
PLANS = st.builds(Plan, files=st.lists(FILES, max_size=3).map(tuple))


@settings(max_examples=amount(80), deadline=None)
@given(PLANS)
def test_a_plan_survives_json(plan: Plan) -> None:
    as_data = to_json(plan)
    assert from_json(as_data) == plan
    text = json.dumps(as_data, sort_keys=True)
    assert from_json(text) == plan
    assert json.dumps(to_json(from_json(text)), sort_keys=True) == text


@settings(max_examples=amount(50), deadline=None)
@given(TEXT)
def test_names_that_are_not_utf_8_survive(text: str) -> None:
    plan = replace(PLAN, output=text)
    assert from_json(json.dumps(to_json(plan))) == plan


def needed(soname: str, action: Action = "keep", after: str | None = "same") -> NeededDecision:
    return NeededDecision(soname, action, soname if after == "same" else after, None, None, "provider")


NOTHING = RpathChange("/r", "/r", "rpath", "rpath")
LIBRARY = InterpreterChange(None, None)
FILE = FilePlan("a.so", "nothing", (needed("liba.so"),), NOTHING, LIBRARY, (("liba.so", "/p/liba.so"),))
PLAN = Plan(
    WheelFacts("x.whl", "00", "x", "1", ("py3-none-any",)),
    "x.whl",
    TargetFacts("/ld.so", "2.36", ("/lib",)),
    (ProviderFacts("prefix", "/opt/rocm", "7.2"),),
    (FILE,),
    (Finding("RLK110", "info", "libz.so", "from the system", "nothing"),),
)


# What a plan says


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        (FILE, ElfEdit()),
        (replace(FILE, rpath=RpathChange("/r", "/n", "rpath", "runpath")), ElfEdit("/n", "runpath")),
        (replace(FILE, rpath=RpathChange("/r", "/r", "rpath", "runpath")), ElfEdit("/r", "runpath")),
        (replace(FILE, rpath=RpathChange("/r", "/n", "rpath", "rpath")), ElfEdit("/n", "rpath")),
        (replace(FILE, rpath=RpathChange(None, "/n", None, "rpath")), ElfEdit("/n", "rpath")),
        (replace(FILE, rpath=RpathChange("/r", None, "rpath", None)), ElfEdit("", None)),
        (replace(FILE, rpath=RpathChange("", None, "runpath", None)), ElfEdit("", None)),
        (replace(FILE, rpath=RpathChange(None, None, None, None)), ElfEdit()),
        (replace(FILE, interpreter=InterpreterChange("/a", "/b")), ElfEdit(interpreter="/b")),
        (replace(FILE, interpreter=InterpreterChange("/a", "/a")), ElfEdit()),
        (replace(FILE, clear_stack=True), ElfEdit(clear_stack=True)),
        (
            replace(
                FILE,
                needed=(
                    needed("libk.so"),
                    needed("libold.so.1", "substitute", "libold.so.2"),
                    needed("libz.so", "add"),
                    needed("libgone.so", "drop", None),
                    needed("liba.so", "add"),
                ),
            ),
            ElfEdit(
                replace=(("libold.so.1", "libold.so.2"),), remove=("libgone.so",), add=("libz.so", "liba.so")
            ),
        ),
    ],
)
def test_the_edit_of_a_file(file: FilePlan, edit: ElfEdit) -> None:
    assert file.edit == edit
    assert file.changed is bool(edit)
    plan = replace(PLAN, files=(FILE, file))
    assert plan.empty is not bool(edit)


def test_version_edits_survive_json() -> None:
    edit = VersionEdit("libold.so.1", "X_1.0_V_1", "libold.so.2", "V_1", weak=True, evidence=("why",))
    change = needed("libold.so.1", "substitute", "libold.so.2")
    file = replace(FILE, needed=(change,), versions=(edit,))
    assert file.edit.versions == (edit,)
    plan = replace(PLAN, files=(file,))
    data = to_json(plan)
    assert data["files"][0]["versions"][0]["version_after"] == "V_1"
    assert from_json(data) == plan
    assert "versions" not in to_json(PLAN)["files"][0]  # as before, where there is none


def test_a_plan_with_an_error_may_not_be_written() -> None:
    assert PLAN.ok
    levels: dict[Level, bool] = {"info": True, "warning": True, "error": False}
    for level, may in levels.items():
        found = replace(PLAN.findings[0], level=level)
        assert replace(PLAN, findings=(*PLAN.findings, found)).ok is may


def test_plain() -> None:
    assert to_data({"a": (1, [FILE.rpath])}) == {
        "a": [1, [{"before": "/r", "after": "/r", "kind_before": "rpath", "kind_after": "rpath"}]]
    }
    assert to_data(FILE)["closure"] == [["liba.so", "/p/liba.so"]]


def test_a_plan_of_0_1_0_is_read() -> None:
    """relink 0.1.0 wrote it for bitsandbytes 0.50.2; a part of it, with another prefix."""
    data = json.loads((Path(__file__).parent / "relink-0.1.0.json").read_text(encoding="utf-8"))
    plan = from_json(data)
    assert to_json(plan) == data | {"basis": None}
    cpu, cuda, rocm = plan.files
    assert cpu.edit == ElfEdit(cpu.rpath.after, "rpath")
    assert not cuda.changed
    assert not cuda.served
    assert rocm.edit.add == tuple(
        entry["soname"] for entry in data["files"][2]["needed"] if entry["action"] == "add"
    )
    assert rocm.edit.remove == tuple(
        entry["soname"] for entry in data["files"][2]["needed"] if entry["action"] == "drop"
    )
    assert rocm.edit.search_path == data["files"][2]["rpath"]["after"]
    assert (len(rocm.edit.add), len(rocm.edit.remove)) == (13, 1)
    assert plan.findings[0].subjects == (plan.findings[0].subject,)


# What is no plan


def test_what_has_a_default_may_be_left_out() -> None:
    data = to_json(PLAN)
    del data["findings"], data["files"][0]["closure"], data["files"][0]["needed"][0]["evidence"]
    assert from_json(data) == replace(PLAN, findings=(), files=(replace(FILE, closure=()),))


KeyPath = tuple[str | int, ...]
LOST = object()


def changed(path: KeyPath, value: object) -> dict[str, Any]:
    data = to_json(PLAN)
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    if value is LOST:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("wheel", "sha256"), 5, "plan.wheel.sha256: Expected `str`, got `int`"),
        (("wheel",), [], "plan.wheel: Expected `object`, got `array`"),
        (("wheel", "sha256"), LOST, "plan.wheel: Object missing required field `sha256`"),
        (("wheel", "more"), 1, "plan.wheel: unknown keys ['more']"),
        (("wheel", "tags"), "x", "plan.wheel.tags: Expected `array`, got `str`"),
        (("wheel", "tags", 0), None, "plan.wheel.tags[0]: Expected `str`, got `null`"),
        (("surplus",), 1, "plan: unknown keys ['surplus']"),
        (("output",), None, "plan.output: Expected `str`, got `null`"),
        (("files",), {}, "plan.files: Expected `array`, got `object`"),
        (("files", 0, "surplus"), 1, "plan.files[0]: unknown keys ['surplus']"),
        (("files", 0, "strategy"), "guess", "plan.files[0].strategy: Invalid enum value 'guess'"),
        (("files", 0, "strategy"), [], "plan.files[0].strategy: Expected `str`, got `array`"),
        (("files", 0, "served"), 1, "plan.files[0].served: Expected `bool`, got `int`"),
        (("files", 0, "needed", 0, "action"), "keeps", "plan.files[0].needed[0].action: Invalid enum value"),
        (("files", 0, "needed", 0, "resolved"), 1, "plan.files[0].needed[0].resolved: Expected `str | null`"),
        (("files", 0, "closure", 0), ["a"], "plan.files[0].closure[0]: Expected `array` of length 2, got 1"),
        (("files", 0, "closure", 0, 1), 7, "plan.files[0].closure[0][1]: Expected `str`, got `int`"),
        (("findings", 0, "level"), "fatal", "plan.findings[0].level: Invalid enum value 'fatal'"),
        (("providers", 0), None, "plan.providers[0]: Expected `object`, got `null`"),
    ],
)
def test_the_place_of_an_error_is_named(path: KeyPath, value: object, message: str) -> None:
    data = changed(path, value)
    for given_as in (data, json.dumps(data)):
        with pytest.raises(UsageError) as caught:
            from_json(given_as)
        assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", '"x"', "{}", '{"schema": "relink.plan/2"}', "[" * 200_000, "\x00"]
)
def test_what_is_no_plan_at_all(text: str) -> None:
    with pytest.raises(UsageError, match=r"^(the plan is not JSON|this is not a plan of the kind)"):
        from_json(text)


def test_reading_leaves_the_data_as_it_is() -> None:
    data = to_json(PLAN)
    again = copy.deepcopy(data)
    from_json(data)
    assert data == again


def test_every_action_is_one_that_an_edit_knows() -> None:
    assert set(get_args(Action)) == {"keep", "substitute", "drop", "add"}


@pytest.mark.parametrize(
    ("needed", "message"),
    [
        ((needed("liba.so"), needed("liba.so", "add")), "plan.files[0].needed: liba.so is listed twice"),
        ((needed("liba.so", "substitute", None),), "plan.files[0].needed: liba.so is replaced by nothing"),
    ],
)
def test_a_record_that_no_edit_can_give(needed: tuple[NeededDecision, ...], message: str) -> None:
    data = to_json(PLAN)
    data["files"][0]["needed"] = to_data(needed)
    with pytest.raises(UsageError, match=re.escape(message)):
        from_json(data)


@pytest.fixture
def planned(works: Works, tmp_path: Path) -> Plan:
    return make_plan(works.small(tmp_path), works.options(tmp_path / "out"))


def test_a_plan_comes_back_with_digests_of_its_libraries(works: Works, planned: Plan, tmp_path: Path) -> None:
    planned.save(tmp_path / "plan.json")
    found = Plan.load(tmp_path / "plan.json")
    assert found.files == planned.files
    assert found.basis is not None
    hip = str(works.prefix / "lib/libhip.so.7")
    digests = {library.path: library.sha256 for library in found.basis.libraries}
    assert digests[hip] == sha256(Path(hip).read_bytes()).hexdigest()
    assert None not in digests.values()


def test_what_lies_there_is_replaced_and_not_opened(planned: Plan, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.json")
    planned.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").files == planned.files


def test_where_it_cannot_be_written(planned: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="the plan cannot be written"):
        planned.save(tmp_path / "file" / "plan.json")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json: the plan cannot be read"):
        Plan.load(tmp_path / "gone.json")
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="the plan cannot be read"):
        Plan.load(tmp_path / "a.json")
    (tmp_path / "b.json").write_text(json.dumps({"schema": "other"}))
    with pytest.raises(UsageError):
        Plan.load(tmp_path / "b.json")


def test_where_relink_puts_them() -> None:
    check_places([Stub("demo.libs/relink-stubs/libb.so", "libb.so", "w")])


@pytest.mark.parametrize(
    "path",
    [
        "demo/liba.so.1",
        "liba.so.1",
        "demo.libs/liba.so.1",
        "demo.libs/relink-other/liba.so.1",
        "demo/relink-stubs/liba.so.1",
        "demo.libs/relink-stubs/libb.so.1",
        "demo.libs/relink-stubs/../liba.so.1",
        "../demo.libs/relink-stubs/liba.so.1",
        "demo.libs/relink-stubs/x/liba.so.1",
    ],
)
def test_where_it_does_not(path: str) -> None:
    with pytest.raises(UsageError, match="the plan puts a stub outside"):
        check_places([Stub(path, "liba.so.1", "w")])


def test_plain_names() -> None:
    assert is_plain("liba-2_x.so.1+b")
    assert not any(map(is_plain, ["", ".", "..", "a/b", "-a", "a b", "a\n", "$ORIGIN", "a:b", "a" * 300]))


PYTHON = "/home/me/py/bin/python3.12"
PYTHONS_OWN = "/home/me/py/lib/libpython3.12.so.1.0"
RPATH = RpathChange(None, "/home/me/py/extra:$ORIGIN", None, "runpath")


def plan_with(*providers: str, python: str | None = PYTHON, library: str = PYTHONS_OWN) -> Plan:
    needed = NeededDecision(
        "libpython3.12.so.1.0", "keep", "libpython3.12.so.1.0", library, f"in {library}", "platform"
    )
    file = FilePlan(
        "a.so",
        "runpath",
        (needed,),
        RPATH,
        InterpreterChange(None, None),
        (("libpython3.12.so.1.0", library),),
    )
    return Plan(
        WheelFacts("a.whl", "00", "a", "1", ("t",)),
        "b.whl",
        TargetFacts("/lib64/ld.so", "2.36", ("/lib",), python, "/home/me/root"),
        tuple(ProviderFacts("prefix", path, None) for path in providers),
        (file,),
        (finding("RLK108", "libx.so.1", f"served by {library}"),),
        (Load("$WHEEL/a.so", "libpython3.12.so.1.0", library, None, "platform"),),
    )


def test_the_python_and_what_it_brings_have_no_place() -> None:
    plan = plan_with("/opt/rocm")
    inside = embed_plan(plan)
    text = json.dumps(to_json(inside))
    assert text.count("/home/me") == 1  # in the search path, which is an edit
    assert (inside.target.python, inside.target.sysroot) == (ANY_PYTHON, "/")
    assert inside.files[0].closure[0][1] == "$BASE_PREFIX/lib/libpython3.12.so.1.0"
    assert inside.findings[0].message == "served by $BASE_PREFIX/lib/libpython3.12.so.1.0"
    assert [file.edit for file in inside.files] == [file.edit for file in plan.files]
    assert from_json(json.loads(text)) == inside
    assert embed_plan(inside) == inside


def test_a_needed_that_is_a_path_stays() -> None:
    """It is what the file says, and the edit names it."""
    plan = plan_with("/opt/rocm")
    (file,) = plan.files
    needed = replace(file.needed[0], soname=PYTHONS_OWN, action="substitute", soname_after=f"{PYTHONS_OWN}.1")
    plan = replace(plan, files=(replace(file, needed=(needed,)),))
    assert embed_plan(plan).files[0].edit.replace == ((PYTHONS_OWN, f"{PYTHONS_OWN}.1"),)


def test_without_a_python_none_is_named() -> None:
    assert embed_plan(plan_with(python=None)).target.python is None


@pytest.mark.parametrize("provider", ["/home/me/py", "/home/me/py/lib/python3.12/site-packages/_rocm_sdk"])
def test_a_provider_beside_the_python_stays(provider: str) -> None:
    """Conda's environment is both; pip's ROCm lies in site-packages."""
    library = f"{provider}/lib/libamdhip64.so.7"
    inside = embed_plan(plan_with(provider, library=library))
    assert inside.providers[0].path == provider
    assert inside.files[0].closure[0][1] == library
    near = embed_plan(plan_with(f"{provider}x"))
    assert near.files[0].closure[0][1].startswith("$BASE_PREFIX/")


@pytest.mark.parametrize("python", ["/usr/bin/python3.12", "/usr/local/bin/python3.12", "/bin/python3"])
def test_the_systems_own_directories_stay(python: str) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libz.so.1"
    inside = embed_plan(plan_with(python=python, library=library))
    assert inside.files[0].closure[0][1] == library
    assert inside.target.python == ANY_PYTHON


def texts(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        info = [name for name in archive.namelist() if ".dist-info/" in name]
        return "\n".join(archive.read(name).decode("latin-1") for name in info)


@pytest.fixture
def pythons(tmp_path: Path) -> list[Path]:
    """The Pythons of two virtual environments, each a file of its own."""
    made = []
    for name in ("one", "another"):
        directory = tmp_path / "venvs" / name
        words = [sys.executable, "-m", "venv", "--without-pip", "--copies", str(directory)]
        subprocess.run(words, check=True)
        made.append(directory / "bin" / "python")
        if subprocess.run([made[-1], "-c", ""], capture_output=True, check=False).returncode:
            pytest.skip("a copy of this Python does not run")
    return made


@pytest.mark.slow(reason="makes two environments")
def test_two_environments_give_the_same_bytes(works: Works, tmp_path: Path, pythons: list[Path]) -> None:
    wheel = works.wheel(tmp_path)
    reports = [
        relink(wheel, works.options(tmp_path / f"out{number}", python=str(python)))
        for number, python in enumerate(pythons)
    ]
    first, second = (tmp_path / f"out{number}" / OUTPUT for number in range(2))
    assert first.read_bytes() == second.read_bytes()
    # A report is for the one who asks.
    places = [report.target.python or "" for report in reports]
    assert places[0] != places[1]
    assert all(place.startswith(str(tmp_path / "venvs")) for place in places)
    assert verify_wheel(first, Options()).findings == ()


@pytest.mark.slow(reason="several runs")
def test_nothing_of_the_maker_is_in_a_wheel(
    works: Works, tmp_path: Path, pythons: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything here has a name of its own but what the result rests on: the prefix."""
    for name in ("secret-home", "secret-tmp", "secret-cwd", "secret-in", "secret-out"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "secret-home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "secret-tmp"))
    monkeypatch.chdir(tmp_path / "secret-cwd")
    profile = tmp_path / "secret-home" / "mine.toml"
    profile.write_text(
        'schema = "relink.profile/1"\nname = "demo"\ndistributions = ["demo"]\nsource = "mine"\n'
    )
    wheel = works.wheel(tmp_path / "secret-in")
    words = ("relink", str(wheel), "--python", str(pythons[0]))
    options = works.options(
        tmp_path / "secret-out", python=str(pythons[0]), profile=str(profile), command=words
    )
    report = relink(wheel, dataclasses.replace(options))
    assert report.output is not None
    told = texts(Path(report.output.path))
    assert "secret" not in told
    assert str(tmp_path) not in told
    assert "relink.invalid" not in told
    assert sys.prefix not in told
    assert str(works.prefix) in told
