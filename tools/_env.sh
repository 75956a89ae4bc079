# Locate the repository and its python. The scripts in this folder source this file.
# Sets `root`, `python`, and `venv` (empty if the user sets VITNAS_PYTHON).

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
if [ -n "${VITNAS_PYTHON:-}" ]; then
    venv=
    python=$(command -v -- "$VITNAS_PYTHON") || {
        echo "VITNAS_PYTHON is '$VITNAS_PYTHON', which is not a program; name a python 3.10 to 3.12, or unset it" >&2
        exit 1
    }
    case $python in
        /*) ;;
        *) python=$PWD/$python ;;
    esac
else
    venv=$root/.venv
    python=$venv/bin/python
fi

# These variables, common in a shell, would put other packages before those of the environment, or install elsewhere.
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PIP_TARGET PIP_PREFIX
# Packages are installed without bytecode, which halves the installation time; their first import writes it.
unset PYTHONDONTWRITEBYTECODE
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
