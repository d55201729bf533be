"""A newcomer's walk: the commands of README.md and of docs/start.md, typed into an empty directory, print what stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.support import transcripts
from tests.support.built import ROOT, build, own_python_first, skip_without_index
from tests.support.debian import same_rocm

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/README.md"),
]
WALKS = {"README.md": README, "start.md": (ROOT / "docs/start.md").read_text(encoding="utf-8")}
BY_STAND_INS = ("hpc.md", "wsl.md", "programs.md")
"""Pages whose blocks tests/unit/test_fixed_hosts.py runs."""
USER_STORY = "<!-- not run: by scripts/user_story.py, in a chroot of Debian sid -->"
CUT = "<!-- not run: cut from docs/start.md, which scripts/user_story.py writes -->"
FAULT = "<!-- not run: for a machine with this fault -->"
"""Over each block of docs/symptoms.md. tests/unit/test_site.py looks whether the commands and options exist."""
# What these bring is from elsewhere and may not be to be had.
_BROUGHT = re.compile(r"pip download|fetch-rocm-prefix|pip install|pip wheel|relink demo")


@pytest.mark.real
@pytest.mark.network
@pytest.mark.parametrize("name", WALKS)
def test_a_newcomers_walk(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: relink demo makes a stand-in for ROCm with it")
    directory = tmp_path_factory.mktemp("walk")
    build(tmp_path_factory).unpack(directory)  # what a checkout has, and nothing that it only has here
    asked = transcripts.commands(WALKS[name])
    start = directory / "relink" if name == "README.md" else directory
    results = transcripts.run(asked, start, _environment())
    for command, result in zip(asked, results, strict=False):
        if result.code and _BROUGHT.search(command.text):
            skip_without_index(result.output)
            if "fetch-rocm-prefix" in command.text and result.code == 3:
                pytest.skip(f"no ROCm prefix can be fetched here: {result.output.strip()}")
        assert result.code == 0, f"{name}:{command.line}: {command.text}\n{result.output}"
        if "fetch-rocm-prefix" in command.text:
            same_rocm(directory / "rocm", WALKS[name])
        assert transcripts.show(result.output) == command.shown, f"{name}:{command.line}: {command.text}"
    assert len(results) == len(asked)


def _environment() -> dict[str, str]:
    environment = own_python_first()
    if wheels := os.environ.get("RELINK_REAL_WHEELS"):
        environment["PIP_FIND_LINKS"] = f"{environment.get('PIP_FIND_LINKS', '')} {wheels}".strip()
    return environment


def test_every_block_is_run_or_says_why_not() -> None:
    """At most ten blocks of commands in README and docs are not run, each with its reason; docs/cli.md is checked elsewhere."""
    not_run = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        fences = re.findall(r"(?:^(<!-- .*)\n)?^```(\w*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        for comment, language in fences:
            if language not in ("console", "sh", "bash") or path.name == "cli.md":
                continue
            assert path.name in (*WALKS, *BY_STAND_INS) or comment, (
                f"{path.name}: a block of commands that no test runs"
            )
            if comment and comment not in (USER_STORY, CUT, FAULT):
                assert re.fullmatch(r"<!-- not run: .+ -->", comment), (path.name, comment)
                not_run.append(path.name)
    assert len(not_run) <= 10, not_run


BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_block_can_be_read_and_pasted(document: Path) -> None:
    """It has no prompt, and no line that a page cuts off; a shell takes what is typed and what is printed, which are comments."""
    for found in BLOCK.finditer(document.read_text(encoding="utf-8")):
        text = textwrap.dedent(found[3])
        if found[2] not in ("mermaid", "python"):  # Python is as ruff formats it
            assert [line for line in text.splitlines() if len(line) > 100] == []
        assert found[2] not in ("console", "bash"), "a block of commands is called sh"
        if found[2] == "sh":
            assert re.findall(r"^\$ .*", text, re.MULTILINE) == []
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_the_tests_of_readme_are_those_of_make_test() -> None:
    (command,) = re.findall(r"^python3 scripts/set_up.py (pytest.*)$", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^test: JOBS \?= 2$", makefile, re.MULTILINE)
    assert "PYTEST = $(BIN)/pytest -n $(JOBS)" in makefile
    assert command == "pytest -n 2"


def test_the_picture_shows_what_the_walk_printed() -> None:
    """Each soname of README's picture, and what is in its place, is in the output that docs/start.md has of the same wheel."""
    picture = README[README.index("```text\n") : README.index("\n```\n")]
    start = re.sub(r"\n#\s+", " ", WALKS["start.md"])  # long lines are folded there
    for soname, after in re.findall(r"^  (lib\S+) +not found +(\S+)", picture, re.MULTILINE):
        change = f"{soname} → {after}" if after.startswith("lib") else f"RLK125 {soname}: a stub"
        assert change in start, soname
    assert "xla_rocm_plugin.so" in start
    assert len(re.findall("not found", picture)) == 3


def test_readmes_journey_is_what_start_has() -> None:
    """Each line of README's walk from check to undo is in docs/start.md; `…` stands for the rest of it, or for lines left out."""
    block = README.partition(f"{CUT}\n```sh\n")[2].partition("```")[0]
    lines = iter(WALKS["start.md"].splitlines())
    assert len(block.splitlines()) >= 10
    for line in block.splitlines():
        begin, cut, _ = line.partition(" …")
        assert any(one.startswith(begin) if cut else one == begin for one in lines), line


def test_readme_can_be_finished() -> None:
    """On a terminal of 100 columns; a row of a table cannot be broken."""
    assert README.count("\n") <= 155
    for page in (README, WALKS["start.md"], (ROOT / "docs/symptoms.md").read_text(encoding="utf-8")):
        assert [line for line in page.splitlines() if len(line) > 100 and line[0] != "|"] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (document.parent / link).exists(), link
    for path in re.findall(
        r"`((?:relink|tests|profiles|nix|docs|examples|scripts|benchmarks)/[\w./*-]+)`", text
    ):
        assert list(ROOT.glob(path.rstrip("/").replace("NAME", "*"))), path


def _places(document: Path) -> set[str]:
    """The names by which links lead to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_a_heading(document: Path) -> None:
    for path, place in re.findall(r"\]\(([^)#:\s]*\.md|)#([^)]*)\)", document.read_text(encoding="utf-8")):
        assert place in _places(document.parent / path if path else document), f"{path}#{place}"


def test_a_pair_that_is_not_sound_is_called_so_before_anything_else() -> None:
    """Debian's MIGraphX brings a second HIP runtime into the process: what shows it must not be taken for a recipe."""
    shown = ROOT.glob("examples/**/README.md")
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in shown}
    pairs = {
        name: body.partition("\n")[2]
        for name, body in texts.items()
        if re.search(r"onnxruntime[-_]migraphx", body)
        and "Debian" in body
        and not {"demo", "nix"} & set(name.split("/"))
    }
    assert [*pairs] == ["examples/dockerfile/README.md"]
    for name, body in pairs.items():
        before, _, _ = re.split(r"(onnxruntime[-_]migraphx)", body, maxsplit=1)
        assert "**not work on a GPU**" in before, name
    assert "migraphx" not in README.lower()


def test_the_tables_of_distributions_agree() -> None:
    row = re.compile(r"^\| [^|]+ \| `--[^\n]+", re.MULTILINE)
    distributions = (ROOT / "docs/distributions.md").read_text(encoding="utf-8")
    rows = [found.replace("](docs/", "](") for found in row.findall(README)]
    assert len(rows) == 8
    assert rows == row.findall(distributions)


def test_blocks_are_run_in_one_shell_until_one_fails(tmp_path: Path) -> None:
    text = "```sh\nx=1; \\\n  pwd\n# old\necho $x in 12 s\n```\n<!-- not run: why -->\n```sh\nexit 3\n```\n"
    asked = transcripts.commands(text + "```sh\nfalse\necho never\n```\n")
    assert [command.text for command in asked] == ["x=1; \\\n  pwd", "echo $x in 12 s", "false", "echo never"]
    assert asked[0].shown == ["# old"]
    results = transcripts.run(asked, tmp_path, dict(os.environ))
    assert results == [
        transcripts.Result(0, f"{transcripts.HOME}\n"),
        transcripts.Result(0, "1 in 9 s\n"),
        transcripts.Result(1, ""),
    ]
    shown = transcripts.rewritten(text, asked[:2], results[:2])
    assert shown.splitlines()[3:6] == [f"# {transcripts.HOME}", "echo $x in 12 s", "# 1 in 9 s"]
    assert shown.count("\n") == text.count("\n") + 1
    assert transcripts.show(f"  a{' b' * 44}\n\n\tc  d\n") == [
        f"#   a{' b' * 42}",
        "#     b b",
        "#",
        "# \tc  d",
    ]
    with pytest.raises(ValueError, match="line 2: output without a command"):
        transcripts.commands("```sh\n# a\n```\n")


MODULES = sorted(
    path
    for path in (ROOT / "relink").iterdir()
    if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem not in ("__init__", "__main__")
)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_the_architecture_names_every_package_and_module(module: Path) -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert f"`relink/{module.name}{'' if module.suffix else '/'}`" in text


def test_every_package_has_a_section_that_names_its_own_modules() -> None:
    sections = re.split(r"^## ", (ROOT / "docs/packages.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    by_name = {found[1]: section for section in sections if (found := re.match(r"`relink/(\w+)/`", section))}
    assert sorted(by_name) == [module.name for module in MODULES if module.is_dir()]
    for name, section in by_name.items():
        for word in ("**Takes**", "**Add"):
            assert word in section, (name, word)
        for module in re.findall(r"`([\w/]+\.py)`", section):
            if not module.startswith(("relink/", "tests/")):
                assert (ROOT / "relink" / name / module).exists() or list(
                    (ROOT / "relink" / name).rglob(module)
                ), (name, module)


_ODD = re.compile(r"\b(?:the road|the rooms?|the house|station|circles)\b", re.IGNORECASE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_use_the_words_of_the_field(document: Path) -> None:
    assert _ODD.findall(document.read_text(encoding="utf-8")) == []
