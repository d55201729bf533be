"""Compiled libraries for planning: a provider on disk and a wheel's members that stay in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from relink.elf.image import DLOPEN, Image, library_names, read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import find_target
from relink.planning.resolve.context import Layout, ResolveContext
from relink.planning.resolve.decide import PlanDraft, decide
from relink.providers.prefix import open_prefix
from relink.providers.profiles import NO_PROFILE, Profile
from relink.vendors.rocm.vendor import rocm
from tests.support.cc import shared


@dataclass
class Scene:
    """A directory with a prefix and members, and the decisions about them.

    Libraries are given as (path below the prefix or member name, sonames needed); they import nothing unless a source is given.
    """

    root: Path
    profile: Profile = NO_PROFILE
    allow_missing: tuple[str, ...] = ()
    substitutes: tuple[tuple[str, str], ...] = ()
    assume_symbols: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    preload_known: bool = True
    search_path: str = "auto"
    images: dict[str, Image] = field(default_factory=dict)
    tables: dict[str, SymbolTable] = field(default_factory=dict)
    opens: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def prefix(self) -> Path:
        return self.root / "prefix"

    def _stub(self, soname: str) -> Path:
        """A library to link against, so that the linker writes NEEDED."""
        path = self.root / "stubs" / soname
        return path if path.exists() else shared(path, "int relink_stub;")

    def library(
        self,
        path: Path,
        needed: Sequence[str] = (),
        source: str = "",
        flags: Sequence[str] = (),
        soname: str | None = None,
    ) -> Path:
        return shared(path, source, needed=[self._stub(name) for name in needed], flags=flags, soname=soname)

    def provide(
        self,
        name: str,
        needed: Sequence[str] = (),
        source: str = "int f(void){return 1;}",
        flags: Sequence[str] = (),
    ) -> Path:
        return self.library(self.prefix / name, needed, source, flags)

    def member(
        self,
        name: str,
        needed: Sequence[str] = (),
        source: str = "int g(void){return 2;}",
        flags: Sequence[str] = (),
    ) -> Path:
        path = self.library(self.root / "members" / name, needed, source, flags)
        data = path.read_bytes()
        self.images[name] = read_image(data, name)
        self.tables[name] = read_symbols(data)
        if any(imported.name in DLOPEN for imported in self.tables[name].imports):
            self.opens[name] = library_names(data, self.images[name])
        return path

    def versions(self, *nodes: str) -> str:
        """A linker flag for a version script: ``hip_4.2:f,g`` defines f and g in node hip_4.2."""
        script = self.root / f"versions-{abs(hash(nodes))}.map"
        lines = []
        for number, node in enumerate(nodes):
            name, _, symbols = node.partition(":")
            parent = nodes[number - 1].partition(":")[0] if number else ""
            names = "".join(f" {symbol};" for symbol in symbols.split(",") if symbol)
            lines.append(f"{name} {{ global:{names} }} {parent};" if names else f"{name} {{ }} {parent};")
        script.write_text("\n".join(lines))
        return f"-Wl,--version-script={script}"

    def context(self) -> ResolveContext:
        target = find_target()
        layout = Layout(site="lib/python3.11/site-packages")
        return ResolveContext(
            target=target,
            seen=Tables(Files()),
            providers=(open_prefix(str(self.prefix), target),),
            images=dict(self.images),
            tables=self.tables,
            layout=layout,
            profile=self.profile,
            allow_missing=self.allow_missing,
            substitutes=self.substitutes,
            assume_symbols=self.assume_symbols,
            preload=self.preload,
            preload_known=self.preload_known,
            search_path=self.search_path,
            vendor=rocm,
            opens=self.opens,
            member_directories=frozenset(str(Path(layout.path_of(name)).parent) for name in self.images),
        )

    def decide(self) -> PlanDraft:
        draft = decide(self.context())
        return decide(self.context(), leave_optional=False) if draft.is_in_vain else draft

    def decide_again(self, decisions: PlanDraft) -> PlanDraft:
        """Plan the members as the first plan leaves them."""
        images = {name: outcome.image for name, outcome in decisions.outcomes.items()}
        return decide(replace(self.context(), images=images))


def codes(decisions: PlanDraft) -> list[str]:
    return [found.code for found in decisions.findings]


def define(*names: str) -> str:
    return "".join(f"int {name}(void){{return 1;}} " for name in names)


def call(*names: str) -> str:
    uses = "+".join(f"{name}()" for name in names)
    return "".join(f"extern int {name}(void); " for name in names) + f"int uses(void){{return {uses};}}"


def opens(soname: str) -> str:
    opening = "extern void *dlopen(const char *, int); void *opened(void){return dlopen(name(), 1);} "
    return f'const char *name(void){{return "{soname}";}} {opening}'
