"""What a check has found, and what to do about it."""

from __future__ import annotations
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
import psutil
from coattail.config import read_yaml
from coattail.errors import CoattailError, ConfigError
from coattail.pipeline import FOLDERS, candidates, remove_strays
from coattail.doctor import ENOUGH_GB
from coattail.doctor import examine
from coattail.doctor import examine_server
from coattail.doctor import _params
from coattail.doctor import _git
from coattail.doctor import _disk
from coattail.doctor import _locks
from coattail.doctor import _leftovers
from coattail.doctor import _strays
from coattail.doctor import _device
from coattail.doctor import _waiting
from coattail.doctor import _store
from coattail.doctor import close_open_parents
from coattail.doctor import _dvc_is_running


Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str
    remedy: str = ""
