"""A plan of 10,000 finished runs: time and memory of its status, its tables and its page.

    python benchmarks/bench_plan.py [--save]

One small run is trained; its files are copied into 10,000 folders with their own config, result and checksums. The
checkpoint, the model and the pictures are left out, because nothing here reads them. The counts and the content of the
table are first compared with the numbers that were written; then every command is timed in its own process, whose peak
memory the kernel reports.
"""

import csv
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import parse, show
from messi.core.checksum import CHECKSUM_KEY, checksum, values_checksum
from messi.core.rundir import RunDir
from messi.engine.run import run
from messi.experiments.leave_one_out import LeaveOneOut
from messi.studies.common.plan_file import write_plan
from messi.sweeps.plan import Plan

SEEDS = 417
RUNS = 6 * 4 * SEEDS
STATUS_LIMIT, TABLES_LIMIT, MEMORY_LIMIT = 5.0, 60.0, 1e9
MEASURED = """
import re, sys
from pathlib import Path
from messi.cli.main import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])  # ru_maxrss would include the parent
sys.exit(code)
"""
MODELS = ("seen.safetensors", "model.safetensors")
"""Listed in a result, but read by nothing that is timed."""


def main() -> None:
    """Generate the plan, compare and time."""
    options = parse(__doc__.splitlines()[0])
    with tempfile.TemporaryDirectory(prefix="messi-plan-") as name:
        folder = Path(name) / "plan"
        start = time.perf_counter()
        expected = generate(folder, Path(name) / "run")
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        made = f"{RUNS:,} run folders, {size / 1e9:.2f} GB, written in {time.perf_counter() - start:.0f} s"
        rows = [
            ("messi status", STATUS_LIMIT, *command("status", folder, says=f"runs     {RUNS:,}: {RUNS:,} done")),
            ("messi report", TABLES_LIMIT, *command("report", folder, says="report  ")),
        ]
        compare(folder, expected)
        page = (folder / "report.html").stat().st_size
    lines = [
        f"{made}; {os.cpu_count()} CPU cores, python {sys.version.split()[0]}. The page has {page / 1e6:.1f} MB.",
        "",
        "| command | seconds | limit | peak memory |",
        "|---|---:|---:|---:|",
        *(
            f"| `{name}` | {seconds:.1f} | {limit:.0f} | {memory / 1e6:.0f} MB |"
            for name, limit, seconds, memory in rows
        ),
    ]
    show("\n".join(lines) + "\n", name="plan", title="A plan of 10,000 finished runs", save=options.save)
    for name, limit, seconds, memory in rows:
        assert seconds <= limit, f"{name} took {seconds:.1f} s"
        assert memory <= MEMORY_LIMIT, f"{name} needed {memory / 1e6:.0f} MB"


def generate(folder: Path, trained: Path) -> dict[str, float]:
    """Write a plan whose runs are all finished; return the mean target accuracy of every method in percent."""
    study = LeaveOneOut(seeds=SEEDS, path="data", weights="weights")
    small = LeaveOneOut(scale="small").runs()[0].config
    run(dataclasses.replace(small, training=dataclasses.replace(small.training, steps=30)), out=trained, device="cpu")
    write_plan(study, folder)
    plan = Plan(folder, study.runs())
    assert len(plan.runs) == RUNS
    plan.write_run_list()
    source = RunDir(trained)
    documents = {file.name: document(file) for file in (source.description, source.result, source.diagnostics)}
    records = source.records.read_bytes()
    targets: dict[str, list[float]] = {}
    for number, planned in enumerate(plan.runs):
        accuracy = (number * 7919 % RUNS) / RUNS
        targets.setdefault(str(planned.labels["method"]), []).append(100 * accuracy)
        described = {**documents["run.json"], "config": planned.config.resolved().to_dict()}
        routing = {**documents["diagnostics.json"]["routing"], "entropy": accuracy}
        files = {
            "run.json": sealed(described),
            "diagnostics.json": sealed({**documents["diagnostics.json"], "routing": routing}),
            "records.jsonl": records,
        }
        listed = {name: checksum([content]) for name, content in files.items()}
        kept = {name: documents["result.json"]["files"][name] for name in MODELS}
        result = {**documents["result.json"], "target": {"t": accuracy}, "files": {**kept, **listed}}
        place = plan.path(planned)
        place.mkdir(parents=True)
        for name, content in {**files, "result.json": sealed(result)}.items():
            (place / name).write_bytes(content)
    return {method: statistics.fmean(values) for method, values in targets.items()}


def document(file: Path) -> dict[str, Any]:
    """Return the values of a document."""
    return {key: value for key, value in json.loads(file.read_bytes()).items() if key != CHECKSUM_KEY}


def sealed(values: dict[str, Any]) -> bytes:
    """Return a document as messi writes it."""
    return json.dumps({**values, CHECKSUM_KEY: values_checksum(values)}, indent=2).encode()


def command(name: str, folder: Path, *, says: str) -> tuple[float, float]:
    """Return seconds and peak memory in bytes of a command; it must succeed and print a line that begins as stated."""
    start = time.perf_counter()
    words = [sys.executable, "-c", MEASURED, name, str(folder)]
    printed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()  # noqa: S603
    seconds = time.perf_counter() - start
    assert any(line.startswith(says) for line in printed), printed
    return seconds, 1024 * int(printed[-1])


def compare(folder: Path, expected: dict[str, float]) -> None:
    """Compare the table with the numbers that were written."""
    with (folder / "tables" / "leave_one_out.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["column"].endswith("Acc.")]
    found = {row["Variant"]: float(row["mean"]) for row in rows}
    assert found.keys() == expected.keys()
    for method, mean in expected.items():
        assert abs(found[method] - mean) < 1e-9, (method, found[method], mean)


if __name__ == "__main__":
    main()
