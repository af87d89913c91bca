#!/usr/bin/env bash
# The device tests of the CUDA backend with no device: what nvcc makes of the kernels, as PTX, is run by
# tests/cuda/ptx (its README).
#   scripts/cuda_ptx.sh ARCHITECTURE...       80, 90a; over few shapes, with WEIR_ALL_SHAPES=1 over all
# Each has a build folder of its own, build-ptx-ARCHITECTURE. A test that fails does not stop the others.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${WEIR_ALL_SHAPES:-}" ] || export WEIR_FEW_SHAPES=1
failed=()
for arch in "$@"; do
    build=build-ptx-$arch
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWEIR_CUDA_PTX="$arch" >/dev/null
    cmake --build "$build" --target cuda_device_tests
    mkdir -p "$build/cuda/logs"
    for t in "$build"/cuda/cuda_device_*; do
        name=${t##*/cuda_device_}
        log=$build/cuda/logs/$name.log
        start=$SECONDS
        if "$t" >"$log" 2>&1; then
            printf 'pass   %-4s %-32s %4d s\n' "$arch" "$name" $((SECONDS - start))
        else
            printf 'FAIL   %-4s %-32s %4d s  %s\n' "$arch" "$name" $((SECONDS - start)) "$log"
            grep -aA1 -E '^ptx:|FAILED|error' "$log" | tail -n 8 | sed 's/^/       | /' || true
            failed+=("$arch $name")
        fi
    done
done
[ ${#failed[@]} -eq 0 ]
