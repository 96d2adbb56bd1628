#!/usr/bin/env bash
# Builds tfopt for musl, the C library of Alpine, and runs its self-test and a sample of the tests:
# musl.sh FOLDER, from the root of the sources, on Debian with GCC and the package musl-tools of
# Debian 13 or later (NumPy's wheels need musl 1.2.4). Python, zlib, libffi and GCC's OpenMP library
# are built from Debian's sources, for Debian has none for musl; NumPy and pytest have wheels.
set -euo pipefail
work=$(realpath -m "$1")
root=$work/root site=$work/site
minor=$(/usr/bin/python3 -c "import sys; print(sys.version_info.minor)")
python=$root/bin/python3.$minor
mkdir -p "$work"/{bin,debian,lists/partial} "$root/lib" "$site"
logged() { "$@" > "$work/log" 2>&1 || { tail -n 40 "$work/log" && exit 1; }; }

echo "== Debian's sources"
sources() { find . -maxdepth 1 -name "$1_*.orig.tar.*" ! -name "*.asc"; }
unpack() { mkdir -p "$1" && tar -xf "$(sources "$2")" -C "$1" --strip-components 1; }
if [ ! -e "$work/debian/gcc" ]; then
    sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$work/debian.sources"
    options=(-o Dir::Etc::SourceList="$work/debian.sources" -o Dir::Etc::SourceParts=-
        -o Dir::State::lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o APT::Sandbox::User=root)
    gcc=gcc-$(gcc -dumpversion)
    (
        cd "$work/debian"
        logged apt-get "${options[@]}" update
        logged apt-get "${options[@]}" source --tar-only "python3.$minor" zlib libffi "$gcc"
        unpack python "python3.$minor" && unpack zlib zlib && unpack libffi libffi
        # of an archive in the archive, what its OpenMP library is built from
        tar -xOf "$(sources "$gcc")" --wildcards "*/gcc-*.tar.xz" > gcc.tar.xz
        mkdir gcc.part
        tar -xf gcc.tar.xz -C gcc.part --strip-components 1 --no-wildcards-match-slash --wildcards \
            "*/"{libgomp,config,include} "*/"{config.guess,config.sub,config-ml.in} \
            "*/"{compile,depcomp,install-sh,ltmain.sh,missing,mkinstalldirs} "*/gcc/"{BASE-VER,DATESTAMP}
        mv gcc.part gcc
    )
fi

echo "== Python and GCC's OpenMP library for musl"
# to this question musl-gcc has GCC's answer, and Python would add the headers of that C library
cat > "$work/bin/cc" <<'CC'
#!/bin/sh
case $* in *-print-multiarch) echo x86_64-linux-musl ;; *) exec musl-gcc "$@" ;; esac
CC
chmod +x "$work/bin/cc"
build() { logged ./configure --prefix="$root" "$@" && logged make -s -j"$(nproc)" install; }
if [ ! -e "$python" ]; then
    export CC=$work/bin/cc CFLAGS="-O2 -fPIC"
    (cd "$work/debian/zlib" && build --static)
    (cd "$work/debian/libffi" && build --disable-shared --disable-docs \
        --disable-multi-os-directory --disable-exec-static-tramp)
    mkdir -p "$work/debian/gcc/built"
    (
        cd "$work/debian/gcc/built"
        logged ../libgomp/configure --disable-multilib
        logged make -s -j"$(nproc)" MAKEINFO=true
        cp -P .libs/libgomp.so* "$root/lib"
    )
    # threads have a stack of 128 KB otherwise, too small for Python's own tests; Alpine does the same
    export CFLAGS="-DTHREAD_STACK_SIZE=0x100000" PKG_CONFIG_LIBDIR=$root/lib/pkgconfig
    export CPPFLAGS="-I$root/include" LDFLAGS="-L$root/lib"
    (cd "$work/debian/python" && build --without-ensurepip --disable-test-modules)
    unset CC CFLAGS CPPFLAGS LDFLAGS PKG_CONFIG_LIBDIR
fi
"$python" -c "import ctypes, platform, zlib; print(platform.platform())"

echo "== NumPy, ml_dtypes and pytest for musl"
if [ ! -d "$site/numpy" ]; then
    pip install -q --target "$site" --only-binary :all: --implementation cp \
        --python-version "3$minor" --platform musllinux_1_2_x86_64 \
        numpy scipy pandas safetensors fsspec threadpoolctl pytest "hypothesis<6.140" \
        "cython>=3.2" "setuptools>=77"
fi
if [ ! -d "$site/ml_dtypes" ]; then # which has no wheel, and is C++, for which musl-gcc has no library
    python -m venv "$work/tools"
    "$work/tools/bin/pip" install -q ziglang
    pip download -q --no-deps --no-binary ml_dtypes -d "$work" ml_dtypes
    mkdir -p "$work/ml_dtypes"
    tar -xzf "$work"/ml_dtypes-*.tar.gz -C "$work/ml_dtypes" --strip-components 1
    (
        cd "$work/ml_dtypes"
        logged "$work/tools/bin/python" -m ziglang c++ -target x86_64-linux-musl -dynamic -shared \
            -fPIC -fvisibility=hidden -ftrapping-math -O1 -std=c++17 -w -DEIGEN_MPL2_ONLY -I. \
            -Ithird_party/eigen -I"$root/include/python3.$minor" -I"$site/numpy/_core/include" \
            ml_dtypes/_src/*.cc -o ml_dtypes/_ml_dtypes_ext.so
        cp -r ml_dtypes "$site"
    )
fi

echo "== tfopt for musl"
rm -rf "$work/sources"
git clone -q . "$work/sources"
cd "$work/sources"
export PYTHONPATH=$work/sources:$site
logged env LDFLAGS="-L$root/lib -Wl,-rpath,$root/lib" "$python" setup.py -q egg_info build_ext --inplace
grep "^tfopt: " "$work/log" || true

echo "== its self-test and a sample of the tests"
"$python" -m tfopt info
"$python" -m tfopt selftest
tests=("$python" -m pytest -q --sample -p no:cacheprovider tests/{rules,optimizers,clip,autodiff,linear})
"${tests[@]}" --collect-only > "$work/collected" || true # fails where modules are missing
mapfile -t lacking < <(sed -n 's/^ERROR //p' "$work/collected")
missing=$(grep -c "^E .*No module named 'sklearn'" "$work/collected")
[ "$missing" -eq "${#lacking[@]}" ] || { tail -n 60 "$work/collected" && exit 1; }
echo "not run without scikit-learn, which has no wheel for musl:" "${lacking[@]}"
"${tests[@]}" "${lacking[@]/#/--ignore=}"
