"""Which code object of a bundle a GPU gets: relink and AMD's comgr agree on generated bundles.

comgr decides which entry of a raw bundle serves an ISA name, and takes compressed bundles apart. It does not decide
the order native, generic, SPIR-V (CLR's hip_fatbin.cpp does), nor what an older release of HIP reads: tests of
`relink.gpu.amd` have tables of those.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd.bundle import Budget, BundleEntry, Inflater, parse_bundle, parse_header
from relink.gpu.amd.device_code import read_device_code
from relink.gpu.amd.removal import remove_other_code
from relink.gpu.amd.target_id import SPIRV, CodeTarget, configurations, match, table
from relink.gpu.coverage import TargetId
from relink.gpu.removal import replace_ranges
from tests.unit.gpu.amd.build import ccob, hip, library, raw

pytestmark = pytest.mark.real

_PLAIN = ("803", "900", "906", "908", "90a", "90c", "942", "950", "1010", "1030", "1100", "1201", "1250")
_GENERIC = ("9", "9-4", "10-1", "10-3", "11", "12")
PROCESSORS = [*(f"gfx{one}" for one in _PLAIN), *(f"gfx{one}-generic" for one in _GENERIC)]
KINDS = ("hipv4",) * 6 + ("hip", "hcc", "openmp", "host", "hipv5", "")
ENVIRONMENTS = ("",) * 8 + ("unknown", "gnu", "-", "gfx1030")
PAYLOADS = (0, 64, 64, 64, 64, 100)


def _features(chance: random.Random, processor: str) -> str:
    if chance.random() < 0.4:
        return ""
    has = table().features(processor) if chance.random() < 0.8 else None
    names = list(has if has is not None else ("sramecc", "xnack"))
    parts = [name + chance.choice("+-") for name in names if chance.random() < 0.7]
    if chance.random() < 0.2:
        parts.reverse()
    if chance.random() < 0.04:
        parts.append(chance.choice(("foo+", "", "xnack", "XNACK+", "xnack+-", "sramecc++")))
    return "".join(f":{part}" for part in parts)


def _entry_id(chance: random.Random) -> str:
    kind, draw = chance.choice(KINDS), chance.random()
    if draw < 0.06:
        environment = chance.choice(("", "", "unknown", "unknown", "gnu"))
        arch = chance.choice(("spirv64-amd-amdhsa",) * 4 + ("amdgcn-amd-amdhsa", "spirv32-amd-amdhsa"))
        text = f"{kind}-{arch}-{environment}-amdgcnspirv" + chance.choice(("",) * 6 + (":xnack+",))
    else:
        processor = chance.choice(
            (*PROCESSORS, "gfx9090", "gfx10300", "generic", "gfx103", "GFX1030", "gfx90A")
        )
        triple = chance.choice(
            ("amdgcn-amd-amdhsa",) * 15
            + ("spirv64-amd-amdhsa", "amdgcn-amd-amdpal", "amdgcn--amdhsa", "r600-amd-amdhsa")
        )
        # Compilers before clang 12 wrote no environment.
        place = "" if draw < 0.12 else f"{chance.choice(ENVIRONMENTS)}-"
        text = f"{kind}-{triple}-{place}{processor}{_features(chance, processor)}"
    return text + chance.choice(("",) * 12 + ("\0", "\0\0", " ", "-"))


def _raw_bundle(chance: random.Random) -> bytes:
    names = [_entry_id(chance) for _ in range(chance.randint(1, 7))]
    entries = {name: bytes([65 + at]) * chance.choice(PAYLOADS) for at, name in enumerate(names)}
    return raw(entries, align=chance.choice((1, 8, 256)), host=chance.random() < 0.8)


def _names(agent: TargetId) -> list[TargetId]:
    """Return what CLR asks for together for an agent (hip_fatbin.cpp): its own ISA, the generic ones, SPIR-V."""
    named = dict(agent.features)
    generics = [one for one in table().generics.values() if agent.processor in one.members]
    features = [tuple((name, named[name]) for name in one.features) for one in generics]
    return [
        agent,
        *(TargetId(one.name, has) for one, has in zip(generics, features, strict=True)),
        TargetId(SPIRV),
    ]


def _isa(target: TargetId) -> str:
    return f"spirv64-amd-amdhsa--{SPIRV}" if target.processor == SPIRV else f"amdgcn-amd-amdhsa--{target}"


def _answer(entries: Sequence[BundleEntry], target: TargetId) -> list[int]:
    """Return size and offset of the first entry that is code for `target` itself."""
    for entry in entries:
        code = entry.code_target
        if code is not None and code.target.processor == target.processor and match([code], target).served:
            return [entry.size, entry.offset]
    return [0, 0]


def _is_wanted(entries: Sequence[BundleEntry], agent: TargetId) -> bool:
    """Return whether a difference has one of the two causes that are wanted; no compiler writes either, and relink reports both.

    A feature named twice (AMDGPUUsage, "Target ID": at most once) is no target for relink; comgr takes the last.
    comgr ends its search after as many matches as it was asked for names. An empty entry counts, so it may hide a full one.
    """
    for entry in entries:
        features = [part[:-1] for part in entry.text.split(":")[1:]]
        if len(set(features)) < len(features):
            return True
    empty = [CodeTarget(entry.target) for entry in entries if entry.target is not None and entry.size == 0]
    return any(match(empty, name).served for name in _names(agent))


def _ask(prefix: Path, questions: Iterable[dict[str, Any]]) -> Iterator[list[Any]]:
    library = prefix / "lib" / "x86_64-linux-gnu"
    loader, comgr = library / "ld-linux-x86-64.so.2", library / "libamd_comgr.so.3"
    python = Path(sys.executable).resolve()
    program = Path(__file__).with_name("ask_comgr.py")
    run = subprocess.run(
        [loader, "--library-path", library, python, program, comgr],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return map(json.loads, run.stdout.splitlines())


def raw_differences(prefix: Path, seed: int, count: int) -> tuple[list[Any], int]:
    """Return (entry ids, agent, relink's answers, comgr's answers) where they differ, and how often the difference is wanted."""
    chance = random.Random(seed)
    bundles = []
    for _ in range(count):
        agents = [chance.choice(configurations(TargetId(name))) for name in chance.sample(PROCESSORS, 3)]
        bundles.append((_raw_bundle(chance), agents))
    answers = _ask(
        prefix,
        (
            {
                "bundle": base64.b64encode(content).decode(),
                "isas": [[_isa(name) for name in _names(agent)] for agent in agents],
            }
            for content, agents in bundles
        ),
    )
    differ, wanted = [], 0
    for (content, agents), answer in zip(bundles, answers, strict=True):
        bundle = parse_bundle(BufferSource(content), 0, len(content), Budget())
        assert bundle is not None
        for agent, found in zip(agents, answer, strict=True):
            theirs = [[size, offset if size else 0] for size, offset in found]
            ours = [_answer(bundle.entries, name) for name in _names(agent)]
            if ours != theirs:
                if _is_wanted(bundle.entries, agent):
                    wanted += 1
                else:
                    differ.append(([entry.text for entry in bundle.entries], str(agent), ours, theirs))
    return differ, wanted


def _unpacked(content: bytes, name: str) -> bytes:
    """Return the code object of the first entry `name` in a compressed bundle as relink reads it."""
    source = BufferSource(content)
    header, bundle = parse_header(content[:32]), parse_bundle(source, 0, len(content), Budget())
    assert bundle is not None
    assert not isinstance(header, str)
    inflater = Inflater(source, header, 0, len(content), header.uncompressed_size)
    assert inflater.at_least(header.uncompressed_size), inflater.problem
    return next(
        (inflater.data[e.offset : e.offset + e.size] for e in bundle.entries if e.text == name and e.usable),
        b"",
    )


def ccob_differences(prefix: Path, seed: int, count: int) -> list[tuple[bytes, str, int, int]]:
    """Return (compressed bundle, entry id, relink's bytes, comgr's bytes) where the code objects differ."""
    chance = random.Random(seed)
    bundles = []
    for _ in range(count):
        names = [hip(str(chance.choice(configurations(TargetId(one))))) for one in PROCESSORS]
        inside = chance.sample(names, chance.randint(1, 5))
        entries = {name: chance.randbytes(chance.choice((64, 100, 5000, 40000))) for name in inside}
        inner = raw(entries, align=chance.choice((1, 4096)))
        packed = ccob(inner, chance.choice((1, 2, 3)), chance.choice(("zlib", "zstd")))
        bundles.append((packed, chance.sample(inside, min(2, len(inside)))))
    answers = _ask(
        prefix, ({"ccob": base64.b64encode(packed).decode(), "ids": ids} for packed, ids in bundles)
    )
    differ = []
    for (packed, ids), answer in zip(bundles, answers, strict=True):
        for name, theirs in zip(ids, answer, strict=True):
            if (ours := _unpacked(packed, name)) != base64.b64decode(theirs):
                differ.append((packed, name, len(ours), len(base64.b64decode(theirs))))
    return differ


def removal_differences(prefix: Path, seed: int, count: int) -> tuple[list[Any], int]:
    """Return where comgr's answer about a bundle changes as code for other GPUs is taken out, and of how many some was.

    Of a compressed bundle the answer is the code of each entry that serves the GPU, of a raw one size, offset and bytes.
    """
    chance = random.Random(seed)
    asked: list[tuple[str, dict[str, Any]]] = []
    contents: list[bytes] = []
    shrunk = 0
    for number in range(count):
        agent = chance.choice(configurations(TargetId(chance.choice(PROCESSORS[: len(_PLAIN)]))))
        packed = number % 10 == 0
        inner = _raw_bundle(chance)
        if packed:
            names = [hip(str(chance.choice(configurations(TargetId(one))))) for one in PROCESSORS]
            inside = [*chance.sample(names, 4), hip(str(agent))]
            inner = raw({name: chance.randbytes(5000) for name in dict.fromkeys(inside)})
        content = ccob(inner, chance.choice((2, 3)), chance.choice(("zlib", "zstd"))) if packed else inner
        before = library([content])
        code = read_device_code(BufferSource(before), "a.so")
        ranges = remove_other_code(BufferSource(before), code, [agent]).ranges
        after = b"".join(replace_ranges([memoryview(before)], ranges, "a.so"))
        shrunk += bool(ranges)
        for data in (before, after):
            bundle = read_device_code(BufferSource(data), "a.so").bundles[0] if packed else code.bundles[0]
            held = data[bundle.offset : bundle.offset + bundle.size]
            contents.append(held)
            coded = base64.b64encode(held).decode()
            if packed:
                ids = [
                    e.text
                    for e in code.bundles[0].entries
                    if e.target and match([CodeTarget(e.target)], agent).served
                ]
                asked.append((str(agent), {"ccob": coded, "ids": ids}))
            else:
                isas = [[_isa(name)] for name in _names(agent)]
                asked.append((str(agent), {"bundle": coded, "isas": isas}))
    answers = []
    for (_, question), content, answer in zip(
        asked, contents, _ask(prefix, (question for _, question in asked)), strict=True
    ):
        taken = (
            [content[offset : offset + size] for ((size, offset),) in answer] if "isas" in question else []
        )
        answers.append((answer, taken))
    pairs = zip(asked[::2], answers[::2], answers[1::2], strict=True)
    return [(agent, old, new) for (agent, _), old, new in pairs if old != new], shrunk


@pytest.mark.parametrize("seed", [1, 2])
def test_raw_bundles_serve_the_targets_that_comgr_says(full_prefix: Path, seed: int) -> None:
    differ, wanted = raw_differences(full_prefix, seed, 2000)
    assert differ == []
    assert wanted < 20


def test_an_empty_entry_hides_a_full_one_only_where_comgr_is_asked_for_one_name(full_prefix: Path) -> None:
    target = TargetId("gfx1030")
    content = raw({hip("gfx1030"): b"", hip("gfx1030", "hip"): bytes(64)}, align=1)
    isas = [_isa(name) for name in _names(target)]
    question = {"bundle": base64.b64encode(content).decode(), "isas": [isas[:1], isas]}
    (((alone,), together),) = _ask(full_prefix, [question])
    bundle = parse_bundle(BufferSource(content), 0, len(content), Budget())
    assert bundle is not None
    assert alone[0] == 0
    assert together[0] == _answer(bundle.entries, target) != [0, 0]


def test_compressed_bundles_hold_the_code_that_comgr_takes_out(full_prefix: Path) -> None:
    assert ccob_differences(full_prefix, 1, 200) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_taken_out_changes_no_answer_for_the_gpu_that_is_kept(full_prefix: Path, seed: int) -> None:
    differ, shrunk = removal_differences(full_prefix, seed, 1000)
    assert differ == []
    assert shrunk > 100
