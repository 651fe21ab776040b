"""The reference of params.yaml, from the params classes: types, defaults, bounds, descriptions."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import architecture
from pages import MADE, table, wrapped
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from coattail.models.kinds import imported
from coattail.pipeline import registry
from coattail.pipeline.runner import RunSettings


def pages() -> dict[str, str]:
    """Path under docs/reference -> text."""
    found = sections().items()
    made = {f"params/{name}.md": section_page(name, type_) for name, type_ in found}
    return {"params/README.md": params_page(), **made}


def sections() -> dict[str, Any]:
    """Section of params.yaml -> its params: a class, or a union of one class per model."""
    return {one.name: imported(one.params, one.name) for one in registry.SECTIONS}


def params_page() -> str:
    rows = [(f"[`{name}`]({name}.md)", doing(name), how_many(name)) for name in sections()]
    return f"""{MADE}
# params.yaml

One section per stage, and a few settings of the whole run. Values that are not written have the
defaults of these pages; unknown names and wrong values are refused before anything runs.
`coattail use` fills `dataset`, `take_in` and `vectors`.

{table("section | what it decides | entries", rows)}
## At the top

{fields_table(RunSettings, list(RunSettings.model_fields))}"""


def doing(name: str) -> str:
    """The first sentence about a section: that of its stage, or of its class."""
    stages = architecture.stages()
    if name in stages:
        return stages[name]["desc"]
    return first_line(classes(sections()[name])[0])


def how_many(name: str) -> str:
    return "any number, each with a name" if registry.stage(name).named else "one"


def section_page(name: str, type_: Any) -> str:
    """The page of one section: what all its models share first, then each model."""
    found = classes(type_)
    entries = f" Every entry under `{name}` has a name of its own." * registry.stage(name).named
    parts = [f"{MADE}\n# params.yaml: {name}\n\n{wrapped(doing(name) + entries)}\n"]
    if len(found) == 1:
        parts.append(fields_table(found[0], list(found[0].model_fields)))
    else:
        parts += of_union(found, discriminator(type_))
    for path, cls in inner(found):
        fields = fields_table(cls, list(cls.model_fields))
        parts.append(f"## {path}\n\n{first_line(cls)}\n\n{fields}")
    return "\n".join(parts)


def of_union(found: list[type[BaseModel]], tag: str) -> list[str]:
    """What all classes share, then what each has of its own."""
    shared = [key for key in found[0].model_fields if is_shared(key, found)]
    chosen = ", ".join(f"`{value}`" for cls in found for value in tag_values(cls, tag))
    parts = [f"`{tag}` says which of these an entry is: {chosen}.\n"]
    if shared:
        parts.append(f"## Of every {tag}\n\n{fields_table(found[0], shared)}")
    for cls in found:
        own = [tag, *(key for key in cls.model_fields if key not in (tag, *shared))]
        title = ", ".join(tag_values(cls, tag))
        parts.append(f"## {title}\n\n{first_line(cls)}\n\n{fields_table(cls, own)}")
    return parts


def classes(type_: Any) -> list[type[BaseModel]]:
    """The params classes of a section, in the order in which they are written."""
    if get_origin(type_) is Annotated:
        return classes(get_args(type_)[0])
    if get_origin(type_) in (Union, types.UnionType):
        return [cls for one in get_args(type_) for cls in classes(one)]
    return [type_]


def discriminator(type_: Any) -> str:
    """The key whose value says which class of a union an entry is."""
    (field,) = [one for one in get_args(type_)[1:] if isinstance(one, FieldInfo)]
    return str(field.discriminator)


def tag_values(cls: type[BaseModel], tag: str) -> tuple[str, ...]:
    return get_args(cls.model_fields[tag].annotation)


def is_shared(key: str, found: list[type[BaseModel]]) -> bool:
    """Whether a field is the same in all classes."""
    rows = {row(key, cls.model_fields[key]) if key in cls.model_fields else None for cls in found}
    return len(rows) == 1


def first_line(cls: type[BaseModel]) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def inner(found: list[type[BaseModel]], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Params classes inside others, by the dotted name of the field that holds them."""
    seen: set[type[BaseModel]] = set()
    for cls in found:
        for key, field in cls.model_fields.items():
            held = next((one for one in within(field.annotation) if is_params(one)), None)
            if held is not None and held not in seen:
                seen.add(held)
                yield f"{path}{key}", held
                yield from inner([held], f"{path}{key}.")


def is_params(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, BaseModel)


def within(type_: Any) -> Iterator[Any]:
    """A type and all it is made of."""
    yield type_
    for one in get_args(type_):
        yield from within(one)


def fields_table(cls: type[BaseModel], keys: list[str]) -> str:
    rows = [row(key, cls.model_fields[key]) for key in keys]
    return table("name | type | default | allowed | what it is", rows)


def row(key: str, field: FieldInfo) -> tuple[str, ...]:
    if not field.description:
        raise SystemExit(f"the field {key} has no description: {field!r}")
    kind, allowed = described(field.annotation, field.metadata)
    return f"`{key}`", kind, default(field), ", ".join(allowed), field.description


def default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    return "as below" if isinstance(value, BaseModel) else f"`{json.dumps(value)}`"


NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "any"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def described(type_: Any, metadata: Any = ()) -> tuple[str, list[str]]:
    """A type in words, and what bounds its values."""
    allowed = [bound for one in metadata for bound in bounds(one)]
    arguments = get_args(type_)
    origin = get_origin(type_)
    if origin is Annotated:
        kind, more = described(arguments[0], arguments[1:])
    elif origin is Literal:
        kind, more = "one of", [f"`{json.dumps(one).strip(chr(34))}`" for one in arguments]
    elif origin in (Union, types.UnionType):
        some = [described(one) for one in arguments if one is not type(None)]
        kind = " or ".join(name for name, _ in some)
        more = [bound for _, found in some for bound in found]
        if type(None) in arguments:
            more.append("`null`")
    elif origin in (tuple, list):
        inside, more = described(arguments[0])
        kind = f"list of {plural(inside)}"
    elif origin is dict:
        inside, more = described(arguments[1])
        kind = f"names with {plural(inside)}"
    else:
        kind, more = NAMES.get(type_, "a section"), []
    return kind, [*allowed, *more]


def plural(kind: str) -> str:
    return {"text": "texts", "any": "values", "a section": "sections"}.get(kind, f"{kind}s")


def bounds(one: Any) -> Iterator[str]:
    """What a piece of pydantic's metadata says about values, as a reader writes it."""
    if isinstance(one, FieldInfo):
        for part in one.metadata:
            yield from bounds(part)
    for name, sign in BOUNDS.items():
        if (value := getattr(one, name, None)) is not None and not isinstance(one, FieldInfo):
            yield f"{sign} {value:g}" if abs(value) < 1e4 else f"{sign} {value:,}"
    if isinstance(one, annotated_types.MinLen):
        yield f"at least {one.min_length} long"
