"""One file per execution environment in which a plan can run."""
