"""What training and the models cost."""

from messi.experiments.paper._rows import rows

TRAINING_TIME = rows(
    ("Train", "Rel.", "Infer."),
    {
        ("ERM", "ResNet-50"): ((103.78, 0.50), 1.00, (32.42, 0.01)),
        ("SAGM", "ResNet-50"): ((211.37, 1.26), 2.04, (32.44, 0.01)),
        ("GMoE", "DeiT-S/16"): ((209.71, 0.49), 2.02, (74.22, 0.11)),
        ("GMoE+SAGM", "DeiT-S/16"): ((429.88, 15.86), 4.14, (74.17, 0.08)),
        ("MESSI-Ti-OT", "DeiT-Ti/16"): ((1200.86, 22.38), 11.57, (23.50, 0.01)),
        ("MESSI-S-MMD", "DeiT-S/16"): ((439.68, 5.35), 4.24, (61.40, 0.01)),
        ("MESSI-S-OT", "DeiT-S/16"): ((1286.26, 28.57), 12.39, (61.41, 0.01)),
    },
)
"""tab:training_time: on PACS with an H100; seconds per 1,000 steps, relative to ERM; inference has no unit."""

MODEL_SIZE = rows(
    ("Enc.", "MoE/Head", "Total"),
    {
        ("ERM", "ResNet-50"): (25.60, 0, 25.60),
        ("SAGM", "ResNet-50"): (25.60, 0, 25.60),
        ("LFME", "ResNet-50"): (25.60, 0, 25.60),
        ("GMoE", "DeiT-S/16"): (21.70, 12.10, 33.80),
        ("GMoE+SAGM", "DeiT-S/16"): (21.70, 12.10, 33.80),
        ("MESSI-S", "DeiT-S/16"): (21.70, 7.09, 28.79),
        ("MESSI-Ti", "DeiT-Ti/16"): (5.70, 1.78, 7.48),
    },
)
"""tab:model_size: millions of parameters without the classifier; the heads of GMoE and MESSI are approximate."""
