"""What an entry expects of its dataset, as the papers print it, against what was found."""

from __future__ import annotations

from collections.abc import Mapping

TOLERANCE = 0.01
"""Papers round, and count over slightly different texts."""
FOUND_AS = {
    "features": "tfidf_terms",
    "labels_per_text": "labels_per_text",
    "texts_per_label": "texts_per_label",
    "words": "words_per_text",
}
"""What the statistics of preprocess call it."""


def differing(expect: Mapping[str, float | None], stats: Mapping[str, float]) -> list[str]:
    """Figures that are further than 1 % from what is expected."""
    return [
        f"{name}: {stats[FOUND_AS[name]]:,g} where {wanted:,g} is expected"
        for name, wanted in expect.items()
        if wanted is not None and abs(stats[FOUND_AS[name]] - wanted) > TOLERANCE * wanted
    ]
