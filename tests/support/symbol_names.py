"""Make ``profiles/rocm/rocm-names.toml`` from the exports of real libraries: ``scripts/record-names DIR…``.

The first word of a name is whose it is, as every component of ROCm has its own (``rocblas_``, ``nccl``); of two components with
the same first word one has a longer one (``hipblasLt``), which the other's pattern leaves out. What is neither is told as
`others`, or makes the component's row incomplete where it is much.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from relink.elf.symbol_reader import read_symbols
from relink.providers.prefix import soname_stem
from relink.system.safe_open import map_file
from relink.vendors.rocm.facts import rocm_facts, source_name

_HEAD = """\
#:schema ./rocm-names.schema.json
# Whose a symbol is: what each component of ROCm exports. Made by scripts/record-names from the libraries that `source` names;
# do not edit. A row without such libraries rests on the component's public headers.
schema = "relink.rocm.names/1"
"""

DOCUMENTED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "roctracer": (
        ("libroctracer64.so", "libroctx64.so"),
        ("roctracer_", "roctx"),
        "roctracer.h and roctx.h",
    ),
    "rocprofiler-sdk": (("librocprofiler-sdk.so",), ("rocprofiler_",), "rocprofiler-sdk's headers"),
}
"""Components without a library in Debian: libraries, first words, and where they stand."""
_NOISE = re.compile(
    r"__hip_|_fini$|_init$|__bss_start$|_edata$|_end$"
)  # one a translation unit; the linker's
_WORD = re.compile(r"_*[a-z][a-z0-9]*")
_NEXT = re.compile(r"_?(?:[A-Z]?[a-z0-9]+|[A-Z]+)")
_FEWEST = 3  # names that make a word a component's own
_MANY = 40  # names beside its own that make a component's row incomplete


def exports_of(directories: Iterable[Path]) -> dict[str, dict[str, set[str]]]:
    """Return the exports by component and soname."""
    stems = {
        soname_stem(name): item.name
        for item in rocm_facts().components
        if item.attribute is None or item.attribute.startswith("rocmPackages.")
        for name in item.of(None)
    }
    names: dict[str, dict[str, set[str]]] = {}
    for path in sorted(found for directory in directories for found in directory.glob("lib*.so.*")):
        component = stems.get(soname_stem(path.name))
        if component is None or path.is_symlink():
            continue
        with map_file(path) as buffer:
            table = read_symbols(buffer)
        own = {node.name for node in table.verdefs if not node.name.startswith("lib")}
        seen = {name for name in table.exports if name not in own and not _NOISE.match(name)}
        names.setdefault(component, {}).setdefault(path.name, set()).update(seen)
    return names


def words_of(names: Mapping[str, Iterable[str]]) -> dict[str, dict[str, set[str]]]:
    """Return the words of each component: word → longer words of others, which it leaves out.

    A first word that two components have in common is nobody's, unless all but one of them have a longer one to themselves.
    """
    counts = {
        component: Counter(found[0] for name in own if (found := _WORD.match(name)))
        for component, own in names.items()
    }
    result: dict[str, dict[str, set[str]]] = {component: {} for component in names}
    every = {word for count in counts.values() for word, number in count.items() if number >= _FEWEST}
    for word in sorted(every):
        having = [component for component in names if counts[component][word] >= _FEWEST]
        longer: dict[str, str] = {}
        for component in having if len(having) > 1 else ():
            mine = [name for name in names[component] if (found := _WORD.match(name)) and found[0] == word]
            nexts = {found[0] if (found := _NEXT.match(name, len(word))) else "" for name in mine}
            if len(nexts) == 1 and "" not in nexts:
                longer[component] = word + nexts.pop()
        rest = [component for component in having if component not in longer]
        if len(rest) > 1 or len(set(longer.values())) < len(longer):
            continue  # nobody's: what two components compiled in
        for component in rest:
            result[component][word] = {text.removeprefix(word) for text in longer.values()}
        for component, text in longer.items():
            result[component][text] = set()
    return result


def pattern_of(word: str, without: Iterable[str] = ()) -> str:
    """Return the regular expression of the names that begin with a word and not with a longer one."""
    end = "" if word.endswith("_") else "(?![a-z])"
    lookaheads = "".join(f"(?!{rest}{'' if rest.endswith('_') else '(?![a-z])'})" for rest in sorted(without))
    return f"^{word}{lookaheads}{end}"


def rows(directories: Iterable[Path]) -> list[dict[str, object]]:
    """Return the table's rows from what the libraries of some directories export."""
    libraries = exports_of(directories)
    every = {component: set().union(*found.values()) for component, found in libraries.items()}
    named = {
        component: [name for name in own if not name.startswith("_Z")] for component, own in every.items()
    }
    for component, (_, first_words, _) in DOCUMENTED.items():
        named.setdefault(component, []).extend(
            f"{word}{tail}" for word in first_words for tail in ("A", "B", "C", "D")
        )
    result: list[dict[str, object]] = []
    for component, words in words_of(named).items():
        patterns = [pattern_of(word, without) for word, without in words.items()]
        own = every.get(component, set())
        stems = {word.strip("_").lower() for word in words}
        spaces = Counter(text for name in own for text, nested in [source_name(name)] if nested)
        namespaces = sorted(
            text
            for text, number in spaces.items()
            if number >= _FEWEST and any(text.lower().startswith(stem) for stem in stems if len(stem) > 3)
        )
        compiled = [re.compile(text) for text in patterns]
        others = sorted(
            name
            for name in own
            for text, nested in [source_name(name)]
            if not (text in namespaces if nested else any(pattern.match(text) for pattern in compiled))
        )
        documented = DOCUMENTED.get(component)
        files = sorted(libraries.get(component, {}))
        stems_of = {soname_stem(name) for name in files} | set(documented[0] if documented else ())
        seen = [f"{len(own)} exports of {', '.join(files)}"] if files else []
        result.append(
            {
                "component": component,
                "libraries": sorted(stems_of),
                "names": patterns,
                "namespaces": namespaces,
                "others": others if len(others) <= _MANY else [],
                "complete": bool(files) and documented is None and len(others) <= _MANY,
                "examples": _examples(own, compiled),
                "source": "; ".join([*seen, *([documented[2]] if documented else [])]),
            }
        )
    return sorted(result, key=lambda row: str(row["component"]).lower())


def _examples(names: Iterable[str], patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Return the first name of each pattern, and the last one."""
    own = sorted(names)
    matching = [[name for name in own if pattern.match(name)] for pattern in patterns]
    return sorted({name for found in matching if found for name in (found[0], found[-1])})


def toml(table: Sequence[Mapping[str, object]]) -> str:
    """Return the rows as TOML; a JSON string or array of printable ASCII is one of TOML, too."""
    parts = [_HEAD]
    for row in table:
        lines = [f"{key} = {json.dumps(value)}" for key, value in row.items() if value != []]
        if row["names"] == []:
            lines.append("names = []")
        parts.append("\n".join(["[[owner]]", *lines]) + "\n")
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Write the table to standard output, or to ``-o FILE``."""
    parser = argparse.ArgumentParser(prog="scripts/record-names")
    parser.add_argument("directories", nargs="+", type=Path, help="directories with libraries of ROCm")
    parser.add_argument("-o", dest="output", type=Path)
    options = parser.parse_args(arguments)
    text = toml(rows(options.directories))
    if options.output:
        options.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
