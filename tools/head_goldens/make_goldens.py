#!/usr/bin/env python3
"""Makes tests/data/heads/heads.tar.xz: a small target, for each public layout of draft heads a head with random weights,
and what vLLM drafts with it; manifest.json beside it.

    .venv-peers/vllm/bin/python tools/head_goldens/make_goldens.py [--into FOLDER]

In the archive: target.gguf; NAME/ as people publish such a head (config.json and its safetensors file) with
golden.safetensors; NAME.gguf, what llama.cpp's convert_hf_to_gguf.py makes of it; medusa-authors.pt, that head as
torch.save writes it. A golden has `tokens`, `features`
(what the head reads of the target at each of them but the last), `logits` of each guess over the target's vocabulary,
-inf where the head cannot guess a token, and `drafts`, the likeliest ones. Features are vLLM's, and held against
transformers'. Texts are chosen so that no guess is near a tie. `make head-goldens` installs vLLM, builds llama.cpp and
runs this.
"""

import argparse
import hashlib
import importlib.metadata
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import sentencepiece
import torch
import transformers
from safetensors.torch import save_file

import heads
import vllm_heads

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tiny"))
import architectures  # noqa: E402
import convert  # noqa: E402
import vocabulary  # noqa: E402
import weights  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATA = ROOT / "tests" / "data" / "heads"
CONVERTER = ROOT / ".venv-peers" / "llama.cpp" / "convert_hf_to_gguf.py"
TOKENS = 13  # of each text: the last one has no features yet
MARGIN = 0.1  # by which the best guess leads the second, of the largest logit
TEXTS = 3000  # tried for that


def make_target(folder):
    """The model that heads draft for; its RoPE is another than theirs. Writes it as vLLM reads it, and GGUF beside."""
    config = transformers.LlamaConfig(
        vocab_size=vocabulary.SIZE, hidden_size=heads.WIDTH, intermediate_size=32, num_hidden_layers=heads.LAYERS,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, max_position_embeddings=heads.CONTEXT,
        rms_norm_eps=heads.EPS, rope_parameters={"rope_type": "default", "rope_theta": 300.0},
        tie_word_embeddings=False, attn_implementation="eager", bos_token_id=None, eos_token_id=None)
    tiny = architectures.Tiny("heads", "llama", transformers.LlamaForCausalLM, config, "llama-bpe", permuted=True)
    model = tiny.build()
    weights.randomise(model, tiny.name, 1.0, 1.0)
    model.save_pretrained(folder / "target")
    write_tokenizer(folder / "target")
    convert.write(tiny, model, folder / "target.gguf")
    return model


def write_tokenizer(folder):
    """llama.cpp's converter wants one of a target; nobody reads it."""
    with tempfile.TemporaryDirectory() as temporary:
        text = pathlib.Path(temporary) / "text"
        text.write_text("abba baba abab\n" * 10)  # 256 bytes leave room for few letters
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / "tokenizer"), vocab_size=vocabulary.SIZE, model_type="bpe",
            byte_fallback=True, hard_vocab_limit=False, minloglevel=2)


def write_head(head, folder):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(head.config, indent=1) + "\n")
    tensors = {name: (t.half() if t.is_floating_point() else t).contiguous() for name, t in head.tensors.items()}
    save_file(tensors, folder / head.file, metadata={"format": "pt"})
    if head.pickled:
        torch.save(tensors, folder.with_suffix(".pt"))


def check_features(head, model, tokens, features):
    """vLLM's against transformers': what stands in front of a layer, which behind the last one only its norm shows."""
    states = model(tokens[None], output_hidden_states=True).hidden_states
    for i, point in enumerate(head.points or [None]):
        got = features[:, i * heads.WIDTH:(i + 1) * heads.WIDTH]
        got = model.model.norm(got) if point == heads.LAYERS else got
        want = states[-1 if point is None else point][0]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, msg=f"{head.name}: layer {point}")


def margins(logits):
    best = logits.topk(2, -1).values
    return (best[:, 0] - best[:, 1]) / logits.masked_fill(logits.isinf(), 0).abs().amax(-1)


def golden_of(head, model, folder):
    """A text whose guesses are clear and not all the same, and what vLLM drafts behind it."""
    guesses = heads.MEDUSA_HEADS if head.kind == "medusa" else vllm_heads.GUESSES
    drafter = vllm_heads.VllmHead(folder / "target", folder / head.name, head.kind, guesses)
    if head.kind == "eagle3" and drafter.points() != head.points:
        raise ValueError(f"{head.name}: vLLM fuses layers {drafter.points()}")
    random = weights.generator("heads", head.name, "text")
    for _ in range(TEXTS):
        tokens = torch.randint(vocabulary.SIZE, (TOKENS,), generator=random)
        features = drafter.features(tokens)[:-1]
        logits = drafter.draft(tokens, features)
        drafts = logits.argmax(-1)
        if margins(logits).min() >= MARGIN and len(drafts.unique()) >= 3:
            check_features(head, model, tokens[:-1], features)
            print(f"{head.name}: guesses {drafts.tolist()}, margins {[round(m, 2) for m in margins(logits).tolist()]}")
            return {"tokens": tokens, "features": features.contiguous(), "logits": logits, "drafts": drafts}
    raise ValueError(f"{head.name}: all of {TEXTS} texts have guesses that are nearly ties")


def write_gguf(folder, name):
    subprocess.run([sys.executable, str(CONVERTER), str(folder / name), "--target-model-dir", str(folder / "target"),
                    "--outtype", "f16", "--outfile", str(folder / f"{name}.gguf")], check=True,
                   stdout=subprocess.DEVNULL)


def make_all(folder):
    with torch.inference_mode():
        model = make_target(folder)
        made = heads.all_heads(model.model.embed_tokens.weight)
        for head in made:
            write_head(head, folder / head.name)
            save_file(golden_of(head, model, folder), folder / head.name / "golden.safetensors")
    for head in made:
        if head.gguf:
            write_gguf(folder, head.name)


def kept(folder):
    """What goes into the archive: all but the target as vLLM reads it."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.parent.name != "target")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def archive(files):
    """tar.xz, the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", format=tarfile.USTAR_FORMAT, preset=9) as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=pathlib.Path, help="leave the files in this new folder, for a look")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.into:
        options.into.mkdir(parents=True)
        make_all(options.into)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make_all(folder)
        files = kept(folder)
    packed = archive(files)
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / "heads.tar.xz").write_bytes(packed)
    manifest = {
        "made_with": {name: importlib.metadata.version(name) for name in ("gguf", "torch", "transformers", "vllm")},
        "scripts": {path.name: sha256(path.read_bytes()) for path in sorted(HERE.glob("*.py"))},
        "archive": sha256(packed),
        "files": {name: sha256(data) for name, data in files.items()},
    }
    (DATA / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(f"{DATA / 'heads.tar.xz'}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
