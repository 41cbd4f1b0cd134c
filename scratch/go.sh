#!/bin/bash
# Twelve processes fill Triton's cache at once; then one process measures.
export PYTHONUNBUFFERED=1 CUBLAS_WORKSPACE_CONFIG=:4096:8 OUT=${OUT:-/tmp} PYTHONWARNINGS=ignore
for i in $(seq 0 11); do WARM=$i timeout 60 python3 scratch/go.py >/tmp/warm$i.log 2>&1 & done
wait
tail -qn 2 /tmp/warm*.log
timeout 130 python3 scratch/go.py 2>&1
