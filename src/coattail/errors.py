"""Every error coattail raises on purpose: what, where, got, wanted, remedy."""


class CoattailError(Exception):
    """Something the user can mend. Commands print it without a traceback and exit with 1."""


class ConfigError(CoattailError):
    """params.yaml or an overlay says something the schema does not allow."""


class DataError(CoattailError):
    """A file's content is not what its format promises; the message names file and line."""


class DownloadError(CoattailError):
    """A file could not be fetched, verified or unpacked."""


class ModelError(CoattailError):
    """A model folder is incomplete or does not fit the data it is asked to rank."""


class NotFittedError(ModelError, AttributeError):
    """A model is asked for what only training gives; for ``hasattr`` it is simply not there."""


class DeviceError(CoattailError):
    """A device was asked for that this machine does not have, or that ran out of memory."""


class TrackingError(CoattailError):
    """The tracking store cannot be reached or holds something unexpected."""
