"""Lets plugins load that were written for libraries which may not be installed: `pydantic`, of which they need the
declaration of fields, and `structlog`, of which they need a logger. Where these are installed, they are used."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .config import ConfigError, Field, Model


class _Logger:
    """A logger whose calls take values by name."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def bind(self, **_: Any) -> _Logger:
        return self

    def _log(self, level: int, event: object, values: dict[str, Any], exc_info: bool = False) -> None:
        text = " ".join(f"{key}={value!r}" for key, value in values.items())
        self._logger.log(level, "%s %s", event, text, exc_info=exc_info)

    def debug(self, event: object = "", *_: Any, **values: Any) -> None:
        self._log(logging.DEBUG, event, values)

    def info(self, event: object = "", *_: Any, **values: Any) -> None:
        self._log(logging.INFO, event, values)

    def warning(self, event: object = "", *_: Any, **values: Any) -> None:
        self._log(logging.WARNING, event, values)

    def error(self, event: object = "", *_: Any, **values: Any) -> None:
        self._log(logging.ERROR, event, values)

    def exception(self, event: object = "", *_: Any, **values: Any) -> None:
        self._log(logging.ERROR, event, values, exc_info=True)


def _get_logger(name: str = "plugin", *_: Any, **__: Any) -> _Logger:
    return _Logger(str(name))


_STAND_INS: dict[str, dict[str, Any]] = {
    "pydantic": {"BaseModel": Model, "Field": Field, "ConfigDict": dict, "ValidationError": ConfigError},
    "structlog": {"get_logger": _get_logger, "getLogger": _get_logger},
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last for a module, so that installed packages take precedence."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in _STAND_INS else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_STAND_INS[module.__name__])


def install() -> None:
    """Offers the stand-ins from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
