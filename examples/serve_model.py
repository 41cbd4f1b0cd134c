"""Serve a model over HTTP and ask it, as another program would.

    python examples/serve_model.py

In a shell, ``messi serve runs/example`` starts the same service, with a page at http://127.0.0.1:8000/.
"""

import re
import signal
import subprocess
import sys

import httpx

import messi

config = messi.RunConfig(
    data=messi.TwoSubsets(),
    target=("b2",),
    training=messi.TrainingConfig(steps=60, evaluate_every=30),
)

if __name__ == "__main__":
    run = messi.run(config, out="runs/served", device="cpu").path
    command = "import sys; from messi.cli.main import main; sys.exit(main(sys.argv[1:]))"  # the command messi
    words = [sys.executable, "-c", command, "serve", str(run), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+/", server.stdout.readline())
            assert address, "the server did not start"
            rows = [[1.0, 1.0, 0.0], [-1.0, 0.0, 1.0], [9.0, -9.0, 9.0]]
            reply = httpx.post(f"{address[0]}predict", json={"rows": rows}, timeout=60)
            for answer in reply.raise_for_status().json()["predictions"]:
                likeness = answer["likeness"]
                print(
                    f"class {answer['class']} ({answer['probability']:.2f})",
                    f"experts {answer['active_experts']}",
                    f"nearest domain {likeness['nearest_domain']}",
                    "UNLIKE ALL TRAINING DOMAINS" if likeness["unlike_training"] else "",
                )
            bad = httpx.post(f"{address[0]}predict", json={"rows": [[1.0, "two", 3.0]]}, timeout=60)
            print(bad.status_code, bad.json()["error"])
        finally:
            server.send_signal(signal.SIGINT)  # the running requests are answered first
    print("exit code", server.returncode)
