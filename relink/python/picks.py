"""Which of its own libraries a package opens where torch sees a GPU: its sources are followed as in an import; nothing runs.

The package's own modules alone are followed, and torch/version.py. Of every other module it is known that it is there, and of
torch that its GPU works. Where the import opens nothing, functions are called that open something and need no argument.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from relink.python.evaluation import Evaluation, Known
from relink.python.events import STRICTNESS, Event, EventKind
from relink.python.known import known_functions, known_values, open_library
from relink.python.modules import Spec
from relink.python.process import PythonProcesses, on_large_stack
from relink.python.values import UNKNOWN, Function, Module, Native, Raised

_VERSION = "torch.version"
# What asks whether a file is there, as a package does before it opens a library.
_QUESTIONS = ("path.exists", "path.is_file", "posixpath.exists", "posixpath.isfile", "glob.glob", "path.glob")


class Pick(msgspec.Struct, frozen=True):
    """What a package opens of its own where torch sees a GPU.

    :ivar torch: the variables of torch/version.py that are texts.
    :ivar opened: libraries and extension modules, in order, and loads whose name is not known; each as sure as the event says.
    :ivar sought: the files and modules that it asks for, and that are not there.
    """

    torch: Mapping[str, str]
    opened: list[Event] = msgspec.field(default_factory=list)
    sought: list[Event] = msgspec.field(default_factory=list)


class _Picking(Evaluation):
    """A walk through the modules of one package: `tops` are its top-level ones."""

    tops: Collection[str] = ()
    pick: Pick = msgspec.field(default_factory=lambda: Pick({}))

    def find_spec(self, name: str, parent: Module | None) -> Spec | None:
        """Return where a module of the package lies; of others that there is one."""
        found = Evaluation.find_spec(self, name, parent)
        if name.partition(".")[0] in self.tops:
            if found is None and parent is not None and parent.spec.search:
                self.seek(posixpath.join(parent.spec.search[0], name.rpartition(".")[2]))
            return found
        return found if name == _VERSION or found is None else Spec(name, "builtin", found.file, found.search)

    def import_from(self, module: Module, name: str) -> Any:
        """Return what ``from MODULE import NAME`` binds; of a module that is not followed what is known."""
        found = Evaluation.import_from(self, module, name)
        return self.attribute(module, name) if found is UNKNOWN else found

    def record(self, kind: EventKind, name: str, by: str, *, flags: int = 0, caller: str = "") -> None:
        """Note something that the package does."""
        Evaluation.record(self, kind, name, by, flags=flags, caller=caller)
        is_absent = kind == "library" and "/" in name and not self.disk.exists(name)
        if kind not in ("module", "symbol") and by not in ("raise", "source", "limit"):
            (self.pick.sought if is_absent else self.pick.opened).append(self.state.module.events[-1])

    def seek(self, path: str) -> None:
        """Note that a file is asked for which is not there."""
        state, where = self.state, self.state.frame.module if self.state.frame else self.state.module
        place = (where.name, where.spec.file, state.line)
        self.pick.sought.append(Event("library", path, STRICTNESS[state.when], 0, "", *place))

    def noting(self, answer: Known) -> Known:
        """Return a function that asks for files, and notes a library that is not there."""

        def asked(evaluation: Evaluation, arguments: list[Any], named: dict[str, Any]) -> Any:
            found = answer(evaluation, arguments, named)
            path = "/".join(map(str, arguments))
            if found in (False, []) and ".so" in posixpath.basename(path):
                self.seek(path)
            return found

        return asked


def read_pick(processes: PythonProcesses, tops: Collection[str], kinds: Collection[str]) -> Pick | None:
    """Return what the modules of a package open where torch sees a GPU; None where torch is not there.

    :param kinds: the variables of torch/version.py of which one names the release of a GPU's libraries that torch is built for.
    """
    question = ("pick", *sorted(tops), "", *sorted(kinds))
    return processes.answer(
        question,
        Pick | None,
        lambda: on_large_stack(lambda: _read_pick(processes.evaluation, tops, kinds)),
    )


def _read_pick(base: Evaluation, tops: Collection[str], kinds: Collection[str]) -> Pick | None:
    known, values = dict(known_functions(base.interpreter)), known_values(base.interpreter)
    walk = _Picking(
        base.interpreter,
        base.disk,
        base.read_statements,
        base.read_bodies,
        base.variables.fork(),
        known,
        values,
        base.find_soname,
        lambda *_: None,
        required=base.required or frozenset(),
        tops=tops,
    )
    # `import os` does not say so, and there is no module of that name.
    walk.modules["os.path"] = Module("posixpath", Spec("posixpath", "builtin"), is_open=True, is_done=True)
    try:
        version = walk.import_module(_VERSION)
    except Raised:
        return None
    if version.spec.kind != "source":
        return None
    texts = {name: value for name, value in version.names.items() if isinstance(value, str)}
    walk.pick = pick = Pick(texts)
    version.names |= {kind: texts.get(kind) for kind in kinds}
    has_gpu = any(map(texts.get, kinds))
    known |= {name: walk.noting(known[name]) for name in _QUESTIONS}
    known |= {
        "torch.cuda.is_available": lambda *_: has_gpu,
        "torch.cuda.device_count": lambda *_: int(has_gpu),
        "torch.cuda.get_device_capability": lambda *_: (UNKNOWN, UNKNOWN),
        "torch.ops.load_library": open_library("torch.ops.load_library"),
    }
    values["torch._C._has_xpu"] = "xpu" in texts
    walk.modules["torch"].names |= {name: Native(f"torch.{name}") for name in ("cuda", "_C", "ops")}
    walk.modules["torch"].names["__version__"] = version.names.get("__version__", UNKNOWN)
    with suppress(Raised):
        for top in tops:
            walk.import_module(top)
    for module in [] if pick.opened or pick.sought else [*walk.modules.values()]:
        for function in [*module.names.values()] if module.name.partition(".")[0] in tops else ():
            if isinstance(function, Function) and function.module is module and walk.opens(function):
                _, _, first, second, *_ = function.parameters
                if len(first + second) == len(function.defaults):
                    with suppress(Raised):
                        walk.call(function, [], {})
    return pick
