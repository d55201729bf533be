"""Who needs whom, as a tree: every library of a closure under the one that asks for it, with the rule that finds it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from rich.tree import Tree

from relink.loader.closure import Closure, Edge
from relink.loader.search import FoundBy
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model import FilePlan
from relink.planning.resolve.context import Layout
from relink.planning.resolve.strategy import matches_library
from relink.report.lines import Line, branch
from relink.system.text import group_pairs


class DependencyTree(msgspec.Struct, frozen=True):
    """One ELF member: what is planned for it, and what loading it then maps.

    :ivar root: the index of the member in the closure's `objects`; objects before it are mapped before it.
    :ivar sources: where libraries that are not found are to be had: soname → sentence.
    """

    file: FilePlan
    closure: Closure
    root: int
    layout: Layout
    sources: Mapping[str, str] = msgspec.field(default_factory=dict)


def dependency_trees(members: Sequence[DependencyTree], pattern: str | None = None) -> list[Tree]:
    """Draw the tree of each member that no other member has in its own.

    :param pattern: keep only the ways that lead to the libraries that this glob names (soname, without its version, or path); a
        member without such a way is left out.
    """
    if pattern is None:
        paths = {member.layout.path_of(member.file.path): member for member in members}
        inner: set[str] = set()
        for member in members:
            objects, root = member.closure.objects, member.root
            inner.update(objects[index].path for index in member.closure.scope if index != root)
        tops = [member for path, member in paths.items() if path not in inner]
        # In a cycle of NEEDED each is in another's tree and none on top, so all are drawn.
        return [_Drawing(member, pattern).draw() for member in tops or members]
    trees = (_Drawing(member, pattern).draw() for member in members)
    return [tree for tree in trees if tree.children]


@dataclass(slots=True)
class _Drawing:
    member: DependencyTree
    pattern: str | None
    drawn: set[int] = field(default_factory=set)
    edges: dict[int, list[Edge]] = field(init=False)
    leading: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        closure, root = self.member.closure, self.member.root
        scope = set(closure.scope)
        edges = [edge for edge in closure.edges if edge.requester >= root and edge.requester in scope]
        self.edges = group_pairs((edge.requester, edge) for edge in edges)
        leading = {edge.requester for edge in edges if self._wanted(edge)}
        # All that leads to a wanted edge: one step back along the edges each time, up to the root.
        while leading:
            self.leading |= leading
            leading = {edge.requester for edge in edges if edge.target in leading} - self.leading

    def _wanted(self, edge: Edge) -> bool:
        if self.pattern is None:
            return True
        path = None if edge.target is None else self.member.closure.objects[edge.target].path
        names = [edge.soname]
        if edge.requester == self.member.root and self.member.file.served:
            # What the member needed before the plan put this edge's in its place.
            names += [
                entry.soname
                for entry in self.member.file.needed
                if entry.action == "substitute" and entry.soname_after == edge.soname
            ]
        return any(matches_library(self.pattern, name, path) for name in names)

    def draw(self) -> Tree:
        file, rpath = self.member.file, self.member.file.rpath
        after = f"{(rpath.kind_after or '').upper()} {rpath.after}" if rpath.after else "no search path"
        note = f"  with {after}"
        if not file.served:
            note = "  left as it is: even with the prefixes in its search path something is missing"
        elif (rpath.before, rpath.kind_before) == (rpath.after, rpath.kind_after):
            note = "" if file.changed else "  unchanged"
        tree = branch((file.path, "bold"), (note, "dim"))
        self.drawn.add(self.member.root)
        self._branches(tree, self.member.root)
        for entry in file.needed if file.served else ():
            if entry.action == "drop" and (
                self.pattern is None or matches_library(self.pattern, entry.soname)
            ):
                tree.add(Line(f"{entry.soname}  dropped: {'; '.join(entry.evidence)}", style="red"))
        return tree

    def _branches(self, tree: Tree, requester: int) -> None:
        for edge in self.edges.get(requester, ()):
            leads = edge.target is not None and edge.target in self.leading
            if not (self._wanted(edge) or leads):
                continue
            if edge.target is None:
                self._missing(tree, edge)
                continue
            # A library is drawn in full once, below the object that it is loaded for (breadth first, as
            # _dl_map_object_deps in glibc's elf/dl-deps.c does it); elsewhere a line points there.
            here = edge.found_by is not None and edge.found_by.rule != "loaded"
            opens = here and edge.target not in self.drawn and not self._is_libc(edge.target)
            where = "above" if edge.target in self.drawn else "below"
            has_branches = edge.target >= self.member.root and bool(self.edges.get(edge.target))
            folds = not opens and leads and has_branches and not self._is_libc(edge.target)
            note, style = self._change(edge)
            name, served = (edge.soname, style or "bold"), (f"  {self._served(edge)}", "dim")
            fold = f"  (see {where})" if folds else ""
            below = tree.add(Line.assemble(name, served, (note, style), (fold, "dim")))
            if opens:
                self.drawn.add(edge.target)
                self._branches(below, edge.target)

    def _is_libc(self, index: int) -> bool:
        """Whether it is a part of the C library: these need each other in every closure, so their branches say nothing."""
        return self.member.closure.objects[index].image.soname in GLIBC_SONAMES

    def _served(self, edge: Edge) -> str:
        """The path and the loader's rule; if it is loaded already, the object that it was loaded for."""
        found_by, objects = edge.found_by, self.member.closure.objects
        target = edge.target or 0
        path = self.member.layout.shown(objects[target].path)
        if found_by is None or found_by.rule != "loaded":
            return f"{path}  {self._rule(found_by, edge.requester)}"
        if target < self.member.root:
            return f"{path}  loaded before, by the program"
        first = objects[target].loader
        if first is None:
            return f"{path}  already loaded"
        return f"already loaded for {posixpath.basename(objects[first].path)}"

    def _rule(self, found_by: FoundBy | None, requester: int) -> str:
        """The loader's rule; the owner of the search path is left out where that is the requesting object itself."""
        text = self.member.layout.shown(str(found_by))
        own = found_by is not None and found_by.owner == self.member.closure.objects[requester].path
        return text.rpartition(" of ")[0] if own else text

    def _change(self, edge: Edge) -> tuple[str, str]:
        """What the plan does to this NEEDED, for one of the member itself."""
        if edge.requester != self.member.root or not self.member.file.served:
            return "", ""
        for entry in self.member.file.needed:
            if entry.action == "add" and entry.soname == edge.soname:
                return "  added to NEEDED", "green"
            if entry.action == "substitute" and entry.soname_after == edge.soname:
                return f"  instead of {entry.soname}", "yellow"
        return "", ""

    def _missing(self, tree: Tree, edge: Edge) -> None:
        shown = self.member.layout.shown
        own = self.member.file.needed if edge.requester == self.member.root else ()
        allowed = any(entry.soname_after == edge.soname and entry.origin == "assumed" for entry in own)
        note = "  allowed to be missing" if allowed else ""
        below = tree.add(Line.assemble((edge.soname, "bold red"), ("  not found", "red"), (note, "yellow")))
        for tried in edge.tried:
            line = f"tried {shown(tried.path)}: {tried.reason} ({self._rule(tried.found_by, edge.requester)})"
            below.add(Line(line, style="dim"))
        if edge.soname in self.member.sources:
            below.add(Line(self.member.sources[edge.soname]))
