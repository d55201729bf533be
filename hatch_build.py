"""What a build adds to the sources: the URLs of the repository in the metadata, and the commit that was built."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "RELINK_REPOSITORY"
"""Names the repository, https://HOST/OWNER/NAME; the release workflow sets it."""


class RepositoryUrls(MetadataHookInterface):
    """Sets ``project.urls`` where the repository is named; a build that nobody releases has none."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the URLs to the metadata."""
        repository = os.environ.get(VARIABLE, "").rstrip("/")
        if repository:
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/blob/main/docs/start.md",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }


class Commit(BuildHookInterface):
    """Writes ``relink/_commit`` into an sdist or a wheel that is built of a checkout; an sdist passes it on to its wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, where the sources are a checkout and git is there to be asked."""
        if version == "editable":
            return
        # Of an sdist: it lies at the same place of the archive as from a checkout.
        passed_on = Path(self.root, "relink/_commit")
        if passed_on.exists():
            build_data["force_include"][str(passed_on)] = "relink/_commit"
            return
        if not Path(self.root, ".git").exists():
            return
        command = ["git", "-C", self.root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return
        if done.stdout:
            self._directory = tempfile.TemporaryDirectory()
            file = Path(self._directory.name, "commit")
            file.write_text(done.stdout, encoding="ascii")
            build_data["force_include"][str(file)] = "relink/_commit"

    def finalize(self, *_: object) -> None:
        """Remove the file that was added."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()
