#!/bin/sh
# Installs PufferLib 3.0.0 into the environment whose python is $1, without its games.
# Its setup.py cannot do that (with NO_OCEAN=1 a name stays undefined) and takes any nvcc on the path for a
# CUDA torch; both are worked round here. Its pins (numpy below 2, gymnasium 0.29) would shut Holdfast out,
# so everything is installed with --no-deps; the trainer runs with the newer versions.
set -eu
python=$(realpath -s "$1")
here=$(cd "$(dirname "$0")" && pwd)
url=https://files.pythonhosted.org/packages/7c/e1/5292f9b69c6263707b40ba04a87e6b9bcc177281d31092f77afd90c412f1/pufferlib-3.0.0.tar.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl --fail --silent --show-error --output "$work/pufferlib.tar.gz" "$url"
tar -xzf "$work/pufferlib.tar.gz" -C "$work"
sed -i 's/^c_extensions = \[\]$/c_extensions = []; c_extension_paths = []/' "$work/pufferlib-3.0.0/setup.py"
path=$(echo "$PATH" | tr ':' '\n' | while read -r d; do [ -x "$d/nvcc" ] || echo "$d"; done | paste -sd:)
"$python" -m pip install --quiet --no-deps -r "$here/requirements-puffer.txt"
cd "$work/pufferlib-3.0.0"
NO_OCEAN=1 PATH="$path" "$python" -m pip install --quiet --no-deps --no-build-isolation .
