"""The numbers that the paper prints, table by table; none of them was measured here."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from messi.reports.table import Published

Key = TypeVar("Key", str, tuple[str, str])
Entry = float | tuple[float, float]
"""A mean, or a mean and its deviation."""


def rows(columns: Sequence[str], entries: Mapping[Key, Sequence[Entry]]) -> dict[Key, dict[str, Published]]:
    """Return the paper's number by row and column."""
    return {
        key: {column: _published(entry) for column, entry in zip(columns, line, strict=True)}
        for key, line in entries.items()
    }


def _published(entry: Entry) -> Published:
    return Published(*entry) if isinstance(entry, tuple) else Published(entry)


# OOD accuracy in percent on DomainBed's data sets, mean and deviation over three seeds.

MAIN_EXTENDED = rows(
    ("PACS", "OfficeHome", "TerraInc", "DomainNet", "Avg."),
    {
        ("ERM", "ResNet-50"): ((83.8, 0.8), (66.6, 0.4), (47.2, 0.8), (41.6, 0.2), 59.8),
        ("IRM", "ResNet-50"): ((81.1, 0.5), (58.2, 0.2), (38.7, 0.8), (30.6, 1.0), 52.2),
        ("MMD", "ResNet-50"): ((81.4, 0.7), (60.1, 0.5), (42.2, 0.9), (20.5, 0.3), 51.1),
        ("DANN", "ResNet-50"): ((79.4, 0.3), (59.6, 0.4), (38.1, 0.8), (31.6, 0.1), 52.2),
        ("MixStyle", "ResNet-50"): ((82.7, 0.4), (59.8, 0.7), (41.1, 1.0), (34.1, 0.1), 54.4),
        ("CORAL", "ResNet-50"): ((83.5, 0.4), (66.0, 0.5), (43.8, 0.9), (39.2, 0.3), 58.1),
        ("Fishr", "ResNet-50"): ((85.5, 0.2), (68.6, 0.2), (47.4, 1.6), (41.7, 0.3), 60.8),
        ("SAGM", "ResNet-50"): ((86.4, 1.2), (69.4, 0.2), (48.8, 1.0), (43.2, 0.4), 61.9),
        ("LFME", "ResNet-50"): ((84.9, 0.4), (68.5, 0.2), (49.5, 0.8), (38.6, 0.2), 60.4),
        ("ERM", "DeiT-S/16"): ((86.2, 0.1), (72.2, 0.4), (42.0, 0.8), (47.3, 0.2), 61.9),
        ("DynMoE", "DeiT-S/16"): ((85.2, 0.4), (73.4, 0.3), (44.5, 0.6), (45.9, 0.4), 62.3),
        ("GMoE", "DeiT-S/16"): ((87.3, 0.1), (73.5, 0.1), (48.2, 0.5), (47.8, 0.5), 64.2),
        ("OMoE", "DeiT-S/16"): ((87.1, 0.3), (73.2, 0.1), (46.0, 0.5), (46.1, 0.2), 63.1),
        ("MESSI-Ti-OT", "DeiT-Ti/16"): ((86.0, 0.3), (69.6, 0.2), (42.5, 1.1), (43.3, 0.4), 60.4),
        ("MESSI-S-MMD", "DeiT-S/16"): ((89.3, 0.6), (74.0, 0.3), (47.5, 0.4), (46.2, 0.4), 64.3),
        ("MESSI-S-OT", "DeiT-S/16"): ((90.9, 0.7), (76.1, 0.2), (49.3, 0.2), (48.6, 0.3), 66.2),
    },
)
"""tab:main_extend: by method and backbone."""

_ONLY_EXTENDED = ("IRM", "MMD", "DANN", "MixStyle")
MAIN = {row: numbers for row, numbers in MAIN_EXTENDED.items() if row[0] not in _ONLY_EXTENDED}
"""tab:main: the same numbers for fewer methods."""

PACS = rows(
    ("Art", "Cartoon", "Photo", "Sketch", "Avg."),
    {
        "ERM": ((86.2, 0.8), (76.0, 0.7), (95.9, 0.4), (77.1, 0.9), (83.8, 0.8)),
        "IRM": ((83.0, 0.6), (74.5, 0.4), (95.8, 0.3), (71.1, 0.7), (81.1, 0.5)),
        "MMD": ((84.0, 0.8), (74.8, 0.6), (95.7, 0.3), (71.1, 1.0), (81.4, 0.7)),
        "CORAL": ((85.2, 0.7), (76.6, 1.0), (95.1, 0.2), (77.1, 0.8), (83.5, 0.4)),
        "Fishr": ((87.4, 0.3), (78.4, 0.4), (97.7, 0.1), (78.5, 0.5), (85.5, 0.2)),
        "SAGM": ((87.5, 1.6), (80.7, 1.4), (96.4, 0.6), (81.0, 3.2), (86.4, 1.2)),
        "DynMoE": ((89.0, 0.3), (81.2, 0.5), (98.9, 0.2), (71.7, 0.7), (85.2, 0.4)),
        "GMoE": ((89.9, 0.4), (83.7, 0.5), (98.9, 0.1), (76.7, 0.6), (87.3, 0.1)),
        "OMoE": ((89.6, 0.4), (83.4, 0.5), (98.8, 0.2), (76.6, 0.7), (87.1, 0.3)),
        "MESSI-Ti-OT": ((88.3, 0.9), (78.1, 1.1), (98.1, 0.5), (79.3, 2.5), (86.0, 0.3)),
        "MESSI-S-MMD": ((90.4, 0.6), (86.7, 0.8), (98.7, 0.4), (81.4, 0.6), (89.3, 0.6)),
        "MESSI-S-OT": ((91.6, 0.3), (88.7, 0.9), (99.1, 0.3), (84.1, 1.4), (90.9, 0.7)),
    },
)
"""tab:app_pacs: by target."""

OFFICE_HOME = rows(
    ("Art", "Clipart", "Product", "Real-World", "Avg."),
    {
        "ERM": ((61.8, 0.8), (52.5, 0.5), (75.7, 0.4), (76.4, 0.4), (66.6, 0.4)),
        "IRM": ((52.1, 0.3), (44.3, 0.2), (65.5, 0.3), (70.9, 0.2), (58.2, 0.2)),
        "MMD": ((54.0, 0.5), (46.0, 0.4), (68.2, 0.5), (72.2, 0.6), (60.1, 0.5)),
        "CORAL": ((61.8, 0.4), (52.7, 0.6), (74.2, 0.5), (75.3, 0.5), (66.0, 0.5)),
        "Fishr": ((64.1, 0.2), (54.9, 0.3), (76.8, 0.3), (78.6, 0.2), (68.6, 0.2)),
        "SAGM": ((64.8, 0.7), (55.3, 0.6), (78.1, 0.7), (79.4, 0.6), (69.4, 0.2)),
        "DynMoE": ((71.6, 0.3), (59.5, 0.4), (79.6, 0.2), (82.7, 0.3), (73.4, 0.3)),
        "GMoE": ((71.5, 0.1), (58.0, 0.3), (81.2, 0.5), (83.2, 0.1), (73.5, 0.1)),
        "OMoE": ((71.1, 0.2), (57.8, 0.3), (80.9, 0.4), (83.0, 0.2), (73.2, 0.1)),
        "MESSI-Ti-OT": ((66.5, 0.5), (54.2, 0.3), (77.1, 0.7), (80.6, 1.2), (69.6, 0.2)),
        "MESSI-S-MMD": ((74.2, 0.2), (59.9, 0.3), (80.4, 0.4), (81.5, 0.2), (74.0, 0.3)),
        "MESSI-S-OT": ((76.1, 0.7), (61.2, 0.3), (82.2, 0.4), (84.9, 0.4), (76.1, 0.2)),
    },
)
"""tab:app_officehome: by target."""

TERRA_INCOGNITA = rows(
    ("L100", "L38", "L43", "L46", "Avg."),
    {
        "ERM": ((50.8, 1.8), (42.5, 0.7), (57.9, 0.6), (37.6, 1.2), (47.2, 0.8)),
        "IRM": ((42.0, 1.0), (31.2, 0.7), (46.5, 0.6), (35.1, 0.8), (38.7, 0.8)),
        "MMD": ((47.2, 1.2), (35.6, 0.8), (50.6, 0.7), (35.4, 1.0), (42.2, 0.9)),
        "CORAL": ((46.1, 1.0), (39.6, 3.2), (53.3, 0.7), (36.2, 0.8), (43.8, 0.9)),
        "Fishr": ((52.1, 1.6), (42.5, 2.1), (56.7, 0.8), (38.3, 1.5), (47.4, 1.6)),
        "SAGM": ((52.7, 3.2), (43.5, 4.0), (58.7, 0.7), (40.3, 1.4), (48.8, 1.0)),
        "DynMoE": ((54.8, 0.8), (36.4, 0.7), (49.0, 0.5), (37.8, 0.9), (44.5, 0.6)),
        "GMoE": ((56.6, 0.7), (36.2, 0.9), (58.0, 0.6), (42.0, 0.8), (48.2, 0.5)),
        "OMoE": ((55.5, 0.8), (34.2, 1.4), (55.3, 0.6), (39.0, 0.7), (46.0, 0.5)),
        "MESSI-Ti-OT": ((53.6, 1.9), (23.1, 1.2), (52.2, 0.8), (41.2, 0.3), (42.5, 1.1)),
        "MESSI-S-MMD": ((57.1, 0.5), (36.9, 0.5), (54.8, 0.4), (41.2, 0.3), (47.5, 0.4)),
        "MESSI-S-OT": ((60.2, 0.7), (38.3, 0.5), (56.7, 0.3), (42.1, 0.2), (49.3, 0.2)),
    },
)
"""tab:app_terra: by target."""

DOMAIN_NET = rows(
    ("Real", "Clipart", "Painting", "Sketch", "Infograph", "Quickdraw", "Avg."),
    {
        "ERM": ((61.2, 0.4), (58.8, 0.3), (46.7, 0.4), (50.1, 0.7), (19.4, 0.3), (13.4, 0.2), (41.6, 0.2)),
        "IRM": ((48.0, 0.8), (42.5, 0.7), (34.2, 0.8), (36.8, 1.0), (12.1, 0.5), (10.0, 0.6), (30.6, 1.0)),
        "MMD": ((33.8, 0.5), (29.3, 0.4), (23.0, 0.4), (24.8, 0.5), (6.7, 0.2), (5.4, 0.2), (20.5, 0.3)),
        "CORAL": ((57.6, 0.3), (56.1, 0.3), (44.8, 0.4), (47.6, 0.6), (18.3, 0.3), (10.8, 0.3), (39.2, 0.3)),
        "Fishr": ((60.0, 0.2), (58.4, 0.1), (47.1, 0.2), (50.1, 0.2), (20.6, 0.1), (14.0, 0.1), (41.7, 0.0)),
        "SAGM": ((61.9, 0.2), (61.1, 0.3), (49.7, 0.4), (52.2, 0.4), (20.5, 0.2), (13.8, 0.6), (43.2, 0.4)),
        "DynMoE": ((62.4, 0.3), (60.1, 0.4), (49.9, 0.3), (52.0, 0.5), (22.4, 0.2), (28.6, 0.4), (45.9, 0.4)),
        "GMoE": ((68.8, 0.3), (66.1, 0.4), (55.2, 0.4), (55.1, 0.5), (24.7, 0.5), (16.9, 0.4), (47.8, 0.5)),
        "OMoE": ((66.6, 0.1), (63.8, 0.2), (53.1, 0.2), (53.2, 0.4), (23.5, 0.3), (16.1, 0.2), (46.1, 0.2)),
        "MESSI-Ti-OT": ((62.4, 0.5), (60.1, 0.3), (49.1, 0.3), (49.5, 0.3), (22.1, 0.4), (16.4, 0.3), (43.3, 0.4)),
        "MESSI-S-MMD": ((67.4, 0.3), (64.9, 0.3), (53.4, 0.5), (53.7, 0.3), (24.1, 0.5), (13.7, 0.3), (46.2, 0.4)),
        "MESSI-S-OT": ((69.9, 0.2), (66.9, 0.2), (55.7, 0.4), (55.9, 0.2), (25.6, 0.5), (17.8, 0.3), (48.6, 0.3)),
    },
)
"""tab:app_domainnet: by target."""

# Parts of MESSI: controls, ablations and diagnostics.

MECHANISM = rows(
    ("PACS",),
    {
        "ERM-MoE": ((89.1, 0.3),),
        "Global-MoE": ((87.1, 0.2),),
        "Random-Subset-MoE": ((87.0, 0.1),),
        "Domain-Only Routing": ((88.2, 0.2),),
        "MESSI w/o L_sp,L_bal": ((89.0, 0.2),),
        "MESSI": ((90.9, 0.7),),
    },
)
"""tab:mechanism_ablation_main: accuracy in percent by variant."""

LEAVE_ONE_OUT = rows(
    ("PACS Acc.", "Routing Ent. (1e-2)", "Load Std. (1e-1)", "Offdiag Cos. (1e-2)", "Routing JS (1e-4)"),
    {
        "MESSI": ((90.90, 0.70), (0.7, 0.2), (3.6, 0.2), (-0.2, 0.3), (0.1, 0.0)),
        "w/o L_ssi": ((86.89, 0.75), (1.2, 0.3), (3.5, 0.2), (-0.1, 0.3), (2.0, 0.6)),
        "w/o L_sp": ((87.06, 0.90), (53.2, 5.5), (3.0, 0.3), (0.0, 0.4), (1.0, 0.4)),
        "w/o L_bal": ((88.82, 0.65), (0.3, 0.1), (3.7, 0.3), (-0.1, 0.3), (0.1, 0.1)),
        "w/o L_div": ((88.79, 0.70), (5.8, 1.2), (1.2, 0.2), (35.6, 3.0), (33.0, 4.0)),
        "w/o L_sp,L_bal,L_div": ((88.59, 0.80), (39.7, 4.5), (1.0, 0.1), (38.9, 3.5), (30.0, 3.5)),
    },
)
"""tab:objective_leave_one_out: on PACS; accuracy in percent, a diagnostic in units of the power of ten in its head."""

EXPERT_SPECIALIZATION = rows(
    ("Mean Offdiag Cos.", "Effective Rank", "Dead Expert Rate"),
    {
        "OMoE": ((0.35, 0.04), (3.95, 0.12), (0.45, 0.07)),
        "GMoE": ((0.92, 0.03), (3.64, 0.15), (0.54, 0.06)),
        "MESSI w/o L_div": ((0.50, 0.05), (3.75, 0.14), (0.40, 0.06)),
        "MESSI": ((0.01, 0.01), (4.21, 0.11), (0.38, 0.05)),
    },
)
"""tab:expert_specialization: on OfficeHome."""

ROUTING_AWARE_ALIGNMENT = rows(
    ("r(G,R)", "J(G,R)", "r(M,G)", "J(M,G)", "r(M,R)", "J(M,R)", "Ctrl. Delta", "MESSI Delta"),
    {
        "PACS": (1.00, 1.00, -0.20, 0.04, -0.20, 0.04, (0.235, 0.014), (0.096, 0.015)),
        "OfficeHome": (1.00, 0.93, -0.20, 0.11, -0.20, 0.11, (0.289, 0.004), (0.217, 0.006)),
        "TerraIncognita": (1.00, 0.95, -0.20, 0.13, -0.20, 0.14, (0.250, 0.011), (0.179, 0.026)),
        "DomainNet": (1.00, 0.95, -0.20, 0.11, -0.20, 0.10, (0.252, 0.004), (0.143, 0.032)),
    },
)
"""tab:routing_aware_alignment: G is Global-MoE, R Random-Subset-MoE, M MESSI."""

DIAGNOSTIC = rows(
    ("Control", "MESSI"),
    {
        "Resp. corr. r": (1.00, -0.20),
        "Slot overlap J": (0.95, 0.04),
        "Discrepancy": ((0.234, 0.020), (0.096, 0.014)),
    },
)
"""tab:c2_main: on PACS."""

LAMBDA_SWEEP = rows(
    ("Pairwise Disc.", "Domain Probe Acc.", "Target Acc."),
    {
        "0": ((0.05475, 0.0030), (93.42, 0.85), (89.24, 0.90)),
        "0.001": ((0.02620, 0.0022), (92.51, 0.95), (89.24, 0.85)),
        "0.01": ((0.02511, 0.0019), (89.51, 1.10), (91.69, 0.31)),
        "0.1": ((0.02188, 0.0017), (80.09, 1.60), (89.24, 1.05)),
        "1": ((0.02106, 0.0015), (75.51, 1.85), (84.11, 1.40)),
        "10": ((0.00107, 0.0004), (34.62, 2.20), (16.14, 2.80)),
    },
)
"""tab:lambda_sweep: by invariance weight, on a diagnostic split of PACS; accuracies in percent."""

# Cost of training and size of the models.

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

# Accuracy in percent on Rotated-Colored MNIST as source domains are added within a fixed budget of examples.

DOMAIN_GROWTH = rows(
    ("3", "5", "7", "9", "11", "13", "15", "17"),
    {
        "CORAL (gamma=1)": (50.84, 50.79, 68.45, 71.96, 70.44, 71.00, 70.20, 69.38),
        "CORAL (gamma=10)": (50.79, 50.79, 68.80, 71.64, 70.91, 71.00, 68.92, 68.77),
        "CORAL (gamma=100)": (50.79, 50.82, 68.85, 70.10, 69.10, 68.59, 66.35, 66.46),
        "CORAL (gamma=250)": (50.79, 50.86, 65.65, 68.75, 67.30, 67.84, 63.99, 63.67),
        "CORAL (gamma=500)": (50.79, 50.79, 59.95, 64.89, 67.69, 66.17, 62.81, 59.78),
        "MESSI": (50.79, 57.14, 74.00, 75.31, 74.80, 74.10, 74.99, 73.45),
    },
)
"""tab:domain_growth_full_table_low_K and ..._high_K: by number of source domains."""

DOMAIN_GROWTH_SUMMARY = rows(
    ("Peak", "Acc(K_max)", "Drop", "RelDrop", "Avg"),
    {
        "CORAL (gamma=1)": (71.96, 69.38, 2.58, 3.59, 65.38),
        "CORAL (gamma=10)": (71.64, 68.77, 2.87, 4.01, 65.20),
        "CORAL (gamma=100)": (70.10, 66.46, 3.64, 5.19, 63.88),
        "CORAL (gamma=250)": (68.75, 63.67, 5.08, 7.39, 62.36),
        "CORAL (gamma=500)": (67.69, 59.78, 7.91, 11.69, 60.62),
        "MESSI": (75.31, 73.45, 1.86, 2.47, 68.32),
    },
)
"""tab:domain_growth and tab:domain_growth_summary_app; RelDrop is in percent."""

# Macro F1 in percent on WILDS-iWildCam after 150,000 steps.

IWILDCAM = rows(
    ("OOD Val", "OOD Test", "ID Val", "ID Test"),
    {
        "OMoE": (29.14, 27.96, 48.57, 47.26),
        "GMoE": (29.06, 26.68, 48.84, 47.28),
        "MESSI": (35.49, 33.16, 52.86, 51.14),
    },
)
"""tab:iwildcam_results."""
