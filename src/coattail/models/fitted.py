"""What fit leaves in a model, and a clear error where it is asked for before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coattail.errors import NotFittedError


class Fitted:
    """Base of all models: attributes whose names end with ``_`` exist only after fit or load."""

    if not TYPE_CHECKING:  # mypy shall go on finding misspelt names

        def __getattr__(self, name: str) -> Any:
            # Called only where there is no such attribute.
            kind = type(self).__name__
            if name.endswith("_") and not name.startswith("_"):
                raise NotFittedError(
                    f"this {kind} is not trained yet: it has no {name}; call its fit first, or get "
                    f"a trained one by {kind}.load(folder)"
                )
            raise AttributeError(f"{kind} has no attribute {name!r}")
