"""The methods of the paper's tables by the names they have there, where that takes more than a name."""

from messi.algorithms.messi import Messi

MESSI_OT = Messi.Config()
MESSI_MMD = Messi.Config(discrepancy="mmd")
ERM_MOE = Messi.Config(ssi_weight=0.0, sparsity_weight=0.0, balance_weight=0.0, diversity_weight=0.0)
"""MESSI's network, trained on the classification term alone."""
GLOBAL_MOE = Messi.Config(selector="global")
RANDOM_SUBSET_MOE = Messi.Config(selector="random")
DOMAIN_ONLY = Messi.Config(selector="domain")
