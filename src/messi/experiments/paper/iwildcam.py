"""Macro F1 in percent on WILDS-iWildCam after 150,000 steps."""

from messi.experiments.paper._rows import rows

IWILDCAM = rows(
    ("OOD Val", "OOD Test", "ID Val", "ID Test"),
    {
        "OMoE": (29.14, 27.96, 48.57, 47.26),
        "GMoE": (29.06, 26.68, 48.84, 47.28),
        "MESSI": (35.49, 33.16, 52.86, 51.14),
    },
)
"""tab:iwildcam_results."""
