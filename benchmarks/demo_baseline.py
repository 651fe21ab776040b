"""How hard is the demo corpus? One-vs-rest SVMs on words and on words with pairs.

    python benchmarks/demo_baseline.py                                    # the default corpus
    python benchmarks/demo_baseline.py --train 50000 --labels 50000 --words 50000 --no-model

Prints seconds of generation and preprocessing; then precision on the observed and on the complete
test labels, recall per band, how often the right one of two twins is ranked above the other, and
the three gains that the propensity papers speak of.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from coattail.arrays import topk_of_csr
from coattail.data.corpus import PreprocessParams
from coattail.data.demo_corpus import DemoParams, generate
from coattail.data.features import Features
from coattail.data.preprocess import prepare
from coattail.labels.frequency import BANDS, counts


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("train", "valid", "test", "labels", "words"):
        options.add_argument(f"--{name}", type=int, default=DemoParams.model_fields[name].default)
    options.add_argument("--no-model", action="store_true", help="time generation only")
    chosen = vars(options.parse_args())
    model = not chosen.pop("no_model")
    with tempfile.TemporaryDirectory() as temporary:
        raw = Path(temporary) / "raw"
        start = time.perf_counter()
        params = DemoParams(**chosen)
        files = generate(params, raw)
        size = sum((raw / name).stat().st_size for name in files.values()) / 1e6
        print(f"generate: {time.perf_counter() - start:.1f} s, {size:.1f} MB")
        manifest = {"name": "demo", "format": "jsonl", "files": files}
        manifest["propensity"] = {"A": params.A, "B": params.B}
        (raw / "manifest.json").write_text(json.dumps(manifest))
        for ngrams in (1, 2) if model else (1,):
            start = time.perf_counter()
            out = Path(temporary) / f"features{ngrams}"
            stats = prepare(raw, out, PreprocessParams(ngrams=ngrams))
            seconds, terms = time.perf_counter() - start, f"{stats['tfidf_terms']:,}"
            print(f"preprocess, ngrams {ngrams}: {seconds:.1f} s, {terms} terms")
            if model:
                report(Features(out), json.loads((raw / "truth.json").read_text()))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def report(features: Features, truth: dict) -> None:
    S = margins(features)
    top = topk_of_csr(sp.csr_matrix(S), 5, "margin").labels
    place = {name: i for i, name in enumerate(truth["labels"])}
    p = np.array(truth["propensity"])[[place[name] for name in features.label_names]]
    for name, Y in (("observed", features.Y("test")), ("complete", features.complete("test"))):
        hit = np.take_along_axis(Y.toarray() > 0, top, 1)
        precision = " ".join(f"{100 * hit[:, :k].mean():.1f}" for k in (1, 3, 5))
        recall = ", ".join(
            f"{band} {100 * (hit & (features.bands[top] == b)).sum() / n:.1f}"
            for b, band in enumerate(BANDS)
            if (n := counts(Y)[features.bands == b].sum())
        )
        print(f"  {name}: P@1/3/5 {precision}; recall@5 {recall}; gain@5 {hit.sum(1).mean():.3f}")
        if name == "observed":
            true_p, formula = (hit / p[top]).sum(1).mean(), hit * features.inverse_propensity[top]
            print(f"  gain@5 / p: true p {true_p:.3f}, formula {formula.sum(1).mean():.3f}")
    print(f"  right twin first: {100 * twins(S, features, truth):.1f} %")


def margins(features: Features) -> np.ndarray:
    from sklearn.svm import LinearSVC

    X = sp.vstack([features.X("train"), features.X("valid")]).tocsr()
    Y = sp.vstack([features.Y("train"), features.Y("valid")]).tocsc()
    S = np.full((features.X("test").shape[0], Y.shape[1]), -9.0, np.float32)
    for label in np.flatnonzero(features.counts):
        y = np.zeros(Y.shape[0])
        y[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            svm = LinearSVC(tol=0.1, max_iter=30, random_state=0).fit(X, y)
        S[:, label] = svm.decision_function(features.X("test"))
    return S


def twins(S: np.ndarray, features: Features, truth: dict) -> float:
    place = {name: i for i, name in enumerate(features.label_names)}
    Y = features.complete("test").toarray() > 0
    right = []
    for one, other in enumerate(truth["twin"]):
        a, b = (place.get(truth["labels"][i], -1) for i in (one, other))
        if other > one and min(a, b) >= 0 and features.counts[a] and features.counts[b]:
            alone = Y[:, a] != Y[:, b]
            right += ((S[alone, a] > S[alone, b]) == Y[alone, a]).tolist()
    return float(np.mean(right))


if __name__ == "__main__":
    main()
