"""What imports were found to do, remembered with everything that was looked at: following the same sources again gives the same.

An answer holds as long as each file and directory that was looked at is the same (device, inode, size, time of change), each
environment variable that was read has the same value, and the loader's cache says the same of each library that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from relink.python.facts_cache import FactsCache
from relink.python.modules import Interpreter, identify, identify_code

_T = TypeVar("_T")


class Looked(msgspec.Struct):
    """What was looked at: by path what identifies a file, by name environment variables and what serves libraries."""

    files: dict[str, str] = msgspec.field(default_factory=dict)
    variables: dict[str, str | None] = msgspec.field(default_factory=dict)
    sonames: dict[str, str | None] = msgspec.field(default_factory=dict)


class _Remembered(msgspec.Struct):
    looked: Looked
    answers: dict[str, msgspec.Raw]


class AskedVariables(dict[str, str]):
    """The environment variables of a process, which the process may change; those that are asked for are noted as they were."""

    def __init__(self, variables: Mapping[str, str], noted: dict[str, str | None]) -> None:
        super().__init__(variables)
        self._before, self._noted = variables, noted

    def __contains__(self, name: object) -> bool:
        self._note(name)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a variable."""
        self._note(name)
        return super().get(name, default)

    def fork(self) -> AskedVariables:
        """Return the variables as they are now; what is asked of the copy is noted at the same place."""
        other = AskedVariables(self._before, self._noted)
        other.clear()
        other.update(self)
        return other

    def _note(self, name: object) -> None:
        if isinstance(name, str):
            self._noted.setdefault(name, self._before.get(name))


class Answers:
    """The answers about one environment.

    :ivar looked: to which whoever follows sources adds what was looked at.

    :param variables: of the process now; `find_soname`: what the loader's cache says now.
    """

    def __init__(
        self,
        cache: FactsCache,
        interpreter: Interpreter,
        variables: Mapping[str, str],
        find_soname: Callable[[str], str | None],
    ) -> None:
        facts = msgspec.json.encode([interpreter, identify_code("python")], order="deterministic")
        self._key = f"answers:{facts.decode()}"
        self._cache = cache
        self.looked = Looked()
        self._answers: dict[str, msgspec.Raw] = {}
        self._grown = False
        if (data := cache.recall(self._key)) is not None:
            try:
                found = msgspec.json.decode(data, type=_Remembered)
            except msgspec.DecodeError:
                return
            looked = found.looked
            if (
                all(identify(path) == identity for path, identity in looked.files.items())
                and all(variables.get(name) == value for name, value in looked.variables.items())
                and all(find_soname(name) == soname for name, soname in looked.sonames.items())
            ):
                self.looked, self._answers = looked, found.answers
        cache.before_closing(self._save)

    def answer(self, question: tuple[object, ...], kind: Any, find: Callable[[], _T]) -> _T:
        """Return the answer to a question, the remembered one if there is one.

        :param kind: the type of the answer.
        """
        key = repr(question)
        if (data := self._answers.get(key)) is not None:
            with suppress(msgspec.DecodeError):
                answer: _T = msgspec.json.decode(data, type=kind)
                return answer
        found = find()
        self._answers[key] = msgspec.Raw(msgspec.json.encode(found))
        self._grown = True
        return found

    def _save(self) -> None:
        if self._grown:
            self._cache.remember(self._key, msgspec.json.encode(_Remembered(self.looked, self._answers)))
