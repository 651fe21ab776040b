"""The models of the stage `transfer`, as the registry knows them."""

from __future__ import annotations

from coattail.models.kinds import ModelKind

HERE = "coattail.models.deep.transfer"


def _transfer(name: str, params: str, model: str, add_label: str = "") -> ModelKind:
    return ModelKind(
        name=name,
        stage="transfer",
        reads="tokens",
        params=f"{HERE}.transfer_params:{params}",
        model=f"{HERE}.{model}",
        add_label=add_label,
        tail_methods=(name,),
    )


GROWS = f"{HERE}.transfer_models:add_label"

KINDS = (
    _transfer("httn", "HttnParams", "httn:Httn", GROWS),
    _transfer("joint", "JointParams", "httn:Httn"),
    _transfer("imprinting", "ImprintingParams", "httn:Httn", GROWS),
    _transfer("bbn", "BbnParams", "bbn:Bbn"),
    _transfer("oltr", "OltrParams", "oltr:Oltr"),
    _transfer("ltmcp", "LtmcpParams", "ltmcp:Ltmcp"),
    _transfer("dxml", "DxmlParams", "dxml:Dxml"),
)
