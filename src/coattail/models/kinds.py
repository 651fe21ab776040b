"""What the pipeline knows of a kind of model: its params, what it reads, what fits and explains it.

Classes and functions are named by ``module:name`` and imported when they are asked for, so knowing
a model costs nothing. A plugin brings a `ModelKind` of its own (coattail.models.plugins).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field

from coattail.errors import ModelError

OURS = "coattail"


@dataclass(frozen=True)
class ModelKind:
    """One value of ``model:`` in params.yaml.

    Attributes
    ----------
    name : the value itself.
    stage : the section it stands under, and the stage that trains it.
    reads : what fit and predict take: tfidf, tokens, texts, rankings, rankings and texts.
    params : ``module:Class`` of its settings.
    model : ``module:name`` of its class, or of a function from settings to an untrained model.
    takes : more that its stage hands to ``model``: trees, partial, tail, counted (linear models).
    explain : ``module:function``, (model, text as it reads it, labels, n) -> for each label its n
        strongest words as (word or its id, weight), best first; None if it cannot tell.
    norms : ``module:function``, model -> norm of every label's classifier, or None.
    add_label : ``module:function``, (model, name, new texts, () -> training texts), which gives the
        model one more label without training it again.
    tail_methods : what it does for rare labels, in one word each.
    logs_validation : whether its training logs ``valid_`` metrics per epoch.
    family : how the leaderboard calls it; "" is what its stage says.
    package : the distribution it comes from.
    """

    name: str
    stage: str
    reads: str
    params: str
    model: str
    takes: tuple[str, ...] = ()
    explain: str = ""
    norms: str = ""
    add_label: str = ""
    tail_methods: tuple[str, ...] = ()
    logs_validation: bool = False
    family: str = ""
    package: str = OURS

    @property
    def computes(self) -> set[str]:
        """Modules that it names for training and ranking."""
        return modules_of(self.params, self.model)

    @property
    def explains(self) -> set[str]:
        """Modules that it names for the report."""
        return modules_of(self.explain, self.norms)

    def get(self, what: str) -> Any:
        """The class or function behind ``params``, ``model``, ``explain`` ...; None for ""."""
        name = getattr(self, what)
        return (
            imported(name, f"the {what} of model {self.name!r} ({self.package})") if name else None
        )

    def build(self, params: Any, **given: Any) -> Any:
        """The untrained model; of what is ``given`` it gets what it takes."""
        return self.get("model")(params, **{name: given[name] for name in self.takes})


def modules_of(*names: str) -> set[str]:
    """The modules of some ``module:name``; "" has none."""
    return {name.partition(":")[0] for name in names if name}


def imported(name: str, what: str) -> Any:
    """``module:name``, or one sentence that says ``what`` could not be imported and why."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a plugin's module does when it is imported
        raise ModelError(
            f"{what} is {name}, which cannot be imported ({type(error).__name__}: {error}); "
            "install what it needs, or take it out of params.yaml"
        ) from error


def union(kinds: Sequence[ModelKind]) -> Any:
    """The settings of any of these kinds, told apart by ``model``."""
    classes = list(dict.fromkeys(kind.get("params") for kind in kinds))
    return Annotated[reduce(or_, classes), Field(discriminator="model")]
