"""The zoo among timm's models."""

from importlib import import_module

from .on_import import when_imported


def register_zoo() -> None:
    """Register the architectures of the zoo with timm when timm is imported.

    timm takes half a second to import, which nothing else in vitnas needs, and it has no entry points by which it
    could find our models itself. A second call changes nothing: the module that registers them runs once.
    """
    when_imported('timm.models', lambda _: import_module('vitnas_core.families.timm_entry'))
