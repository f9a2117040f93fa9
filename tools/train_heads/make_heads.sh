#!/bin/sh
# Makes the draft heads of a model from nothing but the model: prompts, answers with hidden states, training.
#   make_heads.sh MODEL FOLDER        MODEL: a GGUF file; FOLDER: where everything goes
# KVASIR and PYTHON choose the programs, THREADS how many threads train each head, MINUTES how long. Both heads are
# trained at once, from the first chunk of answers on. Chunks that are there are not made again.
set -eu
model=$1
folder=$2
here=$(dirname "$0")
kvasir=${KVASIR:-build/release/kvasir}
python=${PYTHON:-.venv-heads/bin/python}
points=2,15,27,output
chunk=205
mkdir -p "$folder"

dump() {  # NAME PART FIRST TEMPERATURE SEED
  [ -f "$folder/$1.safetensors" ] && return
  "$python" "$here/prompts.py" --part "$2" --first "$3" --count $chunk --output "$folder/$1.txt"
  "$kvasir" dump-hidden "$model" --prompts "$folder/$1.txt" --points $points -n 256 --temperature "$4" --seed "$5" \
    -o "$folder/$1.safetensors"
}
train() {  # HEAD FLAGS...
  head=$1
  shift
  OMP_NUM_THREADS=${THREADS:-1} "$python" "$here/train_$head.py" --target "$model" \
    --train "$folder/part_*.safetensors" --heldout "$folder/heldout.safetensors" --learn-vocabulary 3072 --bf16 \
    --threads "${THREADS:-1}" --minutes "${MINUTES:-45}" --output "$folder/$head.safetensors" "$@"
}

dump heldout heldout 0 0 3
dump part_t0_s1_1025 train 1025 0 11025
train eagle --steps 2 --rate 8e-4 --batch 1024 > "$folder/eagle.log" 2>&1 &
eagle=$!
train medusa > "$folder/medusa.log" 2>&1 &
medusa=$!
for first in 820 615 410 205 0; do dump part_t0_s1_$first train $first 0 1$first; done
for first in 1025 820 615 410 205 0; do dump part_t0.7_s2_$first train $first 0.7 2$first; done
wait $eagle $medusa
tail -n 2 "$folder/eagle.log" "$folder/medusa.log"
