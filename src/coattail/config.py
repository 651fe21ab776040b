"""params.yaml sections as frozen pydantic models, with errors a person can act on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from coattail.errors import ConfigError

PARAMS = Path("params.yaml")


class Params(BaseModel):
    """Base of every section: frozen, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


T = TypeVar("T")


# --- YAML ----------------------------------------------------------------------------------------

# Plain words as YAML 1.2 has them, and so DVC: 1e-3 is a number, 012 is twelve, yes is a word.
_PLAIN = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (
        r"[-+]?(?:0b[01][01_]*|0o[0-7][0-7_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|_*[0-9][0-9_]*)",
        "-+0123456789",
    ),
    "float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+"
        r"|\.[0-9_]*[0-9][0-9_]*(?:[eE][-+][0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": (r"<<", "<"),
    "timestamp": (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "0123456789"),
}


class _Reader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain Python values; a key that stands twice in a mapping is a mistake."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = None if key.tag.endswith(":merge") else self.construct_object(key, deep=True)
            if isinstance(name, Hashable) and name is not None:
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        "in a mapping", node.start_mark, f"{name!r} stands twice", key.start_mark
                    )
                seen.add(name)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found

    def _whole(self, node: Any) -> int:
        digits = self.construct_scalar(node).replace("_", "")
        return int(digits, 10 if digits.lstrip("+-").isdigit() else 0)


class _Writer(yaml.SafeDumper):
    """Quotes what `_Reader` and DVC would not read as a string."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_Reader.add_constructor("tag:yaml.org,2002:int", _Reader._whole)
for _name, (_pattern, _first) in _PLAIN.items():
    for _class in (_Reader, _Writer):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})$"), list(_first)
        )


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML mapping as plain Python values."""
    path = Path(path)
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing; run from the project's root") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None


def parse_yaml(text: str, path: Path) -> dict[str, Any]:
    """The text of ``path``, or a mapping out of it, as plain Python values."""
    content = yaml_value(text, str(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: wanted a mapping of sections, got {type(content).__name__}")
    return content


def yaml_value(text: str, where: str) -> Any:
    """YAML that may be anything as plain Python values."""
    try:
        return yaml.load(text, _Reader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{where} is not valid YAML: {error}") from None


def yaml_text(content: Any) -> str:
    """Plain Python values as YAML, keys in their order."""
    return str(yaml.dump(content, Dumper=_Writer, sort_keys=False))


# --- sections ------------------------------------------------------------------------------------


def load(section: str, model: type[T] | Any, path: str | Path = PARAMS) -> T:
    """The dotted ``section`` of params.yaml as ``model`` (a Params class or a union of them)."""
    value: Any = read_yaml(path)
    seen: list[str] = []
    for name in section.split("."):
        if not isinstance(value, dict) or name not in value:
            there = list(value) if isinstance(value, dict) else []
            where = f"{path}: {'.'.join(seen)}" if seen else str(path)
            raise ConfigError(f"{where} has no {name!r}{suggestion(name, there)}")
        value = value[name]
        seen.append(name)
    return parse(value, model, f"{path}: {section}")


def parse(value: Any, model: type[T] | Any, where: str) -> T:
    """``value`` as ``model``; every mistake of it in one ConfigError."""
    try:
        return TypeAdapter(model).validate_python(value)
    except ValidationError as error:
        lines = [_explain(item, model, value) for item in error.errors()]
        if where.endswith(" "):  # the top level has no name to put a dot behind
            lines = [line.removeprefix(".") for line in lines]
        raise ConfigError("\n".join(f"{where}{line}" for line in lines)) from None


def suggestion(name: str, known: list[str]) -> str:
    """`` (did you mean 'x'?)`` or the list of what there is."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there is {', '.join(sorted(known))}" if known else ""


def _explain(item: Any, model: Any, value: Any) -> str:
    # A discriminated union puts the tag into the location; a reader knows only the keys.
    keys = [str(part) for part in item["loc"]]
    owner, path = _walk(value, keys)
    dotted = "".join(f".{key}" for key in path)
    if item["type"] == "extra_forbidden":
        return f"{dotted}: unknown parameter{suggestion(path[-1], _fields(model, keys[:-1]))}"
    if item["type"] == "missing":
        return f"{dotted}: missing; it has no default"
    return f"{dotted}: got {owner!r}; {item['msg'][:1].lower()}{item['msg'][1:]}"


def _walk(value: Any, keys: list[str]) -> tuple[Any, list[str]]:
    path: list[str] = []
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        if isinstance(value, dict) and (key in value or last):
            value = value.get(key)
            path.append(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
            path.append(key)
    return value, path


def _fields(model: Any, keys: list[str]) -> list[str]:
    """Names of the fields of the Params class that the location points into."""
    classes = _classes(TypeAdapter(model).core_schema)
    if keys:  # the first key of a union's location is the tag that chose the class
        classes = [cls for cls in classes if _has_tag(cls, keys[0])] or classes
    return [name for cls in classes for name in cls.model_fields]


def _has_tag(cls: type[BaseModel], tag: str) -> bool:
    return any(
        tag in getattr(field.annotation, "__args__", ()) for field in cls.model_fields.values()
    )


def _classes(schema: Any) -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = []
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            cls = node.get("cls")
            if isinstance(cls, type) and issubclass(cls, BaseModel) and cls not in found:
                found.append(cls)
            stack.extend(v for k, v in node.items() if k != "cls")
        elif isinstance(node, list | tuple):
            stack.extend(node)
    return found
