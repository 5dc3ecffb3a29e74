#!/bin/sh
# Installs PufferLib 3.0.0 into the environment whose python is $1, without its games.
# Its setup.py cannot do that (with NO_OCEAN=1 the name c_extension_paths stays undefined, so it is given as a
# builtin) and takes any nvcc on the path for a CUDA torch; both are worked round here. Its pins (numpy below 2,
# gymnasium 0.29) would shut Holdfast out, so everything is installed with --no-deps; the trainer runs with the newer
# versions.
set -eu
python=$(realpath -s "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "import builtins; builtins.c_extension_paths = []" > "$work/sitecustomize.py"
path=$(echo "$PATH" | tr ':' '\n' | while read -r d; do [ -x "$d/nvcc" ] || echo "$d"; done | paste -sd:)
"$python" -m pip install --quiet --no-deps -r "$here/requirements-puffer.txt"
NO_OCEAN=1 PATH="$path" PYTHONPATH="$work" "$python" -m pip install --quiet --no-deps --no-build-isolation \
	--no-binary pufferlib pufferlib==3.0.0
