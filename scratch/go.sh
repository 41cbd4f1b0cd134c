export PYTHONPATH=$PYTHONPATH:benchmarks
mkdir -p "$OUT"
timeout 115 python -u scratch/go.py 2>&1 | tee "$OUT/moe.txt"
