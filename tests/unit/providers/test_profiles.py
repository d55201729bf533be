"""profiles: the shipped ones read; of a wrong document all that is wrong is told, line by line, before tomllib takes long."""

from __future__ import annotations

import copy
import functools
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relink.providers import profiles
from relink.providers.profiles import (
    NO_PROFILE,
    DlopenEntry,
    EqualSonames,
    Hint,
    KeyPath,
    Profile,
    find_problems,
    line_of,
    lines_of,
    parse_document,
    profile_for,
    profile_named,
    read_profile,
    shipped_profiles,
    too_deep,
)
from relink.system.errors import UsageError
from relink.system.shipped_files import load_schema, shipped_directory
from tests.support.amount import amount

SHIPPED = sorted(shipped_directory("profiles").glob("packages/*.toml"))


def written(directory: Path, text: str, name: str = "mine.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


# The shipped ones


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_a_shipped_profile_reads_and_says_where_it_is_from(path: Path) -> None:
    profile = read_profile(path)
    assert profile.name == path.stem
    assert profile.distributions
    assert len(profile.source) > 20
    assert profile.imports or len(profile.distributions) > 1  # each has a module of its own name
    assert (
        profile.variants
        or profile.preload
        or profile.rpath_drop
        or profile.releases
        or profile.brings
        or profile.optional
    )
    for release in profile.releases:
        assert release.distribution in profile.distributions
        assert release.source
        assert all(gpu.startswith("gfx") for gpu in release.gpus)
    for distribution in profile.distributions:
        assert profile_for(distribution) == profile
    assert path.read_text().startswith("#:schema ../profile.schema.json\n")


def test_every_vendor_package_that_was_met_has_one() -> None:
    names = {name for profile in shipped_profiles().values() for name in profile.distributions}
    assert names >= {
        "bitsandbytes",
        "jax-rocm7-pjrt",
        "jax-rocm7-plugin",
        "jax-rocm10-plugin",
        "onnxruntime-migraphx",
        "onnxruntime-rocm",
        "torch",
    }


def test_no_distribution_has_two_profiles() -> None:
    counted = Counter(name for path in SHIPPED for name in read_profile(path).distributions)
    assert set(counted.values()) == {1}


def test_the_wheel_ships_them() -> None:
    """pyproject.toml puts the directory where `shipped_directory` looks first."""
    project = Path(__file__).resolve().parents[3] / "pyproject.toml"
    build = tomllib.loads(project.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"]["profiles"] == "relink/_profiles"


def test_the_plugin_of_jax_does_without_the_same_modules_for_each_rocm() -> None:
    for number in (7, 10):
        profile = profile_for(f"jax-rocm{number}-plugin")
        assert profile.part_of(f"jax_rocm{number}_plugin/_rnn.so") == "recurrent networks"
        assert profile.why_optional(f"jax_rocm{number}_plugin/rocm_plugin_extension.so") is None


# Look-up


@pytest.mark.parametrize(
    "name", ["jax-rocm7-plugin", "jax_rocm7_plugin", "JAX.rocm7--Plugin", "Jax_Rocm7.plugin"]
)
def test_names_are_compared_as_the_index_compares_them(name: str) -> None:
    assert profile_for(name).name == "jax-rocm7-plugin"


def test_a_package_without_a_profile() -> None:
    assert profile_for("numpy") is NO_PROFILE
    assert not NO_PROFILE.is_variant("x.so")
    assert not NO_PROFILE.drops("$ORIGIN")


def test_another_profile_by_name_or_file(tmp_path: Path) -> None:
    assert profile_for("numpy", "torch").name == "torch"
    assert profile_for("torch", "none") is NO_PROFILE
    path = written(tmp_path, 'schema = "relink.profile/1"')
    assert profile_for("torch", str(path)) == Profile("mine")
    with pytest.raises(UsageError, match=r"^--profile torhc: there is no such profile; did you mean torch\?"):
        profile_for("numpy", "torhc")
    with pytest.raises(
        UsageError, match=r"^zzzz: .* there are bitsandbytes, .*torch\. A file is named .*\./zzzz\.toml"
    ):
        profile_named("zzzz")
    with pytest.raises(UsageError, match=r"nowhere/x\.toml: the profile cannot be read"):
        profile_named(str(tmp_path / "nowhere" / "x.toml"))


def test_a_damaged_shipped_profile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packages").mkdir()
    written(tmp_path / "packages", "this is not TOML", "bad.toml")
    monkeypatch.setattr(profiles, "shipped_directory", lambda _: tmp_path)
    with pytest.raises(UsageError, match=r"bad\.toml:1: not TOML: "):
        profile_for("anything")


# Reading


def test_everything_that_a_profile_can_say(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        schema = "relink.profile/1"
        name = "mine"
        source = "here"
        distributions = ["My_Package", "other.one"]
        imports = ["my.package"]
        nixpkgs = "my-package"
        requires = ["Num_Py"]
        variants = ["my/lib*_[0-9].so"]
        preload = ["my/first.so"]
        rpath.drop = ["$ORIGIN/../rocm*"]
        [[dlopen]]
        member = "my/*.so"
        sonames = ["libx.so.*"]
        why = "a plugin"
        [[same_abi]]
        sonames = ["liba.so.1", "liba.so.2"]
        why = "the vendor says so"
        [[hints]]
        code = "RLK10?"
        subject = "libx*"
        text = "Install x."
        [[releases]]
        distribution = "My_Package"
        version = "1.0"
        gpus = ["gfx90a"]
        source = "seen"
        """,
    )
    profile = read_profile(path)
    assert profile == Profile(
        name="mine",
        distributions=("my-package", "other-one"),
        imports=("my.package",),
        nixpkgs="my-package",
        requires=("num-py",),
        variants=("my/lib*_[0-9].so",),
        preload=("my/first.so",),
        rpath_drop=("$ORIGIN/../rocm*",),
        dlopen=(DlopenEntry("my/*.so", ("libx.so.*",), "a plugin"),),
        same_abi=(EqualSonames(("liba.so.1", "liba.so.2"), "the vendor says so"),),
        hints=(Hint("RLK10?", "Install x.", "libx*"),),
        releases=(profiles.PackageRelease("my-package", "1.0", ("gfx90a",), "seen"),),
        source="here",
    )
    assert profile.is_variant("my/libx_7.so")
    assert not profile.is_variant("my/libx_a.so")
    assert profile.drops("$ORIGIN/../rocm/lib")
    assert not profile.drops("$ORIGIN/../torch/lib")
    assert profile.dlopens("my/a.so") == {"libx.so.*": "a plugin"}
    assert profile.dlopens("your/a.so") == {}
    assert profile.why_equal("liba.so.2", "liba.so.1") == "the vendor says so"
    assert profile.why_equal("liba.so.1", "liba.so.1") is None
    assert profile.why_equal("liba.so.1", "libb.so.1") is None
    assert profile.hints[0].fits("RLK101", "libx.so.1")
    assert not profile.hints[0].fits("RLK110", "libx.so.1")
    assert not profile.hints[0].fits("RLK101", "liby.so.1")


def test_what_names_nothing_in_a_wheel() -> None:
    profile = Profile(
        "p",
        imports=("a", "a.b", "a.c"),
        variants=("a/lib*.so", "b/lib*.so"),
        preload=("a/first.so",),
        rpath_drop=("$ORIGIN/x", "$ORIGIN/y*"),
        dlopen=(DlopenEntry("a/*.so", ("libx.so",), "why"), DlopenEntry("z", ("libx.so",), "why")),
    )
    members = ["a/__init__.py", "a/c.py", "a/libq.so"]
    assert list(profile.unmatched(members, ["$ORIGIN/yes"])) == [
        "variants: b/lib*.so is no member",
        "preload: a/first.so is no member",
        "dlopen.member: z is no member",
        "rpath.drop: $ORIGIN/x is no search path entry",
        "imports: a.b is no module",
    ]


def test_only_the_schema_is_needed(tmp_path: Path) -> None:
    assert read_profile(written(tmp_path, 'schema = "relink.profile/1"')) == Profile(name="mine")


def test_all_that_is_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """\
schema = "relink.profile/9"
name = 3
source = ["x"]
distributions = "one"
variants = [1,
  "good/*.so",
  "bad/[.so", "../up.so"]
preload = {}
prelaod = []
zzz = 1
[rpath]
drop = "x"
keep = []
[[releases]]
version = "1"
[[hints]]
code = "RLK101"
text = "x"
[[hints]]
code = "101"
text = ""
[[same_abi]]
sonames = ["libx.so.1", "libx.so.1"]
why = true
""",
    )
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert caught.value.message == f"{path}: not a profile that this relink understands"
    assert [issue.removeprefix(f"{path}:") for issue in caught.value.issues] == [
        '1: schema: "relink.profile/1" was expected',
        "2: name: a name of letters, digits, dots and hyphens was expected, not 3",
        "3: source: a sentence was expected, not a list",
        '4: distributions: a list was expected, not "one"',
        "5: variants[0]: a glob of paths inside of the wheel, its brackets closed, was expected, not 1",
        '5: variants[2]: a glob of paths inside of the wheel, its brackets closed, was expected, not "bad/[.so"',
        '5: variants[3]: a glob of paths inside of the wheel, its brackets closed, was expected, not "../up.so"',
        "8: preload: a list was expected, not a table",
        "9: prelaod: no such key; did you mean preload?",
        f"10: zzz: no such key; there are {', '.join(sorted(load_schema('profile')['properties']))}",
        '12: rpath.drop: a list was expected, not "x"',
        "13: rpath.keep: no such key; there are drop",
        "14: releases[0]: the key distribution is missing",
        "14: releases[0]: the key gpus is missing",
        "14: releases[0]: the key source is missing",
        '20: hints[1].code: the code of a finding, such as RLK101 or RLK1*, was expected, not "101"',
        '21: hints[1].text: a sentence was expected, not ""',
        '23: same_abi[0].sonames: "libx.so.1" stands there twice',
        "24: same_abi[0].why: a sentence was expected, not true",
    ]


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("", "1: the key schema is missing"),
        ('schema = "relink.profile/1"\nrpath = 1', "2: rpath: a table was expected, not 1"),
        ('schema = "relink.profile/1"\nreleases = 1', "2: releases: a list was expected, not 1"),
        (
            'schema = "relink.profile/1"\nreleases = [{distribution="x", version="1", gpus=[], source="s"}]',
            "2: releases[0].gpus: 1 or more were expected, not 0",
        ),
        (
            'schema = "relink.profile/1"\nrpath.drop = [\n  "/opt/rocm/lib",\n]',
            f'2: rpath.drop[0]: {load_schema("profile")["$defs"]["entryGlob"]["title"]} was expected, not "/opt/rocm/lib"',
        ),
        (
            f'schema = "relink.profile/1"\ndistributions = [0x{"f" * 5000}]',
            "2: distributions[0]: the name of a distribution was expected, not a large number",
        ),
    ],
)
def test_one_thing_that_is_wrong(tmp_path: Path, text: str, issue: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert list(caught.value.issues) == [f"{path}:{issue}"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\nname = \n", ":2: not TOML: Invalid value"),
        (b"a = 1\nb = [\n1,\n", ":3: not TOML: "),
        (b"a = 1\n\na = 2\n", ":3: not TOML: Cannot overwrite a value"),
        (b"\xff\xfe", ": the profile cannot be read ("),
        (b"a = " + b"[" * 100_000, ":1: the profile is nested too deep (brackets more than 32 deep)"),
        (b"a = " + b"9" * 100_000, ": the profile cannot be read (Exceeds the limit (4300 digits)"),
        (None, ": the profile cannot be read ("),
    ],
)
def test_what_is_no_toml_at_all(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert caught.value.message.startswith(f"{path}{message}")


DOCUMENT = """\
# [not.a.table]
a = 1 # [[no]]
d = [1,
  2]

[t . u]
b.c = 3
[[list]]
v = 1
[list.inner]
v = 1
[[list.deep]]
w = 2
[[list.deep]]
w = 3
[[list]]
[[list.deep]]
w = 4
"""


def test_the_line_of_each_key() -> None:
    lines = lines_of(DOCUMENT)
    assert lines["a",] == 2
    assert lines["t", "u"] == 6
    assert lines["t", "u", "b", "c"] == 7
    assert lines["list", 0, "v"] == 9
    assert lines["list", 0, "inner", "v"] == 11
    assert [lines["list", 0, "deep", number, "w"] for number in (0, 1)] == [13, 15]
    assert lines["list", 1, "deep", 0, "w"] == 18


def test_what_has_no_line_has_that_of_what_is_around_it() -> None:
    lines = lines_of(DOCUMENT)
    assert line_of(lines, ("d", 1, "deeper")) == 3
    assert line_of(lines, ("t", "u", "missing")) == 6
    assert line_of(lines, ()) == 1
    assert line_of(lines, ("missing",)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a" + ".a" * 64,
        "\n".join(["a.b = 1"] * 1000),
        "x = " + "[" * 32 + "]" * 32,
        "x = [[],[]]\n" * 100,
        "x = '" + "." * 100 + "'",
        'x = "' + "[" * 100 + '"',
        'x = """\n' + "." * 100 + '\\"""" # [[[',
        "# " + "[" * 100,
    ],
)
def test_what_is_not_too_deep(text: str) -> None:
    assert too_deep(text) is None


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a = 1\nb" + ".a" * 65, 2, "more than 64 dots"),
        ("x = '''\n\n'''\n" + "[" * 33, 4, "brackets more than 32 deep"),
        ("x = [\n" * 33, 33, "brackets more than 32 deep"),
        ("x = 'it' # '\n" + "{" * 33, 2, "brackets more than 32 deep"),
        ('x = "\\"" ' + "." * 65, 1, "more than 64 dots"),
    ],
)
def test_what_is(text: str, line: int, what: str) -> None:
    found = too_deep(text)
    assert found is not None
    assert found[0] == line
    assert what in found[1]


@pytest.mark.parametrize("part", ['"\\"".', "a" * 100 + ".", "[", "{a="])
def test_what_goes_too_deep_takes_no_time(part: str) -> None:
    """250 kB of it: 32 s and 9.6 GiB where it got to tomllib."""
    text = "a = 1\nb." + part * (250_000 // len(part))
    started = time.process_time()
    with pytest.raises(UsageError, match=r"x\.toml:2: the profile is nested too deep \("):
        parse_document(text, Path("x.toml"), "profile")
    assert time.process_time() - started < 1


DOCUMENTS = [
    ("profile", tomllib.loads(path.read_text()))
    for path in sorted(shipped_directory("profiles").glob("packages/*.toml"))
] + [
    (name, tomllib.loads((shipped_directory("profiles") / f"{name}.toml").read_text()))
    for name in ("rocm/rocm", "rocm/rocm-names")
]
FULL: dict[str, Any] = {
    "schema": "relink.profile/1",
    "name": "x",
    "source": "s",
    "distributions": ["a-b"],
    "imports": ["a.b"],
    "nixpkgs": "a-b",
    "variants": ["a/*.so"],
    "preload": ["a/b.so"],
    "rpath": {"drop": ["$ORIGIN/../x"]},
    "dlopen": [{"member": "a*", "sonames": ["libx.so.*"], "why": "w"}],
    "same_abi": [{"sonames": ["libx.so.1", "libx.so.2"], "why": "w"}],
    "hints": [{"code": "RLK101", "subject": "x[ab]", "text": "t"}],
    "releases": [{"distribution": "a", "version": "1", "gpus": ["gfx90a:xnack+"], "source": "s"}],
}
DOCUMENTS.append(("profile", FULL))


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def places(name: str, data: Any) -> tuple[set[KeyPath], set[KeyPath]]:
    """Where relink and jsonschema see something wrong. A key that does not exist is laid at its table's door."""
    ours = {
        item.path[:-1] if item.message.startswith("no such key") else item.path
        for item in find_problems(data, load_schema(name))
    }
    theirs = {tuple(error.absolute_path) for error in validator(name).iter_errors(data)}
    return ours, theirs


@pytest.mark.parametrize(("name", "data"), DOCUMENTS)
def test_what_is_shipped_is_right(name: str, data: Any) -> None:
    assert places(name, data) == (set(), set())


def test_a_keyword_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="maxLength"):
        list(find_problems("x", {"type": "string", "maxLength": 3}))


@pytest.mark.parametrize("name", ["profile", "rocm/rocm", "rocm/rocm-names"])
def test_every_key_has_its_words(name: str) -> None:
    """What is not a list or a table of known keys says by its title what it is, since messages are made of it."""

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            if "pattern" in schema:
                assert schema["title"]
                assert schema["type"] == "string"
            for item in schema.values():
                walk(item)

    walk({key: value for key, value in load_schema(name).items() if key in ("properties", "$defs")})


WORDS = [
    "", " ", "x", "a\n", "../a", "a/../b", "a/..", "..", "/a", "a[b", "a[b]", "a[!b]", "a[]", "a]", "a\\b", "*", "?", "$ORIGIN",
    "$ORIGIN/x", "${ORIGIN}/*", "ORIGIN/x", "$ORIGIN/[", "libx.so", "libx.so.1", "libx.so.1\n", "libx.so.*", "lib/x.so", "RLK101",
    "RLK*", "RLK1000", "rlk101", "gfx90a", "gfx9-generic", "GFX", "a.b", "a..b", "1a", "a-b", "-a", "relink.profile/1", "é.so",
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=4),
    st.sampled_from(
        [True, 3, 1.5, [], {}, ["x", "x"], [1], [1, True], {"x": 1}, [[]], [{}], {"drop": ["x"]}]
    ),
)
KEYS = [
    *load_schema("profile")["properties"],
    *load_schema("rocm/rocm")["properties"],
    "drop",
    "why",
    "text",
    "sonames",
    "6",
    "8",
    "zzz",
]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, Any]:
    """A document with one to three changes, each at a random place: another value, another key, one more, one less."""
    name, original = draw(st.sampled_from(DOCUMENTS))
    data = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        node: Any = data
        while True:
            inner = [
                item
                for item in (node.values() if isinstance(node, dict) else node)
                if isinstance(item, dict | list) and item
            ]
            if not inner or not draw(st.integers(0, 3)):
                break
            node = draw(st.sampled_from(inner[:8]))
        value = copy.deepcopy(draw(VALUES))  # or a list may end up inside of itself
        if isinstance(node, dict):
            key = draw(st.sampled_from([*node, *KEYS]))
            change = draw(st.sampled_from(["pop", "set", "set", "clear"]))
            if change == "pop":
                node.pop(key, None)
            elif change == "set":
                node[key] = value
            else:
                node.clear()
        elif (change := draw(st.sampled_from(["clear", "repeat", "append", "set"]))) == "clear":
            node.clear()
        elif change == "repeat" and node:
            node.append(copy.deepcopy(node[0]))
        elif change == "append":
            node.append(value)
        elif node:
            node[draw(st.integers(0, len(node) - 1))] = value
    return name, data


@settings(max_examples=amount(500))
@given(damaged())
@example(("profile", {"schema": "relink.profile/1", "variants": [1, True]}))
def test_relink_and_jsonschema_never_disagree(found: tuple[str, Any]) -> None:
    ours, theirs = places(*found)
    assert ours == theirs
