"""Upload a site to object storage (S3): files first, then pages, last of all what the site has no more goes.

Usage: python upload.py SITE BUCKET [PREFIX]; the address and the keys of the storage are those of boto3: AWS_ENDPOINT_URL, …
"""

from __future__ import annotations

import mimetypes
import os
import sys
from pathlib import Path
from typing import Any

import boto3

FILES = "files/"
SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
KINDS = {".whl": "application/zip", ".metadata": "text/plain; charset=utf-8"}


def kind_of(key: str) -> str:
    """Return the media type of an object."""
    if "/simple/" in key and key.endswith(("/", ".json")):
        return SIMPLE_JSON
    return KINDS.get(Path(key).suffix) or mimetypes.guess_type(key)[0] or "application/octet-stream"


def objects_of(site: Path) -> dict[str, Path]:
    """Return the files of a site by their keys; installers ask for a project by an address that ends in a slash."""
    found = {}
    paths = (Path(place, name) for place, _, names in os.walk(site, followlinks=True) for name in names)
    for path in sorted(paths):
        key = path.relative_to(site).as_posix()
        if "/.relink-" in key:  # of a run that goes on
            continue
        found[key] = path
        if "/simple/" in key and path.name == "index.json":
            found[key.removesuffix("index.json")] = path
    return found


def upload(site: Path, bucket: Any, prefix: str) -> tuple[int, int]:
    """Make a bucket what a site is; returns how many objects were sent and removed."""
    site = site.resolve()  # the one that is shown now
    objects = objects_of(site)
    there = {item.key.removeprefix(prefix): item.size for item in bucket.objects.filter(Prefix=prefix)}
    sent = 0
    for key in sorted(objects, key=lambda key: (not key.startswith(FILES), key)):
        # A name of files/ never gets another content; what lies beside a wheel may be written again.
        if key.startswith(FILES) and there.get(key) == objects[key].stat().st_size:
            continue
        cache = "public, max-age=31536000, immutable" if key.startswith(FILES) else "no-cache"
        bucket.upload_file(
            str(objects[key]), prefix + key, ExtraArgs={"ContentType": kind_of(key), "CacheControl": cache}
        )
        sent += 1
    gone = [key for key in there if key not in objects]
    for key in sorted(gone, key=lambda key: key.startswith(FILES)):  # pages first
        bucket.Object(prefix + key).delete()
    return sent, len(gone)


if __name__ == "__main__":
    place, name, *rest = sys.argv[1:]
    start = f"{rest[0].strip('/')}/" if rest else ""
    print(
        "{} objects sent, {} removed".format(*upload(Path(place), boto3.resource("s3").Bucket(name), start))
    )
