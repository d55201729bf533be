"""The URLs of the project in its metadata: those of the repository that it is built from, which the source does not know."""

from __future__ import annotations

import os
from typing import Any

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
