"""Whether the difference between two wheels is what the plan in the new one says, no more and no less.

An ELF file must be, byte for byte, what patchelf makes of the old one by the plan: it is edited again. The other files that
relink writes are made again, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.atomic import working_directory
from relink.bounded_json import JSON_LIMIT, parse_json
from relink.comparison.content import BLOCK, Ranges, differing_blocks, paired_chunks
from relink.comparison.elf import named_ranges
from relink.comparison.reference import Reference, disagreements
from relink.elf.edit_checks import check_edit
from relink.elf.gaps import Gap, find_gaps
from relink.elf.image import Buffer, Image
from relink.elf.patchelf import ElfEdit, apply_edit, edit_without_gaps, find_patchelf
from relink.elf.sections import Section
from relink.errors import EditError, ElfError, MachineError, RelinkError, UsageError, WheelError
from relink.files import map_file
from relink.loader.scan import scan
from relink.nix.roots import store_paths
from relink.plans.model import Plan
from relink.plans.reliance import metadata_lines
from relink.provenance import MEMBERS, PLAN_MEMBER, SBOM_MEMBER, STORE_MEMBER, json_bytes, read_plan
from relink.report.sbom import bill_of_materials
from relink.rocm.facts import ROCM
from relink.system_errors import raise_trouble
from relink.wheel.archive import WheelArchive
from relink.wheel.metadata import rewrite_metadata, rewrite_wheel_info
from relink.wheel.naming import renamed_directory
from relink.wheel.record import check_record, read_record, signatures, verify_members
from relink.wheel.stale_record import stale_lines

__all__ = ["PlanCheck", "plan_for"]

_RANGES_SHOWN = 5  # ranges of one file


def plan_for(before: WheelArchive, after: WheelArchive) -> tuple[Plan | None, str | None]:
    """Return the plan inside of the new wheel if it was made for the old one; else, where there is one, why it does not count."""
    name = f"{after.dist_info}/{PLAN_MEMBER}"
    if name not in after.members or before.sha256() == after.sha256():
        return None, None
    try:
        plan = read_plan(after)
    except UsageError as error:
        return None, f"{name}: {error.message}"
    if plan is not None and plan.wheel.sha256 != before.sha256():
        return None, f"{name}: the plan was made for another wheel ({plan.wheel.sha256})"
    return plan, None


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """Two wheels, and the plan that the difference must follow from.

    :ivar plan: the one inside of the new wheel, or the reference's.
    :ivar renamed: new names of the directories that are called by the version, by the old ones.
    :ivar reference: where the plan comes from, if not from the new wheel.
    """

    before: WheelArchive
    after: WheelArchive
    plan: Plan
    renamed: Mapping[str, str]
    reference: Reference | None = None

    def elf(
        self,
        path: str,
        contents: tuple[memoryview, memoryview],
        images: tuple[Image, Image],
        sections: tuple[Sequence[Section], Sequence[Section]],
        ranges: Ranges,
    ) -> Iterator[str]:
        """Say what is not explained about a changed ELF file.

        :param path: its name in the old wheel.
        :param ranges: where it differs from the old one.
        """
        file = next((file for file in self.plan.files if file.path == path), None)
        if file is None or not file.changed:
            yield "changed, and the plan leaves it as it is"
            return
        yield from self._edit(path, file.edit, contents, images, sections, ranges)

    def _edit(
        self,
        path: str,
        edit: ElfEdit,
        contents: tuple[memoryview, memoryview],
        images: tuple[Image, Image],
        sections: tuple[Sequence[Section], Sequence[Section]],
        ranges: Ranges,
    ) -> Iterator[str]:
        """Say what of a file is not what the edit makes of another; the arguments are those of :meth:`elf`."""
        old, new = contents
        try:
            with _edited_again(old, images[0], edit) as (again, gaps):
                wrong = _differing(again, gaps, old, new, ranges)
                if not wrong.found:
                    return
        except MachineError:
            raise
        except (RelinkError, OSError) as error:
            if isinstance(error, OSError):
                raise_trouble(error, f"{path}: the edit cannot be made again")
            yield f"the edit cannot be made again to compare ({error})"
            return
        with contextlib.suppress(ElfError):
            yield from check_edit(old, new, *images, edit)
        made = f"what patchelf {find_patchelf().version} makes of it by the plan"
        for item in named_ranges(Ranges(found=wrong.found[:_RANGES_SHOWN]), new, images[1], sections[1]):
            yield f"bytes {item.start:#x}..{item.stop:#x} ({item.where}) are not {made}"
        if len(wrong.found) > _RANGES_SHOWN:
            yield f"{len(wrong.found) - _RANGES_SHOWN} more ranges of bytes are not {made}"

    def other(self, old: str, new: str) -> tuple[str, ...]:
        """Say what is not explained about a changed member that is no ELF file: relink writes a few of them again."""
        info = self.after.dist_info
        own = [f"{info}/{name}" for name in ("RECORD", *MEMBERS)]
        if new in own:
            return ()  # :meth:`wheel` compares them with the members and with the plan
        name = self.after.name
        try:
            if new == f"{info}/METADATA":
                return self._metadata(self.before.read(old), self.after.read(new))
            if new == f"{info}/WHEEL":
                again = rewrite_wheel_info(self.before.read(old), name.expanded_tags)
            else:
                return ("changed, and the plan does not name it",)
            same = again == self.after.read(new)
        except WheelError as error:
            return (error.message,)
        return () if same else ("more changed than name, version and tags ask for",)

    def _metadata(self, old: bytes, new: bytes) -> tuple[str, ...]:
        """Say whether METADATA has more than another version and what the result relies on, as an extra or required."""
        version, plan = self.after.name.version_text, self.plan
        ways = [(), plan.metadata, *(metadata_lines(plan.relies_on, extra) for extra in (ROCM, None))]
        again = (rewrite_metadata(old, version, add=lines) for lines in ways)
        return () if new in again else ("more changed than name, version and tags ask for",)

    def wheel(self, added: Sequence[str], removed: Sequence[str], changed: set[str]) -> Iterator[str]:
        """Say what is not explained beyond the contents of members that both have.

        :param changed: members of the new wheel whose content changed.
        """
        made = self._made()
        signature_files = signatures(self.before.dist_info, self.before.members)
        yield from (f"{name}: added" for name in added if name not in made)
        left_out = {*signature_files, f"{self.before.dist_info}/{STORE_MEMBER}"}
        yield from (f"{name}: removed" for name in removed if name not in left_out)
        if self.plan.output != self.after.name.filename:
            yield f"the plan leads to {self.plan.output}, the wheel is called {self.after.name.filename}"
        for old, new in self.renamed.items():
            if new != renamed_directory(old, self.after.name):
                yield f"{old}: now called {new}, not by the version"
        for file in self.plan.files:
            top, slash, rest = file.path.partition("/")
            name = f"{self.renamed.get(top, top)}{slash}{rest}"
            if file.changed and name not in changed:
                yield f"{name}: the plan changes it, and it has not changed"
        for name, content in made.items():
            if name not in self.after.members:
                yield f"{name}: is not there"
            elif content is None:
                yield f"{name}: is no JSON"
            elif self.after.read(name) != content:
                yield f"{name}: is not what this relink writes for the plan"
        store_list = f"{self.after.dist_info}/{STORE_MEMBER}"
        if store_list in self.after.members and store_list not in made:
            yield f"{store_list}: the plan names no store path"
        yield from self._plan_inside()
        yield from self._record()

    def _plan_inside(self) -> Iterator[str]:
        """What the new wheel's own plan says otherwise, where another one is compared with."""
        name = f"{self.after.dist_info}/{PLAN_MEMBER}"
        if self.reference is None:
            return
        try:
            inside = read_plan(self.after)
        except UsageError as error:
            yield f"{name}: {error.message}"
            return
        if inside is not None:
            yield from (f"{name}: {text}" for text in disagreements(inside, self.plan))

    def _made(self) -> dict[str, bytes | None]:
        """The members that relink adds, by name, as it writes them for the plan; None for one that is not even JSON."""
        info, plan = self.after.dist_info, self.plan
        name = f"{info}/{PLAN_MEMBER}"
        made: dict[str, bytes | None] = {
            # Another relink may write more facts, but in the same form: no key is repeated,
            # and nothing stands between them but the white space that relink writes.
            name: self._same_form(name),
            f"{info}/{SBOM_MEMBER}": json_bytes(bill_of_materials(plan, str(self.after.name.version))),
        }
        made |= {stub.path: stub.content() for stub in plan.stubs}
        if paths := store_paths(plan):
            made[f"{info}/{STORE_MEMBER}"] = "".join(f"{path}\n" for path in paths).encode()
        return made

    def _same_form(self, name: str) -> bytes | None:
        if name not in self.after.members:
            return b""
        try:
            return json_bytes(parse_json(self.after.read(name, JSON_LIMIT).decode("utf-8", "replace")))
        except (ValueError, RecursionError):
            return None

    def _record(self) -> Iterator[str]:
        """RECORD is right: every member, with its hash."""
        name = f"{self.after.dist_info}/RECORD"
        try:
            entries, malformed = read_record(self.after)
            issues = [
                *malformed,
                *check_record(entries, self.after.members, self.after.dist_info),
                *stale_lines(self.after, entries),
            ]
            yield from (f"{name}: {issue.path} {issue.message}" for issue in issues)
            verify_members(
                self.after, [entry for entry in entries if entry.digest and entry.path in self.after.members]
            )
        except WheelError as error:
            yield from (f"{name}: {text}" for text in error.issues or (error.message,))


@contextlib.contextmanager
def _edited_again(
    old: memoryview, image: Image, edit: ElfEdit
) -> Iterator[tuple[memoryview, tuple[Gap, ...]]]:
    """Edit the old file as relink does: hollow if that can be done, whole if not.

    Gives what came out, and the ranges where it has nothing and the old file's bytes belong.

    :raises EditError: patchelf does not do it, or must not read the file.
    :raises PatchelfError: there is no patchelf that can be used.
    """
    if refusals := scan(old):
        raise EditError(
            f"{image.path}: the static scan refuses it, so patchelf is not run on it",
            [str(one) for one in refusals],
        )
    try:
        gaps = find_gaps(old, image)
    except ElfError:
        gaps = ()
    with working_directory(Path(tempfile.gettempdir())) as place:
        path = place / "again.elf"
        hollow = None
        with contextlib.suppress(EditError):
            hollow = edit_without_gaps(path, edit, image, old, gaps) if gaps else None
        if hollow is not None:
            yield memoryview(hollow.view), gaps
            return
        path.write_bytes(old)
        apply_edit(path, edit, image, old)
        with map_file(str(path)) as view:
            yield memoryview(view), ()


def _sha256(content: Buffer) -> str:
    return hashlib.sha256(content).hexdigest()


def _differing(
    again: memoryview, gaps: Sequence[Gap], old: memoryview, new: memoryview, ranges: Ranges
) -> Ranges:
    """Return where `new` is not what was made again, or, within gaps, not what the old file has.

    :param ranges: the differences between `old` and `new`; gaps without any are not read.
    """
    size = min(len(again), len(new))
    wrong = Ranges()
    end = 0
    for gap in (*gaps, range(size, size)):
        deque(differing_blocks(paired_chunks(again, new, range(end, min(gap.start, size))), wrong), 0)
        # Blocks begin anywhere: one that begins before the gap may reach into it.
        first = bisect_left(ranges.blocks, gap.start - BLOCK)
        for block in ranges.blocks[first : bisect_left(ranges.blocks, gap.stop)]:
            part = range(max(block, gap.start), min(block + BLOCK, gap.stop))
            deque(differing_blocks(paired_chunks(old, new, part), wrong), 0)
        end = gap.stop
    if len(again) != len(new):
        wrong.add(size, max(len(again), len(new)))
    return wrong
