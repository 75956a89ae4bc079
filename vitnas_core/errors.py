"""Errors for wrong user input; each message says what is wrong and where, what it got and what is valid."""


class VitnasError(ValueError):
    """Base of all errors that a user can cause and fix."""


class ArchError(VitnasError):
    """An architecture is malformed, outside its space, or does not fit the weights that should run it."""


class SpaceError(VitnasError):
    """The description of a search space is malformed."""


class InfeasibleError(VitnasError):
    """No architecture of the space meets the limits."""


class CheckpointError(VitnasError):
    """A weight file is of the wrong family, size or format."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """A weight file is missing."""


class DatasetError(VitnasError):
    """A dataset cannot be split or used as asked."""
