#!/usr/bin/env python3
"""Writes a GGUF file's weights as a bf16 model folder, which vLLM on a CPU can open; it reads no GGUF there.

    .venv-peers/vllm/bin/python bench/serving/dequantise.py MODEL.gguf FOLDER
"""

import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    source, target = pathlib.Path(sys.argv[1]), sys.argv[2]
    names = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(**names, dtype=torch.float32)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    model.to(torch.bfloat16).save_pretrained(target)
    AutoTokenizer.from_pretrained(**names).save_pretrained(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
