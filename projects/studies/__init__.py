"""Studies compare runs over several seeds. Here are commands, the package ``studylib``, and studies in ``configs``."""
