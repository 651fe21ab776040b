"""Preprocessing: from raw files to the folder that features.py describes, with its statistics."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coattail.data import corpus, dataset_plots, expected
from coattail.data.corpus import Corpus, PreprocessParams
from coattail.data.features import Features
from coattail.data.formats.word_vectors import read_vectors
from coattail.errors import DataError
from coattail.files import atomic_folder
from coattail.labels import frequency
from coattail.progress import clock

__all__ = ["PreprocessParams", "prepare"]

log = logging.getLogger("coattail")


def prepare(
    raw: Path, out: Path, params: PreprocessParams, *, plots: Path | None = None
) -> dict[str, Any]:
    """Read ``raw/manifest.json`` and the files it names; write ``out``; return the statistics."""
    start = time.monotonic()
    raw = Path(raw)
    manifest = _manifest(raw)
    with atomic_folder(out) as folder:
        features = Features(folder)
        data = corpus.read(raw, manifest, features, params)
        counts = _texts_per_label(data)
        n_texts = sum(data.splits[split].Y.shape[0] for split in ("train", "valid"))
        q = frequency.inverse_propensity(counts, n_texts, **manifest["propensity"])
        bands = frequency.bands(counts, params.head_share, params.tail_share)
        data.vectorizer.save(folder)
        for split, part in data.splits.items():
            features.save_split(split, part.X, part.tokens, part.Y, part.complete)
        features.save_labels(data.labels, counts, bands, q, manifest["propensity"])
        stats = _statistics(data, manifest["name"], counts, bands, params)
        if "vectors" in manifest["files"]:
            path = raw / manifest["files"]["vectors"]
            vectors, found = read_vectors(path, data.vectorizer.vocabulary, params.seed)
            features.save_vectors(vectors)
            stats["words_with_vector"] = found
        features.save_stats(stats)
    for difference in expected.differing(manifest.get("expect", {}), stats):
        log.warning("%s is not the set that its entry describes: %s", manifest["name"], difference)
    if stats["labels_only_in_test"]:
        log.warning(
            "%s of %s labels occur in test only: no model can learn them, and metrics count them",
            *(f"{stats[key]:,}" for key in ("labels_only_in_test", "labels")),
        )
    if plots is not None:
        dataset_plots.draw(plots, manifest["name"], counts, bands, _per_text(data))
    shown = (stats["texts"], stats["labels"], stats["tfidf_terms"])
    log.info(
        "%s: %s texts, %s labels, %s tf-idf terms in %s",
        manifest["name"],
        *(f"{number:,}" for number in shown),
        clock(time.monotonic() - start),
    )
    return stats


def _manifest(raw: Path) -> dict[str, Any]:
    path = raw / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        missing = {"name", "format", "files", "propensity"} - set(manifest)
        missing |= {"files.train", "files.test"} - {f"files.{role}" for role in manifest["files"]}
    except FileNotFoundError:
        raise DataError(f"{path} is missing; run dvc repro download") from None
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is no manifest: {error!r}; run dvc repro download") from None
    if missing:
        raise DataError(f"{path} lacks {', '.join(sorted(missing))}; run dvc repro download")
    return manifest


def _texts_per_label(data: Corpus) -> NDArray[np.int64]:
    """Counted in train and validation together; the test labels are never looked at."""
    return frequency.counts(data.splits["train"].Y) + frequency.counts(data.splits["valid"].Y)


def _per_text(data: Corpus) -> dict[str, NDArray[np.int64]]:
    """Labels and words of every text of the dataset."""
    parts = data.splits.values()
    return {
        "labels_per_text": np.concatenate([np.diff(part.Y.indptr) for part in parts]),
        "words_per_text": np.concatenate([part.words_per_text for part in parts]),
    }


def _statistics(
    data: Corpus,
    name: str,
    counts: NDArray[np.int64],
    bands: NDArray[np.int8],
    params: PreprocessParams,
) -> dict[str, Any]:
    """What a reader of results wants to know of the data; numbers only, flat where possible."""
    in_test = frequency.counts(data.splits["test"].Y)
    per_text = _per_text(data)
    n_labels, n_words = per_text["labels_per_text"], per_text["words_per_text"]
    stats: dict[str, Any] = {"dataset": name, "texts": len(n_labels)}
    stats |= {f"texts_{split}": part.Y.shape[0] for split, part in data.splits.items()}
    stats |= {f"positives_{split}": part.Y.nnz for split, part in data.splits.items()}
    stats |= {
        "labels": len(data.labels),
        "labels_unseen_in_train": int((counts == 0).sum()),
        "labels_only_in_test": int(((counts == 0) & (in_test > 0)).sum()),
        "labels_in_at_most_5_texts": int((counts <= 5).sum()),
        "labels_per_text": round(float(n_labels.mean()), 3),
        "texts_per_label": round(float(counts.mean()), 3),
        "words_per_text": round(float(n_words.mean()), 3),
        "words_per_text_median": float(np.median(n_words)),
        "words_per_text_max": int(n_words.max()),
        "tfidf_terms": len(data.vectorizer.words),
        "vocabulary": len(data.vectorizer.vocabulary),
        "texts_without_labels": int((n_labels == 0).sum()),
        "texts_without_words": int((n_words == 0).sum()),
        "texts_cut_at_max_tokens": int((n_words > params.max_tokens).sum()),
    }
    stats |= data.notes
    complete = [part.complete for part in data.splits.values() if part.complete is not None]
    if complete:
        known = sum(Y.nnz for Y in complete)
        stats["complete_labels_per_text"] = round(known / len(n_labels), 3)
    stats["bands"] = {
        band: _group(bands == number, counts, in_test)
        for number, band in enumerate(frequency.BANDS)
    }
    bins = frequency.frequency_bin(counts)
    stats["frequency_bins"] = {
        bin: _group(bins == number, counts, in_test) for number, bin in enumerate(frequency.BINS)
    }
    return stats


def _group(
    members: NDArray[np.bool_], counts: NDArray[np.int64], in_test: NDArray[np.int64]
) -> dict[str, int]:
    return {
        "labels": int(members.sum()),
        "positives": int(counts[members].sum()),
        "test_positives": int(in_test[members].sum()),
        "fewest_texts": int(counts[members].min(initial=np.iinfo(np.int64).max))
        if members.any()
        else 0,
        "most_texts": int(counts[members].max(initial=0)),
    }
