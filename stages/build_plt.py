"""Cluster the labels into a tree.  data/features -> data/plt/<tree>"""

from coattail import tracking
from coattail.arrays import load_csr
from coattail.labels import tree, tree_building
from coattail.labels.tree_params import TreeParams
from coattail.pipeline import runner


def main(variant: str) -> None:
    params = runner.section("build_plt", variant, TreeParams)
    with tracking.stage("build_plt", variant, params) as run:
        X, Y = load_csr("data/features/tfidf/train"), load_csr("data/features/labels/train")
        trees = tree_building.build(params, X, Y)
        tree.save(f"data/plt/{variant}", trees, params)
        run.metrics({"trees": len(trees), "depth": max(one.depth for one in trees)})


if __name__ == "__main__":
    runner.run(main)
