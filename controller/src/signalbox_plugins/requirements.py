"""The requirements of a package, and the missing ones. Nothing is installed here: a process that runs plugins
decides what the Python that runs them has."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable

# The SDK under its names, and the libraries that `compat` stands in for.
_PROVIDED = {"signalbox-controller", "signalbox-plugins", "webmacs-plugins-core", "pydantic", "structlog"}
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
_TOKEN = re.compile(r"\s*(\(|\)|[<>=!~]=?=?|'[^']*'|\"[^\"]*\"|[\w.]+)")
_CLAUSE = re.compile(r"(===|==|!=|<=|>=|~=|<|>)\s*([^\s,]+)")


def missing_requirements(paths: list[str]) -> list[str]:
    """Requirements of the distributions in `paths` that are neither there nor installed for this Python."""
    found_here = importlib.metadata.distributions(path=[*paths, *sys.path])
    there = {_normal(found.name): found.version for found in found_here if found.name}
    needed = (needed for found in importlib.metadata.distributions(path=paths) for needed in found.requires or ())
    return sorted({_shown(text) for text in needed if not _is_met(text, there)})


def _is_met(requirement: str, there: dict[str, str]) -> bool:
    match = _REQUIREMENT.match(requirement)
    if match is None:
        return False
    name, versions, marker = match.groups()
    if marker is not None and not _applies(marker):
        return True
    if _normal(name) in _PROVIDED:
        return True
    version = there.get(_normal(name))
    return version is not None and all(_compare(version, sign, required) for sign, required in _CLAUSE.findall(versions))


def _shown(requirement: str) -> str:
    return requirement.split(";")[0].strip()[:100]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _environment() -> dict[str, str]:
    """The names that markers know. Extras are not asked for."""
    version = ".".join(platform.python_version_tuple()[:2])
    return {
        "python_version": version,
        "python_full_version": platform.python_version(),
        "os_name": os.name,
        "sys_platform": sys.platform,
        "platform_system": platform.system(),
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "implementation_name": sys.implementation.name,
        "extra": "",
    }


def _applies(marker: str) -> bool:
    """Whether a marker holds here; one that cannot be read does."""
    tokens = _TOKEN.findall(marker)
    try:
        return _either(tokens, _environment()) or bool(tokens)
    except (IndexError, KeyError):
        return True


def _either(tokens: list[str], names: dict[str, str]) -> bool:
    return _joined("or", any, _both, tokens, names)


def _both(tokens: list[str], names: dict[str, str]) -> bool:
    return _joined("and", all, _one, tokens, names)


def _joined(
    word: str,
    verdict: Callable[[Iterable[bool]], bool],
    part: Callable[[list[str], dict[str, str]], bool],
    tokens: list[str],
    names: dict[str, str],
) -> bool:
    """The verdict on parts between which `word` stands; each of them is read to its end, whatever the first one says."""
    parts = [part(tokens, names)]
    while tokens and tokens[0] == word:
        tokens.pop(0)
        parts.append(part(tokens, names))
    return verdict(parts)


def _one(tokens: list[str], names: dict[str, str]) -> bool:
    if tokens[0] == "(":
        tokens.pop(0)
        holds = _either(tokens, names)
        tokens.pop(0)
        return holds
    left, sign = _text(tokens.pop(0), names), tokens.pop(0)
    if sign == "not":
        sign += f" {tokens.pop(0)}"
    return _compare(left, sign, _text(tokens.pop(0), names))


def _text(token: str, names: dict[str, str]) -> str:
    return token[1:-1] if token[0] in "'\"" else names[token]


def _compare(left: str, sign: str, right: str) -> bool:
    if sign in ("in", "not in"):
        return (left in right) == (sign == "in")
    a, b = _release(left), _release(right)
    if a is None or b is None:
        return (left == right) == (sign != "!=")
    if sign in ("==", "!=") and right.endswith(".*"):
        return (a[: len(b)] == b) == (sign == "==")
    if sign == "~=":
        return a >= b and a[: len(b) - 1] == b[:-1]
    longest = max(len(a), len(b))
    a, b = a + (0,) * (longest - len(a)), b + (0,) * (longest - len(b))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "!=": a != b}.get(sign, a == b)


def _release(version: str) -> tuple[int, ...] | None:
    """The numbers of a version, without its other parts; `None` if it is not a version."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else None
