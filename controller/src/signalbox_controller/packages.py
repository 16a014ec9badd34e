"""Packages of plugins on this machine: each is fetched once, checked, and unpacked into a folder of its own."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from .service import Package, Service

_MAX_FILES = 5_000
_MAX_BYTES = 256 << 20


class PackageError(Exception):
    """A package that cannot be used here."""


class Packages:
    """The packages below one folder, named after the digests of their wheels."""

    def __init__(self, folder: Path, service: Service) -> None:
        self._folder = folder
        self._service = service

    def fetch(self, package: Package) -> Path:
        """The folder of a package, which is fetched if need be. Raises `PackageError` and what the service raises."""
        folder = self._folder / package.sha256
        if not folder.is_dir():
            wheel = self._service.wheel(package)
            if hashlib.sha256(wheel).hexdigest() != package.sha256:
                raise PackageError("the wheel that came is not the one that was installed")
            try:
                self._unpack(wheel, folder)
            except OSError as error:
                raise PackageError(f"the wheel cannot be unpacked: {error}") from error
        return folder

    def _unpack(self, wheel: bytes, folder: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        whole = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            unpack(wheel, whole)
            # A folder of this name is used as it is: after a power failure its files must not be empty.
            os.sync()
            whole.rename(folder)
        finally:
            shutil.rmtree(whole, ignore_errors=True)

    def keep_only(self, packages: list[Package]) -> None:
        """Removes the packages that are no longer installed."""
        known = {package.sha256 for package in packages}
        for folder in self._folder.glob("*"):
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)


def unpack(wheel: bytes, folder: Path) -> None:
    """Unpacks a wheel. Nothing of it may lie outside of `folder`, be a link, or be larger than is allowed."""
    try:
        _unpack_all(zipfile.ZipFile(io.BytesIO(wheel)), folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise PackageError("the wheel is damaged") from error


def _unpack_all(archive: zipfile.ZipFile, folder: Path) -> None:
    entries = archive.infolist()
    if len(entries) > _MAX_FILES or sum(entry.file_size for entry in entries) > _MAX_BYTES:
        raise PackageError("the wheel unpacks to too much")
    for entry in entries:
        path = PurePosixPath(entry.filename)
        is_special = stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or is_special:
            raise PackageError("the wheel holds a path that leads out of it")
        target = folder / path
        if entry.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # The entry states the length of its content.
        with archive.open(entry) as source, target.open("xb") as file:
            shutil.copyfileobj(source, file)
