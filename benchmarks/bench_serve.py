"""``messi serve`` under load, against calling the model in a loop.

    python benchmarks/bench_serve.py RUN IMAGES... [--clients 200] [--seconds 60]

Every image has a known answer, that of ``Model.predict``. Every client sends one request after the other over its own
connection; each reply is compared with the known answer. The server and the clients are two processes on the loopback
address. The loop is one process that reads and predicts one image at a time, and one that predicts in batches.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from messi.algorithms.common.inference import batch_size
from messi.evaluation.model import Model, load

_START = "import sys; from messi.cli.main import main; sys.exit(main(sys.argv[1:]))"


@dataclass
class Tally:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    sent: int = 0
    wrong: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    """By status or error."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("images", type=Path, nargs="+")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    chosen = parser.parse_args()
    model = load(chosen.run)
    answers = model.predict(chosen.images)
    known = [dict(zip(model.classes, row.tolist(), strict=True)) for row in answers.probabilities]
    bodies = [path.read_bytes() for path in chosen.images]
    words = [sys.executable, "-c", _START, "serve", str(chosen.run), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 (this program)
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+/", server.stdout.readline())
            assert found, "the server did not start"
            tally, memory = asyncio.run(_load(found[0], server.pid, bodies, known, chosen.clients, chosen.seconds))
        finally:
            server.terminate()
    assert server.returncode == 0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = usage.ru_utime + usage.ru_stime
    _print(chosen.clients, chosen.seconds, tally, memory, used, _loop(model, chosen.images))


async def _load(
    url: str, pid: int, bodies: list[bytes], known: list[dict[str, float]], clients: int, seconds: float
) -> tuple[Tally, list[float]]:
    tally, memory = Tally(), list[float]()
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=120) as connection:
            place = number
            while time.monotonic() < end:
                place = (place + 1) % len(bodies)
                await _ask(connection, bodies[place], known[place], tally)

    async def watch() -> None:
        while time.monotonic() < end:
            memory.append(_memory(pid))
            await asyncio.sleep(seconds / 20)

    await asyncio.gather(watch(), *(client(number) for number in range(clients)))
    return tally, memory


def _memory(pid: int) -> float:
    """Return the megabytes of memory that a process uses."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def _ask(connection: httpx.AsyncClient, body: bytes, known: dict[str, float], tally: Tally) -> None:
    tally.sent += 1
    start = time.perf_counter()
    try:
        reply = await connection.post("predict", content=body, headers={"Content-Type": "image/jpeg"})
    except httpx.HTTPError as error:
        tally.problems[type(error).__name__] += 1
        return
    tally.seconds.append(time.perf_counter() - start)
    if reply.status_code != httpx.codes.OK:
        tally.problems[f"{reply.status_code} {reply.json()['error']}"] += 1
        return
    (answer,) = reply.json()["predictions"]
    tally.wrong += any(abs(answer["probabilities"][name] - share) > 1e-5 for name, share in known.items())


def _loop(model: Model, images: list[Path]) -> dict[str, float]:
    """Return images per second of one process, one by one and in batches."""
    repeated = (images * (64 // len(images) + 1))[:64]
    size = batch_size(next(model.algorithm.parameters()).device)
    rates = {}
    for name, step in (("one by one", 1), (f"in batches of {size}", size)):
        start = time.perf_counter()
        for place in range(0, len(repeated), step):
            model.predict(repeated[place : place + step])
        rates[name] = len(repeated) / (time.perf_counter() - start)
    return rates


def _print(
    clients: int, seconds: float, tally: Tally, memory: list[float], used: float, rates: dict[str, float]
) -> None:
    answered = len(tally.seconds) - sum(n for name, n in tally.problems.items() if name[0].isdigit())
    cuts = statistics.quantiles(tally.seconds, n=100)
    half = memory[len(memory) // 2 :]
    result: dict[str, Any] = {
        "clients": clients,
        "seconds": seconds,
        "sent": tally.sent,
        "answered": answered,
        "lost": tally.sent - answered - sum(tally.problems.values()),
        "wrong": tally.wrong,
        "problems": dict(tally.problems),
        "images per second": round(answered / seconds, 1),
        "latency in seconds": {f"{n} %": round(cuts[n - 1], 3) for n in (50, 95, 99)},
        "server CPU seconds": round(used, 1),
        "memory in MB": {"start": round(memory[0]), "first half": round(max(memory[: len(memory) // 2])),
                         "second half": round(max(half)), "end": round(memory[-1])},
        "a loop, images per second": {name: round(rate, 1) for name, rate in rates.items()},
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
    }  # fmt: skip
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
