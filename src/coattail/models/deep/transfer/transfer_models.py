"""Models of the stage `transfer`: untrained ones from settings, trained ones from a folder."""

from __future__ import annotations

from pathlib import Path

from coattail.models.deep.transfer.bbn import Bbn
from coattail.models.deep.transfer.dxml import Dxml
from coattail.models.deep.transfer.encoder_model import EncoderModel, params_of, read_facts
from coattail.models.deep.transfer.httn import Httn
from coattail.models.deep.transfer.ltmcp import Ltmcp
from coattail.models.deep.transfer.oltr import Oltr
from coattail.models.deep.transfer.transfer_params import (
    BbnParams,
    DxmlParams,
    EncoderParams,
    HttnParams,
    LtmcpParams,
    OltrParams,
)

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
    params = params_of(read_facts(folder)["params"], folder)
    return MODELS[type(params)].load(folder, device)
