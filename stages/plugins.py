"""Digest the code of a plugin again if it has changed.  installed packages -> data/code/models"""

from pathlib import Path

from coattail.files import atomic_file
from coattail.models import plugins
from coattail.pipeline import model_digest, runner


def main(variant: str) -> None:
    params = runner.section("plugins", variant)
    place = Path(f"data/code/models/{variant}.txt")
    kind = model_digest.found(variant, params)
    if kind is None:
        missing = plugins.missing(variant, params.package)
        if not place.exists():
            raise missing
        runner.log.warning("%s; results made with it elsewhere are used as they are", missing)
        return
    now = model_digest.text(kind)
    if not place.exists() or place.read_text(encoding="utf-8") != now:
        with atomic_file(place) as path:
            path.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    runner.run(main)
