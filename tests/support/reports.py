"""A report in which everything occurs that a page can show, and a reader of pages."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

from relink.planning.model import (
    FilePlan,
    InterpreterChange,
    Load,
    NeededDecision,
    Plan,
    ProviderFacts,
    RpathChange,
    TargetFacts,
    WheelFacts,
)
from relink.report.model import OutputFacts, Report
from relink.system.findings.model import RULES, Finding

__all__ = ["Element", "Page", "isa_block", "sample_report"]

VOID = {"meta", "input", "wbr"}


class Element:
    """One element: its attributes, what is in it, and all text below it."""

    def __init__(self, name: str, attributes: dict[str, str | None], parent: Element | None) -> None:
        self.name, self.attributes, self.parent = name, attributes, parent
        self.children: list[Element] = []
        self.parts: list[str | Element] = []

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    def all(self, name: str | None = None, class_: str | None = None) -> list[Element]:
        """The elements below, in order."""
        found = []
        for child in self.children:
            if (name is None or child.name == name) and (class_ is None or class_ in child.classes()):
                found.append(child)
            found += child.all(name, class_)
        return found

    def one(self, name: str | None = None, class_: str | None = None) -> Element:
        (found,) = self.all(name, class_)
        return found


class Page(HTMLParser):
    """A page as a tree; a tag that is not closed in its place is an error."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.current = Element("", {}, None)
        self.feed(page)
        self.close()
        assert self.current is self.root, f"<{self.current.name}> is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        element = Element(tag, dict(attrs), self.current)
        self.current.children.append(element)
        self.current.parts.append(element)
        if tag not in VOID:
            self.current = element

    def handle_endtag(self, tag: str) -> None:
        assert self.current.name == tag, f"</{tag}> closes <{self.current.name}>"
        assert self.current.parent is not None
        self.current = self.current.parent

    def handle_data(self, data: str) -> None:
        self.current.parts.append(data)


def isa_block(text: Callable[[str], str] = str) -> dict[str, object]:
    """A report's ``isa`` object with every state, `text` being put around all names."""
    path, library, quiet = text("pkg/root.so"), text("/p/lib/librocblas.so.5"), text("pkg/quiet.so")
    facts = {"partial": {}, "embedded": 0, "unreadable": 0}
    return {
        "files": [
            {
                **facts,
                "path": path,
                "container": text("ccob-v3"),
                "bundles": 3,
                "targets": ["gfx1030"],
                "problems": [],
            },
            {
                **facts,
                "path": quiet,
                "container": "none",
                "bundles": 0,
                "targets": [],
                "problems": [text("odd")],
            },
        ],
        "targets": ["gfx1030"],
        "libraries": [
            {
                **facts,
                "path": library,
                "container": "raw",
                "bundles": 1,
                "targets": ["gfx1030"],
                "problems": [],
                "name": text("rocBLAS"),
                "optional": True,
                "side_files": [],
                "levels": {"gfx1030": "full"},
            }
        ],
        "common": {"targets": ["gfx1030"], "conditional": ["gfx90a"], "removed": {}},
        "runtime": {
            "hip": "7.2.1",
            "rocm": "7.2.4",
            "generic": True,
            "kpack": "unknown",
            "agents": ["gfx90a", "gfx1030", "gfx1031"],
            "jit": ["gfx1030"],
            "libraries": {"libamdhip64": text("/p/lib/libamdhip64.so.7")},
        },
        "gpus": [
            {
                "target": "gfx1031",
                "name": text("RX 6750 XT"),
                "products": [text("RX 6700")],
                "local": True,
                "covered": False,
                "state": "none",
                "levels": {},
                "remedies": [{"kind": "rebuild", "text": text("rebuild it"), "workaround": False}],
            }
        ],
        "requirements": [
            {
                "what": text("code objects"),
                "needed": "version 6",
                "available": "up to 5",
                "verdict": "no",
                "files": [path],
            }
        ],
        "matrix": {
            path: {
                "gfx90a": "only as gfx90a:xnack+",
                "gfx1030": "full",
                "gfx1031": "none",
                "gfx1100": "partial (2 of 3)",
            },
            library: {"gfx90a": "slow", "gfx1030": "jit", "gfx1031": "unknown", "gfx1100": "full"},
        },
    }


def sample_report(text: Callable[[str], str] = str, *, output: bool = False, gone: int = 2) -> Report:
    """A root that needs a library of each origin, by each change; another that is not served; one that stays as it is.

    :param text: put around every name and sentence.
    :param gone: entries of the root's search path that go.
    """
    root, kept, added = text("$WHEEL/pkg/root.so"), text("/p/lib/libkept.so.1"), text("/p/lib/libadded.so.3")
    new, libc, own = text("/p/lib/libnew.so.2"), "/lib/libc.so.6", text("$WHEEL/pkg/own.so")
    lost, later, dropped = text("liblost.so.1"), text("liblater.so.1"), text("libdropped.so.1")
    rule = text("RUNPATH entry /p/lib") + f" of {root}"

    def need(
        soname: str,
        path: str | None,
        action: str = "keep",
        after: str | None = None,
        origin: str = "provider",
    ) -> NeededDecision:
        return NeededDecision(
            soname,
            action,  # type: ignore[arg-type]
            None if action == "drop" else after or soname,
            path,
            rule if path else None,
            origin,  # type: ignore[arg-type]
            () if action == "keep" else (text("4 of 4 imported symbols are exported"),),
        )

    before = ":".join(["$ORIGIN", *(text(f"/opt/rocm/{number}") for number in range(gone - 1)), ""])
    file = FilePlan(
        root.removeprefix("$WHEEL/") if root.startswith("$WHEEL/") else root,
        "flatten",
        (
            need(text("libkept.so.1"), kept),
            need(text("libold.so.1"), new, "substitute", text("libnew.so.2")),
            need(dropped, None, "drop", origin="missing"),
            need(text("libadded.so.3"), added, "add"),
            need(lost, None, origin="missing"),
            need(later, None, origin="assumed"),
            need(text("own.so"), own, origin="wheel"),
            need("libc.so.6", libc, origin="platform"),
        ),
        RpathChange(before, f"$ORIGIN:{text('/p/lib')}", "rpath", "runpath"),
        InterpreterChange(text("/nowhere/ld.so"), "/lib64/ld.so"),
        ((text("libkept.so.1"), kept), ("libc.so.6", libc)),
    )
    plain = RpathChange(None, None, None, None)
    same = InterpreterChange(None, None)
    files = (
        file,
        FilePlan(own.removeprefix("$WHEEL/"), "nothing", (), plain, same),
        FilePlan(
            text("pkg/variant.so"),
            "nothing",
            (need(lost, None, origin="missing"),),
            plain,
            same,
            (),
            served=False,
        ),
    )
    loads = (
        Load(root, text("libkept.so.1"), kept, rule, "provider"),
        Load(root, text("libnew.so.2"), new, rule, "provider"),
        Load(root, text("libadded.so.3"), added, rule, "provider"),
        Load(root, lost, None, None, "missing"),
        Load(root, later, None, None, "assumed"),
        Load(root, text("own.so"), own, rule, "wheel"),
        Load(root, "libc.so.6", libc, "ld.so.cache", "platform"),
        Load(kept, text("libadded.so.3"), added, "already loaded", "provider"),
        Load(kept, "libm.so.6", "/lib/libm.so.6", "ld.so.cache", "platform"),
        Load(added, text("libkept.so.1"), kept, "already loaded", "provider"),
        Load(libc, "ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2", "already loaded", "platform"),
    )
    findings = (
        Finding("RLK407", "info", text("GPU code"), text("runs on gfx1030"), text("Nothing.")),
        Finding(
            "RLK606",
            "warning",
            text("pkg/root.so"),
            text("an empty entry"),
            text("Nothing: it is gone."),
            text("demo"),
        ),
        Finding(
            "RLK101",
            "error",
            lost,
            text("needed by root.so; the prefix has nothing of that name"),
            text("Add the prefix."),
        ),
    )
    assert [RULES[found.code].level for found in findings] == ["info", "warning", "error"]
    plan = Plan(
        WheelFacts(text("demo-1.0-py3-none-any.whl"), "a" * 64, text("demo"), "1.0", ("py3-none-any",)),
        "",
        TargetFacts(text("/lib64/ld.so"), "2.36", (text("/lib"),), text("/usr/bin/python3"), text("/sys")),
        (ProviderFacts("prefix", text("/p"), "7.2.4", text(".info/version")),),
        files,
        findings,
        loads,
    )
    return Report(
        ("relink", text("demo-1.0-py3-none-any.whl")),
        plan,
        OutputFacts(text("dist/demo-1.0+rocm7.whl"), "b" * 64) if output else None,
        isa_block(text),
        {"read": 0.25},
        relink="0.1.0",
    )
