#!/usr/bin/env bash
# All that a machine with a GPU can say about the CUDA backend, in one go: the kernels' and models'
# tests on the device, the same under compute-sanitizer, and `weir bench` over models.
#   scripts/cuda_test.sh [--build DIR] [--no-sanitizer] [--seconds N] [MODEL.gguf ...]
# It compiles nothing: `make cuda-test` builds what it needs first, or a build made elsewhere is carried
# here (build/weir, build/libweir_cuda.so and build/cuda, which brings the libraries it needs). Logs are
# in DIR/cuda/logs, or in $OUT where that is set. A test that fails, or hangs, does not stop the others;
# the last lines say which failed, and the status is 1.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=build seconds=600 sanitize=1 models=()
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --no-sanitizer) sanitize=0 ;;
    -*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) models+=("$1") ;;
    esac
    shift
done
say() { echo "cuda_test: $*"; }
gpus=$(nvidia-smi --query-gpu=index,name,compute_cap,memory.total,driver_version \
    --format=csv,noheader 2>/dev/null) || gpus=
if [ -z "$gpus" ]; then
    say "there is no CUDA device here; the same tests run over the emulation by ctest" >&2
    exit 1
fi
shopt -s nullglob
tests=("$build"/cuda/cuda_device_*)
if [ ${#tests[@]} -eq 0 ]; then
    say "no tests were built in $build/cuda: make cuda-test builds them, where nvcc is" >&2
    exit 1
fi
logs=${OUT:-$build/cuda/logs}
mkdir -p "$logs"
build=$(realpath "$build") || exit
export LD_LIBRARY_PATH=$build/cuda/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
echo "$gpus" | sed 's/^/device /' | tee "$logs/devices.txt"

passed=0 failed=() skipped=()
# run NAME COMMAND...: one line; the log has the rest.
run() {
    local name=$1 log rc=0 start=$SECONDS
    log=$logs/${name// /-}.log
    shift
    timeout -k 10 "$seconds" "$@" >"$log" 2>&1 || rc=$?
    [ $rc -ne 137 ] || [ $((SECONDS - start)) -lt "$seconds" ] || rc=124 # it did not end when told to
    if [ $rc -eq 0 ]; then
        passed=$((passed + 1))
        printf 'pass   %-44s %4d s\n' "$name" $((SECONDS - start))
    elif [ $rc -eq 124 ] && [[ $name == *" memcheck" || $name == *" racecheck" ]]; then # ten times as slow
        skipped+=("$name: it was not over after $seconds s (--seconds)")
        printf 'slow   %-44s %4d s  %s\n' "$name" $((SECONDS - start)) "$log"
    else
        failed+=("$name")
        printf 'FAIL   %-44s %4d s  status %d, %s\n' "$name" $((SECONDS - start)) $rc "$log"
        [ $rc -ne 124 ] || echo "       | it was not over after $seconds s (--seconds)"
        grep -E 'FAILED|error|fail|=========' "$log" | tail -n 8 | sed 's/^/       | /'
    fi
}

for t in "${tests[@]}"; do
    [ -x "$t" ] && run "${t##*/cuda_device_}" "$t"
done

sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ $sanitize -eq 0 ]; then
    skipped+=("memcheck and racecheck: --no-sanitizer")
elif [ ! -x "$sanitizer" ]; then
    skipped+=("memcheck and racecheck: compute-sanitizer is not here")
else
    for t in "${tests[@]}"; do
        name=${t##*/cuda_device_}
        case $name in
        test_model) ;; # golden data says nothing about memory
        *) run "$name memcheck" "$sanitizer" --tool memcheck --error-exitcode 9 "$t" ;;
        esac
        case $name in
        test_model* | test_engine) ;; # their kernels are those of the others
        *) WEIR_FEW_SHAPES=1 run "$name racecheck" "$sanitizer" --tool racecheck --error-exitcode 9 "$t" ;;
        esac
    done
fi

# What docs/PERFORMANCE.md has of a machine: prefill and decode beside the device's own limits, of the
# models that were named; else of the built-in one, which is far too small to say anything about speed.
if [ ! -x "$build/weir" ] || [ ! -f "$build/libweir_cuda.so" ]; then
    skipped+=("weir bench: $build/weir or $build/libweir_cuda.so is not here")
else
    export WEIR_CUDA_PLUGIN=$build/libweir_cuda.so
    if [ ${#models[@]} -eq 0 ]; then
        models=(models/weir-nano.gguf)
        skipped+=("speeds that mean something: no model was named")
    fi
    run "weir devices" "$build/weir" devices
    for m in "${models[@]}"; do
        run "bench $(basename "$m" .gguf)" "$build/weir" bench -m "$m" --device cuda \
            --batch 1,8,64 --depth 0,1500
    done
    for m in "${models[@]}"; do
        printf '\n%s\n' "$(basename "$m")"
        sed 's/^/    /' "$logs/bench-$(basename "$m" .gguf).log"
    done
fi

# From how many names on the device finds cached blocks sooner than the host (src/backend/cuda/prefix_mirror.h).
if [ -x "$build/cuda/bench_prefix" ]; then
    run "bench prefix" "$build/cuda/bench_prefix"
    sed 's/^/    /' "$logs/bench-prefix.log"
fi

echo
say "$passed passed, ${#failed[@]} failed; logs in $logs"
for s in "${skipped[@]}"; do say "not run: $s"; done
for f in "${failed[@]}"; do say "FAILED: $f"; done
[ ${#failed[@]} -eq 0 ]
