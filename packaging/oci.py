# SPDX-License-Identifier: BSD-2-Clause
"""An OCI image archive of one layer, as `podman load`, `skopeo` and `docker load` read it.

The form: https://specs.opencontainers.org/image-spec/, "Image Layout". Files of the layer belong to
root or to whom they belong in the directory, and carry one date, so that the same directory always
makes the same image.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["write_archive"]

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_REFERENCE = "org.opencontainers.image.ref.name"
_LEVEL = 6


class _Hashed:
    """Writes on to a file, and knows the digest of what went by."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sha = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._sha.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self._sha.hexdigest()}"


def write_archive(
    root: Path, archive: Path, *, name: str, config: Mapping[str, Any], epoch_s: int
) -> None:
    """root: the directory that becomes the layer. name: what `podman load` calls the image."""
    packed = archive.with_suffix(".layer")
    try:
        layer, diff = _write_layer(root, packed, epoch_s)
        created = _date(epoch_s)
        image = {
            "created": created,
            "architecture": "amd64",
            "os": "linux",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [diff]},
            "history": [{"created": created, "created_by": "make image"}],
        }
        with tarfile.open(archive, "w") as tar:
            described = _add_json(tar, image, epoch_s) | {"mediaType": _CONFIG}
            size = packed.stat().st_size
            with packed.open("rb") as file:
                _add(tar, _blob(layer), file, size, epoch_s)
            manifest = {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": described,
                "layers": [{"mediaType": _LAYER, "digest": layer, "size": size}],
            }
            listed = _add_json(tar, manifest, epoch_s) | {
                "mediaType": _MANIFEST,
                "platform": {"architecture": "amd64", "os": "linux"},
                "annotations": {_REFERENCE: name},
            }
            _add_text(tar, "index.json", {"schemaVersion": 2, "manifests": [listed]}, epoch_s)
            _add_text(tar, "oci-layout", {"imageLayoutVersion": "1.0.0"}, epoch_s)
    finally:
        packed.unlink(missing_ok=True)


def _write_layer(root: Path, packed: Path, epoch_s: int) -> tuple[str, str]:
    """The digests of the layer as it is packed, and as it is unpacked."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uname, entry.gname = epoch_s, "", ""
        entry.name = entry.name.removeprefix("./")
        return entry

    with packed.open("wb") as file:
        outer = _Hashed(file)
        with gzip.GzipFile("", "wb", _LEVEL, outer, mtime=0) as squeezed:
            inner = _Hashed(squeezed)
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                for path in sorted(root.iterdir()):
                    tar.add(path, path.name, filter=plain)
        return outer.digest, inner.digest


def _date(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add_json(tar: tarfile.TarFile, value: Mapping[str, Any], epoch_s: int) -> dict[str, Any]:
    data = json.dumps(value, sort_keys=True).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    _add(tar, _blob(digest), io.BytesIO(data), len(data), epoch_s)
    return {"digest": digest, "size": len(data)}


def _add_text(tar: tarfile.TarFile, name: str, value: Mapping[str, Any], epoch_s: int) -> None:
    data = json.dumps(value, sort_keys=True).encode()
    _add(tar, name, io.BytesIO(data), len(data), epoch_s)


def _add(tar: tarfile.TarFile, name: str, file: Any, size: int, epoch_s: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, epoch_s, 0o644
    tar.addfile(entry, file)
