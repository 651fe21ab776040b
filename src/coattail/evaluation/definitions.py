"""What every metric means, in words: the reference is written from here.

A name that `metrics.names` gives and that is missing here fails a test.
"""

from __future__ import annotations

AT_K = {
    "p": "precision: mean over texts of (hits among the first k) / k",
    "ndcg": "mean over texts of sum_{j<=k} y_r(j) d_j / sum_{j<=min(k, |y_i|)} d_j",
    "psp": "propensity-scored precision: sum over texts of sum_{j<=k} q_r(j) y_r(j), divided by "
    "sum over texts of sum_{j<=min(k, |y_i|)} q_b(j)",
    "psndcg": "propensity-scored nDCG: sum over texts of sum_{j<=k} q_r(j) y_r(j) d_j, divided by "
    "sum over texts of sum_{j<=min(k, |y_i|)} q_b(j) d_j (variant a)",
    "rp": "R-precision: mean over texts that have a label of hits / min(k, |y_i|)",
    "recall": "mean over texts that have a label of hits / |y_i|",
    "coverage": "share of the labels true in some test text that are hit at least once",
    "macro_f1": "mean over the labels true in some test text of F1 = 2 hits / (predicted + true), "
    "the first k ranks being the prediction",
}
"""Metrics at a rank k: `p` is called `p_at_1`, `p_at_3`, `p_at_5`."""

OF_ALL = {
    "micro_f1": "2 hits / (predictions + true labels), predicting every listed label whose "
    "probability (or margin) is at least the fixed threshold",
    "macro_f1": "the same predictions, F1 label by label, mean over the labels true in some test "
    "text",
    "micro_f1_tuned": "as micro_f1, at the threshold chosen on validation",
    "macro_f1_tuned": "as macro_f1, at the threshold chosen on validation",
    "scored_change": "mean of (m - m_base) / m_base over six propensity-scored metrics m (eq. 30 "
    "of the PW paper)",
    "plain_change": "the same over six plain metrics",
}
"""Metrics of the whole ranking."""

OF_BAND = {
    "p, ndcg, psp, psndcg, rp": "the band's contribution: only hits of its labels count, the "
    "denominator stays that of the whole; contributions of the bands sum to the overall value",
    "recall": "hits of the band's labels / true labels of the band, over all texts together; a "
    "mean over texts would rest on the few texts that have such a label",
    "coverage, macro_f1": "as overall, over the band's labels",
    "micro_f1": "predictions and true labels of the band only",
}
"""What a metric means with the name of a band in front: `tail_recall_at_5`."""

COMPLETE = {
    "complete_p": "precision against the complete labels",
    "complete_ndcg": "nDCG against the complete labels",
    "complete_rp": "R-precision against the complete labels",
    "complete_recall": "recall against the complete labels",
    "complete_coverage": "coverage of the complete labels",
    "complete_tail_recall": "recall of the tail against the complete labels",
    "complete_tail_coverage": "coverage of the tail's complete labels",
    "missing_recall": "share of the hidden labels among the first five: which method finds what "
    "the annotators left out",
}
"""Plain metrics where the truth is known, as of the generated corpus."""
