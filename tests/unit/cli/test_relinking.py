"""The command line, in this process where that is enough and in one of its own where the terminal or the pipe matters."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import relink
from relink import cli
from relink.system.errors import UsageError
from relink.system.findings.model import RULES
from relink.system.shipped_files import load_schema
from tests.support import forking
from tests.support.cc import shared
from tests.support.command import Run
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, TAG, Works

SLOW = pytest.mark.slow(reason="another run; test_relink_a_wheel has one")

COMMANDS = tuple(
    command.name or getattr(command.callback, "__name__", "") for command in cli.app.registered_commands
)
SCHEMA = load_schema("report")
ABOUT_SEVERAL = {**SCHEMA["$defs"]["reports"], "$schema": SCHEMA["$schema"]}
ABOUT_SEVERAL["properties"] = {  # a new one: the schema itself is every test's
    **ABOUT_SEVERAL["properties"],
    "reports": {"type": "array", "items": SCHEMA},
}


ALSO = pytest.mark.slow(reason="a process or four for another command of which the same is tried")


def forked(*words: str | Path, **environment: str) -> tuple[int, str, str]:
    """Run relink in a process that has its own streams, with warnings as errors."""
    kept = {key: value for key, value in os.environ.items() if key != "FORCE_COLOR"} | environment
    ended = forking.run(*words, environment=kept, strict=True)
    return ended.returncode, ended.stdout, ended.stderr


def process(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "relink", *words],
        env={key: value for key, value in os.environ.items() if key != "FORCE_COLOR"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def outcome(running: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = running.communicate(timeout=60)
    return running.returncode, out, err


def valid(document: Any) -> dict[str, Any]:
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert isinstance(document, dict)
    return document


# The default command


@pytest.mark.few(2, reason="other forms of output")
@pytest.mark.parametrize("word", [(), ("run",)])
@pytest.mark.parametrize("options_first", [True, False])
def test_relink_a_wheel(
    run: Run, works: Works, tmp_path: Path, word: tuple[str, ...], options_first: bool
) -> None:
    options: list[str | Path] = ["--prefix", works.prefix, "-o", tmp_path / "out"]
    wheel: list[str | Path] = [works.wheel(tmp_path)]
    code, out, err = run(*word, *(options + wheel if options_first else wheel + options))
    assert (code, err) == (0, "")
    assert os.listdir(tmp_path / "out") == [OUTPUT]
    answer, first, *_, verdict, following, last = out.splitlines()
    assert answer == f"demo 1.0: {verdict}"
    assert first.startswith(f"with ROCm 7.2.4 in {works.prefix} ($PREFIX), for glibc ")
    assert "PATH $PREFIX/lib" in out
    assert "info repaired: empty search path entries" in out
    assert verdict == "Loads; checked by ld.so for 4 files."
    assert following == "Next (not tried: it changes the environment):"
    assert last == f"    pip install {tmp_path}/out/{OUTPUT}"


def test_errors_are_told_and_nothing_is_written(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    code, out, err = run(vendor, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert (code, err) == (1, "")
    assert "error RLK101 libnowhere.so.1: needed by lost.so" in out
    assert "RUNPATH" not in out  # no edit is told where none is made
    assert out.splitlines()[-2:] == [
        "Cannot work yet: 1 library is missing.",
        "Next: a prefix that has libnowhere.so.1 (--prefix DIR), then the same command",
    ]
    assert not (tmp_path / "out").exists()


@SLOW
def test_quiet_says_whose_errors_they_are(run: Run, works: Works, tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {"other/lost.so": works.lost}
    other = make_wheel(tmp_path, files, name="other", tag=TAG)
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    code, out, _ = run("-q", vendor, other, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert code == 1
    answers = [line.partition(":")[0] for line in out.splitlines() if ": Cannot work yet: " in line]
    assert answers == ["demo 1.0", "other 1.0"]


def test_force(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    code, out, _ = run(vendor, "--prefix", works.prefix, "-o", tmp_path / "out", "--force")
    assert code == 1
    assert OUTPUT in out
    assert os.listdir(tmp_path / "out") == [OUTPUT]


def test_allow_missing(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    words = [vendor, "--prefix", works.prefix, "-o", tmp_path / "out", "--allow-missing", "libnowhere"]
    code, out, _ = run(*words)
    assert code == 0
    assert "warning RLK102 libnowhere.so.1" in out


def test_dry_run(run: Run, works: Works, tmp_path: Path) -> None:
    code, out, _ = run("--dry-run", works.wheel(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert code == 0
    assert "Would load: 3 of 4 ELF files would change." in out
    assert "PATH $PREFIX/lib" in out
    *_, word, last = out.splitlines()
    assert word == "Next: the same command without --dry-run"
    assert last.startswith("    relink ")
    assert f" --prefix {works.prefix} " in last
    assert "--dry-run" not in last
    assert not (tmp_path / "out").exists()


def test_verbose_shows_every_needed_and_all_findings(run: Run, works: Works, tmp_path: Path) -> None:
    words = [works.wheel(tmp_path), "--prefix", works.prefix, "--dry-run"]
    quiet, verbose = run(*words)[1], run(*words, "-v")[1]
    line = f"keep       libhip.so.7  provider: {works.prefix}/lib/libhip.so.7"
    assert line in verbose
    assert line not in quiet
    assert "info RLK201 demo/a.so" in verbose
    assert "RLK201" not in quiet
    assert "demo/plain.so  unchanged" in verbose


@SLOW
def test_a_glob_that_has_the_result_of_the_run_before(run: Run, works: Works, tmp_path: Path) -> None:
    works.small(tmp_path)
    for left_out in (False, True):
        code, out, err = run(*sorted(tmp_path.glob("*.whl")), "--prefix", works.prefix)
        assert (code, out.count("Next")) == (0, 1), err
        assert ("is left out: it was relinked from demo-1.0-cp" in err) is left_out
    alone = run(tmp_path / OUTPUT, "--prefix", works.prefix)
    assert (alone[0], "relink that one" in alone[2]) == (2, True)


def test_several_wheels(run: Run, works: Works, tmp_path: Path) -> None:
    """What cannot be read does not keep the others from being done."""
    good = works.small(tmp_path)
    other = works.wheel(tmp_path / "other", {"demo/plain.so": works.plain})
    code, out, err = run(
        tmp_path / "gone-1-py3-none-any.whl", good, other, "--prefix", works.prefix, "-o", tmp_path / "out"
    )
    assert code == 2
    assert err.startswith("relink: ")
    assert "gone-1-py3-none-any.whl cannot be opened (No such file or directory)" in err
    assert sorted(os.listdir(tmp_path / "out")) == sorted([OUTPUT, other.name])
    assert [line for line in out.splitlines() if line.startswith("demo 1.0: ")]
    table = out.splitlines()[-3:]
    assert table[0].split() == ["wheel", "verdict"]
    assert table[1].split(maxsplit=2) == ["demo", "1.0", "Loads; checked by ld.so for 1 file."]
    assert table[2].endswith("Needs no ROCm: left as it is.")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize(
    ("options", "version"), [(["--keep-version"], "1.0"), (["--local-version", "x.1"], "1.0+x.1")]
)
def test_versions(run: Run, works: Works, tmp_path: Path, options: list[str], version: str) -> None:
    code, _, _ = run(works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out", *options)
    assert code == 0
    assert os.listdir(tmp_path / "out")[0].split("-")[1] == version


@pytest.mark.few(3, reason="the same of other values")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--local-version", "not a label"], "'not a label' cannot be a local version label"),
        (["--select", "RLK999"], "RLK999: no rule has such a code"),
        (["--prefix", "/does/not/exist"], "--prefix /does/not/exist: no such directory"),
        (["--interpreter", "/does/not/exist"], "/does/not/exist: cannot be read"),
        (["--python", "/does/not/exist"], "--python /does/not/exist: cannot be run"),
        (["--sysroot", "/does/not/exist"], "--sysroot /does/not/exist: no such directory"),
    ],
)
def test_wrong_usage(run: Run, works: Works, tmp_path: Path, words: list[str], sentence: str) -> None:
    prefix = [] if "--prefix" in words else ["--prefix", str(works.prefix)]
    code, out, err = run(works.small(tmp_path), *prefix, "-o", tmp_path / "out", *words)
    assert (code, out) == (2, "")
    assert err.startswith("relink: ")
    assert sentence in err
    assert not (tmp_path / "out").exists()


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["a.whl", "--prefx", "x"], "No such option: --prefx (Possible options: --prefix, "),
        (["--prefix"], "Option '--prefix' requires an argument."),
        (["run"], "Missing argument 'WHEEL…'; see relink run --help"),
        (["explain"], "Missing argument 'WHEEL'; see relink explain --help"),
        (["rules", "A", "B"], "Got unexpected extra argument"),
        (["chek"], "No such command or file: chek. Did you mean `relink check`?"),
    ],
)
def test_words_that_make_no_command(run: Run, words: list[str], answer: str) -> None:
    """The first line is the answer, as it is of every other error."""
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"relink: {answer}")


def test_no_rocm_at_all(run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.vendors.rocm.places.find_places", lambda *_: ())
    hip = shared(tmp_path / "libamdhip64.so.7", "int hipMalloc(void){return 0;}")
    member = shared(
        tmp_path / "a.so", "extern int hipMalloc(void); int f(void){return hipMalloc();}", needed=[hip]
    )
    code, _, err = run(works.wheel(tmp_path, {"demo/a.so": member}))
    assert code == 2
    assert "no ROCm: name one by --prefix DIR" in err


def test_source_date_epoch(run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    code, _, err = run(works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert code == 2
    assert "SOURCE_DATE_EPOCH='yesterday' is not a number of seconds" in err


def test_select_and_ignore(run: Run, works: Works, tmp_path: Path) -> None:
    words = [works.small(tmp_path), "--prefix", works.prefix, "--dry-run", "-v"]
    assert "RLK202" in run(*words)[1]
    assert "warning RLK202" not in run(*words, "--ignore", "RLK202")[1]
    selected = run(*words, "--select", "rlk202")[1]
    assert "RLK202" in selected
    assert "RLK201" not in selected
    assert "RLK109 libtypo*" in run(*words, "--ignore", "libtypo*")[1]


# JSON


def test_json_is_all_there_is(run: Run, works: Works, tmp_path: Path) -> None:
    code, out, err = run("--json", works.wheel(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    document = valid(json.loads(out))
    assert [found["code"] for found in document["findings"]].count("RLK202") == 1
    assert document["verified"] == 4
    assert document["output"]["path"] == str(tmp_path / "out" / OUTPUT)
    assert document["command"][:2] == ["relink", "--json"]
    assert [file["changed"] for file in document["files"]] == [True, False, True, True]
    assert {"target", "read", "plan", "edit", "write", "verify"} <= {*document["timings"]}


def test_json_of_errors(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    code, out, err = run(vendor, "--prefix", works.prefix, "--json")
    assert (code, err) == (1, "")
    document = valid(json.loads(out))
    assert document["output"] is None
    assert "RLK101" in [found["code"] for found in document["findings"]]


def collected(out: str) -> dict[str, Any]:
    """JSON about several wheels or none, which fits its own part of the schema."""
    document: dict[str, Any] = json.loads(out)
    jsonschema.Draft202012Validator(ABOUT_SEVERAL).validate(document)
    return document


@SLOW
def test_json_has_one_shape_for_one_and_many(run: Run, works: Works, tmp_path: Path) -> None:
    one, two = works.small(tmp_path / "1"), works.small(tmp_path / "2")
    words = ("--prefix", works.prefix, "--json", "--dry-run")
    alone = valid(json.loads(run(one, *words)[1]))
    (report,) = alone["reports"]
    assert (report, alone["failures"]) == ({key: alone[key] for key in report}, [])
    code, out, _ = run(one, two, *words)
    assert code == 0
    many = collected(out)
    assert [valid(report)["wheel"]["name"] for report in many["reports"]] == ["demo", "demo"]
    assert many["failures"] == []
    code, out, err = run(one, tmp_path / "gone.whl", *words)
    assert code == 2
    many = collected(out)
    assert len(many["reports"]) == 1
    assert "gone.whl" in many["failures"][0]
    assert "gone.whl" in err


def test_json_of_what_cannot_be_read(run: Run, works: Works, tmp_path: Path) -> None:
    code, out, err = run(tmp_path / "gone.whl", "--prefix", works.prefix, "--json")
    document = collected(out)
    assert (code, document["schema"], document["reports"]) == (2, "relink.reports/1", [])
    assert "gone.whl" in document["failures"][0]
    assert "gone.whl" in err


def test_the_schema_forbids() -> None:
    """Else the tests above show nothing."""
    with pytest.raises(jsonschema.ValidationError):
        valid({"schema": "relink.report/1"})


# The other commands


@pytest.mark.few(1, reason="a process each")
@pytest.mark.parametrize("command", COMMANDS)
def test_help(run: Run, command: str) -> None:
    for option in ("-h", "--help"):
        code, out, err = run(command, option)
        assert (code, err) == (0, "")
        assert f"relink {command}" in out or f"{command} [OPTIONS]" in out


def test_help_of_all(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert {"run", "verify", "inspect", "explain", "rules", "demo"} <= {*COMMANDS}
    assert all(command in out for command in COMMANDS)
    assert run()[1] or run()[2]


def test_version_tells_release_and_commit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relink.system.shipped_files.source_commit", lambda: "1a2b3c4d5e6f")
    for option in ("--version", "-V"):
        assert run(option) == (0, f"relink {relink.__version__} (1a2b3c4d5e6f)\n", "")
    monkeypatch.setattr("relink.system.shipped_files.source_commit", lambda: None)
    assert run("--version") == (0, f"relink {relink.__version__}\n", "")


def test_rules(run: Run) -> None:
    code, out, _ = run("rules")
    assert code == 0
    lines = out.splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [[rule.code, rule.level] for rule in RULES.values()]
    assert all(line.endswith(rule.title) for line, rule in zip(lines, RULES.values(), strict=True))


@pytest.mark.parametrize("code", ["RLK101", "rlk101"])
def test_one_rule(run: Run, code: str) -> None:
    rule = RULES["RLK101"]
    example = [f"  {line}" for line in rule.example.splitlines()]
    lines = [
        f"RLK101 {rule.title} (error)",
        rule.meaning,
        f"→ {rule.fix}",
        "",
        "For example:",
        *example,
    ]
    assert run("rules", code) == (0, "\n".join(lines) + "\n", "")


def test_no_such_rule(run: Run) -> None:
    code, out, err = run("rules", "RLK999")
    assert (code, out) == (2, "")
    assert err == "relink: RLK999: there is no such rule; `relink rules` lists them\n"


def test_explain_what_is_found(run: Run, works: Works, tmp_path: Path) -> None:
    code, out, _ = run("explain", works.small(tmp_path), "--prefix", works.prefix)
    assert code == 0
    assert out.splitlines() == [
        f"demo/a.so  with RPATH {works.prefix}/lib",
        f"└── libhip.so.7  {works.prefix}/lib/libhip.so.7  RPATH entry {works.prefix}/lib",
        f"    └── libdeep.so.1  {works.prefix}/lib/libdeep.so.1  RPATH entry {works.prefix}/lib of $WHEEL/demo/a.so",
    ]


def test_explain_what_is_missing(run: Run, works: Works, tmp_path: Path) -> None:
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    code, out, _ = run("explain", vendor, "libnowhere*", "--prefix", works.prefix)
    assert code == 0
    _, missing, *tried = out.splitlines()
    assert missing == "└── libnowhere.so.1  not found"
    assert any(f"tried {works.prefix}/lib/libnowhere.so.1: no such file (R" in line for line in tried)
    assert any("(default directory " in line for line in tried)
    assert all(line.lstrip(" ├└─").startswith("tried ") for line in tried)


def test_explain_nothing(run: Run, works: Works, tmp_path: Path) -> None:
    code, out, err = run("explain", works.small(tmp_path), "libother.so.1", "--prefix", works.prefix)
    assert (code, out) == (2, "")
    assert "libother.so.1: nothing in the closure of demo-1.0-" in err


def test_inspect(run: Run, works: Works, tmp_path: Path) -> None:
    code, out, _ = run("inspect", works.wheel(tmp_path))
    assert code == 0
    assert out.startswith("demo 1.0\n")
    assert "RUNPATH       /opt/rocm-0.0.0/lib\n              (empty: current directory)\n" in out
    assert "interpreter   /nowhere/ld.so\n" in out
    assert "symbols       1 imported, 1 exported\n" in out
    assert not any(line.endswith(" ") for line in out.splitlines())


def test_inspect_json(run: Run, works: Works, tmp_path: Path) -> None:
    code, out, _ = run("inspect", "--json", works.wheel(tmp_path))
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "relink.inspection/1"
    facts = document["files"][0]
    assert (facts["path"], facts["needed"], facts["search_kind"]) == ("demo/a.so", ["libhip.so.7"], "runpath")
    code, out, err = run("inspect", "--json", works.wheel(tmp_path), tmp_path / "gone.whl")
    assert (code, len(json.loads(out)["reports"])) == (2, 1)
    assert "gone.whl" in err


def test_verify(run: Run, works: Works, tmp_path: Path) -> None:
    run(works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    code, out, _ = run("verify", tmp_path / "out" / OUTPUT)
    assert code == 0
    assert f"  libhip.so.7 => {works.prefix}/lib/libhip.so.7\n" in out
    code, out, err = run("verify", works.small(tmp_path), "--json")
    assert (code, err) == (1, "")
    document = json.loads(out)
    assert document["schema"] == "relink.verification/1"
    assert document["maps"]["demo/a.so"]["missing"] == ["libhip.so.7"]
    assert run("verify", tmp_path / "gone.whl")[0] == 2


# Terminals, pipes and signals


def _long(works: Works, tmp_path: Path) -> Path:
    """A prefix whose path is longer than any terminal is wide."""
    prefix = tmp_path / ("long" * 40)
    prefix.mkdir()
    (prefix / "lib").symlink_to(works.prefix / "lib")
    return prefix


def test_lines_are_whole_in_a_pipe(works: Works, tmp_path: Path) -> None:
    prefix = _long(works, tmp_path)
    words: list[str | Path] = [works.small(tmp_path), "--prefix", prefix, "-o", tmp_path / "out"]
    code, out, err = forked(*words, COLUMNS="40")
    assert (code, err) == (0, "")
    assert any(line.startswith(f"with {prefix} (") for line in out.splitlines())
    output = next((tmp_path / "out").iterdir())
    code, out, err = forked("inspect", output, COLUMNS="40")
    assert any(line.endswith(f"   {prefix}/lib") for line in out.splitlines())
    code, out, err = forked(tmp_path / ("x" * 200), "--prefix", prefix, COLUMNS="40")
    assert code == 2
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "environment", [{}, pytest.param({"NO_COLOR": "1", "TERM": "xterm-256color"}, marks=ALSO)]
)
def test_no_escape_codes_in_a_pipe(works: Works, tmp_path: Path, environment: dict[str, str]) -> None:
    vendor = works.wheel(tmp_path, {"demo/lost.so": works.lost})
    plan: list[str | Path] = [vendor, "--prefix", works.prefix, "-v"]
    commands: list[list[str | Path]] = [plan, ["rules"], ["inspect", vendor], ["--help"]]
    for words in commands:
        _, out, err = forked(*words, **environment)
        assert out
        assert "\x1b" not in out + err


def on_terminal(*words: str | Path, **environment: str) -> str:
    """What relink writes to a terminal, standard output and error alike."""
    ours, theirs = pty.openpty()
    terminal = os.environ | {"TERM": "xterm-256color", "COLUMNS": "60"} | environment
    process = forking.start(*words, environment=terminal, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # EIO: the last writer has closed it
            break
        if not data:
            break
        parts.append(data)
    os.close(ours)
    process.wait()
    return b"".join(parts).decode()


def test_colours_and_a_bar_on_a_terminal(works: Works, tmp_path: Path) -> None:
    words: list[str | Path] = [works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out"]
    shown = on_terminal(*words)
    assert "\x1b[32m" in shown
    assert "━" in shown
    assert "\x1b[32m" not in on_terminal(*words, NO_COLOR="1")
    assert "━" not in on_terminal(*words, "--json")


def test_nothing_of_the_bar_in_a_pipe(works: Works, tmp_path: Path) -> None:
    words: list[str | Path] = [works.small(tmp_path), "--prefix", works.prefix, "--dry-run"]
    for environment in ({}, {"FORCE_COLOR": "1"}):
        code, out, err = forked(*words, TERM="xterm", **environment)
        assert (code, err) == (0, "")
        assert ("\x1b[" in out) == bool(environment)


def test_the_bar_keeps_to_a_narrow_terminal(works: Works, tmp_path: Path) -> None:
    words: list[str | Path] = [works.small(tmp_path), "--prefix", works.prefix, "--dry-run"]
    shown = on_terminal(*words, COLUMNS="40")
    assert "read 2/7" in shown
    visible = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    progress = [line for line in re.split(r"[\r\n]+", visible) if re.search(r"\d/7", line)]
    assert max(len(line) for line in progress) <= 40


def test_quiet(run: Run, works: Works, tmp_path: Path) -> None:
    assert run(works.small(tmp_path), "--prefix", works.prefix, "-q", "-o", tmp_path / "out") == (0, "", "")
    assert (tmp_path / "out" / OUTPUT).exists()
    lost = works.wheel(tmp_path / "lost", {"demo/lost.so": works.lost})
    code, out, err = run(lost, "--prefix", works.prefix, "--quiet")
    assert (code, err) == (1, "")
    told = out.splitlines()
    assert [line.split()[0] for line in told] == ["demo", "error", "→", "Cannot", "Next:"]
    assert "━" not in on_terminal(works.small(tmp_path), "--prefix", works.prefix, "--dry-run", "-q")


@pytest.mark.few(1, reason="a process each")
@pytest.mark.parametrize(
    "words",
    [
        ["rules"],
        pytest.param(["rules", "RLK101"], marks=ALSO),
        ["inspect"],
        pytest.param(["inspect", "--json"], marks=ALSO),
        pytest.param(["explain"], marks=ALSO),
        pytest.param(["dry"], marks=ALSO),
        ["--json"],
    ],
)
def test_a_reader_that_leaves(works: Works, tmp_path: Path, words: list[str]) -> None:
    vendor, prefix = works.wheel(tmp_path), works.prefix
    full: dict[str, list[str | Path]] = {
        "inspect": [*words, vendor],
        "explain": ["explain", vendor, "--prefix", prefix],
        "dry": [vendor, "--prefix", prefix, "--dry-run"],
        "--json": [vendor, "--prefix", prefix, "--dry-run", "--json"],
    }
    running = process(*full.get(words[0], list(words)))
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    assert (running.wait(timeout=60), err) == (0, "")


@SLOW
def test_the_work_is_done_though_the_reader_has_left(works: Works, tmp_path: Path) -> None:
    one = works.small(tmp_path)
    lost = works.wheel(tmp_path / "lost", {"demo/lost.so": works.lost})
    running = process(lost, one, "--prefix", works.prefix, "-o", tmp_path / "out")
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == ""
    running.stderr.close()
    assert running.wait(timeout=60) == 1
    assert os.listdir(tmp_path / "out") == [OUTPUT]


def test_interrupted(run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("relink.make.editing.whole_edit", interrupt)
    code, out, err = run(works.small(tmp_path), "--prefix", works.prefix, "-o", tmp_path / "out")
    assert (code, out) == (130, "")
    assert err == "relink: interrupted; no unfinished file was left behind\n"
    assert not (tmp_path / "out").exists()


def test_a_fault_of_our_own(run: Run, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("relink.planning.assess.decide", fault)
    words = [works.small(tmp_path), "--prefix", works.prefix]
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "a fault of relink itself (ZeroDivisionError: by nothing)" in err
    assert "Traceback" not in err
    monkeypatch.setenv("RELINK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main([str(word) for word in words])


def test_errors_of_ours_are_sentences(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("two things", ["the [bold]one[/bold]", "the \x1b[31mother"])

    monkeypatch.setattr("relink.runs.questions.inspect", refuse)
    code, _, err = run("inspect", "x.whl")
    assert (code, err) == (2, "relink: two things\n  - the [bold]one[/bold]\n  - the \\x1b[31mother\n")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding(encoding: str) -> None:
    code, out, err = outcome(process("rules", "RLK101", PYTHONIOENCODING=encoding, PYTHONUTF8="0"))
    assert (code, err) == (0, "")
    assert "missing library" in out


def test_a_name_that_is_not_text() -> None:
    name = os.fsdecode(b"\xff\xfe-1-py3-none-any.whl")
    code, out, err = forked("inspect", name)
    assert (code, out) == (2, "")
    assert "cannot be opened" in err
    assert "Traceback" not in err
