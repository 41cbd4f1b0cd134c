"""Check and time candidate kernels, then the whole step, then profiles."""
import json, math, os, statistics, sys, time, traceback
from concurrent.futures import ThreadPoolExecutor
T0 = time.time()
sys.path[:0] = ["scratch", "benchmarks"]
import torch, triton
from torch import Tensor
from messi.models.fused import attention_kernels as A, vit_kernels as V
import attn3, elem as E
LOWS = {}
OUT = os.environ.get("OUT", "/tmp"); DEV = "cuda"; R = {}; LOG = open(os.devnull if os.environ.get("WARM") else f"{OUT}/kern.txt", "w")
def say(*a):
    if WARM: return
    s = f"[{time.time()-T0:5.1f}] " + " ".join(map(str, a)); print(s, flush=True); LOG.write(s + "\n"); LOG.flush()
    json.dump(R, open(f"{OUT}/kern.json", "w"), indent=1)
WARM = os.environ.get("WARM"); COUNT = [0]
def guard(name, f, *a, **k):
    if WARM and f.__name__ == "one":
        COUNT[0] += 1
        if COUNT[0] % 12 != int(WARM): return
    try: return f(*a, **k)
    except Exception: say("FAILED", name, traceback.format_exc()[-900:])
def bench(f, n=12):
    """Median over graph replays; 8 calls in a graph, so launch gaps stay out."""
    f(); torch.cuda.synchronize()
    if WARM: return 1.0
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(8): f()
    g.replay(); ts = []
    for _ in range(n):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); g.replay(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b) / 8 * 1000)
    return statistics.median(ts)
def err(x, y): return float((x.double() - y).norm() / y.norm())
SHAPES = {"S": (384, 6), "Ti": (192, 3)}
B, TK, D = 96, 197, 64

def attention(tag, width, heads):
    proj = torch.randn(B, TK, 3, heads, D, device=DEV).bfloat16(); q, k, v = proj.unbind(2)
    above = torch.randn(B, TK, heads, D, device=DEV).bfloat16()
    res = torch.empty_like(above)
    sub = slice(0, 8)
    ex = [t[sub].double().requires_grad_() for t in (q, k, v)]
    want = torch.nn.functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in ex)).transpose(1, 2)
    gw = torch.autograd.grad((want * above[sub]).sum(), ex)
    def attend(BLOCK=64, REST=16, INNER=32, num_warps=4, num_stages=3):
        ls = torch.empty(B, heads, TK, device=DEV)
        A._attend[(triton.cdiv(TK, BLOCK), B * heads)](q, k, v, res, ls, *q.stride()[:2], *k.stride()[:2], heads, TK, TK,
            math.log2(math.e) / math.sqrt(D), DEPTH=D, BLOCK=BLOCK, REST=REST, INNER=INNER, num_warps=num_warps, num_stages=num_stages)
        return ls
    for c in (dict(), dict(INNER=64), dict(INNER=64, num_stages=2), dict(BLOCK=128, REST=128, INNER=64, num_warps=8), dict(BLOCK=256, REST=16, INNER=32, num_warps=8)):
        def one(c=c):
            res.zero_(); ls = attend(**c); e = err(res[sub], want); t = bench(lambda: attend(**c))
            R[f"attend {tag} {c}"] = (t, e); say(f"attend {tag} {t:7.1f} us err {e:.2e} {c}")
        guard(f"attend {c}", one)
    ls = attend()
    dproj = torch.empty_like(proj); into = dproj.unbind(2)
    def qk(q_c, k_c, which="both"):
        blocks = triton.cdiv(TK, 64); parts = torch.empty(B * blocks, 3, heads, D, device=DEV); lv = torch.empty_like(ls)
        st = (*q.stride()[:2], *k.stride()[:2], heads, TK, TK, 1 / math.sqrt(D))
        def cfg(c): return {**dict(BLOCK=64, REST=16, INNER=32, num_warps=4, num_stages=3), **c}
        q_c, k_c = cfg(q_c), cfg(k_c)
        def run():
            if which != "key": A._query_grads[(triton.cdiv(TK, q_c["BLOCK"]), B * heads)](q, k, v, res, above, ls, lv, into[0], parts, *st, DEPTH=D, **q_c)
            if which != "query": A._key_grads[(triton.cdiv(TK, k_c["BLOCK"]), B * heads)](q, k, v, above, ls, lv, *into[1:], parts, *st, DEPTH=D, **k_c)
        return run
    def check(run, names=(0, 1, 2)):
        dproj.fill_(float("nan")); run(); torch.cuda.synchronize()
        return [err(into[i][sub], gw[i]) for i in names]
    base = qk({}, {})
    say(f"old backward {tag} errors", ["%.2e" % e for e in check(base)]); R[f"old backward {tag}"] = bench(base)
    say(f"old backward {tag} {R[f'old backward {tag}']:.1f} us")
    for c in (dict(), dict(INNER=64), dict(INNER=64, num_stages=1), dict(num_stages=2), dict(INNER=64, BLOCK=128, REST=128, num_warps=8)):
        for which in ("query", "key"):
            def one(c=c, which=which):
                run = qk(c, c, which); base(); e = check(lambda: (qk(c, c, "both")()), (0, 1, 2)); t = bench(run)
                R[f"{which} {tag} {c}"] = (t, e); say(f"{which}_grads {tag} {t:7.1f} us err {max(e):.2e} {c}")
            guard(f"{which} {c}", one)
    sums = torch.empty(B, 3, heads, D, device=DEV)
    for c in (dict(), dict(num_stages=2), dict(QUERIES=32, num_stages=2), dict(KEYS=128, num_warps=8)):
        def one(c=c):
            run = lambda: attn3.backward3(above, q, k, v, res, ls, into, sums, **c)
            e = check(run); first = dproj.clone(); run(); same = torch.equal(first, dproj); t = bench(run)
            R[f"one kernel {tag} {c}"] = (t, e, same)
            say(f"ONE kernel {tag} {t:7.1f} us err {['%.2e' % x for x in e]} repeat equal {same} {c}")
        guard(f"one {c}", one)

def between(tag, width):
    N = B * TK; hid = 4 * width
    x, tot = torch.randn(N, width, device=DEV), torch.randn(N, width, device=DEV)
    br, tg, ng, g, nm = (torch.randn(N, width, device=DEV).bfloat16() for _ in range(5))
    w = torch.randn(width, device=DEV); st = torch.stack([tot.mean(1), 1 / tot.std(1)]); bias = torch.randn(width, device=DEV)
    block = triton.next_power_of_2(width)
    ref = torch.nn.functional.layer_norm
    td = tot[:2000].double().requires_grad_(); u = (td - td.mean(1, keepdim=True)) / td.std(1, keepdim=True, unbiased=True)
    st2 = torch.empty(2, N, device=DEV); nl = torch.nn.LayerNorm(width, eps=1e-6, device=DEV)
    for rows, warps in ((4, max(block // 128, 1)), (2, 1), (4, 1), (1, 1)):
        def one(rows=rows, warps=warps):
            f = lambda: V._add_norm[(triton.cdiv(N, rows),)](x, br, bias, w, bias, tot, nm, st2, 1e-6, N, N, width, HAS_BIAS=True, ROWS=rows, BLOCK=block, num_warps=warps)
            f(); e = err(nm[:3000], ref((x + br.float() + bias)[:3000].double(), (width,), w.double(), bias.double(), 1e-6)); t = bench(f)
            R[f"add_norm {tag} {rows} {warps}"] = (t, e); say(f"add_norm {tag} rows={rows} warps={warps} {t:6.1f} us err {e:.2e}")
        guard("add_norm", one)
    want = None
    for rows, warps, progs in ((4, V._norm_warps(width), 1056 // V._norm_warps(width)), (4, 1, 1056), (2, 1, 1056), (2, 1, 2112), (1, 1, 2112)):
        def one(rows=rows, warps=warps, progs=progs):
            parts = torch.empty(progs, 3, width, device=DEV)
            f = lambda: V._add_norm_backward[(progs,)](tg, ng, tot, st2, w, g, parts, N, width, ROWS=rows, BLOCK=block, num_warps=warps)
            f(); t2 = tot.double().requires_grad_(); y = ref(t2, (width,), w.double(), bias.double(), 1e-6)
            (gr,) = torch.autograd.grad((y * ng + t2 * tg).sum(), t2); e = err(g, gr)
            es = err(parts.sum(0)[2], gr.sum(0)); t = bench(f)
            R[f"add_norm_backward {tag} {rows} {warps} {progs}"] = (t, e); say(f"add_norm_backward {tag} rows={rows} warps={warps} programs={progs} {t:6.1f} us err {e:.2e} sums {es:.1e}")
        guard("add_norm_backward", one)
    h, act, gh = (torch.randn(N, hid, device=DEV).bfloat16() for _ in range(3))
    for blk, warps in ((2048, 4), (1024, 4)):
        def one(blk=blk, warps=warps):
            f = lambda: V._gelu[(triton.cdiv(h.numel(), blk),)](h, act, h.numel(), BLOCK=blk, num_warps=warps)
            f(); e = err(act, torch.nn.functional.gelu(h.double())); t = bench(f)
            R[f"gelu {tag} {blk} {warps}"] = (t, e); say(f"gelu {tag} block={blk} warps={warps} {t:6.1f} us err {e:.2e}")
        guard("gelu", one)
    for kind in (0, 2):
      for blk, warps in ((2048, 4), (1024, 4), (4096, 8)):
        def one(blk=blk, warps=warps, kind=kind):
            f = lambda: E._gelu2[(triton.cdiv(h.numel(), blk),)](h, act, h.numel(), KIND=kind, BLOCK=blk, num_warps=warps)
            f(); e = err(act, torch.nn.functional.gelu(h.double())); t = bench(f)
            R[f"gelu2 {tag} {kind} {blk} {warps}"] = (t, e); say(f"gelu2 {tag} kind={kind} block={blk} warps={warps} {t:6.1f} us err {e:.2e}")
        guard("gelu2", one)
    for rows, warps, total in ((4, 8, 1056), (8, 8, 1056), (8, 4, 1056), (8, 4, 2112), (4, 4, 2112)):
        def one(rows=rows, warps=warps, total=total):
            cols = triton.cdiv(hid, 256); n = total // cols; parts = torch.empty(n, hid, device=DEV); hh = h.clone()
            f = lambda: E._gelu_backward2[(cols, n)](gh, hh, parts, N, hid, KIND=2, ROWS=rows, BLOCK=256, num_warps=warps)
            f(); hd = h[:1000].double().requires_grad_(); (gr,) = torch.autograd.grad(torch.nn.functional.gelu(hd), hd, gh[:1000].double())
            e = err(hh[:1000], gr); t = bench(f)
            R[f"gelu_backward2 {tag} {rows} 256 {warps} {total}"] = (t, e); say(f"gelu_backward2 {tag} rows={rows} warps={warps} total={total} {t:6.1f} us err {e:.2e}")
        guard("gelu_backward2", one)
    lo, lo2 = (torch.randint(-128, 128, (N, width), device=DEV, dtype=torch.int8) for _ in range(2))
    for rows, warps, progs in ((2, 1, 1056), (1, 1, 1056), (1, 1, 1848), (4, 2, 528)):
        def one(rows=rows, warps=warps, progs=progs):
            parts = torch.empty(progs, 3, width, device=DEV)
            f = lambda low=True: E._add_norm_backward2[(progs,)](tg, lo, ng, tot, st2, w, g, lo2, parts, N, width, LOW=low, ROWS=rows, BLOCK=block, num_warps=warps)
            f(False); t2 = tot.double().requires_grad_(); y = ref(t2, (width,), w.double(), bias.double(), 1e-6)
            (gr,) = torch.autograd.grad((y * ng + t2 * tg).sum(), t2); e = err(g, gr)
            both = (g.view(torch.int16).int() * 65536 + lo2.int() * 256 + 128).view(torch.float32); e24 = err(both, gr)
            t = bench(f)
            R[f"add_norm_backward2 {tag} {rows} {warps} {progs}"] = (t, e, e24); say(f"add_norm_backward2 (24 bits) {tag} rows={rows} warps={warps} programs={progs} {t:6.1f} us err {e:.2e}, of 24 bits {e24:.2e}")
        guard("add_norm_backward2", one)
    t = bench(lambda: act.copy_(h)); R[f"copy hidden {tag}"] = t; say(f"copy of hidden {tag} {t:.1f} us")
    for rows, tile, warps, total in ((4, 256, 8, 1056), (8, 256, 8, 1056)):
        def one(rows=rows, tile=tile, warps=warps, total=total):
            cols = triton.cdiv(hid, tile); n = total // cols; parts = torch.empty(n, hid, device=DEV); hh = h.clone()
            f = lambda: V._gelu_backward[(cols, n)](gh, hh, parts, N, hid, ROWS=rows, BLOCK=tile, num_warps=warps)
            f(); hd = h[:1000].double().requires_grad_(); (gr,) = torch.autograd.grad(torch.nn.functional.gelu(hd), hd, gh[:1000].double())
            e = err(hh[:1000], gr); t = bench(f)
            R[f"gelu_backward {tag} {rows} {tile} {warps} {total}"] = (t, e); say(f"gelu_backward {tag} rows={rows} tile={tile} warps={warps} total={total} {t:6.1f} us err {e:.2e}")
        guard("gelu_backward", one)

def steps(tag):
    import bench_step_gpu as S
    from messi.core.seeding import deterministic
    with deterministic():
        for name, back in (("Ti", S.TINY), ("S", S.SMALL)):
            def one():
                c = S.Contestant.make(S.METHODS["ERM"], back); c.milliseconds(8)
                ts = [c.milliseconds() for _ in range(10)]
                R[f"step {tag} {name}"] = statistics.median(ts); say(f"STEP {tag} {name} {statistics.median(ts):.3f} ms (min {min(ts):.3f} max {max(ts):.3f})")
                if tag == "new24": return
                lines = S.where_the_time_goes(c, 90); open(f"{OUT}/profile_{tag}_{name}.md", "w").write("\n".join(lines))
                say(f"PROFILE {tag} {name}\n" + "\n".join(lines))
            guard(f"step {tag} {name}", one); torch.cuda.empty_cache()

def wire(precise=False):
    """Use the best configurations and the faster backward that this run measured."""
    best = {}
    for tag in SHAPES:
        for key in ("add_norm_backward", "add_norm", "gelu_backward", "gelu"):
            c = {k: v[0] for k, v in R.items() if k.startswith(f"{key} {tag} ")}
            best[key, tag] = min(c, key=c.get).split()[2:]
    say("best", best)
    def tag_of(w): return "Ti" if w in (192, 768) else "S"
    rows_of = lambda key, w: [int(i) for i in best[key, tag_of(w)]]
    def norm_parts(rows, width):
        r, w, p = rows_of("add_norm_backward", width); return min(p, triton.cdiv(rows, r))
    def anb(tg, ng, total, st, weight, grad, parts):
        rows, width = total.shape; r, w, p = rows_of("add_norm_backward", width)
        V._add_norm_backward[(len(parts),)](tg, ng, total, st, weight, grad, parts, rows, width, ROWS=r, BLOCK=triton.next_power_of_2(width), num_warps=w)
    def gp(rows, width):
        r, tile, w, t = rows_of("gelu_backward", width); return min(t // triton.cdiv(width, tile), triton.cdiv(rows, r))
    def gb(grad, hidden, parts):
        rows, width = hidden.shape; r, tile, w, t = rows_of("gelu_backward", width)
        V._gelu_backward[(triton.cdiv(width, tile), len(parts))](grad, hidden, parts, rows, width, ROWS=r, BLOCK=tile, num_warps=w)
    def fewest(key, w): 
        c = {k: v[0] for k, v in R.items() if k.startswith(f"{key} {tag_of(w)} ")}
        return [int(i) for i in min(c, key=c.get).split()[2:]]
    def gb(grad, hidden, parts):
        rows, width = hidden.shape; r, tile, w, t = fewest("gelu_backward2", width)
        E._gelu_backward2[(triton.cdiv(width, tile), len(parts))](grad, hidden, parts, rows, width, KIND=2, ROWS=r, BLOCK=tile, num_warps=w)
    def gf(hidden, result):
        kind, blk, w = fewest("gelu2", hidden.shape[1])
        E._gelu2[(triton.cdiv(hidden.numel(), blk),)](hidden, result, hidden.numel(), KIND=2, BLOCK=blk, num_warps=w)
    V.gelu = gf
    if precise:
        from messi.models.fused.vit_backward import Backward
        run0 = Backward.run
        def run(self, grad): LOWS.clear(); return run0(self, grad)
        Backward.run = run
        def norm_parts(rows, width): return min(fewest("add_norm_backward2", width)[2], triton.cdiv(rows, fewest("add_norm_backward2", width)[0]))
        def anb(tg, ng, total, st, weight, grad, parts):
            rows, width = total.shape; r, w, p = fewest("add_norm_backward2", width)
            low = LOWS.pop(tg.data_ptr(), None); new = LOWS[grad.data_ptr()] = torch.empty(grad.shape, dtype=torch.int8, device=DEV)
            E._add_norm_backward2[(len(parts),)](tg, low if low is not None and low.shape == tg.shape else new, ng, total, st, weight, grad, new, parts, rows, width, LOW=low is not None and low.shape == tg.shape, ROWS=r, BLOCK=triton.next_power_of_2(width), num_warps=w)
    V.norm_parts, V.add_norm_backward, V.gelu_parts, V.gelu_backward = norm_parts, anb, gp, gb
    one = {k: v[0] for k, v in R.items() if k.startswith("one kernel S ") and v[2] and max(v[1]) < 1e-2}
    if one and min(one.values()) < R["old backward S"]:
        c = eval(min(one, key=one.get).split(" ", 3)[3]); say("wired attention backward", c)
        A.token_parts = lambda batch, keys: batch
        A.attend_backward = lambda grad, q, k, v, r, ls, into, sums: attn3.backward3(grad.view(r.view(q.shape).shape), q, k, v, r, ls, into, sums, **c)
    at = {k: v[0] for k, v in R.items() if k.startswith("attend S ") and v[1] < 1e-2}
    c = eval(min(at, key=at.get).split(" ", 2)[2]); say("wired attend", c)
    c = {**dict(BLOCK=64, REST=16, INNER=32, num_warps=4, num_stages=3), **c}
    def attend(q, k, v, result):
        b, n, h, d = q.shape; ls = torch.empty(b, h, n, device=q.device)
        A._attend[(triton.cdiv(n, c["BLOCK"]), b * h)](q, k, v, result, ls, *q.stride()[:2], *k.stride()[:2], h, n, k.shape[1], math.log2(math.e) / math.sqrt(d), DEPTH=d, **c)
        return ls
    A.attend = attend

def gradient_error():
    """Where the gradient error comes from: relative errors by kind of parameter, ours against timm's."""
    import bench_step_gpu as S
    from messi.core import gpu_kernels
    from messi.models.encoder import EncoderConfig
    for name, back in (("Ti", S.TINY), ("S", S.SMALL)):
        torch.manual_seed(0); enc = EncoderConfig(backbone=back, pretrained=False).build((3, 224, 224)).to(DEV)
        im = S.make_batch(32).inputs; w = torch.randn(32, enc.width, device=DEV); ps = list(enc.parameters())
        torch.backends.cuda.matmul.allow_tf32 = False; torch.backends.cudnn.allow_tf32 = False
        exact = torch.autograd.grad((enc.network(im) * w).sum(), ps)
        with torch.autocast("cuda", torch.bfloat16):
            a = enc(im)
            with gpu_kernels.disabled(): b = enc(im)
        ours, theirs = (torch.autograd.grad((t.float() * w).sum(), ps) for t in (a, b))
        tot = lambda gs: math.sqrt(sum(float((x - y).double().square().sum()) for x, y in zip(gs, exact)) / sum(float(y.double().square().sum()) for y in exact))
        R[f"gradient error {name}"] = (tot(ours), tot(theirs)); say(f"GRADIENT ERROR {name} ours {tot(ours):.4e} timm {tot(theirs):.4e} ratio {tot(ours)/tot(theirs):.3f}")

def warm():
    # Ti and S share attention kernels; compile the rest by first use.
    pass

def main():
    say(torch.cuda.get_device_name(), torch.__version__, triton.__version__)
    if not WARM: guard("steps old", steps, "old")
    guard("attention S", attention, "S", *SHAPES["S"])
    guard("between S", between, "S", 384)
    guard("between Ti", between, "Ti", 192)
    guard("attention Ti", attention, "Ti", *SHAPES["Ti"])
    if WARM: return
    guard("gradient", gradient_error)
    guard("wire", wire)
    guard("steps new", steps, "new")
    guard("gradient new", gradient_error)
    guard("wire", wire, True)
    guard("gradient 24 bits", gradient_error)
    guard("steps 24", steps, "new24")
    say("done")
main()
