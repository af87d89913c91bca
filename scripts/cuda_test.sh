#!/usr/bin/env bash
# The tests of the CUDA kernels on a real device, each by itself and then under compute-sanitizer.
#   scripts/cuda_test.sh [build]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
if ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
    echo "cuda_test: there is no CUDA device here; the same tests run over the emulation by ctest" >&2
    exit 1
fi
nvidia-smi -L
sanitizer=$(command -v compute-sanitizer || true)
[ -n "$sanitizer" ] || [ ! -x /usr/local/cuda/bin/compute-sanitizer ] ||
    sanitizer=/usr/local/cuda/bin/compute-sanitizer
ran=0
for t in "$build"/cuda/cuda_device_*; do
    [ -x "$t" ] || continue
    ran=$((ran + 1))
    echo "== $t"
    "$t"
    if [ -n "$sanitizer" ]; then
        "$sanitizer" --tool memcheck --error-exitcode 9 "$t"
        "$sanitizer" --tool racecheck --error-exitcode 9 "$t"
    fi
done
[ -n "$sanitizer" ] || echo "cuda_test: compute-sanitizer is not here; memcheck and racecheck did not run"
[ $ran -gt 0 ] || { echo "cuda_test: no tests were built in $build/cuda" >&2; exit 1; }
