"""Reading a table of features, encoding it and predicting its rows.

    python benchmarks/bench_tables_cpu.py [--save]

The table has 100,000 rows and 100 columns: 90 of numbers, some missing, and 10 of categories. The values and the
encoding are first compared with those of pandas and scikit-learn, which are timed next to messi. Peak memory is that of
a new process, above that of one that only imports messi. Only messi names the row and column of a bad cell.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from harness import parse, show
from messi.data.datasets.feature_table import FeatureTable
from messi.data.features import encode, fit_spec

ROWS, NUMBERS, CATEGORIES = 100_000, 90, 10
_MEMORY = "import sys; sys.path.insert(0, 'benchmarks'); import bench_tables_cpu as b; b.load_alone({!r})"


def write(folder: Path) -> pandas.DataFrame:
    """Write the table as CSV and Parquet."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(ROWS, NUMBERS)).round(6)
    numbers[rng.random(numbers.shape) < 0.02] = np.nan
    frame = pandas.DataFrame(numbers, columns=[f"n{i}" for i in range(NUMBERS)])
    for i in range(CATEGORIES):
        frame[f"c{i}"] = rng.choice([f"kind {k}" for k in range(5 + i)], ROWS)
    frame["label"], frame["domain"] = rng.choice(["a", "b"], ROWS), rng.choice(list("uvwxyz"), ROWS)
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    return frame


def load_alone(path: str) -> None:
    """Load a table and print the peak memory of this process above its present memory, in MB."""
    import pyarrow.compute as pc  # noqa: PLC0415

    pc.utf8_lower(["x"])
    before = memory("VmRSS")
    FeatureTable(path=path).load()
    print(memory("VmHWM") - before)


def memory(kind: str) -> float:
    """Return the present (VmRSS) or peak (VmHWM) memory of this process in MB; getrusage's peak is the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(kind))


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the shortest wall time of three, and its CPU time."""
    found = []
    for _ in range(3):
        start, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - start, time.process_time() - cpu))
    return min(found)


def main() -> None:
    """Compare, time and print."""
    options = parse(__doc__ or "")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        frame = write(folder)
        examples = FeatureTable(path=str(folder / "t.csv")).load()
        inputs = examples.inputs
        assert isinstance(inputs, torch.Tensor)
        features = frame.drop(columns=["label", "domain"])
        assert np.array_equal(inputs[:, :NUMBERS].numpy(), features.to_numpy()[:, :NUMBERS].astype(float), True)
        train = torch.arange(0, ROWS, 2)
        spec = fit_spec(inputs, train, examples.columns, "standardise")
        numbers, kinds = list(features.columns[:NUMBERS]), list(features.columns[NUMBERS:])
        theirs = ColumnTransformer(
            [
                ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
                ("kinds", OneHotEncoder(handle_unknown="ignore", sparse_output=False), kinds),
            ]
        )
        wanted = theirs.fit(features.iloc[::2]).transform(features)
        ours = encode(inputs, spec, examples.columns)
        np.testing.assert_allclose(ours[:, : 2 * NUMBERS : 2], wanted[:, :NUMBERS], atol=1e-5)
        np.testing.assert_array_equal(ours[:, 2 * NUMBERS :], wanted[:, NUMBERS:])
        rows = {
            "load CSV": seconds(lambda: FeatureTable(path=str(folder / "t.csv")).load()),
            "load CSV, pandas": seconds(lambda: pandas.read_csv(folder / "t.csv")),
            "load Parquet": seconds(lambda: FeatureTable(path=str(folder / "t.parquet")).load()),
            "fit": seconds(lambda: fit_spec(inputs, train, examples.columns, "standardise")),
            "fit, scikit-learn": seconds(lambda: theirs.fit(features.iloc[::2])),
            "encode": seconds(lambda: encode(inputs, spec, examples.columns)),
            "encode, scikit-learn": seconds(lambda: theirs.transform(features)),
        }
        peaks = {
            name: float(
                subprocess.run(  # noqa: S603 (its own code)
                    [sys.executable, "-c", _MEMORY.format(str(folder / name))],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for name in ("t.csv", "t.parquet")
        }
        lines = ["| work | seconds | CPU seconds |", "|---|---:|---:|"]
        lines += [f"| {name} | {wall:.2f} | {cpu:.2f} |" for name, (wall, cpu) in rows.items()]
        size = (folder / "t.csv").stat().st_size / 1e6
        lines += [
            "",
            f"The CSV file has {size:.0f} MB. Memory: " + ", ".join(f"{n} {m:.0f} MB" for n, m in peaks.items()),
        ]
    title = f"{ROWS:,} rows, {NUMBERS} columns of numbers and {CATEGORIES} of categories"
    show("\n".join(lines), name="tables_cpu", title=title, save=options.save)


if __name__ == "__main__":
    main()
