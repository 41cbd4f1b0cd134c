"""``messi serve`` under load, against calling the model in a loop.

    python benchmarks/bench_serve.py RUN IMAGES... [--clients 200] [--seconds 60] [--save]

Every image has a known answer, that of ``Model.predict``. Every client sends one request after the other over its own
connection; each reply is compared with the known answer. The server and the clients are two processes on the loopback
address, so the clients take a part of the CPU, which is stated. The rate is that of all requests until the last answer,
including the time in which the queue fills and empties. The loop is one process that reads and predicts one image at a
time, and one that predicts in batches.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch

from harness import show
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
    memory: list[float] = field(default_factory=list)
    """Megabytes of the server."""
    wall: float = 0
    """Seconds from the first request to the last answer."""
    server_cpu: float = 0
    """CPU seconds in that time."""
    clients_cpu: float = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("images", type=Path, nargs="+")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--save", action="store_true", help="save the table under benchmarks/results")
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
            tally = asyncio.run(_load(found[0], server.pid, bodies, known, chosen.clients, chosen.seconds))
        finally:
            server.terminate()
    assert server.returncode == 0
    result = _result(chosen.clients, tally, _loop(model, chosen.images))
    print(json.dumps(result, indent=2))
    if chosen.save:
        options = f"RUN IMAGES --clients {chosen.clients} --seconds {chosen.seconds:g} --save"
        show(_table(result, len(bodies)), name="serve", title="The HTTP service under load", save=True, options=options)


async def _load(
    url: str, pid: int, bodies: list[bytes], known: list[dict[str, float]], clients: int, seconds: float
) -> Tally:
    tally = Tally()

    async def client(number: int, end: float) -> None:
        # Without TLS there is nothing to verify, and reading the certificates takes 20 ms per client.
        async with httpx.AsyncClient(base_url=url, timeout=120, verify=False) as connection:  # noqa: S501
            place = number
            while time.monotonic() < end:
                place = (place + 1) % len(bodies)
                await _ask(connection, bodies[place], known[place], tally)

    async def watch(end: float) -> None:
        while time.monotonic() < end:
            tally.memory.append(_memory(pid))
            await asyncio.sleep(seconds / 20)

    start, server_before, clients_before = time.monotonic(), _cpu(pid), time.process_time()
    end = start + seconds
    await asyncio.gather(watch(end), *(client(number, end) for number in range(clients)))
    tally.wall = time.monotonic() - start
    tally.server_cpu, tally.clients_cpu = _cpu(pid) - server_before, time.process_time() - clients_before
    return tally


def _memory(pid: int) -> float:
    """Return the megabytes of memory that a process uses."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


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


def _result(clients: int, tally: Tally, rates: dict[str, float]) -> dict[str, Any]:
    answered = len(tally.seconds) - sum(n for name, n in tally.problems.items() if name[0].isdigit())
    cuts, memory = statistics.quantiles(tally.seconds, n=100), tally.memory
    middle = len(memory) // 2
    return {
        "clients": clients,
        "seconds": round(tally.wall, 1),
        "sent": tally.sent,
        "answered": answered,
        "lost": tally.sent - answered - sum(tally.problems.values()),
        "wrong": tally.wrong,
        "problems": dict(tally.problems),
        "images per second": round(answered / tally.wall, 1),
        "latency in seconds": {f"{n} %": round(cuts[n - 1], 3) for n in (50, 95, 99)},
        "CPU seconds": {"server": round(tally.server_cpu, 1), "clients": round(tally.clients_cpu, 1)},
        "memory in MB": {"start": round(memory[0]), "first half": round(max(memory[:middle])),
                         "second half": round(max(memory[middle:])), "end": round(memory[-1])},
        "a loop, images per second": {name: round(rate, 1) for name, rate in rates.items()},
        "threads": torch.get_num_threads(),
    }  # fmt: skip


def _table(result: dict[str, Any], images: int) -> str:
    latency, cpu, memory, loop = (
        list(result[name].values())
        for name in ("latency in seconds", "CPU seconds", "memory in MB", "a loop, images per second")
    )
    ways = ", ".join(result["a loop, images per second"])
    rows = {
        f"requests answered in {result['seconds']} s, {result['clients']} clients": str(result["answered"]),
        "lost, wrong or refused": f"{result['lost']}, {result['wrong']}, {sum(result['problems'].values())}",
        "images per second": str(result["images per second"]),
        "latency, median, 95 %, 99 %": ", ".join(f"{value:.1f} s" for value in latency),
        "CPU seconds of the server, of the clients": f"{cpu[0]}, {cpu[1]}",
        "memory of the server at the start, in the first and second half, at the end": ", ".join(
            f"{value:,} MB" for value in memory
        ),
        f"the model in a loop, images per second: {ways}": f"{loop[0]}, {loop[1]}",
    }
    lines = ["| | measured |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows.items())]
    about = (
        f"{images} images, server and clients on the same {os.cpu_count()} CPU cores, torch {torch.__version__}. Every "
        "reply was compared with `Model.predict`."
    )
    return "\n".join([about, "", *lines, ""])


if __name__ == "__main__":
    main()
