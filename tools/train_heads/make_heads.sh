#!/bin/sh
# Makes the draft heads of a model from nothing but the model: prompts, answers with hidden states, training.
#   make_heads.sh MODEL FOLDER        MODEL: a GGUF file; FOLDER: where everything goes
# KVASIR and PYTHON choose the programs, THREADS how many threads train each head (both heads at once), MINUTES how
# long, in processor time of each. Chunks of answers that are there are not made again.
set -eu
model=$1
folder=$2
here=$(dirname "$0")
kvasir=${KVASIR:-build/release/kvasir}
python=${PYTHON:-.venv-heads/bin/python}
port=${PORT:-8917}
mkdir -p "$folder"

answer() {  # NAME TOKENS: the prompts in NAME.txt
  "$kvasir" dump-hidden "$model" --prompts "$folder/$1.txt" --points output -n "$2" --temperature 0 \
    -o "$folder/$1.safetensors"
}
dump() {  # NAME PART FIRST
  [ -f "$folder/$1.safetensors" ] && return
  "$python" "$here/prompts.py" --part "$2" --first "$3" --count 205 --output "$folder/$1.txt"
  answer "$1" 256
}
make_own() {  # prompts that the model itself makes up
  [ -f "$folder/own.txt" ] && return
  "$kvasir" serve "$model" --port "$port" > "$folder/serve.log" 2>&1 &
  server=$!
  "$python" "$here/own_prompts.py" --url "http://127.0.0.1:$port" --count 3600 --seed 100 --output "$folder/own.txt" ||
    { kill $server; exit 1; }
  kill $server
}
train() {  # HEAD FLAGS...
  head=$1
  shift
  OMP_NUM_THREADS=${THREADS:-1} "$python" "$here/train_$head.py" --target "$model" \
    --train "$folder/own_*.safetensors" "$folder/part_*.safetensors" "$folder/more_*.safetensors" \
    --heldout "$folder/heldout.safetensors" --bf16 \
    --threads "${THREADS:-1}" --minutes "${MINUTES:-45}" --output "$folder/$head.safetensors" "$@"
}

dump heldout heldout 0
for first in 1025 820 615 410; do dump part_$first train $first; done
dump more_0 more 0
make_own
for i in 0 1 2 3 4; do
  [ -f "$folder/own_$i.safetensors" ] && continue
  sed -n "$((i * 400 + 1)),$((i * 400 + 400))p" "$folder/own.txt" > "$folder/own_$i.txt"
  answer own_$i 224
done
train eagle --rate 5e-4 > "$folder/eagle.log" 2>&1 &
eagle=$!
train medusa --rate 7e-4 --learn-vocabulary 3072 --learn-others 512 > "$folder/medusa.log" 2>&1 &
medusa=$!
wait $eagle $medusa
tail -n 2 "$folder/eagle.log" "$folder/medusa.log"
