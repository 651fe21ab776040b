"""Training texts as a calibration may learn from them: each ranked by a model of the other folds.

Validation alone is a few thousand texts. A ranking of the training texts by the model trained on
them would look far too sure, so they are cut into FOLDS parts and each is ranked by a model of the
others. That model has seen fewer texts of a label, and a label whose only text is in the part not
at all: whoever learns from such a ranking has to count a label's texts in the other parts.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coattail.labels import counts

FOLDS = 3


def fold_of(n: int) -> NDArray[np.int64]:
    """The part of every training text, (n,): the same wherever it is asked."""
    return np.random.default_rng(0).permutation(n) % FOLDS


def seen_by_others(Y: sp.csr_matrix) -> NDArray[np.int64]:
    """(FOLDS, L): texts of every label outside a part, which is what its ranker has seen."""
    fold = fold_of(Y.shape[0])
    return np.stack([counts(sp.csr_matrix(Y[fold != part])) for part in range(FOLDS)])
