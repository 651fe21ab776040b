"""Models of the stage `transfer`: untrained ones from settings, trained ones from a folder."""

from __future__ import annotations

import json
from pathlib import Path

from coattail.config import parse
from coattail.deep.bbn import Bbn
from coattail.deep.dxml import Dxml
from coattail.deep.encoder_model import EncoderModel
from coattail.deep.httn import Httn
from coattail.deep.ltmcp import Ltmcp
from coattail.deep.oltr import Oltr
from coattail.deep.transfer_params import (
    BbnParams,
    DxmlParams,
    EncoderParams,
    HttnParams,
    LtmcpParams,
    OltrParams,
    TransferParams,
)
from coattail.errors import ModelError

MODELS: dict[type[EncoderParams], type[EncoderModel]] = {
    HttnParams: Httn,
    BbnParams: Bbn,
    OltrParams: Oltr,
    LtmcpParams: Ltmcp,
    DxmlParams: Dxml,
}


def build(params: EncoderParams) -> EncoderModel:
    """The untrained model of ``params``."""
    return MODELS[type(params)](params)


def load(folder: str | Path, device: str = "cpu") -> EncoderModel:
    """A saved model, on ``device`` (whatever it was trained on)."""
    path = Path(folder) / "params.json"
    try:
        content = json.loads(path.read_text())["params"]
    except FileNotFoundError:
        raise ModelError(f"{path} is missing; {folder} is no transfer model") from None
    except (KeyError, ValueError) as error:
        raise ModelError(f"{path} does not describe a transfer model: {error}") from None
    params: EncoderParams = parse(content, TransferParams, str(path))
    return MODELS[type(params)].load(folder, device)
