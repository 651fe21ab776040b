"""An untrained BERT of a few thousand weights, saved as Hugging Face saves encoders."""

from __future__ import annotations

from pathlib import Path


def save_tiny_bert(folder: Path, words: list[str], layers: int = 1, positions: int = 32) -> str:
    """Write the encoder to ``folder`` and return its name for ``params.encoder``."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=positions,
        initializer_range=0.5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertModel(config)
        with torch.no_grad():  # words speak louder than places, so that a frozen one is of use
            model.embeddings.position_embeddings.weight.mul_(0.1)
            model.embeddings.token_type_embeddings.weight.mul_(0.1)
        model.save_pretrained(folder)
    tokenizer = BertTokenizer(str(folder / "vocab.txt"), model_max_length=positions)
    tokenizer.save_pretrained(folder)
    return str(folder)
