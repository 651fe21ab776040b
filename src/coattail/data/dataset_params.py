"""The dataset registry: conf/dataset/*.yaml and conf/vectors/*.yaml, overlays of params.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from coattail.config import Params, read_yaml, suggestion
from coattail.data.demo_corpus import DemoParams
from coattail.errors import ConfigError

CONF = Path("conf")

OWN = "data/own"
"""Where copies of folders are, one per dataset."""
NOTHING = "conf/nothing"
"""What `taken_in` names if nothing was: dvc.yaml makes a dependency of it, so it is a file."""

Format = Literal["demo", "jsonl", "csv", "pairs", "xmc"]
Role = Literal[
    "train",
    "valid",
    "test",
    "train_labels",
    "valid_labels",
    "test_labels",
    "label_names",
    "archive",
]


class FileParams(Params):
    """One file: what it is called in data/raw, where it comes from, how to know it is intact."""

    name: str = Field(description="its name in data/raw, in a local source and on a mirror")
    address: str | None = Field(
        default=None,
        description="http(s) address, or a key of conf/addresses.yaml; null: not public",
    )
    size: int | None = Field(default=None, ge=0, description="bytes, where known")
    sha256: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{64}$", description="checksum, where known"
    )
    member: str | None = Field(
        default=None,
        description="its path inside the archive, or the end of that path; null: its name",
    )

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not name or name.startswith(".") or {"/", "\\", "\0"} & set(name):
            raise ValueError("a file name has no folder in it and does not start with a dot")
        return name


class PropensityParams(Params):
    """p_l = 1 / (1 + C (n_l + B)^-A): constants of the dataset, see docs/explanation/metrics.md."""

    A: float = Field(
        default=0.55, ge=0, le=2, description="how fast the propensity grows with frequency"
    )
    B: float = Field(default=1.5, gt=0, le=100, description="how soon it starts to grow")


class SplitSizes(Params):
    """Texts per split as the publishers count them; documentation, checked by nobody."""

    train: int | None = Field(default=None, ge=0, description="training texts")
    valid: int | None = Field(
        default=None, ge=0, description="validation texts; null: cut from train by preprocess"
    )
    test: int | None = Field(default=None, ge=0, description="test texts")


class ExpectParams(Params):
    """What the papers print of a dataset; preprocess warns where ours is more than 1 % off."""

    features: int | None = Field(default=None, ge=1, description="tf-idf terms or given features")
    labels_per_text: float | None = Field(default=None, gt=0, description="mean, all texts")
    texts_per_label: float | None = Field(
        default=None, gt=0, description="mean, training and validation texts"
    )
    words: float | None = Field(default=None, gt=0, description="words per text, mean")


class DatasetParams(Params):
    """Which texts: where the files are, what they hold, and facts about them."""

    name: str = Field(description="name of the entry, as in `coattail use NAME`")
    title: str = Field(default="", description="one line for people")
    format: Format = Field(description="what the files of train, valid and test hold")
    source: str | None = Field(
        default=None,
        description="a local folder or the base address of a mirror; null: the public addresses",
    )
    taken_in: str = Field(
        default=NOTHING,
        description="the copy of a folder of yours that DVC keeps, which is then the source",
    )
    files: dict[Role, FileParams] = Field(
        default_factory=dict, description="files by role; {}: found by name in `source`"
    )
    label_separator: str = Field(
        default="|", min_length=1, description="what stands between two labels of a csv cell"
    )
    text_column: str = Field(default="text", min_length=1, description="column of a csv")
    label_column: str = Field(default="labels", min_length=1, description="column of a csv")
    propensity: PropensityParams = Field(
        default=PropensityParams(),
        description="constants of the propensity-scored metrics",
    )
    splits: SplitSizes = Field(default=SplitSizes(), description="published sizes")
    labels: int | None = Field(default=None, ge=1, description="published number of labels")
    expect: ExpectParams = Field(
        default=ExpectParams(), description="figures that tell this set from its namesakes"
    )
    licence: str = Field(default="", description="terms of the data, as far as they are stated")
    citation: str = Field(default="", description="what to cite")
    note: str = Field(default="", description="what a user must know: versions, traps, conversion")
    demo: DemoParams | None = Field(
        default=None, description="the generated corpus; format demo only"
    )

    @model_validator(mode="after")
    def _fits_its_format(self) -> DatasetParams:
        if (self.format == "demo") != (self.demo is not None):
            raise ValueError("format demo goes with a `demo:` section, and only format demo does")
        names = [file.name for file in self.files.values()]
        if len(set(names)) < len(names):
            raise ValueError("two files have the same name; both live in data/raw")
        if self.files and not {"train", "test"} <= set(self.files):
            raise ValueError("files need at least train and test")
        if self.taken_in not in (NOTHING, self.source):
            raise ValueError(f"taken_in is either {NOTHING} or the same folder as source")
        return self

    @property
    def pinned(self) -> bool:
        """Whether checksums say which bytes these are, wherever they come from."""
        files = dict(self.files)
        archive = files.pop("archive", None)
        whole = archive is not None and archive.sha256 is not None
        return bool(files) and (whole or all(file.sha256 for file in files.values()))


class TakeInParams(Params):
    """An entry of the `take_in:` section: a folder of yours that `data/own/<name>` is a copy of."""

    folder: str | None = Field(
        description="absolute or from the project's root; null: the copy is all there is"
    )


class VectorsParams(Params):
    """Pre-trained word vectors in GloVe text format."""

    name: str | None = Field(default=None, description="name of the entry; null: no vectors")
    title: str = Field(default="", description="one line for people")
    source: str | None = Field(
        default=None,
        description="a local folder or the base address of a mirror; null: public address",
    )
    file: FileParams | None = Field(default=None, description="the text file, plain, .gz or .xz")
    archive: FileParams | None = Field(
        default=None, description="the archive that holds it, if any"
    )
    licence: str = Field(default="", description="terms of the vectors")
    citation: str = Field(default="", description="what to cite")
    note: str = Field(default="", description="what a user must know")

    @model_validator(mode="after")
    def _named_means_given(self) -> VectorsParams:
        if (self.name is None) != (self.file is None):
            raise ValueError("vectors need both `name` and `file`, or neither")
        return self


def address_of(file: FileParams, conf: Path = CONF) -> str | None:
    """The http(s) address of a file, looked up in conf/addresses.yaml if it is given by key."""
    if file.address is None or is_address(file.address):
        return file.address
    known = read_yaml(conf / "addresses.yaml")
    found = known.get(file.address)
    if found is None:
        hint = suggestion(file.address, list(known))
        raise ConfigError(f"{conf / 'addresses.yaml'} has no address {file.address!r}{hint}")
    if not is_address(str(found)):
        raise ConfigError(
            f"{conf / 'addresses.yaml'}: {file.address}: got {found!r}; "
            "wanted an address that starts with http:// or https://"
        )
    return str(found)


def is_address(text: str) -> bool:
    """Whether a source or address is fetched over the network rather than read from a folder."""
    return text.startswith(("http://", "https://"))
