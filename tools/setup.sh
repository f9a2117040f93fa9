#!/usr/bin/env bash
# Installs what building and testing Kvasir needs, and only what is missing. Debian 12 and 13.
#
#   tools/setup.sh            compiler, build tools and libraries (Debian packages)
#   tools/setup.sh --python   also .venv with the Python packages of the tests
#   tools/setup.sh --node     also Node.js and the `openai` client that one test drives
#   tools/setup.sh --lint     also clang-tidy
#   tools/setup.sh --neon     also a cross compiler for AArch64 and qemu, which runs what it builds
#   tools/setup.sh --peers    also .venv-peers: torch and transformers, which goldens are made with
#   tools/setup.sh --openvino also .venv-peers with OpenVINO GenAI, an engine to compare with
#   tools/setup.sh --all      --python and --node
set -euo pipefail
cd "$(dirname "$0")/.."

die() {
  echo "setup: $*" >&2
  exit 1
}

boost_version() {
  local id="" version=""
  if [[ -r /etc/os-release ]]; then
    id=$(. /etc/os-release && echo "${ID:-}")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  fi
  case "$id-$version" in
    debian-12) echo 1.81 ;;
    debian-13) echo 1.83 ;;
    *) return 1 ;;
  esac
}

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

as_root() {
  if [[ $EUID -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "these packages are missing and installing needs root: ${missing[*]}
       run as root: apt-get install ${missing[*]}"
  fi
}

# apt_install PACKAGE...: installs those that are absent.
apt_install() {
  missing=()
  local package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return
  echo "setup: installing ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq ||
    echo "setup: apt-get update failed, going on with the lists that are here" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

install_build_packages() {
  local boost
  boost=$(boost_version) ||
    die "this script knows Debian 12 and 13 only. Elsewhere install: GCC 12 or newer, CMake 3.25, Ninja,
       Boost 1.81 or newer (headers, json, url), fmt, spdlog, CLI11, prometheus-cpp, PCRE2, utf8proc, xxHash,
       GoogleTest; then: cmake --preset release && cmake --build --preset release"
  local packages=(
    "libboost$boost-dev" "libboost-json$boost-dev" "libboost-url$boost-dev"
    prometheus-cpp-dev libpcre2-dev libutf8proc-dev libxxhash-dev libfmt-dev libspdlog-dev libcli11-dev
    libgtest-dev libgmock-dev libbenchmark-dev
    g++ cmake ninja-build ccache curl
  )
  # Any Python 3.9 with pip and venv will do; Debian's is installed where there is none.
  python3 -c 'import ensurepip, venv' 2>/dev/null && python3 -m pip --version >/dev/null 2>&1 ||
    packages+=(python3 python3-venv python3-pip)
  apt_install "${packages[@]}"
}

# make_venv FOLDER REQUIREMENTS [STAMP]: quick when the list is the one installed before, a copy of which is the stamp.
make_venv() {
  local folder=$1 list=$2 stamp=${3:-installed.txt}
  cmp -s "$list" "$folder/$stamp" && return
  echo "setup: Python packages of $list into $folder"
  [[ -x "$folder/bin/python" ]] || python3 -m venv "$folder" || die "could not make $folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list" ||
    die "pip could not install $list into $folder"
  cp "$list" "$folder/$stamp"
}

install_node() {
  command -v node >/dev/null && command -v npm >/dev/null || apt_install nodejs npm
  local folder=tests/e2e/node
  cmp -s "$folder/package.json" "$folder/node_modules/installed.json" && return
  echo "setup: Node packages of $folder/package.json"
  (cd "$folder" && npm install --silent --no-audit --no-fund --no-package-lock) ||
    die "npm could not install $folder/package.json"
  cp "$folder/package.json" "$folder/node_modules/installed.json"
}

python=false node=false lint=false neon=false peers=false openvino=false
for argument in "$@"; do
  case "$argument" in
    --python) python=true ;;
    --node) node=true ;;
    --lint) lint=true ;;
    --neon) neon=true ;;
    --peers) peers=true ;;
    --openvino) openvino=true ;;
    --all) python=true node=true ;;
    *) die "unknown argument '$argument'; known: --python --node --lint --neon --peers --openvino --all" ;;
  esac
done

install_build_packages
if $python; then make_venv .venv tools/requirements-test.txt; fi
if $node; then install_node; fi
if $lint; then apt_install clang-tidy; fi
if $neon; then apt_install g++-aarch64-linux-gnu qemu-user googletest; fi
if $peers; then make_venv .venv-peers tools/requirements-peers.txt; fi
if $openvino; then make_venv .venv-peers tools/requirements-openvino.txt installed-openvino.txt; fi
