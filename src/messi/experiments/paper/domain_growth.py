"""Accuracy in percent on Rotated-Colored MNIST as source domains are added within a fixed budget of examples."""

from messi.experiments.paper._rows import rows

FULL = rows(
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

SUMMARY = rows(
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
