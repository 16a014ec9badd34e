"""Files of certificates and keys that settings name. Any operator sets the paths, by the API: a device such as
`/dev/zero` must not fill the memory of the controller's machine, and a pipe must not stop the instance."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator

_MOST_BYTES = 1 << 20
# Opening a pipe, or reading one of the kernel's files, would wait for a writer otherwise.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class UnusableFileError(OSError):
    """A file that a setting names and that cannot be used; the message says why, and what to do."""

    def __init__(self, setting: str, path: str, why: str, remedy: str) -> None:
        super().__init__(f"{setting}: {path} {why}: {remedy}")


async def content_of(setting: str, path: str) -> bytes:
    """The content of a regular file of at most 1 MiB on the controller's machine. Raises `UnusableFileError`."""
    # File systems of networks can be slow.
    return await asyncio.to_thread(_content_of, setting, path)


def _content_of(setting: str, path: str) -> bytes:
    try:
        file = os.open(path, _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                why = "is a folder, a pipe or a device of the controller's machine"
                raise UnusableFileError(setting, path, why, "name a regular file there")
            content = _read(file)
        finally:
            os.close(file)
    except UnusableFileError:
        raise
    except (OSError, ValueError) as error:
        # A `ValueError` is a path that no file can have.
        why = f"cannot be read on the controller's machine ({getattr(error, 'strerror', None) or error})"
        raise UnusableFileError(setting, path, why, "name a file there that the controller's user may read") from error
    if len(content) > _MOST_BYTES:
        raise UnusableFileError(setting, path, "is longer than 1 MiB", "name the file of the certificate or key alone")
    return content


def _read(file: int) -> bytes:
    """Up to one byte more than is allowed. The length of the kernel's files is 0 before they are read."""
    content = b""
    while len(content) <= _MOST_BYTES and (part := os.read(file, _MOST_BYTES + 1 - len(content))):
        content += part
    return content


@contextlib.contextmanager
def path_of(content: bytes) -> Iterator[str]:
    """A path at which a library reads this content, which is in memory alone: keys are copied to no disk."""
    file = os.memfd_create("signalbox")
    try:
        with os.fdopen(os.dup(file), "wb") as memory:
            memory.write(content)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
