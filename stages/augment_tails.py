"""Augment the texts of tail labels.  data/features -> data/augmented/<v>"""

from coattail import tracking
from coattail.arrays import load_csr
from coattail.data import augment
from coattail.data.augment import AugmentParams
from coattail.files import atomic_folder
from coattail.pipeline import runner


def main(variant: str) -> None:
    params = runner.section("augment_tails", variant, AugmentParams)
    with tracking.stage("augment_tails", variant, params) as run:
        X, Y = load_csr("data/features/tfidf/train"), load_csr("data/features/labels/train")
        blocks = augment.augment(X, Y, params)
        with atomic_folder(f"data/augmented/{variant}") as folder:
            augment.save(folder, blocks, params)
        for block in blocks:
            run.metrics(
                {f"{block.name}_texts": block.X.shape[0], f"{block.name}_labels": len(block.labels)}
            )


if __name__ == "__main__":
    runner.run(main)
