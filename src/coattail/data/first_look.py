"""A look at the first rows of a folder's files, before anything is built on them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from coattail.data.dataset_params import DatasetParams
from coattail.data.formats import xmc
from coattail.data.formats.documents import Document, documents, label_names
from coattail.data.own_files import SPLIT_NAMES, places
from coattail.errors import DataError, DownloadError

FIRST_ROWS = 100
SEPARATORS = "|,;"


def look(dataset: DatasetParams, source: Path) -> None:
    """Names, sizes where the entry has them, and first rows; what does not fit is an error.

    Files that wait in an archive are not looked at.
    """
    sizes = {role: file.size for role, file in dataset.files.items() if file.size is not None}
    for role, place in places(dataset, source).items():
        size = place.stat().st_size
        if role in sizes and sizes[role] != size:
            raise DownloadError(f"{place}: got {size:,} bytes; wanted {sizes[role]:,}; refused")
        if role == "label_names":
            label_names(place)
        elif role in SPLIT_NAMES and dataset.format == "xmc":
            xmc.look(place)
        elif role in SPLIT_NAMES:
            _first_rows(dataset, place)


def check_separator(dataset: DatasetParams, source: Path) -> None:
    """Refuse a csv whose labels look as if something else stood between them."""
    place = places(dataset, source)["train"]
    given = [document.labels for document in _first_rows(dataset, place) if document.labels]
    if any(len(labels) > 1 for labels in given):
        return
    for other in SEPARATORS.replace(dataset.label_separator, ""):
        suspects = [labels[0] for labels in given if other in labels[0]]
        if len(suspects) > len(given) / 2:
            raise DataError(
                f"{place}: no label is followed by another after {dataset.label_separator!r}, but "
                f"most hold {other!r}, such as {suspects[0]!r}; say what stands between two "
                f"labels: --separator '{other}', or --separator '{dataset.label_separator}' if "
                "each is one label"
            )


def _first_rows(dataset: DatasetParams, place: Path) -> list[Document]:
    columns = (dataset.text_column, dataset.label_column)
    rows = documents(place, dataset.format, dataset.label_separator, columns)
    return list(islice(rows, FIRST_ROWS))
