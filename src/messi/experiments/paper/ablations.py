"""What the parts of MESSI do: controls, ablations and diagnostics."""

from messi.experiments.paper._rows import rows

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
