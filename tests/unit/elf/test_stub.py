"""elf.stub: what a caller of a stub sees, and that the loader, binutils and relink's reader take it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.elf.stub import EXIT_STATUS, StubFunction, build_stub
from relink.elf.symbol_reader import read_symbols
from relink.loader.scan import scan
from tests.support.cc import cc
from tests.support.elf_builder import SUPPORTED, WHY_NOT

pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)

SENTENCE = "libmany.so.1: many_name was called, and this is a stub: no ROCm here has it."
TEXT = "this is a stub"
FUNCTIONS = (
    StubFunction("many_init", "MANY_1", 5),
    StubFunction("many_stop", "MANY_1", -10),
    StubFunction("many_name", None, None, SENTENCE),
    StubFunction("many_more", "MANY_2", 0x7FFFFFFF),
    StubFunction("many_text", None, None, text=TEXT),
    StubFunction("many_store", "MANY_1", -3, text=TEXT),
)
_CALLER = """
#include <stdio.h>
int many_init(void *, int); int many_stop(void); const char *many_name(int); int many_more(void);
const char *many_text(int); int many_store(int, const char **);
int main(int argc, char **argv) {
  const char *stored = "";
  int status = many_store(0, &stored);
  printf("%s|%d|%s|%d\\n", many_text(1), status, stored, many_store(0, 0));
  printf("%d %d %d\\n", many_init(argv, 3), many_stop(), many_more()); fflush(stdout);
  if (argc > 1) puts(many_name(1));
  return 0;
}
"""


@pytest.fixture
def caller(tmp_path: Path) -> Path:
    library = tmp_path / "libmany.so.1"
    library.write_bytes(build_stub("libmany.so.1", FUNCTIONS))
    return cc(_CALLER, tmp_path / "caller", "-Wl,-rpath,$ORIGIN", needed=[library])


def test_a_call_returns_the_components_own_value_or_a_text(caller: Path) -> None:
    run = subprocess.run([caller], capture_output=True, text=True, env={"LD_BIND_NOW": "1"}, check=True)
    assert (run.stdout, run.stderr) == (f"{TEXT}|-3|{TEXT}|-3\n5 -10 2147483647\n", "")


def test_any_other_call_says_why_and_ends_the_process(caller: Path) -> None:
    run = subprocess.run([caller, "name"], capture_output=True, text=True, check=False)
    assert run.returncode == EXIT_STATUS
    assert run.stderr == SENTENCE + "\n"


def test_symbols_and_versions() -> None:
    data = build_stub("libmany.so.1", FUNCTIONS)
    image, table = read_image(data, "libmany.so.1"), read_symbols(data)
    assert (image.soname, image.needed, image.search_path) == ("libmany.so.1", (), None)
    assert table.problems == ()
    assert {name: (one[0].version, one[0].type) for name, one in table.exports.items()} == {
        "many_init": ("MANY_1", "func"),
        "many_stop": ("MANY_1", "func"),
        "many_name": (None, "func"),
        "many_more": ("MANY_2", "func"),
        "many_text": (None, "func"),
        "many_store": ("MANY_1", "func"),
    }
    assert [node.name for node in table.verdefs] == ["libmany.so.1", "MANY_1", "MANY_2"]
    assert not scan(data)  # nothing in it acts when it is loaded


def test_one_without_versions_and_one_without_functions() -> None:
    table = read_symbols(build_stub("liba.so", [StubFunction("f", None, 1)]))
    assert (table.verdefs, table.problems, list(table.exports)) == ((), (), ["f"])
    assert read_symbols(build_stub("liba.so", [])).problems == ()


def test_more_version_nodes_than_there_are_numbers() -> None:
    with pytest.raises(ValueError, match="32767 version nodes"):
        build_stub("libmany.so.1", (), [str(number) for number in range(0x7FFF)])


def test_the_same_bytes_every_time() -> None:
    assert build_stub("libmany.so.1", FUNCTIONS) == build_stub("libmany.so.1", list(FUNCTIONS))


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_binutils_read_it(tmp_path: Path) -> None:
    path = tmp_path / "libmany.so.1"
    path.write_bytes(build_stub("libmany.so.1", FUNCTIONS))
    run = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert "many_init@@MANY_1" in run.stdout
