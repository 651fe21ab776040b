"""What `coattail tune` may change: ``C=0.1..10:log``, ``epochs=2..6``, ``weighting=none,pw``."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError

from coattail.config import Params, suggestion, yaml_value
from coattail.errors import ConfigError

NUMBER = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"(?P<low>{NUMBER})\.\.(?P<high>{NUMBER})(?::(?P<how>log|{NUMBER}))?")
EXAMPLES = "wanted C=0.1..10:log, epochs=2..6, beta=0.5..0.9:0.1 or weighting=none,pw,pwcb"
FIXED = {"model": "it makes another variant", "seed": "the best seed is luck, not a setting"}
DIGITS = 4  # of a drawn number; more only make commands longer


@dataclass(frozen=True)
class Choice:
    """One of a few values; Optuna sees their names."""

    name: str
    values: tuple[Any, ...]

    @property
    def labels(self) -> list[str]:
        return [v if isinstance(v, str) else json.dumps(v) for v in self.values]

    def value(self, drawn: Any) -> Any:
        return self.values[self.labels.index(drawn)]

    def drawn(self, value: Any) -> Any | None:
        """What Optuna calls a value, None if it cannot be chosen."""
        return self.labels[self.values.index(value)] if value in self.values else None

    def grid(self) -> list[Any] | None:
        return list(self.labels)

    def ends(self) -> tuple[Any, ...]:
        return self.values

    def __str__(self) -> str:
        return f"{self.name}={','.join(self.labels)}"


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included."""

    name: str
    low: float
    high: float
    log: bool
    step: float | None
    whole: bool

    def value(self, drawn: Any) -> Any:
        if self.whole:
            return int(drawn)
        return min(max(float(f"{drawn:.{DIGITS}g}"), self.low), self.high)

    def drawn(self, value: Any) -> Any | None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not self.low <= value <= self.high:
            return None
        grid = self.grid()
        return value if grid is None or value in grid else None

    def grid(self) -> list[Any] | None:
        """All values, None if there are too many to count."""
        if self.whole:
            return list(range(int(self.low), int(self.high) + 1, int(self.step or 1)))
        if self.step is None:
            return None
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        return [float(f"{self.low + i * self.step:.10g}") for i in range(count)]

    def ends(self) -> tuple[Any, ...]:
        return (self.value(self.low), self.value(self.high))

    def __str__(self) -> str:
        how = ":log" if self.log else f":{self.step:g}" if self.step else ""
        return f"{self.name}={self.low:g}..{self.high:g}{how}"


Dimension = Choice | Range


def read(texts: Sequence[str], section: Mapping[str, Any], params: Params) -> list[Dimension]:
    """The ``--over`` arguments as dimensions of a variant.

    Parameters
    ----------
    texts : as typed
    section : the variant as params.yaml has it
    params : the same, parsed; its class knows the names, types and bounds
    """
    found: dict[str, Dimension] = {}
    for text in texts:
        one = _dimension(text, type(params))
        if one.name in found:
            raise ConfigError(f"--over {text}: {one.name} is there twice")
        _check(one, section, type(params))
        found[one.name] = one
    return list(found.values())


def _dimension(text: str, cls: type[Params]) -> Dimension:
    name, equals, wanted = (part.strip() for part in text.partition("="))
    if not equals or not name or not wanted:
        raise ConfigError(f"--over {text}: {EXAMPLES}")
    if name not in cls.model_fields:
        raise ConfigError(
            f"--over {text}: unknown parameter {name!r}{suggestion(name, list(cls.model_fields))}"
        )
    if name in FIXED:
        raise ConfigError(f"--over {text}: {name} cannot be searched; {FIXED[name]}")
    if ".." in wanted:
        return _range(text, name, wanted, _is_whole(cls, name))
    try:
        values = yaml_value(f"[{wanted}]", "--over")
    except ConfigError:
        raise ConfigError(f"--over {text}: not a list of values; {EXAMPLES}") from None
    distinct = [v for i, v in enumerate(values) if v not in values[:i]]
    return Choice(name, tuple(distinct))


def _range(text: str, name: str, wanted: str, whole: bool) -> Range:
    match = RANGE.fullmatch(wanted)
    if not match:
        raise ConfigError(f"--over {text}: not a range; {EXAMPLES}")
    low, high, how = float(match["low"]), float(match["high"]), match["how"]
    log, step = how == "log", float(how) if how and how != "log" else None
    problem = ""
    if low >= high:
        problem = f"{low:g} is not below {high:g}"
    elif log and low <= 0:
        problem = "a logarithmic range begins above 0"
    elif step is not None and step <= 0:
        problem = "a step is above 0"
    elif whole and not all(x.is_integer() for x in (low, high, step or 1.0)):
        problem = f"{name} takes whole numbers"
    if problem:
        raise ConfigError(f"--over {text}: {problem}; {EXAMPLES}")
    return Range(name, low, high, log, step, whole)


def _is_whole(cls: type[Params], name: str) -> bool:
    annotation = cls.model_fields[name].annotation
    kinds = (annotation, *get_args(annotation))
    return int in kinds and float not in kinds


def _check(one: Dimension, section: Mapping[str, Any], cls: type[Params]) -> None:
    """Every choice and both ends of a range must be legal for the parameter by itself."""
    for value in one.ends():
        try:
            cls.model_validate({**section, one.name: value})
        except ValidationError as error:
            # Whether values suit each other is seen trial by trial.
            own = [e["msg"] for e in error.errors() if e["loc"][:1] == (one.name,)]
            if own:
                raise ConfigError(f"--over {one}: {value!r}: {'; '.join(own)}") from None


def grid(space: Sequence[Dimension], most: int) -> list[dict[str, Any]] | None:
    """Every combination as Optuna draws it, None if there are more than ``most``."""
    axes = [one.grid() for one in space]
    size = 1
    for axis in axes:
        if axis is None or size > most:
            return None
        size *= len(axis)
    if size > most:
        return None
    names = [one.name for one in space]
    combinations = itertools.product(*(axis or [] for axis in axes))
    return [dict(zip(names, values, strict=True)) for values in combinations]


def present(space: Sequence[Dimension], params: Params) -> dict[str, Any] | None:
    """The variant's own values as Optuna draws them, None if they lie outside."""
    drawn = {one.name: one.drawn(getattr(params, one.name)) for one in space}
    return None if None in drawn.values() else drawn
