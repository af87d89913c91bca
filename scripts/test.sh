#!/usr/bin/env bash
# Run every test against one build folder: scripts/test.sh [build]. Sanitized, those that take
# longest run over few shapes; over all with WEIR_ALL_SHAPES=1.
# Unit tests and simulations through ctest; golden files, server and hostile input through pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
export WEIR_BIN=$PWD/$build/weir WEIR_FAKE_APP=$PWD/$build/tests/http/fake_app
[ -z "${WEIR_FIXTURES:-}" ] && [ -d ../shared/fixtures ] && export WEIR_FIXTURES=$PWD/../shared/fixtures
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=0:abort_on_error=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1:abort_on_error=1}
unset WEIR_FEW_SHAPES # tests/few.h
[[ $build != *san ]] || export WEIR_SANITIZED=1 # patience: tests/http
[[ $build != *san ]] || [ -n "${WEIR_ALL_SHAPES:-}" ] || export WEIR_FEW_SHAPES=1
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:abort_on_error=1:second_deadlock_stack=1}

/usr/bin/python3 tests/include_graph.py
exec 3< <(scripts/client.sh) # beside the tests in C: it mostly waits for the network
ctest --test-dir "$build" --output-on-failure -j 3 3<&-
read -r python <&3
exec 3<&-
"$python" -m pytest -q -n 3 --dist loadfile tests
