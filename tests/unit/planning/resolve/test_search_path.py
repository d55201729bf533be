"""plan.rpath: what each entry of a search path is, and what is said of those that go."""

from __future__ import annotations

import pytest

from relink.elf.image import Header, read_image
from relink.loader.seen_files import Files
from relink.loader.target import Target
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.layout import Layout
from relink.planning.resolve.search_path import EntryKind, SearchPathEntry, classify, removed
from relink.providers.prefix import Provider
from relink.providers.profiles import NO_PROFILE, Profile
from tests.support.elf_builder import Library, build

LAYOUT = Layout("/env", "3.12")
SITE = LAYOUT.site_packages
PROFILE = Profile("p", rpath_drop=("$ORIGIN/*_rocm_sdk_*", "$ORIGIN/../../rocm/*"))
TARGET = Target(
    interpreter="/lib64/ld-linux-x86-64.so.2",
    sysroot="/",
    header=Header(64, little_endian=True, osabi=0, abi_version=0, kind=3, machine=62),
    glibc="2.36",
    directories=("/lib",),
    subdirectories=(),
    lib="lib/x86_64-linux-gnu",
    platform="",
    cache=None,
    cache_path="/etc/ld.so.cache",
    python=None,
)


def entries_of(
    path: str | None,
    *,
    member: str = "pkg/capi/a.so",
    profile: Profile = PROFILE,
    serving: tuple[str, ...] = (),
    rpath: str | None = None,
) -> list[SearchPathEntry]:
    image = read_image(build(Library(runpath=path, rpath=rpath)), member)
    directories = ("/opt/rocm/lib", "/opt/rocm/lib/x86_64-linux-gnu", f"{SITE}/_rocm")
    packages = ("pkg/capi", "pkg/lib", "pkg.libs", "_solib_pkg")
    context = ResolveContext(
        target=TARGET,
        files=Files(),
        providers=(Provider("prefix", "/opt/rocm", directories, {}),),
        images={member: image},
        layout=LAYOUT,
        profile=profile,
        member_directories=frozenset((*(f"{SITE}/{package}" for package in packages), "/env/bin")),
    )
    return classify(context, image, LAYOUT.path_of(member), serving)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("$ORIGIN", "wheel"),
        ("$ORIGIN/", "wheel"),
        ("${ORIGIN}/../lib", "wheel"),
        ("$ORIGIN/../../pkg.libs", "wheel"),
        ("$ORIGIN/.././lib//", "wheel"),
        ("$ORIGIN/../../../../../bin", "wheel"),  # .data/scripts
        ("$ORIGIN/../../torch/lib", "sibling"),
        ("$ORIGIN/../..", "sibling"),  # site-packages itself
        ("$ORIGIN/a.so.runfiles/rocm/lib", "vendor"),  # Bazel's build tree, below the wheel's package
        ("$ORIGIN/../_solib_local/_U_S_Srocm", "vendor"),
        ("$ORIGIN/../../torch/_solib_local/x", "sibling"),  # of another package
        (
            "$ORIGIN/../../_solib_pkg/plugin",
            "sibling",
        ),  # of a package that is called so, and that another wheel may fill
        ("$ORIGIN/../plugin", "sibling"),  # another wheel may have that in a common namespace
        ("$ORIGIN/../my_solib_local", "sibling"),
        ("$ORIGIN/../../nvidia_rocm_sdk_core/lib", "sibling-dropped"),
        ("$ORIGIN/../../rocm/lib", "sibling-dropped"),
        ("/opt/rocm/lib", "provider"),
        ("//opt/rocm/lib", "provider"),
        ("/opt/rocm/./lib/", "provider"),
        ("/opt/rocm/$LIB", "provider"),
        ("$ORIGIN/../../../../../../opt/rocm/lib", "provider"),
        ("/opt/rocm/lib64", "vendor"),
        ("/opt/rocm", "vendor"),
        ("$ORIGIN/../../../../../lib", "vendor"),  # the environment's own lib: outside of site-packages
        ("/env/lib/python3.12/site-packages-old/x", "vendor"),
        ("$ORIGIN/../../../site-packages-old/lib", "vendor"),
        ("/home/builder/ORIGIN/lib", "vendor"),
        ("/srv/serving", "serving"),
        ("", "empty"),
        (".", "relative"),
        ("../lib", "relative"),
        ("lib", "relative"),
        ("$ORIGINAL/lib", "relative"),
        ("$origin/lib", "relative"),
        ("$LIB/x", "relative"),
        ("$PLATFORM", "relative"),
        ("/opt/$PLATFORM/lib", "relative"),  # stands for nothing, so ld.so leaves the entry out
    ],
)
def test_the_kind_of_an_entry(text: str, kind: EntryKind) -> None:
    found = entries_of(f"{text}:/last", serving=("/srv/serving",))
    assert found == [SearchPathEntry(text, kind), SearchPathEntry("/last", "vendor")]


def test_what_serves_stays_what_it_is_otherwise() -> None:
    """That a directory serves counts only where nothing else is known of it."""
    texts = ("$ORIGIN", "/opt/rocm/lib", "/somewhere", "$ORIGIN/../../torch/lib", "relative")
    found = entries_of(":".join(texts), serving=texts)
    assert [entry.kind for entry in found] == ["wheel", "provider", "serving", "sibling", "relative"]


def test_without_a_profile_siblings_stay() -> None:
    (found,) = entries_of("$ORIGIN/../../rocm/lib", profile=NO_PROFILE)
    assert (found.kind, found.kept) == ("sibling", True)


def test_a_provider_in_site_packages_is_reached_as_a_sibling() -> None:
    assert [one.kind for one in entries_of(f"$ORIGIN/../../_rocm:{SITE}/_rocm")] == ["sibling", "provider"]


def test_the_origin_is_the_members() -> None:
    (found,) = entries_of("$ORIGIN/../lib", member="pkg/a.so")
    assert found.kind == "sibling"
    (found,) = entries_of("$ORIGIN/lib", member="pkg/a.so")
    assert found.kind == "wheel"
    (found,) = entries_of("$ORIGIN", member="pkg-1.data/scripts/tool")
    assert found.kind == "wheel"


def test_order_and_doubles_stay() -> None:
    texts = ["/b", "$ORIGIN", "", "/b", "$ORIGIN", ""]
    assert [entry.text for entry in entries_of(":".join(texts))] == texts


def test_the_path_that_ld_so_uses() -> None:
    assert [entry.text for entry in entries_of("/n", rpath="/r")] == ["/n"]
    assert [entry.text for entry in entries_of(None, rpath="/r")] == ["/r"]
    assert entries_of(None) == []
    assert entries_of("") == []  # an empty path has no entry, not even an empty one


KEPT: dict[EntryKind, bool] = {
    "wheel": True,
    "sibling": True,
    "provider": True,
    "serving": True,
    "sibling-dropped": False,
    "vendor": False,
    "empty": False,
    "relative": False,
}


@pytest.mark.parametrize(("kind", "kept"), KEPT.items())
def test_what_is_kept(kind: EntryKind, kept: bool) -> None:
    assert SearchPathEntry("x", kind).kept is kept


# What is said


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], []),
        ([("$ORIGIN", "wheel"), ("/p", "provider"), ("/s", "serving")], []),
        ([("/a", "vendor"), ("$ORIGIN", "wheel"), ("/b", "vendor")], [("RLK201", "/a, /b")]),
        (
            [(f"/{number}", "vendor") for number in range(6)],
            [("RLK201", "/0, /1, /2, /3 and 2 more")],
        ),
        (
            [(f"/{number}", "vendor") for number in range(4)],
            [("RLK201", "found there: /0, /1, /2, /3")],
        ),
        ([("", "empty"), ("", "empty")], [("RLK202", "the current directory; removed")]),
        ([(".", "relative"), ("lib", "relative")], [("RLK203", "., lib")]),
        (
            [("$ORIGIN/a", "sibling-dropped"), ("$ORIGIN/b", "sibling-dropped")],
            [("RLK204", "2 entries to sibling packages removed")],
        ),
        ([("$ORIGIN/a", "sibling")], [("RLK204", "kept: $ORIGIN/a")]),
        (
            [
                ("$ORIGIN/a", "sibling"),
                ("", "empty"),
                ("/v", "vendor"),
                ("$ORIGIN/b", "sibling-dropped"),
                ("r", "relative"),
            ],
            [("RLK201", "/v"), ("RLK202", ""), ("RLK203", "r"), ("RLK204", "1 entry"), ("RLK204", "kept")],
        ),
    ],
)
def test_one_finding_a_kind(entries: list[tuple[str, EntryKind]], said: list[tuple[str, str]]) -> None:
    found = list(removed("pkg/a.so", [SearchPathEntry(text, kind) for text, kind in entries]))
    assert [one.code for one in found] == [code for code, _ in said]
    for one, (_, words) in zip(found, said, strict=True):
        assert words in one.message
        assert "0 more" not in one.message
        assert one.subject == "pkg/a.so"
