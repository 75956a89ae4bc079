#!/usr/bin/env bash
# Set up the environment: .venv beside the code or, if VITNAS_PYTHON names a python, the environment of that python.
#
# From scratch it takes 3 to 4 minutes on 2 cores, mostly to compile mmcv's operators. The compiled wheel stays in
# ${VITNAS_CACHE:-${XDG_CACHE_HOME:-~/.cache}/vitnas}, so the next set-up takes about a minute.
# The script keeps a torch that pyproject.toml allows and an mmcv whose operators load. In an environment of
# VITNAS_PYTHON, it keeps every other package that pyproject.toml allows.
# You can interrupt it and run it again at any time. With --again, it checks everything even if the last run succeeded.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
cd "$root"
case "$*" in
    '' | --again) again=$* ;;
    *)
        echo "usage: setup.sh [--again], but got: $*" >&2
        exit 2
        ;;
esac
step='starting' tmp='' fetch='' build='' SECONDS=0

say() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }
die() {
    printf 'set-up: %s\n' "$*" >&2
    step=
    exit 1
}
begin() {
    step=$1
    say "$*"
}
finish() {
    local code=$?
    for job in $fetch $build; do kill -TERM -- "-$job" 2>/dev/null || true; done
    if [ -n "$tmp" ]; then rm -rf "$tmp"; fi
    if [ "$code" != 0 ] && [ -n "$step" ]; then
        echo "set-up: stopped after $SECONDS s while $step; run it again to go on from there" >&2
    fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
pip() { "$python" -m pip "$1" -q "${@:2}"; }
install() { pip install ${venv:+--no-compile} -c "$constraints" "$@"; }
# Run a command in the background, in its own process group so that it can be stopped with all its children.
background() { # LOG COMMAND...
    set -m
    "${@:2}" </dev/null >"$1" 2>&1 &
    set +m
}
in_range='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))'

# ---- Nothing to do? (Do not import torch here. A set-up writes the stamp last.)
if [ -n "$venv" ]; then
    prefix=$venv
else
    prefix=$("$python" -c "import sys; print(sys.prefix); $in_range" 2>/dev/null) && [ -d "$prefix" ] ||
        die "VITNAS_PYTHON is $python, which is no python 3.10, 3.11 or 3.12 (it says: $("$python" -V 2>&1 || true))"
fi
stamp=$prefix/.vitnas-setup
busy=$prefix/.vitnas-installing
wanted=$(
    echo "$root $prefix"
    cat pyproject.toml requirements/tested.txt tools/setup.sh tools/build_mmcv.sh | cksum
)
leave_if_ready() {
    if [ -z "$again" ] && [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        echo "vitnas is set up in $prefix"
        exit 0
    fi
}
leave_if_ready

# ---- One set-up per clone at a time. Children hold the lock too, so this waits for anything a killed set-up left running.
exec 9<"$root/pyproject.toml"
if command -v flock >/dev/null && ! flock -n 9; then
    say 'waiting for another set-up of this clone to end'
    flock 9 || true # a file system without locks
fi
leave_if_ready
rm -f "$stamp"
tmp=$(mktemp -d)

# ---- The virtual environment
if [ -n "$venv" ]; then
    # pip's script names the folder of its environment, so an incomplete or moved environment fails this check.
    whole() { grep -qsF "$venv/bin/" "$venv/bin/pip" && "$python" -c "$in_range" && "$python" -m pip -V >/dev/null 2>&1; }
    if [ -e "$venv" ] && [ ! -e "$venv/.vitnas-made" ]; then
        whole || die "$venv was not made by this script and has no pip or no python 3.10 to 3.12: remove it, or set VITNAS_PYTHON"
    elif ! whole; then
        base=
        for name in python3 python python3.11 python3.12 python3.10; do
            if "$name" -c "import ensurepip, venv; $in_range" 2>/dev/null; then
                base=$(command -v "$name")
                break
            fi
        done
        [ -n "$base" ] || die 'no python 3.10, 3.11 or 3.12 with the venv module was found (python3 is' \
            "$(python3 -V 2>&1 || true)); install one (Debian: apt install python3-venv), or set VITNAS_PYTHON"
        begin 'making .venv' "with $("$base" -V) (5 s)"
        rm -rf "$venv"
        mkdir "$venv"
        touch "$venv/.vitnas-made"
        "$base" -m venv "$venv"
    fi
fi

# An interrupted installation leaves packages without their file list (RECORD), which pip writes last.
if [ -e "$busy" ]; then
    begin 'removing the remains of an interrupted installation'
    for site in "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
        "$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"; do
        find "$site" -maxdepth 1 -name '~*' -cnewer "$busy" -exec rm -rf {} +
        find "$site" -maxdepth 1 -name '*.dist-info' -cnewer "$busy" ! -exec test -e {}/RECORD \; -exec rm -rf {} +
    done
fi
touch "$busy"

# ---- What to install: everything in pyproject.toml except mmcv, and the versions to pin
plan() {
    "$python" - "$tmp" "${venv:+own}" <<'P'
import sys
from importlib.metadata import distributions
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name as canonical

try:
    import tomllib
except ImportError:  # python 3.10
    from pip._vendor import tomli as tomllib

out, own = Path(sys.argv[1]), sys.argv[2] == 'own'
project = tomllib.loads(Path('pyproject.toml').read_text())['project']
extras = project['optional-dependencies']
lines = project['dependencies'] + extras['test'] + extras['dev']
declared = {canonical(r.name): r for r in map(Requirement, lines) if r.name != project['name']}
installed = {canonical(d.metadata['Name']): d.version for d in distributions() if d.metadata['Name']}


def fits(name):
    return name in installed and declared[name].specifier.contains(installed[name], prereleases=True)


tested = {}
for line in Path('requirements/tested.txt').read_text().splitlines():
    if line and not line.startswith('#'):
        tested[canonical(Requirement(line).name)] = line
torch_tested = Requirement(tested['torch']).specifier.contains(installed.get('torch', '0'))
if fits('torch'):
    tested['torch'] = f'torch=={installed["torch"]}'
    if not torch_tested or 'torchvision' in installed:
        tested.pop('torchvision')  # keep the installed one, or take the one that this torch requires
if not own:
    tested = {name: line for name, line in tested.items() if name == 'torch' or name not in installed}
(out / 'constraints.txt').write_text(''.join(f'{line}\n' for line in tested.values()))
(out / 'rest.txt').write_text(''.join(f'{r}\n' for name, r in declared.items() if name != 'mmcv'))
# Fetch these while torch installs: the locked packages, without those that are installed or come with torch.
first = {'torch', 'numpy', 'setuptools', 'wheel', 'ninja', 'psutil', 'mmcv'}
later = {n: line for n, line in tested.items() if n not in first and Requirement(line).specifier != f'=={installed.get(n)}'}
(out / 'fetch.txt').write_text(''.join(f'{line}\n' for line in later.values()))
print(declared['mmcv'].specifier)
P
}
mmcv_range=$(plan)
mmcv_version=$(sed -n 's/^mmcv==\([0-9.]*\).*/\1/p' requirements/tested.txt)
constraints=$tmp/constraints.txt

# ---- torch first, because mmcv compiles against it
begin 'installing torch' 'and the build tools, if missing (20 to 40 s)'
if [ -n "$venv" ] && [ -s "$tmp/fetch.txt" ]; then
    background "$tmp/fetch.log" "$python" -m pip download -q --no-deps --only-binary :all: -d "$tmp/wheels" -r "$tmp/fetch.txt"
    fetch=$!
fi
install 'torch>=2.6' numpy setuptools wheel ${venv:+ninja psutil}

# ---- mmcv: the installed one, a cached wheel for this python and torch, or a new build
mmcv_state() { # prints "present" or "missing", then cpu or cuda, then the key of the cache
    "$python" - "$mmcv_range" <<'P'
import os
import shutil
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from pip._vendor.packaging.specifiers import SpecifierSet

sys.path.insert(0, 'tools')
from doctor import load_operators

try:
    present = SpecifierSet(sys.argv[1]).contains(version('mmcv')) and bool(load_operators())
except (PackageNotFoundError, ImportError):
    present = False
nvcc = shutil.which('nvcc') or (Path(os.getenv('CUDA_HOME', 'none')) / 'bin/nvcc').exists()
gpu = torch.version.cuda and (torch.cuda.is_available() or os.getenv('FORCE_CUDA') == '1')
kind = 'cuda' if gpu and nvcc else 'cpu'
key = f'cp{sys.version_info[0]}{sys.version_info[1]}-{sysconfig.get_platform()}-torch{torch.__version__}-{kind}'
print('present' if present else 'missing', kind, key)
if gpu and not nvcc and not present:
    print('torch sees a GPU, but there is no nvcc: this build of mmcv runs its operators on the CPU only', file=sys.stderr)
P
}
state=$(mmcv_state)
read -r mmcv kind key <<<"$state"
wheels=${VITNAS_CACHE:-${XDG_CACHE_HOME:-${HOME:-$prefix}/.cache}/vitnas}/wheels/$key
cached_wheel() { find "$wheels" -name "mmcv-$mmcv_version-*.whl" 2>/dev/null | head -n 1; }

log=$prefix/mmcv-build.log
if [ "$mmcv" = missing ] && [ -z "$(cached_wheel)" ]; then
    command -v "${CXX:-c++}" >/dev/null || die "mmcv must be compiled and there is no C++ compiler (${CXX:-c++});" \
        'install one (Debian: apt install build-essential), or name it in CXX'
    "$python" -c 'import os, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
        die "mmcv must be compiled and $("$python" -V) has no header files; install them (Debian: apt install python3-dev)"
    if ! mkdir -p "$wheels" 2>/dev/null || [ ! -w "$wheels" ]; then
        say "$wheels is not writable, so the wheel stays in $prefix"
        wheels=$prefix/wheels/$key
    fi
    if [ -z "$venv" ]; then install 'setuptools<80' wheel ninja psutil; fi
    if [ "$kind" = cuda ]; then long='20 minutes or more'; else long='1 to 2 min on 2 cores'; fi
    say "compiling mmcv $mmcv_version for $key in the background ($long)"
    # The build imports torch, numpy and setuptools. They are installed and pinned by the constraints, so the parallel
    # installation does not touch them.
    background "$log" bash tools/build_mmcv.sh "$python" "$mmcv_version" "$kind" "$wheels"
    build=$!
fi

begin 'installing the other packages' '(30 to 60 s)'
fetched=
if [ -n "$fetch" ]; then
    if wait "$fetch"; then
        fetched=yes
    else
        say "could not fetch packages in advance, so fetching them now: $(tail -n 1 "$tmp/fetch.log")"
    fi
    fetch=
fi
# Install offline from the fetched files. These may be incomplete, because the lock does not pin every package.
if [ -z "$fetched" ] || ! install --no-index --find-links "$tmp/wheels" -r "$tmp/rest.txt" 2>"$tmp/offline.log"; then
    install -r "$tmp/rest.txt"
fi

if [ -n "$build" ]; then
    begin 'waiting for mmcv to be compiled'
    code=0
    wait "$build" || code=$?
    build=
    if [ "$code" != 0 ]; then
        tail -n 25 "$log" >&2
        die "mmcv could not be compiled (exit code $code); see $log for the full output"
    fi
fi
if [ "$mmcv" = missing ]; then
    wheel=$(cached_wheel)
    begin 'installing mmcv' "from $wheel"
    pip uninstall -y mmcv-lite mmcv 2>/dev/null # both write the same folder
    install --no-deps "$wheel"
    case $(mmcv_state) in
        present*) ;;
        *) die "the operators of $wheel do not load; remove the file and run the set-up again" ;;
    esac
fi

begin 'installing vitnas' 'itself, editable (5 s)'
install --no-build-isolation -e '.[dev]'

# mmengine asks for opencv-python; a machine without libGL has opencv-python-headless. Both write the same folder.
both=$("$python" -m pip list --format=freeze 2>/dev/null | grep -E '^opencv-python(-headless)?==' || true)
if [ "$(wc -l <<<"$both")" -gt 1 ]; then
    headless=$(grep headless <<<"$both")
    begin 'removing opencv-python' "beside $headless"
    pip uninstall -y opencv-python opencv-python-headless
    install --no-deps "$headless"
fi
rm -f "$busy"

begin 'looking for problems' '(tools/doctor.py, 10 s)'
if "$python" tools/doctor.py --quiet; then
    echo "$wanted" >"$stamp.part"
    mv -f "$stamp.part" "$stamp"
else
    echo 'set-up: everything is installed, but some parts will not work; see the fixes above' >&2
fi
say "done, $((SECONDS / 60)) min $((SECONDS % 60)) s"
if [ -n "$venv" ]; then echo 'Next: bash tools/quickstart.sh'; else echo "Next: VITNAS_PYTHON=$python bash tools/quickstart.sh"; fi
