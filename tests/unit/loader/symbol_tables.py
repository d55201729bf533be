"""Symbol tables of a few names each."""

from __future__ import annotations

from relink.elf.symbols import Export, Import, SymbolTable


def export(binding: str = "global") -> tuple[Export]:
    return (Export(None, False, binding, "func", "default", 1),)  # type: ignore[arg-type]


def table(imports: str = "", exports: str = "", references: str = "", unique: str = "") -> SymbolTable:
    return SymbolTable(
        imports=tuple(Import(name, None, None, "global", "func", 1) for name in imports),
        exports={name: export() for name in exports} | {name: export("unique") for name in unique},
        references=tuple((name, None) for name in references),
    )
