"""What people read cannot be forged: names of every kind and place, through every command, into a pipe and onto a terminal.

Each of the names below carries every character that could steer a terminal or begin a line, and rich's markup. They come by way
of member names, sonames, NEEDED, search paths, version nodes, symbols, interpreters, METADATA, WHEEL, RECORD, file names in a
prefix, what says its release, texts of profiles, GPU targets, saved reports, and words of the command line.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import unicodedata
import zipfile
from pathlib import Path
from typing import Any

import pytest

from relink import relink
from relink.elf.patchelf import find_patchelf
from relink.report.html.markup import tag
from relink.system.text import escape_untrusted
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export, Import, Library, build
from tests.support.forking import run_all
from tests.support.wheels import changed, make_wheel
from tests.support.works import TAG, Works
from tests.unit.gpu.amd.build import entries_of, library, raw
from tests.unit.wheel.build import Entry, RawZip, good_entries, write_raw

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# Of the planes above the second, the fifteenth alone has such characters; the others are ideographs, for private use or empty.
PLANES = (*range(1, 0x20000), *range(0xE0000, 0xF0000))
EVERY = [chr(code) for code in PLANES if unicodedata.category(chr(code)) in STEERING]
FAKE = "\nerror RLK999 fake ##[x]##vso[y]\n\r\x1b[2J\x1b]8;;mailto:evil\x07"
SHORT = f"{FAKE}\x9b1m\x85\u202e\u2066\u2069\u2028\u2029\u200b\udcff[bold]b"
NAME = SHORT + "".join(character for character in EVERY if not "\ud800" <= character <= "\udfff")
"""Lone surrogates stand for bytes that are no UTF-8; only those that Python makes of bytes can arrive."""
ELF = {
    "demo/a.so": Library(
        soname=NAME,
        needed=(NAME, f"{NAME}.so.1", "libhip.so.7"),
        runpath=f"/opt/rocm/{NAME}:$ORIGIN/{NAME}",
        imports=(Import(NAME, NAME, NAME), Import(f"{NAME}2", f"V{NAME}", "libhip.so.7"), Import("hip")),
        exports=(Export(f"{NAME}3", f"W{NAME}"),),
    ),
    "demo/prog": Library(interpreter=f"/lib/{SHORT}", needed=("libhip.so.7", NAME), rpath=f"/x/{NAME}"),
}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What rich and the terminal write for the bar: cursor hidden and shown, line cleared, one up; the kernel's line ends.
CURSOR = re.compile(r"\x1b\[(?:\?25[lh]|2K|1A)|\r")


def test_every_character_of_these_categories_is_spelled_out() -> None:
    assert len(EVERY) > 2000
    for character in (*EVERY, "\u00a0", "\ue000", "\U000e0002"):
        spelled = escape_untrusted(f"a{character}b")
        assert spelled.isascii()
        assert spelled.isprintable()
        assert ast.literal_eval(f"'{spelled}'") == f"a{character}b"
    assert escape_untrusted("libé-日本 [x]\\n.so") == "libé-日本 [x]\\n.so"
    assert tag("p", NAME) == f"<p>{escape_untrusted(NAME)}</p>"


PLAIN = SHORT.encode("utf-8", "replace").decode()
VISIBLE = "".join(sign for sign in PLAIN if unicodedata.category(sign) != "Cc").replace("?", "")
"""What a ZIP directory, METADATA and RECORD take: they refuse controls."""


@pytest.fixture(scope="module")
def files(works: Works, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files and directories with such names in them, by the words of :data:`COMMANDS`."""
    place = tmp_path_factory.mktemp("forged")
    made: dict[str, Path] = {"works": works.prefix, "out": place / "out"}

    def wheel(what: str, members: dict[str, bytes | Path]) -> None:
        made[what] = make_wheel(place / what, members, tag=TAG)

    wheel("forged", {name: build(facts) for name, facts in ELF.items()})
    wheel("visible", {f"demo/{VISIBLE}.so": works.library, f"demo/{VISIBLE}/b.so": works.library})
    compiled = place / "compiled.so"
    compiled.write_bytes(works.library.read_bytes())
    path = f"$ORIGIN:/opt/rocm/{SHORT}".encode("utf-8", "surrogateescape")
    subprocess.run([find_patchelf().path, "--set-rpath", path, compiled], check=True)
    wheel("compiled", {"demo/a.so": compiled})
    made["relinked"] = relinked(works, made["compiled"], place / "relinked")

    info = "demo-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: demo{VISIBLE}\nVersion: 1.0\n".encode()
    made["metadata"] = changed(made["forged"], place / "metadata", {f"{info}/METADATA": metadata})
    tags = f"Wheel-Version: 1.0\nTag: cp3{VISIBLE}-{TAG}\n".encode()
    made["tag"] = changed(made["forged"], place / "tag", {f"{info}/WHEEL": tags})
    entries = [Entry(f"demo_pkg/{PLAIN}.py".encode(), b"x", flags=0x800), *good_entries()]
    made["members"] = write_raw(place, RawZip(entries))
    record = good_entries()
    record[-1].data += f"demo_pkg/{VISIBLE},sha256=x,1\ndemo_pkg/{VISIBLE}2,,\n".encode()
    made["record"] = write_raw(place / "visible", RawZip(record))

    document = plan_of(made["relinked"])
    document["files"][0]["rpath"]["after"] = f"/{PLAIN}"
    document["target"]["python"] = document["target"]["interpreter"] = f"/{PLAIN}"
    where = f"{made['relinked'].name.split('-cp')[0]}.dist-info/relink.json"
    made["plan"] = changed(made["relinked"], place / "plan", {where: json.dumps(document).encode()})
    made["saved"] = place / "saved.json"
    made["saved"].write_text(json.dumps({"schema": "relink.report/1", PLAIN: 1, "files": [{PLAIN: 1}]}))

    made["prefix"] = prefix = place / "rocm"
    shutil.copytree(works.prefix, prefix)
    (prefix / "lib" / SHORT).mkdir()
    for name in (f"lib{SHORT}.so.1", f"{SHORT}/lib{SHORT}.so.2", "libamdhip64.so.7"):
        (prefix / "lib" / name).write_bytes(build(Library(soname=NAME, needed=(NAME,))))
    (prefix / "lib" / f"libbad{SHORT}.so").write_bytes(b"\x7fELF")
    (prefix / "lib" / f"libfat{SHORT}.so").write_bytes(library([raw(entries_of("gfx1030"))]))
    (prefix / ".info" / "version").write_text(f"7.2.4{PLAIN}")

    made["gpu"] = place / f"lib{SHORT}.so"
    bundles = [raw({f"hipv4-amdgcn-amd-amdhsa--gfx1030{SHORT}": b"x" * 64}), b"__CLANG_OFFLOAD_BUNDLE__" * 9]
    made["gpu"].write_bytes(library(bundles))

    text = json.dumps("".join(sign for sign in PLAIN if ord(sign) < 0x10000))
    made["profile"] = place / f"p{SHORT}.toml"
    made["profile"].write_text(
        f'schema = "relink.profile/1"\nname = "p"\ndistributions = ["demo"]\nsource = {text}\n'
        f'[[hints]]\ncode = "RLK101"\nsubject = "*"\ntext = {text}\n'
    )
    made["broken"] = place / "broken.toml"
    made["broken"].write_text(f"schema = {text}\nname = {text}\n{text} = 1\n[[hints]]\ncode = {text}\n")
    made["comments"] = place / "comments.toml"
    made["comments"].write_text(f"# {NAME.encode('utf-8', 'replace').decode()}".replace("\n", "") + "\n")
    return {what: str(path) for what, path in made.items()}


def relinked(works: Works, wheel: Path, directory: Path) -> Path:
    report = relink(wheel, works.options(directory))
    assert report.output is not None
    return Path(report.output.path)


def plan_of(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(
            archive.read(next(name for name in archive.namelist() if name.endswith("/relink.json")))
        )


COMMANDS = {
    "run": "run {compiled} --prefix {works} -o {out} -v",
    "run, as it is printed by itself": "run {compiled} --prefix {works} -o {out}",
    "run -v": "run {forged} --prefix {works} -o {out} -v --dry-run",
    "run, with errors": "run {forged} --prefix {works} -o {out}",
    "run --allow-missing": "run {forged} --prefix {works} --dry-run --allow-missing * --assume-symbols * -v",
    "run --profile": "run {forged} --prefix {works} --profile {profile} --dry-run",
    "run --prefix": "run {forged} --prefix {prefix} --gpu gfx1100 --dry-run -v",
    "run members": "run {visible} --prefix {works} -o {out} -v",
    "inspect": "inspect {forged}",
    "inspect members": "inspect {members}",
    "inspect visible": "inspect {visible}",
    "inspect record": "inspect {record}",
    "inspect metadata": "inspect {metadata}",
    "inspect tag": "inspect {tag}",
    "explain": "explain {forged} --prefix {works}",
    "explain LIBRARY": "explain {forged} name* --prefix {works}",
    "verify": "verify {forged}",
    "verify plan": "verify {plan}",
    "diff": "diff {compiled} {relinked} -v",
    "diff others": "diff {visible} {forged} -v",
    "diff plan": "diff {compiled} {plan} -v",
    "isa": "isa {gpu} --gpu gfx1031",
    "isa wheel": "isa {forged}",
    "isa directory": "isa {prefix}",
    "doctor": "doctor --prefix {prefix}",
    "nix": "nix {forged} --prefix {works} -o {out} -v",
    "profile show": "profile show {comments}",
    "profile check": "profile check {broken}",
    "profile check --wheel": "profile check {profile} --wheel {forged}",
    "report": "report {saved} -o {out}",
    "report plan": "report {plan} -o {out}.html",
    "nothing there": "inspect name",
    "wrong option": "inspect --name",
    "too many words": "explain name name name",
    "wrong value": "inspect {forged} --limit name",
    "no prefix": "run {forged} --prefix name",
    "no GPU": "isa {gpu} --gpu name",
    "no python": "run {forged} --prefix {works} --python name",
    "no interpreter": "run {forged} --prefix {works} --interpreter name",
    "no substitute": "run {forged} --prefix {works} --substitute name",
    "no select": "run {forged} --prefix {works} --select name --dry-run",
    "no profile": "run {forged} --prefix {works} --profile name",
    "no rule": "rules name",
    "no output": "run {compiled} --prefix {works} -o {forged}/name",
    "no page": "run {forged} --prefix {works} --report {forged}/name/name.html",
}
# These print nothing of such a name; nothing raw is to be seen in them all the same.
SILENT = {"run, as it is printed by itself", "isa wheel", "report", "report plan", "diff", "diff plan"}
WIDE = 1 << 15  # columns, so that no line is wrapped


TERMINAL = pytest.param(
    WIDE,
    id="terminal",
    marks=pytest.mark.slow(
        reason="all commands once more; what a pipe shows to be wrong is mostly wrong here, too"
    ),
)


@pytest.fixture(scope="module", params=[pytest.param(None, id="pipe"), TERMINAL])
def printed(request: pytest.FixtureRequest, files: dict[str, str]) -> dict[str, tuple[int, str]]:
    """What each command prints, into a pipe or onto a terminal."""
    asked = [
        [word if word == "*" else word.format(**files).replace("name", SHORT) for word in command.split()]
        for command in COMMANDS.values()
    ]
    answers = run_all([(words, request.param) for words in asked])
    return {
        name: (code, CURSOR.sub("", said) if request.param else said)
        for name, (code, said) in zip(COMMANDS, answers, strict=True)
    }


@pytest.mark.few(0, reason="every command is run; tests of relink.system.text have the escaping")
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_raw_is_printed(printed: dict[str, tuple[int, str]], command: str) -> None:
    """Neither a control character nor a line that a name began reaches standard output or standard error."""
    code, said = printed[command]
    assert code in (0, 1, 2)
    assert "Traceback" not in said
    assert "fault of relink" not in said
    lines = COLOURS.sub("", said).split("\n")
    steering = [sign for line in lines for sign in line if unicodedata.category(sign) in STEERING]
    assert {f"{ord(sign):04x}" for sign in steering} == set()
    assert "##" not in said
    assert [line for line in lines if line.strip("│├└─╭╰ ").startswith("error RLK999")] == []
    if command not in SILENT:
        # Its beginning, its middle, and what is markup to rich: it was printed, and spelled out.
        told = " ".join(lines)
        assert "error RLK999" in told
        assert "\\u202e" in told
        assert "[bold]b" in told


@pytest.mark.slow(reason="every command is run")
def test_json_keeps_the_names_and_is_ascii(files: dict[str, str]) -> None:
    """Programs get the names as they are; JSON's own escapes keep them from a terminal."""
    forged, works = files["forged"], files["works"]
    asked = [["inspect", forged, "--json"], ["run", forged, "--prefix", works, "--dry-run", "--json"]]
    for _, out in run_all([(words, None) for words in asked]):
        assert out.isascii()
        assert {unicodedata.category(sign) for sign in out if sign != "\n"} & STEERING == set()
        needed = json.loads(out)["files"][0]["needed"]
        assert NAME in [item if isinstance(item, str) else item["soname"] for item in needed]


# What a runner of continuous integration takes for a command of its own

CI_COMMANDS = (
    "##[set-output name=x;]a.so",
    "lib##[add-path]b.so",
    "###[add-path]c.so",
    "#\ufe0f#[add-path]d.so",
    "##vso[task.setvariable variable=x]e.so",
    "::set-output name=x::f.so",
    " ::add-path::g.so",
    "\ufe0f::add-path::h.so",
    "i ::add-path::i.so",
)
CI_ASKED = {
    "text": "run {ci} --prefix {works} --dry-run",
    "verbose": "run {ci} --prefix {works} --dry-run -v",
    "quiet": "run {ci} --prefix {works} --dry-run -q",
    "json": "run {ci} --prefix {works} --dry-run --json",
    "sarif": "run {ci} --prefix {works} --dry-run --output-format sarif",
    "github": "run {ci} --prefix {works} --dry-run --output-format github",
    "inspect": "inspect {ci}",
    "inspect json": "inspect {ci} --json",
    "explain": "explain {ci} --prefix {works}",
    "verify": "verify {ci}",
    "verify sarif": "verify {ci} --output-format sarif",
    "verify github": "verify {ci} --output-format github",
    "nix": "nix {ci} --prefix {works} -o {out}",
    "error": "inspect ##[add-path]x.whl",
    "usage": "inspect {ci} ::add-path::x ##[add-path]y",
}


def ci_command(line: str) -> str | None:
    """The command that a runner reads in a line: as ActionCommand.cs of actions/runner and Command.cs of Azure's agent have it.

    .NET compares strings by the rules of a culture, and these leave out variation selectors.
    """
    line = line.replace("\ufe0f", "")
    for mark in ("##[", "##vso["):
        if mark in line and "]" in line.partition(mark)[2]:
            return line.partition(mark)[2]
    start = line.lstrip()
    return start[2:].partition("::")[0] if start.startswith("::") and "::" in start[2:] else None


@pytest.fixture(scope="module")
def ci_printed(works: Works, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("ci")
    library = build(Library(needed=CI_COMMANDS, exports=tuple(Export(name) for name in CI_COMMANDS)))
    user = build(Library(imports=tuple(Import(name) for name in CI_COMMANDS)))
    wheel = make_wheel(place, {"demo/a.so": library, "demo/b##[add-path].so": user}, tag=TAG)
    names = {"ci": wheel, "works": works.prefix, "out": place / "out"}
    words = [[word.format(**names) for word in command.split()] for command in CI_ASKED.values()]
    answers = run_all([(asked, None) for asked in words])
    return {name: said for name, (_, said) in zip(CI_ASKED, answers, strict=True)}


@pytest.mark.parametrize("asked", CI_ASKED)
def test_ci_log_commands(ci_printed: dict[str, str], asked: str) -> None:
    """No name of a wheel is a command to GitHub's or Azure's runner, in whatever is printed."""
    lines = ci_printed[asked].splitlines()
    assert any("add-path" in line for line in lines)
    read = [command for line in lines if (command := ci_command(line)) is not None]
    own = [command for command in read if command.split(" ")[0] in ("error", "notice", "warning")]
    assert (read, bool(own)) == (own, "github" in asked)


def test_ci_log_commands_leave_json_as_it_was(ci_printed: dict[str, str]) -> None:
    needed = json.loads(ci_printed["json"])["files"][0]["needed"]
    assert [found["soname"] for found in needed] == list(CI_COMMANDS)


def test_rich_is_used_where_everything_is_escaped_only() -> None:
    """Every other module prints by relink.report.lines; typer has its own help and errors."""
    package = Path(__file__).resolve().parents[3] / "relink"
    using = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "rich." in (source := path.read_text()) or "print(" in source
        for node in ast.walk(ast.parse(source))
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("rich.")
            and node.module != "rich.console"
        )
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print")
    }
    assert using == {"report/lines.py", "report/tree.py", "cli/terminal.py"}
