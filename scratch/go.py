"""New against old (timm's own forward, all experts) for methods with experts in blocks."""
import statistics, time, traceback
from contextlib import nullcontext
import torch
from bench_step_gpu import SMALL, TINY, Contestant, make_batch, where_the_time_goes
from messi.algorithms.common.base import ALGORITHMS, build
from messi.core import gpu_kernels
from messi.core.batch import Task
from messi.core.seeding import deterministic
from messi.models.encoder import EncoderConfig

T0 = time.time()
NAMES = ("gmoe", "omoe", "dynmoe")
def say(*a): print(f"[{time.time()-T0:5.1f}]", *a, flush=True)
def part(f, *a):
    try: f(*a)
    except Exception: say("FAILED", f.__name__, a); traceback.print_exc()

def compare(name, backbone):
    torch.manual_seed(0)
    task = Task(input_shape=(3, 224, 224), num_classes=7, num_domains=3)
    m = build(ALGORITHMS.config(name)(), task=task, encoder=EncoderConfig(backbone=backbone, pretrained=False)).cuda()
    batch = make_batch(24)
    ps = list(m.parameters())
    def answer(autocast, kernels):
        torch.manual_seed(5)
        with nullcontext() if kernels else gpu_kernels.disabled(), torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            terms = m.loss(batch)
        grads = torch.autograd.grad(torch.stack(list(terms.values())).sum(), ps, allow_unused=True)
        with torch.no_grad(), (nullcontext() if kernels else gpu_kernels.disabled()), torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            m.eval(); logits = m.predict(batch.inputs).logits.float(); m.train()
        return {k: float(v) for k, v in terms.items()}, logits, grads
    exact, old, new, again = answer(False, False), answer(True, False), answer(True, True), answer(True, True)
    off = lambda a, b: float((a - b).norm() / b.norm().clamp_min(1e-12))
    g = lambda x: float(torch.tensor([off(a, b) ** 2 for a, b in zip(x[2], exact[2]) if b is not None]).mean().sqrt())
    say(name, backbone, "logits err old", f"{off(old[1], exact[1]):.4f}", "new", f"{off(new[1], exact[1]):.4f}", "grads err old", f"{g(old):.4f}", "new", f"{g(new):.4f}",
        "repeats", all(a is None or torch.equal(a, b) for a, b in zip(new[2], again[2])), "terms", exact[0], old[0], new[0])
    worst = sorted(((off(a, b), n) for (n, _), a, b in zip(m.named_parameters(), new[2], exact[2]) if b is not None), reverse=True)[:4]
    say("   worst new", worst)

def bits(name):
    e, c = (Contestant.make(ALGORITHMS.config(name)(), TINY, capture=x) for x in (False, True))
    for one in (e, c): one.milliseconds(8)
    say(name, "captured", c.updater.captured, "equal bits", all(map(torch.equal, e.parameters, c.parameters)))

def clock(name, backbone, old=False):
    c = Contestant.make(ALGORITHMS.config(name)(), backbone, timms_own=old)
    c.milliseconds(6)
    say(name, backbone, "old" if old else "new", f"{statistics.median(c.milliseconds(10) for _ in range(5)):.3f} ms")
    if name == "gmoe" and backbone == SMALL and not old: print("\n".join(where_the_time_goes(c, 30)), flush=True)

with deterministic():
    for n in NAMES: part(compare, n, TINY)
    for n in NAMES: part(bits, n)
    part(clock, "erm", SMALL)
    for n in NAMES: part(clock, n, SMALL)
    part(clock, "gmoe", TINY); part(clock, "gmoe", TINY, True); part(clock, "gmoe", SMALL, True)
    for n in NAMES: part(compare, n, SMALL)
say("done")
