"""docs/api.md, run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.support.works import MACHINE, Works

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


@pytest.mark.slow(reason="the examples run")
def test_the_examples_print_what_they_say(works: Works, tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {"demo/a.so": works.library, "demo/b.so": works.plain}
    wheel = works.wheel(tmp_path / "vendor", files)
    text = PAGE.read_text(encoding="utf-8").replace("linux_x86_64", f"linux_{MACHINE}")
    names = {"wheel": wheel, "prefix": str(works.prefix), "out": tmp_path / "out", "Path": Path}
    test = doctest.DocTestParser().get_doctest(text, names, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 30
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    assert result.failed == 0, "".join(told)
