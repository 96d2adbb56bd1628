#!/usr/bin/env bash
# The source archive, and the wheel that is built from it: archive.sh FOLDER, from the root of a clone.
# The archive has the files of the clone, and no others. Unpacked in another folder it gives the
# same wheel as the clone, byte for byte, and that wheel is left in FOLDER/wheels.
set -euo pipefail
work=$1
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
mkdir -p "$work"
git clone -q . "$work/clone"    # what has been built beside the sources would serve the next build
cd "$work/clone"

python -m build --sdist --outdir "$work/archive" . > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
tar -xzf "$work"/archive/tfopt-*.tar.gz -C "$work"
unpacked=$(echo "$work"/tfopt-*)
git ls-files | grep -v '^\.gitignore$' | sort > "$work/expected"
(cd "$unpacked" && find . -type f -printf '%P\n') |
    grep -Ev '^(PKG-INFO|setup\.cfg|tfopt\.egg-info/.*)$' | sort > "$work/found"
diff "$work/expected" "$work/found"

for sources in . "$unpacked"; do
    pip wheel -q --no-deps -w "$work/$([ "$sources" = . ] && echo wheels || echo again)" "$sources"
done
cmp "$work"/wheels/tfopt-*.whl "$work"/again/tfopt-*.whl
echo "the archive has the $(wc -l < "$work/expected") files of the clone; both give the same wheel"
