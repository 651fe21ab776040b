"""Cluster the labels into a tree.  data/features -> data/plt/<tree>"""

from coattail import runner, tracking, tree
from coattail.arrays import load_csr
from coattail.tree import TreeParams


def main(variant: str) -> None:
    params = runner.section("build_plt", variant, TreeParams)
    with tracking.stage("build_plt", variant, params) as run:
        X, Y = load_csr("data/features/tfidf/train"), load_csr("data/features/labels/train")
        trees = tree.build(params, X, Y)
        tree.save(f"data/plt/{variant}", trees)
        run.metrics({"trees": len(trees), "depth": max(one.depth for one in trees)})


if __name__ == "__main__":
    runner.run(main)
