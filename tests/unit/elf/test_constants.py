"""The numbers of the ELF format: pyelftools' tables hold the same ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from elftools.elf import enums

from relink.elf import constants

NAMES = [name for name in vars(constants) if name.isupper()]
TABLES = {
    "ET": enums.ENUM_E_TYPE,
    "EM": enums.ENUM_E_MACHINE,
    "PT": enums.ENUM_P_TYPE_BASE,
    "SHN": enums.ENUM_ST_SHNDX,
    "SHT": enums.ENUM_SH_TYPE_BASE,
    "DT": {**enums.ENUM_D_TAG_COMMON, **enums.ENUM_D_TAG},
    "DF": enums.ENUM_DT_FLAGS,
    "DF_1": enums.ENUM_DT_FLAGS_1,
}


@pytest.mark.parametrize("kind", TABLES)
def test_pyelftools_has_the_same(kind: str) -> None:
    names = [name for name in NAMES if re.fullmatch(kind + r"_[A-Z]\w*", name)]
    assert names
    assert {name: getattr(constants, name) for name in names} == {name: TABLES[kind][name] for name in names}


def test_every_number_has_a_table() -> None:
    assert all(name.rpartition("_")[0].startswith(tuple(TABLES)) for name in NAMES)


def test_no_other_module_has_a_number_of_its_own() -> None:
    """A module that defines ``PT_LOAD`` or ``_PT_LOAD`` anew would have a second place for one fact."""
    again = re.compile(rf"^_?(?:{'|'.join(NAMES)})\b[^=\n]*=", re.MULTILINE)
    package = Path(constants.__file__).parents[1]
    places = [
        path
        for path in package.rglob("*.py")
        if again.search(path.read_text()) and path.name != "constants.py"
    ]
    assert places == []
