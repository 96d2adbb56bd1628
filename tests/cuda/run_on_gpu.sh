#!/usr/bin/env bash
# Builds, tests and times the CUDA path on a machine with an NVIDIA GPU, offline, in under eight
# minutes: run_on_gpu.sh [FOLDER]. Needs nvcc, Python with numpy, cython, setuptools, pytest,
# hypothesis, ml_dtypes, torch and cupy. The figures go to FOLDER; what fails does not keep the rest
# from running.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-build/gpu}")
mkdir -p "$out"
export PYTHONUNBUFFERED=1 HYPOTHESIS_PROFILE=gate
failed=()

step() {
    local name=$1 seconds=$2
    shift 2
    printf '\n==== %s (%s s so far)\n' "$name" "$SECONDS"
    timeout "$seconds" "$@" 2>&1 | tee "$out/$name.log" || failed+=("$name")
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/gpu.log"
step build 240 env TFOPT_CUDA=1 TFOPT_CUDA_ARCH="${TFOPT_CUDA_ARCH:-90}" \
    python3 setup.py -q build_ext --inplace
export PYTHONPATH=$PWD
step available 60 python3 -c 'import tfopt.cuda as c; print(c.why_not()); assert c.is_available()'
cd tests
step cupy 150 env TFOPT_TEST_DEVICE=cupy python3 -m pytest -q -x --deselect cuda/test_cuda_ptx.py cuda
step torch 100 env TFOPT_TEST_DEVICE=torch python3 -m pytest -q -x cuda/test_cuda_twin.py \
    cuda/test_cuda_clip.py cuda/test_cuda_clip_refusals.py cuda/test_cuda_clipped_updates.py \
    cuda/test_cuda_optimizers.py \
    -k "not (test_bits or test_clipped) or adamax or ftrl"
cd cuda
export PYTHONPATH=$PYTHONPATH:$PWD/..
if command -v compute-sanitizer > /dev/null; then
    step sanitizer 100 compute-sanitizer --error-exitcode 9 python3 small.py
fi
step bench 120 python3 bench.py --json "$out/bench.json"
printf '\n%s s; failed: %s\n' "$SECONDS" "${failed[*]:-none}"
[ ${#failed[@]} = 0 ]
