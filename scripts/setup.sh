#!/usr/bin/env bash
# Make .venv from requirements.lock. Does nothing when the lock and pyproject.toml have not changed.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
VENV=.venv
NEEDED_GB=${COATTAIL_NEEDED_GB:-6}

fail() { printf 'coattail: %s\n' "$*" >&2; exit 1; }

command -v git >/dev/null || fail "git is not installed; install it and run make again"
git rev-parse --git-dir >/dev/null 2>&1 || fail "this folder is not a git clone; coattail versions data and code together, so clone it with git"
command -v "$PYTHON" >/dev/null || fail "$PYTHON is not installed; install Python 3.11, or name one: make repro PYTHON=/path/to/python3.11"
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$version" != 3.11 ]; then
  command -v python3.11 >/dev/null || fail "Python 3.11 is needed (the lock is made for it), but $PYTHON is $version; name one: make repro PYTHON=/path/to/python3.11"
  PYTHON=python3.11
fi
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || fail "$PYTHON has no venv module; on Debian: apt-get install python3.11-venv"

stamp=$VENV/.coattail-$(cat requirements.lock pyproject.toml | cksum | tr -d ' ')
[ -f "$stamp" ] && exit 0

free_gb=$(( $(df -Pk . | awk 'NR == 2 {print $4}') / 1024 / 1024 ))
[ "$free_gb" -ge "$NEEDED_GB" ] || fail "only $free_gb GB free here, $NEEDED_GB GB are needed for the environment and the data; free some space and run make again"

echo "coattail: setting up $VENV with $("$PYTHON" --version) (a few minutes, once)"
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
install() {
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@" 2> >(grep -v '^WARNING: Location' >&2)
}
# pip unpacks on one core. Both halves of the lock, which without dependencies have nothing in common, are of about the same size.
install --no-deps --requirement <(grep '^[a-r]' requirements.lock) &
half=$!
install --no-deps --requirement <(grep '^[^a-r#]' requirements.lock) || { kill "$half" 2>/dev/null || true; fail "the packages of requirements.lock could not be installed"; }
wait "$half" || fail "the packages of requirements.lock could not be installed"
# With its own dependencies: torch's GPU builds bring libraries that the lock cannot name.
install --constraint requirements.lock "$(grep '^torch==' requirements.lock)"
install --no-deps --no-build-isolation --editable .
# Bytecode of what the pipeline opens, rather than of 40,000 files; what is opened later follows by itself. Also where
# PYTHONDONTWRITEBYTECODE is set, as images often do: each command would compile torch, numba and MLflow for itself.
unset PYTHONDONTWRITEBYTECODE
"$VENV/bin/python" -m compileall -q src stages
"$VENV/bin/python" -c 'import torch, torch.nn.functional, safetensors.torch, scipy.stats, matplotlib.backends.backend_agg, numba; numba.njit(lambda x: x)(1)' &
half=$!
"$VENV/bin/python" -c 'import dvc.cli, dvc.repo, dvc.commands.repro, networkx, git, dulwich.repo, mlflow.pyfunc, mlflow.store.tracking.sqlalchemy_store'
wait "$half"
rm -f "$VENV"/.coattail-*
touch "$stamp"
echo "coattail: $VENV is ready"
