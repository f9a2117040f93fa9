#!/usr/bin/env bash
# Builds llama.cpp for this machine from the source that PyPI's llama-cpp-python carries, into .venv-peers/llama.cpp.
# Takes about 12 minutes on two cores; does nothing when it is there.
set -euo pipefail
cd "$(dirname "$0")/../.."

version=0.3.36
folder=.venv-peers/llama.cpp
targets=(llama-bench llama-batched-bench llama-server)

if [[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ]]; then
  mkdir -p "$folder"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    --dest "$folder" "llama-cpp-python==$version"
  tar -xf "$folder/llama_cpp_python-$version.tar.gz" -C "$folder" --strip-components=3 \
    "llama_cpp_python-$version/vendor/llama.cpp"
  rm "$folder/llama_cpp_python-$version.tar.gz"
  # GCC 12 does not know that tiles are configured from memory and drops the configuration as a dead store: with AMX
  # llama.cpp would end by an illegal instruction.
  flags=""
  if grep -qw amx_int8 /proc/cpuinfo; then flags="-fno-tree-dse -fno-dse"; fi
  # The web page of llama-server would be fetched from outside, and HTTPS is not measured.
  cmake -S "$folder" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DCMAKE_CXX_FLAGS="$flags" -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >"$folder/configure.log" 2>&1 ||
    { cat "$folder/configure.log"; exit 1; }
  nice -n 19 cmake --build "$folder/build" -j 2 --target "${targets[@]}"
  echo "$version" >"$folder/version"
fi

accuracy="$folder/build/bin/llama-accuracy"
if [[ bench/peers/llama_accuracy.cc -nt "$accuracy" ]]; then
  g++ -std=c++20 -O2 -Wall -Wextra -I "$folder/include" -I "$folder/ggml/include" bench/peers/llama_accuracy.cc \
    -o "$accuracy" -L "$folder/build/bin" -lllama -lggml -lggml-base -Wl,-rpath,'$ORIGIN'
fi
