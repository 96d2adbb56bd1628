#!/usr/bin/env bash
# Builds a wheel for 64-bit ARM and runs its self-test under emulation: aarch64.sh FOLDER [COMPILER...],
# from the root of the sources, on Debian with its Python. It needs the packages gcc-aarch64-linux-gnu
# and qemu-user-static, and downloads Debian's Python for ARM into the folder. Another compiler, such
# as "python -m ziglang cc -target aarch64-linux-gnu", takes the place of GCC.
set -euo pipefail
work=$(realpath -m "$1")
shift
compiler=${*:-aarch64-linux-gnu-gcc}
root=$work/root site=$work/site
mkdir -p "$work"/apt/{lists,archives}/partial "$work/config" "$root" "$site"

echo "== Debian's Python for ARM"
options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::lists="$work/apt/lists"
    -o Dir::Cache::archives="$work/apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
python=python3.$(/usr/bin/python3 -c "import sys; print(sys.version_info.minor)")
if [ ! -e "$root/usr/bin/$python" ]; then
    apt-get -q=2 "${options[@]}" update
    apt-get -q=2 "${options[@]}" install --download-only -y --no-install-recommends "lib$python-dev" \
        "$python-minimal" "lib$python-stdlib" libgomp1 libstdc++6
    for package in "$work"/apt/archives/*.deb; do dpkg -x "$package" "$root"; done
fi
run=(qemu-aarch64-static -L "$root" -E "PYTHONHOME=$root/usr" -E "PYTHONPATH=$site"
    -E "LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu" "$root/usr/bin/$python")
"${run[@]}" -c "import platform; print(platform.platform())"

echo "== NumPy for ARM"
tags=$("${run[@]}" -c "import sys; print(f'cp{sys.version_info[0]}{sys.version_info[1]}')")
[ -d "$site/numpy" ] || pip install -q --target "$site" --only-binary :all: --implementation cp \
    --python-version "${tags:2}" --abi "$tags" \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
    --platform manylinux2014_aarch64 numpy ml_dtypes

echo "== tfopt for ARM, compiled by $compiler"
rm -rf "$work/sources" "$work/wheels" "$site"/tfopt*
git clone -q . "$work/sources"
cp "$root"/usr/lib/"$python"/_sysconfigdata__aarch64-linux-gnu.py "$work/config"
include=$root/usr/include
(
    cd "$work/sources"
    export _PYTHON_HOST_PLATFORM=linux-aarch64 _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__aarch64-linux-gnu
    export PYTHONPATH=$work/config CC=$compiler LDSHARED="$compiler -shared"
    export CFLAGS="-O3 -fwrapv -I$include -I$include/$python -I$site/numpy/_core/include"
    python setup.py -q bdist_wheel --dist-dir "$work/wheels" > "$work/log" 2>&1 ||
        { tail -n 40 "$work/log"; exit 1; }
)
grep "^tfopt: " "$work/log" || true
ls -l "$work/wheels"
python -m zipfile -e "$work"/wheels/tfopt-*aarch64.whl "$site"

echo "== its self-test"
cd "$work"
"${run[@]}" -m tfopt info
"${run[@]}" -m tfopt selftest
