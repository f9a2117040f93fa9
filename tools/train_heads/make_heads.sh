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
chunk=205
mkdir -p "$folder"

dump() {  # NAME PART FIRST SEED
  [ -f "$folder/$1.safetensors" ] && return
  "$python" "$here/prompts.py" --part "$2" --first "$3" --count $chunk --output "$folder/$1.txt"
  "$kvasir" dump-hidden "$model" --prompts "$folder/$1.txt" --points output -n 256 --temperature 0 --seed "$4" \
    -o "$folder/$1.safetensors"
}
train() {  # HEAD FLAGS...
  head=$1
  shift
  OMP_NUM_THREADS=${THREADS:-1} "$python" "$here/train_$head.py" --target "$model" \
    --train "$folder/part_*.safetensors" "$folder/more_*.safetensors" --heldout "$folder/heldout.safetensors" --bf16 \
    --threads "${THREADS:-1}" --minutes "${MINUTES:-45}" --output "$folder/$head.safetensors" "$@"
}

dump heldout heldout 0 3
for first in 1025 820 615 410 205 0; do dump part_$first train $first 1$first; done
for first in 0 205 410; do dump more_$first more $first 1$first; done
train eagle --rate 3e-4 > "$folder/eagle.log" 2>&1 &
eagle=$!
train medusa --learn-vocabulary 3072 --learn-others 512 > "$folder/medusa.log" 2>&1 &
medusa=$!
wait $eagle $medusa
tail -n 2 "$folder/eagle.log" "$folder/medusa.log"
