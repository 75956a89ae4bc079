"""Studies: runs over several seeds, compared. Commands, the package ``studylib``, and the studies in ``configs``."""
