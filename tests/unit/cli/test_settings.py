"""Settings of a project: which file counts, what it may set, what is wrong with it, and that options win."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer

import relink
from relink.cli import app
from relink.cli.settings import NONE, VARIABLE, Settings, find_settings, parameter_of
from relink.system.errors import UsageError
from relink.system.shipped_files import load_schema
from tests.support.command import Run
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Import, Library, build
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, TAG, Works

KEYS: dict[str, Any] = {
    "prefix": ["/opt/rocm"],
    "nix-closure": ["/nix/store/x"],
    "gpus": ["gfx1030"],
    "only-gpus": ["gfx1100"],
    "allow-missing": ["libx.so.*"],
    "preload": ["liby.so.1"],
    "profile": "torch",
    "compress": "small",
    "keep-version": True,
    "local-version": "mine",
}
SHIPPED_ONLY = "the name of a profile that relink ships (pass any other by --profile) was expected"


def found(directory: Path, **environment: str) -> Settings:
    return find_settings(directory, environment)


def problem(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        found(path.parent)
    return str(caught.value)


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


# Which file


def test_the_nearest_file_counts_and_relink_toml_is_first(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert found(inner).path is None
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n\n[tool.relink]\nprofile = 'far'\n")
    assert found(inner) == Settings(tmp_path / "pyproject.toml", {"profile": "far"}, {"profile": 5})
    (tmp_path / "relink.toml").write_text("\nprofile = 'own'\n")
    assert found(inner) == Settings(tmp_path / "relink.toml", {"profile": "own"}, {"profile": 2})
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.ruff]\n# relink\n")
    assert found(inner).path == tmp_path / "relink.toml"
    (inner / "pyproject.toml").write_text("[tool.relink]\n")
    assert found(inner) == Settings(inner / "pyproject.toml", {}, {})


def test_a_pyproject_of_others_may_be_broken(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("no TOML")
    assert found(tmp_path).path is None
    assert "pyproject.toml:1: not TOML" in problem(tmp_path / "pyproject.toml", "relink = = 1")


def test_a_run_without_settings_loads_nothing_that_reads_them(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    program = (
        "import sys, os, pathlib; from relink.cli.settings import find_settings\n"
        "assert find_settings(pathlib.Path(), {}).path is None\n"
        "print(*(name for name in sys.modules if name.startswith('relink.providers.profiles') or name == 'tomllib'))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(relink.__file__).parents[1])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_variable_names_a_file_or_none(tmp_path: Path) -> None:
    (tmp_path / "relink.toml").write_text("profile = 'near'\n")
    other = tmp_path / "elsewhere.toml"
    other.write_text("profile = 'named'\n")
    assert found(tmp_path, **{VARIABLE: NONE}) == Settings()
    assert found(tmp_path, **{VARIABLE: "elsewhere.toml"}).values == {"profile": "named"}
    with pytest.raises(UsageError, match=r"gone\.toml: there is no such file, and RELINK_SETTINGS names it"):
        found(tmp_path, **{VARIABLE: "gone.toml"})
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(UsageError, match=r"it has no \[tool\.relink\]"):
        found(tmp_path, **{VARIABLE: "pyproject.toml"})


def test_a_file_that_everybody_may_write_is_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "relink.toml").write_text("profile = 'ours'\n")
    (inner / "relink.toml").write_text("profile = 'theirs'\n")
    (inner / "relink.toml").chmod(0o666)
    assert found(inner).values == {"profile": "ours"}
    assert found(inner).passed_over == (
        f"{inner}/relink.toml: not taken, since everybody may write it; RELINK_SETTINGS={inner}/relink.toml takes it",
    )
    assert found(inner, **{VARIABLE: "relink.toml"}).values == {"profile": "theirs"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "relink.toml"
    path.write_text("profile = [")  # not looked at: who wrote it cannot stop relink either
    os.chown(path, 12345, -1)
    assert found(tmp_path).path is None
    assert "it belongs to another user (uid 12345)" in found(tmp_path).passed_over[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", ["relink.toml", "pyproject.toml"])
@pytest.mark.parametrize(
    "what", ["no text", "a large file", "a FIFO", "a link to a file of ours", "a link to a device"]
)
def test_nobody_else_can_stop_a_run(tmp_path: Path, name: str, what: str) -> None:
    path = tmp_path / "inner" / name
    path.parent.mkdir()
    (tmp_path / "ours.toml").write_text("[tool.relink]\nprofile = 'relink'\n")
    if what == "a FIFO":
        os.mkfifo(path)
    elif what.startswith("a link"):
        path.symlink_to("/dev/zero" if "device" in what else tmp_path / "ours.toml")
    else:
        path.write_bytes(b"relink \xff" if what == "no text" else b"relink" * (1 << 20))
    os.chown(path, 12345, -1, follow_symlinks=False)
    (tmp_path / "relink.toml").write_text("profile = 'ours'\n")
    assert found(path.parent).values == {"profile": "ours"}
    assert "it belongs to another user (uid 12345)" in found(path.parent).passed_over[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user and come back")
def test_a_directory_that_may_not_be_entered_has_no_settings() -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "inner").mkdir()
        (top / "relink.toml").write_text("profile = 'x'\n")
        (top / "relink.toml").chmod(0o600)
        os.seteuid(12345)
        try:
            assert found(top / "inner").path is None  # mkdtemp(3): for its owner alone
            os.seteuid(0)
            top.chmod(0o755)
            os.seteuid(12345)
            for variables in ({}, {VARIABLE: "../relink.toml"}):
                with pytest.raises(UsageError, match=r"the settings cannot be read .Permission denied."):
                    found(top / "inner", **variables)
        finally:
            os.seteuid(0)


def test_a_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert found(Path()) == Settings()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "relink.toml")
    with pytest.raises(
        UsageError, match=r"cannot be read .not a regular file.; RELINK_SETTINGS=none takes none"
    ):
        found(tmp_path)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    assert "larger than 256 KiB" in problem(tmp_path / "relink.toml", "#" * (1 << 20))
    assert "relink.toml:1: the settings file is nested too deep" in problem(
        tmp_path / "relink.toml", "x = " + "[" * 999
    )


# What is in it


def test_every_key_is_read_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "relink.toml").write_text(
        "".join(f"{key} = {json.dumps(value)}\n" for key, value in KEYS.items())
    )
    assert found(tmp_path).values == KEYS
    assert list(load_schema("settings")["properties"]) == list(KEYS)
    (tmp_path / "relink.toml").write_text("prefix = ['rocm', '/opt/rocm']\n")
    (tmp_path / "inner").mkdir()
    assert found(tmp_path / "inner").values == {"prefix": [f"{tmp_path}/rocm", "/opt/rocm"]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu = ['gfx1030']", "1: gpu: no such key; did you mean gpus?"),
        ("\n\nallow_missing = []", "3: allow_missing: no such key; did you mean allow-missing?"),
        ("prefix = '/opt/rocm'", '1: prefix: a list of directories was expected, not "/opt/rocm"'),
        ("prefix = ['']", "1: prefix[0]: a string that is not empty was expected"),
        ("keep-version = 1", "1: keep-version: true or false was expected, not 1"),
        ("compress = 'tiny'", '1: compress: fast, balanced or small was expected, not "tiny"'),
        ("profile = ['x']", f"1: profile: {SHIPPED_ONLY}, not a list"),
        ("profile = 'p.toml'", f'1: profile: {SHIPPED_ONLY}, not "p.toml"'),
        ("profile = 'sub/p'", f'1: profile: {SHIPPED_ONLY}, not "sub/p"'),
        ("profile = 'none'", f'1: profile: {SHIPPED_ONLY}, not "none"'),
    ],
)
def test_what_is_wrong_has_its_line(tmp_path: Path, text: str, says: str) -> None:
    assert f"{tmp_path}/relink.toml:{says}" in problem(tmp_path / "relink.toml", text)
    (tmp_path / "relink.toml").unlink()
    line, _, rest = says.partition(": ")
    told = problem(tmp_path / "pyproject.toml", f"[tool.relink]\n{text}")
    assert f"{tmp_path}/pyproject.toml:{int(line) + 1}: tool.relink.{rest}" in told


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    told = problem(tmp_path / "relink.toml", "prefx = []\ncompress = 3\nforce = true\n")
    assert len(re.findall(r"relink\.toml:\d+:", told)) == 3


def test_no_option_that_lets_code_run_or_a_check_out_is_taken(tmp_path: Path) -> None:
    """Every option of `relink run` is a key of settings, or is refused by name."""
    top: Any = typer.main.get_command(app)
    refused = set()
    for parameter in top.commands["run"].params:
        argument = parameter.param_type_name == "argument" or parameter.name == "help"
        if argument or parameter.name in {parameter_of(key) for key in KEYS}:
            continue
        option = parameter.opts[0].removeprefix("--")
        told = problem(tmp_path / "relink.toml", f"{option} = true\n")
        assert f"relink.toml:1: {option}: not taken from a file" in told, option
        assert f"pass --{option}" in told
        refused.add(option)
    assert {
        "sandbox",
        "trust",
        "force",
        "no-verify",
        "python",
        "interpreter",
        "ignore",
        "substitute",
    } <= refused


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
@pytest.mark.parametrize("named", ["p.toml", "./p.toml", "../checkout/p.toml", "{place}/p.toml"])
@pytest.mark.parametrize("name", ["relink.toml", "pyproject.toml"])
def test_settings_profile(
    run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, named: str
) -> None:
    """What settings may not say by `substitute` they may not say by a profile beside them; on the command line both hold."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    old = Library(needed=("libhip.so.6",), imports=(Import("hip"),))
    vendor = make_wheel(tmp_path, {"demo/a.so": build(old)}, tag=TAG)
    same = '[[same_abi]]\nsonames = ["libhip.so.6", "libhip.so.7"]\nwhy = "as the checkout says"\n'
    (checkout / "p.toml").write_text(f'schema = "relink.profile/1"\n{same}')
    words = (vendor, "--prefix", works.prefix, "--dry-run", "--json")
    monkeypatch.chdir(checkout)
    assert run(*words, "--profile", "./p.toml")[0] == 0
    assert run(*words)[0] == 1
    table = "[tool.relink]\n" if name == "pyproject.toml" else ""
    text = json.dumps(named.format(place=checkout))
    (checkout / name).write_text(f"{table}profile = {text}\n")
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert f"profile: {SHIPPED_ONLY}, not " in err


def test_the_schema_says_the_same_to_editors() -> None:
    validator = jsonschema.Draft202012Validator(load_schema("settings"))
    validator.check_schema(load_schema("settings"))
    validator.validate(KEYS)
    wrong: list[dict[str, Any]] = [
        {"gpu": []},
        {"prefix": "/x"},
        {"compress": "tiny"},
        {"keep-version": 1},
        {"sandbox": "off"},
        {"profile": "./p"},
        {"profile": "none"},
    ]
    assert [document for document in wrong if validator.is_valid(document)] == []


def test_the_page_names_every_key_and_its_example_holds(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/settings.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "relink.toml").write_text(block)
    assert set(found(tmp_path).values) == {"prefix", "gpus", "allow-missing"}
    assert re.findall(r"^\| `([\w-]+)` \| `--", text, re.MULTILINE) == list(KEYS)


# On the command line


def test_settings_are_used_and_told(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    (tmp_path / "relink.toml").write_text(f"prefix = ['{works.prefix}']\nlocal-version = 'ours'\ngpus = []\n")
    code, out, err = run(vendor, "-o", "out")
    assert (code, err) == (0, f"relink: {tmp_path}/relink.toml sets prefix, local-version, gpus\n")
    (made,) = (tmp_path / "out").iterdir()
    assert made.name == OUTPUT.replace("rocm7.2.4", "ours")
    code, out, err = run(vendor, "-o", "quiet", "-q", "--local-version", "flag")
    assert (code, out, err) == (0, "", "")
    assert [path.name for path in (tmp_path / "quiet").iterdir()] == [OUTPUT.replace("rocm7.2.4", "flag")]


def test_options_win(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    (tmp_path / "relink.toml").write_text(f"prefix = ['{tmp_path}/nowhere']\nkeep-version = true\n")
    assert run(vendor, "--dry-run")[0] == 2
    code, out, _ = run(vendor, "--prefix", works.prefix, "--json")
    assert code == 0
    report = json.loads(out)
    assert [provider["path"] for provider in report["providers"]] == [str(works.prefix)]
    with zipfile.ZipFile(report["output"]["path"]) as archive:
        assert "demo-1.0.dist-info/RECORD" in archive.namelist()


def test_a_wrong_file_stops_the_run_and_not_the_help(run: Run, works: Works, tmp_path: Path) -> None:
    (tmp_path / "relink.toml").write_text("sandbox = 'off'\n")
    code, out, err = run(works.small(tmp_path), "--prefix", works.prefix)
    assert (code, out) == (2, "")
    assert f"{tmp_path}/relink.toml:1: sandbox: not taken from a file" in err
    assert run("run", "--help")[0] == 0
    assert run("rules", "RLK101")[0] == 0
    assert run("config")[0] == 2


def test_commands_take_what_they_have_options_for(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.small(tmp_path)
    (tmp_path / "relink.toml").write_text(
        f"prefix = ['{works.prefix}']\nprofile = 'nosuch'\ncompress = 'small'\n"
    )
    assert "no such profile" in run("explain", vendor)[2]
    for command, expected in (("inspect", 0), ("verify", 1)):  # these take none
        code, out, err = run(command, vendor)
        assert (code, err) == (expected, "")
    code, out, _ = run("explain", vendor, "--profile", "none")
    assert code == 0
    assert f"{works.prefix}/lib/libhip.so.7" in out


def test_config_refuses_a_gpu_that_a_run_refuses(run: Run, tmp_path: Path) -> None:
    (tmp_path / "relink.toml").write_text("\ngpus = ['auto', 'gfx9999x']\n")
    code, out, err = run("config")
    assert (code, out) == (2, "")
    assert f"{tmp_path}/relink.toml:2: " in err
    assert "gfx9999x" in err


def test_config_says_where_each_value_comes_from(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.relink]\n\ngpus = ['gfx1030', 'RX 6750 XT']\n")
    monkeypatch.setenv("ROCM_PATH", "/somewhere")
    code, out, err = run("config")
    assert (code, err) == (0, "")
    rows = [re.split(r"  +", line) for line in out.splitlines()]
    assert rows[0] == ["prefix", '["/somewhere"]', "ROCM_PATH"]
    assert rows[2] == ["gpus", '["gfx1030", "RX 6750 XT"]', f"{tmp_path}/pyproject.toml:3"]
    assert [row[0] for row in rows] == list(KEYS)
    document = json.loads(run("config", "--json")[1])
    assert document["settings"]["gpus"]["source"] == f"{tmp_path}/pyproject.toml:3"
    assert document["settings"]["compress"] == {"value": None, "source": "not set"}
    (tmp_path / "relink.toml").write_text("prefix = ['/mine']\n")
    assert json.loads(run("config", "--json")[1])["settings"]["prefix"] == {
        "value": ["/mine"],
        "source": f"{tmp_path}/relink.toml:1",
    }


def test_a_hostile_file_prints_nothing_that_steers_a_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "relink.toml").write_text('profile = "\\u001b[2Jx"\n')
    assert "\x1b" not in run("config")[1]
    (tmp_path / "relink.toml").write_text('"\\u001b[2Jx" = 1\n')
    code, out, err = run("config")
    assert code == 2
    assert "\x1b" not in out + err
