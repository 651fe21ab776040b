"""Pre-trained encoders: where they are found, how they are read, and what a model keeps of them."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coattail.arrays import Ragged
from coattail.data.text import PAD, RaggedBuilder
from coattail.errors import ModelError
from coattail.progress import progress

# What describes an encoder and its words; the weights go with those of the model.
FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
CHUNK = 1000  # texts tokenised at a time


@dataclass(frozen=True)
class Pretrained:
    """An encoder, its tokenizer, and the files that describe both."""

    model: nn.Module
    tokenizer: Any
    files: dict[str, bytes]

    @property
    def limit(self) -> int:
        """Word pieces the encoder can read at most."""
        positions = getattr(self.model.config, "max_position_embeddings", None) or -1
        limits = [self.tokenizer.model_max_length, positions, 1 << 20]
        return int(min(limit for limit in limits if limit > 0))  # XLNet says -1: no limit

    @property
    def vocabulary_size(self) -> int:
        return int(self.model.config.vocab_size)

    @property
    def pad_id(self) -> int:
        return PAD if self.tokenizer.pad_token_id is None else int(self.tokenizer.pad_token_id)

    @property
    def signs(self) -> list[int]:
        """Ids that are no part of a text: its start, its end, padding; not the unknown word."""
        return [i for i in self.tokenizer.all_special_ids if i != self.tokenizer.unk_token_id]

    def identity(self) -> bytes:
        """Tells one encoder from another: its description and its weights."""
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            digest.update(name.encode() + content)
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return digest.digest()

    def pieces(self, texts: Sequence[str], max_tokens: int) -> Ragged:
        """Texts as ids of word pieces, with the encoder's signs, cut after ``max_tokens``."""
        if max_tokens > self.limit:
            raise ModelError(
                f"max_tokens is {max_tokens}, but this encoder reads at most {self.limit} word "
                "pieces; lower max_tokens"
            )
        rows = RaggedBuilder()
        with progress("word pieces", len(texts), "texts") as bar:
            for begin in range(0, len(texts), CHUNK):
                chunk = list(texts[begin : begin + CHUNK])
                found = self.tokenizer(
                    chunk,
                    truncation=True,
                    max_length=max_tokens,
                    padding=False,
                    return_attention_mask=False,
                    return_token_type_ids=False,
                )
                for row in found["input_ids"]:
                    rows.add(row)
                bar.advance(len(chunk))
        return rows.build()


def load(name: str) -> Pretrained:
    """The encoder that ``params.encoder`` names, with its weights."""
    transformers = library()
    folder = find(name)
    with _quiet(transformers), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # weights that the files lack
        try:
            model = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32
            )
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder} holds no encoder that can be read: {error}") from None
    return Pretrained(_bare(model), _tokenizer(transformers, folder), _files(folder))


def describe(folder: Path) -> Pretrained:
    """The encoder of a saved model, untrained: its weights are in the model's own file."""
    transformers = library()
    with _quiet(transformers), torch.random.fork_rng(devices=[]):
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError):
            raise ModelError(f"{folder} is missing or incomplete; train the model again") from None
        model = transformers.AutoModel.from_config(config, dtype=torch.float32)
    return Pretrained(_bare(model), _tokenizer(transformers, folder), _files(folder))


def library() -> Any:
    """The transformers package; only models with a pre-trained encoder need it."""
    try:
        import transformers
    except ImportError:
        raise ModelError(
            "laroberta and aplc need the package transformers, which is not installed: "
            "pip install 'coattail[transformers]'"
        ) from None
    return transformers


def find(name: str) -> Path:
    """The folder of an encoder: a path, ``package:NAME``, or ``hub:NAME`` (may download it)."""
    if name.startswith("package:"):
        folder = _package_folder(name.removeprefix("package:"))
    elif name.startswith("hub:"):
        folder = _from_hub(name.removeprefix("hub:"))
    else:
        folder = Path(name)
        if not folder.is_dir():
            raise ModelError(
                f"encoder {name!r}: there is no such folder; give a folder with config.json, "
                "package:NAME for an installed package, or hub:NAME to fetch it from the hub"
            )
    if not (folder / "config.json").exists():
        raise ModelError(f"encoder {name!r}: {folder} holds no config.json; wanted a saved encoder")
    return folder


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"encoder 'package:{package}': no package of that name is installed; install it (its "
            "name with - for _), or name a folder"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*FILES, "*.safetensors", "*.safetensors.index.json"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except Exception as error:  # the network has many ways to fail
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"encoder 'hub:{name}' is not in the local cache and could not be fetched: {reason}"
        ) from None


def _tokenizer(transformers: Any, folder: Path) -> Any:
    with _quiet(transformers):
        try:
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, ImportError) as error:
            raise ModelError(f"{folder} holds no tokenizer that can be read: {error}") from None


def _files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}


def _bare(model: nn.Module) -> nn.Module:
    """Without the layer some encoders put over the first piece: nothing here reads it."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return model.eval()


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no advice from the library while it reads files."""
    settings = transformers.utils.logging
    level, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        settings.set_verbosity(level)
        if bars:
            settings.enable_progress_bar()
