"""LibMultiLabel's AttentionXML as a contender of deep.py; runs in an environment that has it.

The network of the same sizes over all labels, in LibMultiLabel's own data loader and trainer. Its
trainer keeps no rate, so whole epochs are timed, without validation.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
import warnings

import deep
import lightning
import torch
from libmultilabel.nn import data_utils, nn_utils


class LibMultiLabel:
    def __init__(self, arguments: argparse.Namespace) -> None:
        torch.set_num_threads(arguments.threads)
        os.chdir(tempfile.mkdtemp())  # Lightning writes a checkpoint where it stands
        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning")
        (indptr, words), (_, columns, _), vectors = deep.corpus(arguments)
        classes = list(range(arguments.labels))
        self.texts = [
            {"text": words[indptr[i] : indptr[i + 1]].tolist(), "label": columns[5 * i : 5 * i + 5]}
            for i in range(arguments.texts)
        ]
        self.classes = classes
        self.model = nn_utils.init_model(
            "AttentionXML_0",
            {"rnn_dim": 2 * deep.HIDDEN, "linear_size": [deep.FC], "post_encoder_dropout": 0.0},
            classes,
            embed_vecs=torch.from_numpy(vectors),
            learning_rate=deep.LR,
            monitor_metrics=["P@1"],
            silent=True,
            save_k_predictions=deep.LISTED,
        )

    def loader(self, batch: int, shuffle: bool) -> torch.utils.data.DataLoader:
        vocabulary = {word: word for word in range(deep.VOCABULARY)} | {data_utils.UNK: 1}
        return data_utils.get_dataset_loader(
            self.texts, self.classes, torch.device("cpu"), deep.MAX_TOKENS, batch, shuffle,
            data_workers=0, word_dict=vocabulary,
        )  # fmt: skip

    def trainer(self) -> lightning.Trainer:
        return nn_utils.init_trainer(
            "unused", epochs=1, silent=True, use_cpu=True, save_checkpoints=False
        )

    def train(self) -> float:
        loader, trainer = self.loader(deep.BATCH, shuffle=True), self.trainer()
        start = time.perf_counter()
        trainer.fit(self.model, loader)
        return len(self.texts) / (time.perf_counter() - start)

    def predict(self) -> float:
        loader, trainer = self.loader(deep.PREDICT_BATCH, shuffle=False), self.trainer()
        start = time.perf_counter()
        trainer.predict(self.model, loader)
        return len(self.texts) / (time.perf_counter() - start)
