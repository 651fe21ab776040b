"""The model ``centroids`` for coattail, and what coattail has to know of it."""

from coattail.models.kinds import ModelKind

KIND = ModelKind(
    name="centroids",
    stage="train_linear",
    reads="tfidf",
    params="coattail_centroids.params:CentroidsParams",
    model="coattail_centroids.model:Centroids",
    explain="coattail_centroids.model:explain",
    add_label="coattail_centroids.model:add_label",
)
