"""A client of MLflow that breaks at one of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Fragile:
    """At its call number ``at``, before or after the store has done it, ``breaks`` is called."""

    def __init__(self, client: Any, at: int, after: bool, breaks: Callable[[], None]) -> None:
        self.client, self.left, self.after, self.breaks = client, at, after, breaks

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                self.breaks()
            result = method(*args, **kwargs)
            if self.left == 0:
                self.breaks()
            return result

        return call
