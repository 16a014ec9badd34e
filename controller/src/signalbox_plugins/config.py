"""Configuration of plugins: declared as annotated classes, checked when it is read, shown as JSON Schema.

A subclass of `Model` declares fields as annotations with defaults, or with `Field` for bounds and descriptions. Fields
that were declared with Pydantic's `Field` are understood too, so that configurations written for it need no change.
"""

from __future__ import annotations

import enum
import inspect
import math
import re
import sys
import types
import typing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

_MISSING: Any = object()
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LENGTHS = {"str": ("minLength", "maxLength"), "list": ("minItems", "maxItems")}


class ConfigError(ValueError):
    """A value that a field rejects; the message starts with the field's name."""


@dataclass(frozen=True)
class FieldInfo:
    """Properties of a field besides its type."""

    default: Any = _MISSING
    default_factory: Any = None
    title: str | None = None
    description: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_required(self) -> bool:
        return self.default is _MISSING and self.default_factory is None

    def make_default(self) -> Any:
        return self.default_factory() if self.default_factory is not None else self.default


_LIMITS = (*_BOUNDS, "min_length", "max_length", "pattern")


def Field(default: Any = _MISSING, **options: Any) -> Any:
    """Declares a field. Options: `default_factory`, `title`, `description`, `ge`, `gt`, `le`, `lt`, `min_length`,
    `max_length`, `pattern`, `json_schema_extra`; others are ignored."""
    return FieldInfo(
        default=_MISSING if default is ... else default,
        default_factory=options.get("default_factory"),
        title=options.get("title"),
        description=options.get("description"),
        limits={name: options[name] for name in _LIMITS if options.get(name) is not None},
        extra=_extra(options.get("json_schema_extra")),
    )


def _extra(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _understand(declared: Any) -> FieldInfo:
    """The default of an annotated attribute, as a `FieldInfo`."""
    if isinstance(declared, FieldInfo):
        return declared
    if type(declared).__name__ != "FieldInfo":
        return FieldInfo(default=declared)
    # Pydantic's: bounds lie in `metadata`, one small object each.
    limits = {
        name: getattr(part, name)
        for part in getattr(declared, "metadata", [])
        for name in _LIMITS
        if getattr(part, name, None) is not None
    }
    undefined = type(declared.default).__name__ == "PydanticUndefinedType"
    return FieldInfo(
        default=_MISSING if undefined else declared.default,
        default_factory=declared.default_factory,
        title=declared.title,
        description=declared.description,
        limits=limits,
        extra=_extra(declared.json_schema_extra),
    )


class Model:
    """Base of configurations. Unknown keys are ignored; values are converted where nothing is lost."""

    _fields: ClassVar[dict[str, tuple[Any, FieldInfo]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fields = dict(cls._fields)
        for name, annotation in inspect.get_annotations(cls).items():
            if not name.startswith(("_", "model_")):
                resolved = _resolve(cls, annotation)
                if typing.get_origin(resolved) is not ClassVar and resolved is not ClassVar:
                    fields[name] = _split(resolved, cls.__dict__.get(name, _MISSING))
        cls._fields = fields

    def __init__(self, **values: Any) -> None:
        for name, (kind, info) in self._fields.items():
            if name in values:
                checked = _check(name, kind, info, values[name])
            elif info.is_required:
                raise ConfigError(f"{name}: is required")
            else:
                checked = info.make_default()
            setattr(self, name, checked)

    @classmethod
    def model_validate(cls, values: Any) -> Self:
        """The configuration that `values` describe; `ConfigError` names the first field that is wrong."""
        if not isinstance(values, dict):
            raise ConfigError("the configuration must be an object")
        return cls(**{str(key): value for key, value in values.items()})

    def model_dump(self) -> dict[str, Any]:
        """All fields as plain values."""
        return {name: _plain(getattr(self, name)) for name in self._fields}

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """The JSON Schema of configurations."""
        properties = {name: _schema(name, kind, info) for name, (kind, info) in cls._fields.items()}
        required = [name for name, (_, info) in cls._fields.items() if info.is_required]
        schema: dict[str, Any] = {"title": cls.__name__, "type": "object", "properties": properties}
        return {**schema, "required": required} if required else schema

    def __repr__(self) -> str:
        """All fields, but for passwords: a plugin may print its configuration to the log."""
        shown = (
            f"{name}={'***' if _is_secret(info) else repr(getattr(self, name))}"
            for name, (_, info) in self._fields.items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


def _is_secret(info: FieldInfo) -> bool:
    return bool(info.extra.get("format") == "password" or info.extra.get("writeOnly"))


def _resolve(cls: type, annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    module = sys.modules.get(cls.__module__)
    try:
        return eval(annotation, {**vars(typing), **(vars(module) if module else {})}, dict(vars(cls)))
    except NameError:
        # Imported for type checkers alone.
        return Any


def _split(annotation: Any, declared: Any) -> tuple[Any, FieldInfo]:
    """Type and field of an annotation, of which `Annotated` may hold both."""
    if typing.get_origin(annotation) is typing.Annotated:
        kind, *notes = typing.get_args(annotation)
        named = [_understand(note) for note in notes if type(note).__name__ == "FieldInfo"]
        if named and declared is _MISSING:
            return kind, named[0]
        return kind, _understand(declared)
    return annotation, _understand(declared)


def _check(name: str, kind: Any, info: FieldInfo, value: Any) -> Any:
    value = _convert(name, kind, value)
    limits = info.limits
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        wrong = (
            ("ge" in limits and value < limits["ge"])
            or ("gt" in limits and value <= limits["gt"])
            or ("le" in limits and value > limits["le"])
            or ("lt" in limits and value >= limits["lt"])
        )
        if wrong:
            raise ConfigError(f"{name}: is out of range")
    shortest, longest = limits.get("min_length", 0), limits.get("max_length", math.inf)
    if isinstance(value, (str, list)) and not shortest <= len(value) <= longest:
        raise ConfigError(f"{name}: has a length that is not allowed")
    if isinstance(value, str) and "pattern" in limits and not re.search(limits["pattern"], value):
        raise ConfigError(f"{name}: does not have the expected form")
    return value


def _convert(name: str, kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        for choice in (choice for choice in arguments if choice is not type(None)):
            try:
                return _convert(name, choice, value)
            except ConfigError:
                continue
        raise ConfigError(f"{name}: has a type that is not allowed")
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise ConfigError(f"{name}: must be one of {', '.join(map(str, arguments))}")
    if origin in (list, dict) or kind in (list, dict):
        return _convert_many(name, origin or kind, arguments, value)
    if isinstance(kind, type) and issubclass(kind, Model):
        if isinstance(value, kind):
            return value
        try:
            return kind.model_validate(value)
        except ConfigError as error:
            raise ConfigError(f"{name}.{error}") from None
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise ConfigError(f"{name}: must be one of {', '.join(str(item.value) for item in kind)}") from None
    return _convert_one(name, kind, value)


def _convert_many(name: str, kind: Any, arguments: tuple[Any, ...], value: Any) -> Any:
    if kind is list and isinstance(value, list):
        each = arguments[0] if arguments else Any
        return [_convert(f"{name}[{index}]", each, item) for index, item in enumerate(value)]
    if kind is dict and isinstance(value, dict):
        key, each = arguments or (Any, Any)
        return {_convert(name, key, at): _convert(f"{name}.{at}", each, item) for at, item in value.items()}
    raise ConfigError(f"{name}: must be {'a list' if kind is list else 'an object'}")


def _convert_one(name: str, kind: Any, value: Any) -> Any:
    if kind is bool:
        known = {True: True, False: False, "true": True, "false": False}
        lowered = value.lower() if isinstance(value, str) else value
        if isinstance(lowered, (bool, int, str)) and lowered in known:
            return known[lowered]
        raise ConfigError(f"{name}: must be true or false")
    if kind is int or kind is float:
        try:
            if isinstance(value, (int, float, str)) and math.isfinite(float(value)):
                if kind is float:
                    return float(value)
                if float(value) == int(float(value)):
                    return int(float(value))
        except ValueError:
            pass
        raise ConfigError(f"{name}: must be {'a whole' if kind is int else 'a finite'} number")
    if kind is str and not isinstance(value, str):
        raise ConfigError(f"{name}: must be a text")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.model_dump()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _schema(name: str, kind: Any, info: FieldInfo) -> dict[str, Any]:
    schema: dict[str, Any] = {"title": info.title or name.replace("_", " ").capitalize(), **_type_schema(kind)}
    if info.description:
        schema["description"] = info.description
    if not info.is_required:
        schema["default"] = _plain(info.make_default())
    for limit, word in _BOUNDS.items():
        if limit in info.limits:
            schema[word] = info.limits[limit]
    least, most = _LENGTHS["list" if schema.get("type") == "array" else "str"]
    for limit, word in (("min_length", least), ("max_length", most), ("pattern", "pattern")):
        if limit in info.limits:
            schema[word] = info.limits[limit]
    return {**schema, **info.extra}


def _type_schema(kind: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    simple = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    if isinstance(kind, type) and kind in simple:
        return {"type": simple[kind]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type_schema(choice) for choice in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is list or kind is list:
        return {"type": "array", **({"items": _type_schema(arguments[0])} if arguments else {})}
    if origin is dict or kind is dict:
        return {"type": "object", **({"additionalProperties": _type_schema(arguments[1])} if arguments else {})}
    if isinstance(kind, type) and issubclass(kind, Model):
        return kind.model_json_schema()
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [item.value for item in kind]}
    return {}


class RetryPolicy(Model):
    """How a controller tries again to reach a device."""

    max_attempts: int = Field(default=5, ge=0, description="Attempts; 0 for any number")
    base_delay: float = Field(default=1.0, gt=0, description="First pause in seconds")
    max_delay: float = Field(default=60.0, gt=0, description="Longest pause in seconds")
    backoff_factor: float = Field(default=2.0, ge=1, description="By how much pauses grow")


class PluginInstanceConfig(Model):
    """Settings of every instance. A plugin that needs more declares a subclass as its `config_schema`."""

    instance_name: str = Field(default="", max_length=255, description="What people call the instance")
    demo_mode: bool = Field(default=True, description="Whether values are simulated")
    poll_interval_ms: int = Field(default=1000, ge=50, le=60000, description="Milliseconds between two readings")
    retry_policy: RetryPolicy = Field(default_factory=RetryPolicy)


@dataclass(frozen=True)
class PluginMeta:
    """Identity of a plugin."""

    id: str
    name: str
    version: str
    vendor: str = ""
    description: str = ""
    protocol: str = ""
    url: str = ""
    tags: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**self.__dict__, "tags": list(self.tags)}
