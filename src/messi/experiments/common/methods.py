"""The methods of the paper's tables by the names they have there, where that takes more than a name."""

from messi.algorithms.messi import MESSI

MESSI_OT = MESSI.Config()
MESSI_MMD = MESSI.Config(discrepancy="mmd")
ERM_MOE = MESSI.Config(ssi_weight=0.0, sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0)
"""MESSI's network, trained on the classification term alone."""
GLOBAL_MOE = MESSI.Config(selector="global")
RANDOM_SUBSET_MOE = MESSI.Config(selector="random")
DOMAIN_ONLY = MESSI.Config(selector="domain")
