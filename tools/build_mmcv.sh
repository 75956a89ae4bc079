#!/usr/bin/env bash
# Build mmcv's wheel with its operators, then move the finished file to OUTDIR in one step.
# usage: build_mmcv.sh PYTHON VERSION cpu|cuda OUTDIR
# PYTHON's environment needs torch, numpy, setuptools<80, wheel, ninja and psutil.
set -euo pipefail
python=$1 version=$2 kind=$3 out=$4

tmp=$(mktemp -d)
part=
trap 'rm -rf "$tmp" ${part:+"$part"}' EXIT
trap 'exit 143' HUP INT TERM
cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
export MMCV_WITH_OPS=1 MAX_JOBS="${MAX_JOBS:-$((cores < 8 ? cores : 8))}" # a compiler takes 2.2 GB; set MAX_JOBS=1 if memory is short

if [ "$kind" = cuda ]; then
    # The plain build. Untested: the authors had no GPU. No pip cache, because its key lacks torch's version.
    FORCE_CUDA=1 "$python" -m pip wheel -q --no-cache-dir --no-build-isolation --no-deps --no-binary mmcv \
        -w "$tmp/wheel" "mmcv==$version"
else
    "$python" -m pip download -q --no-build-isolation --no-deps --no-binary mmcv -d "$tmp" "mmcv==$version"
    mkdir "$tmp/source" # not mmcv-$version: pip would cache the wheel of a folder with that name
    tar -xzf "$tmp/mmcv-$version.tar.gz" -C "$tmp/source" --strip-components=1
    cd "$tmp/source"
    # torch's headers take nearly all of the compile time. So merge the 77 files into two, which build ten times faster.
    "$python" - <<'P'
from pathlib import Path


def merge(folder, last, renamed):
    files = sorted(folder.glob('*.cpp'), key=lambda file: (file.name == last, file.name))
    (folder / 'merged').mkdir()
    lines = []
    for file in files:
        file.rename(folder / 'merged' / file.name)
        names = renamed.get(file.stem, ())
        lines += [f'#define {name} {file.stem}_{name}' for name in names]
        lines += [f'#include "merged/{file.name}"']
        lines += [f'#undef {name}' for name in names]
    (folder / 'merged.cpp').write_text('\n'.join(lines) + '\n')


base = Path('mmcv/ops/csrc/pytorch')
merge(base, last='pybind.cpp', renamed={})
# Helpers that roi_align.cpp defines too; psamask.cpp is last because it defines the macros min and max.
align = ('PreCalc', 'pre_calc_for_bilinear_interpolate', 'bilinear_interpolate_gradient', 'add')
feature = ('bilinear_interpolate', 'bilinear_interpolate_gradient', 'valueAdd')
renamed = {'bezier_align': align, 'roi_align_rotated': align, 'rotated_feature_align': feature}
merge(base / 'cpu', last='psamask.cpp', renamed=renamed)
P
    # Hide GPUs: if torch sees one, mmcv asks for nvcc.
    CUDA_VISIBLE_DEVICES='' FORCE_CUDA=0 CFLAGS='-g0 -O1' \
        "$python" -m pip wheel -q --no-build-isolation --no-deps -w "$tmp/wheel" .
fi

mkdir -p "$out"
wheel=$(basename "$tmp"/wheel/mmcv-*.whl)
part=$out/.$wheel.$$
cp "$tmp/wheel/$wheel" "$part"
mv -f "$part" "$out/$wheel"
