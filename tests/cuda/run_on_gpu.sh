#!/usr/bin/env bash
# Builds, tests and times the CUDA path on a machine with an NVIDIA GPU, offline, in at most seven
# minutes: run_on_gpu.sh [FOLDER]. Needs nvcc of CUDA 13, unless TFOPT_CUDA_LIBRARY names a library
# that is built, and Python with numpy, cython, setuptools, pytest, pytest-xdist, hypothesis,
# ml_dtypes, torch and cupy; bitsandbytes is timed, too, if it is there. Logs and figures go to FOLDER,
# and what fails does not keep the rest from running. What checks results runs at the same time; what
# takes times runs alone, at the end. The time limits of the commands add up to seven minutes.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-build/gpu}")
mkdir -p "$out"
export PYTHONUNBUFFERED=1 HYPOTHESIS_PROFILE=gate
# each worker has a context of its own on the GPU
workers=$(($(nproc) / 3))
export PYTEST_ADDOPTS="-q -p no:cacheprovider -p no:benchmark --tb=short -n $workers"
failed=()
declare -A running=()

# NAME SECONDS COMMAND...: run a command, show its last lines, and note whether it failed.
step() {
    start "$@"
    finish
}

# The same in the background, until `finish`.
start() {
    local name=$1 seconds=$2
    shift 2
    timeout "$seconds" "$@" > "$out/$name.log" 2>&1 &
    running[$name]=$!
}

finish() {
    local name
    for name in "${!running[@]}"; do
        wait "${running[$name]}" || failed+=("$name")
        printf '\n==== %s, by %s s\n' "$name" "$SECONDS"
        tail -n 25 "$out/$name.log"
    done
    running=()
}

{
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader
    git rev-parse HEAD 2> /dev/null || true
    date -u +%F
} | tee "$out/gpu.log"
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)

cuda=1
[ -z "${TFOPT_CUDA_LIBRARY:-}" ] || cuda=0
step build 110 env TFOPT_CUDA=$cuda TFOPT_CUDA_ARCH="${TFOPT_CUDA_ARCH:-${capability:-90}}" \
    python3 setup.py -q build_ext --inplace
export PYTHONPATH=$PWD:$PWD/tests
step available 20 python3 -c 'import tfopt.cuda as c; print(c.why_not()); assert c.is_available()'

cd tests/cuda
start cupy_twin 150 env TFOPT_TEST_DEVICE=cupy python3 -m pytest test_cuda_twin.py
start cupy 150 env TFOPT_TEST_DEVICE=cupy python3 -m pytest . \
    --ignore=test_cuda_twin.py --ignore=test_cuda_ptx.py
# the same code as CuPy's but for a few lines: some rules, and all that is not about rules
start torch 150 env TFOPT_TEST_DEVICE=torch python3 -m pytest . \
    --ignore=test_cuda_ptx.py --ignore=test_cuda_programs.py --ignore=test_cuda_library.py \
    -k "not (test_bits or test_clipped or test_rows or test_refused) or adamax or ftrl or adam"
start selftest 60 python3 -m tfopt selftest --gpu
if command -v compute-sanitizer > /dev/null; then
    start sanitizer 150 compute-sanitizer --error-exitcode 9 python3 small.py
fi
finish
step programs 35 env TFOPT_TEST_DEVICE=torch python3 programs.py --json "$out/programs.json"
step bench 85 python3 bench.py --json "$out/bench.json"
printf '\n%s s; failed: %s\n' "$SECONDS" "${failed[*]:-none}"
[ ${#failed[@]} = 0 ]
