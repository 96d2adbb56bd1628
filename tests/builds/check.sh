#!/usr/bin/env bash
# Builds on machines that lack something: check.sh FOLDER, from the root of the sources.
# Without OpenMP the package builds, says so, and runs on one thread; without integers of 128 bits,
# as with MSVC, it reads the same numbers from text. An nvcc that nobody asked for, and that does not
# work, is not run. Without a compiler the build says what to install.
set -euo pipefail
work=$1
compiler=$(command -v "${CC:-cc}")
mkdir -p "$work/bin" "$work/one-thread"
# a copy, because compiled objects stay beside the sources and would serve the next build
git clone -q . "$work/sources"
cd "$work/sources"

cat > "$work/bin/cc-without-openmp" <<SH
#!/bin/sh
speed=
for flag; do
    [ "\$flag" != -fopenmp ] || { echo "unrecognized option -fopenmp" >&2; exit 1; }
    # how fast kernels compute is of no interest here; what does not is compiled as ever
    case \$flag in *.c) ! grep -Eqs 'omp_|#pragma omp' "\$flag" || speed=-O0 ;; esac
done
exec "$compiler" "\$@" \$speed
SH
printf '#!/bin/sh\nexit 1\n' | tee "$work/bin/cc-broken" > "$work/bin/nvcc"
chmod +x "$work"/bin/*

PATH=$work/bin:$PATH CC="$work/bin/cc-without-openmp" CFLAGS=-DTFOPT_NO_INT128 pip install -v --no-deps --target "$work/one-thread" . \
    > "$work/log" 2>&1
grep -q "tfopt: the compiler has no OpenMP, so the kernels will run on one thread" "$work/log"
rm -rf build
(cd "$work" && PYTHONPATH="$work/one-thread" python - <<'PY')
import numpy as np
import tfopt

assert "one-thread" in tfopt.__file__, tfopt.__file__
assert not tfopt.threads.openmp()
tfopt.threads.set_num_threads(3)
var = np.zeros(100_000)
tfopt.training_ops.apply_gradient_descent(var, np.ones(100_000), alpha=0.5)
assert (var == -0.5).all()
assert tfopt.threads.get_num_threads() == 1, tfopt.threads.get_num_threads()
print("without OpenMP: one thread, right results")
PY
PYTHONPATH="$work/one-thread" pytest -q -p no:cacheprovider \
    tests/io/test_libsvm_kernel.py -k "decimals or doubles or ties"

if CC="$work/bin/cc-broken" pip install --no-deps --target "$work/none" . > "$work/log" 2>&1; then
    echo "a build without a compiler succeeded" >&2
    exit 1
fi
grep "tfopt needs a C compiler, and none works here: install one" "$work/log" | tail -n 1
