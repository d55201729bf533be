"""loader.tables: what one table alone defines needs no search, until another defines it, too."""

from __future__ import annotations

from pathlib import Path

from relink.elf.image import read_image
from relink.elf.symbols import SymbolTable
from relink.loader.closure import LoadedObject
from relink.loader.loading import trace
from relink.loader.search import Environment, FoundBy
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from tests.support.elf_builder import Library, build
from tests.unit.loader.planted import FIVE, compiled
from tests.unit.loader.symbol_tables import table


def member(name: str) -> LoadedObject:
    """A member of the wheel, as it lies in a closure."""
    return LoadedObject(
        f"/site/{name}", name, read_image(build(Library()), name), ("member", name), FoundBy("root")
    )


def test_tables_over_other_members_share_the_index() -> None:
    before, changed = table(imports="a", exports="b"), table(imports="a", exports="c")
    known = Tables(Files(), {"x.so": before, "y.so": before})
    other = known.over(Files(), {"x.so": before, "y.so": changed})
    assert other.of(member("x.so")) is before
    assert other.of(member("y.so")) is changed
    assert other.index is known.index


def test_two_programs_do_not_share_a_table(environment: Environment, lib: Path) -> None:
    tables = Tables(environment.files, {})
    for name in ("one", "two"):
        path = compiled(lib / f"lib{name}.so", f"int {name}(void) {{ return 1; }}")
        table = tables.of(trace(environment, str(path)).objects[0])
        assert name in table.exports


def test_a_file_that_went_away_has_no_symbols(environment: Environment, lib: Path) -> None:
    path = compiled(lib / "liba.so", FIVE)
    closure = trace(environment, str(path))
    path.unlink()
    assert Tables(environment.files, {}).of(closure.objects[0]) == SymbolTable()


def test_what_members_look_up_is_found_once() -> None:
    """Each defines what all of them look up: a table that came later would change the others' look-ups."""
    members = {f"{number}.so": table(imports="a", exports=f"a b{number}") for number in range(3)}
    tables = Tables(Files(), members)
    first = tables.index.lookups(tables.of(member("0.so")))
    for name in members:
        tables.of(member(name))
    assert tables.index.lookups(members["0.so"]) is first
    assert [*tables.index.owners("a")] == [*members.values()]
