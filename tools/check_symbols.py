#!/usr/bin/env python3
"""Checks that a build runs on any x86-64: newer instructions stay in kernels/isa/<isa>/.

    tools/check_symbols.py build/release

1. No object outside kernels/isa/ holds a VEX or EVEX encoded instruction (AVX, AVX2, FMA, BMI, AVX-512), and
   none in kernels/isa/avx2/ holds an EVEX encoded one (AVX-512).
2. No function that an object in kernels/isa/ defines weakly (an inline or template function compiled with that
   folder's flags) is known to an object elsewhere: the linker keeps one copy and could keep the wrong one.
3. In the linked binary, only functions defined in kernels/isa/ hold such instructions.

Instructions are told apart by their first byte: in 64-bit code C4 and C5 begin VEX, 62 begins EVEX. Prints each
breach and exits 1 if there is any. On another processor family there is nothing to check. `--self-test` compiles
small programs that break each rule.
"""

import argparse
import collections
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ISA = re.compile(r"/isa/([a-z0-9]+)/[^/]+\.o$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t((?:[0-9a-f]{2} )+)")
LEGACY_PREFIXES = {"26", "2e", "36", "3e", "64", "65", "67"}
ALLOWED = {None: set(), "avx2": {"VEX"}, "avx512": {"VEX", "EVEX"}}


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def encoding(raw):
    """VEX, EVEX or None, for the bytes of one instruction as objdump prints them."""
    for byte in raw.split():
        if byte in ("c4", "c5"):
            return "VEX"
        if byte == "62":
            return "EVEX"
        if byte not in LEGACY_PREFIXES:
            return None
    return None


def newer_instructions(path):
    """For each function in an object or program: the encodings beyond the baseline that it uses."""
    found = collections.defaultdict(set)
    function = "?"
    command = ["objdump", "-d", "-w", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if match := INSTRUCTION.match(line):
                if kind := encoding(match.group(1)):
                    found[function].add(kind)
            elif match := FUNCTION.match(line):
                function = match.group(1)
    if process.returncode != 0:
        raise OSError(f"objdump could not read {path}")
    return found


def symbols(path):
    """Yields (kind, name) as nm prints them, for example ('W', '_ZN...')."""
    for line in output_of("nm", path).splitlines():
        words = line.split()
        if len(words) >= 2:
            yield words[-2], words[-1]


def isa_of(path):
    match = ISA.search(path.as_posix())
    return match.group(1) if match else None


def check_objects(objects, root):
    breaches, weak, elsewhere, isa_symbols = [], {}, collections.defaultdict(set), set()
    for path in objects:
        isa = isa_of(path)
        name = path.relative_to(root).as_posix()
        for function, kinds in newer_instructions(path).items():
            if beyond := kinds - ALLOWED.get(isa, {"VEX", "EVEX"}):
                breaches.append(f"{name}: {function} holds {' and '.join(sorted(beyond))} instructions")
        for kind, symbol in symbols(path):
            elsewhere[symbol].add(isa)
            if isa and kind != "U":
                isa_symbols.add(symbol)
            if isa and kind == "W":
                weak.setdefault(symbol, name)
    functions = {symbol for symbol, name in weak.items() if len(elsewhere[symbol]) > 1}
    breaches += [f"{weak[symbol]}: weak {symbol} is also known outside its folder" for symbol in sorted(functions)]
    return breaches, isa_symbols


def check_program(program, isa_symbols):
    breaches = []
    for function, kinds in newer_instructions(program).items():
        # A part split off by the compiler keeps its function's name in front.
        if function not in isa_symbols and function.split(".")[0] not in isa_symbols:
            breaches.append(f"{program.name}: {function} holds {' and '.join(sorted(kinds))} instructions")
    return breaches


def check_build(folder):
    objects = sorted(path for path in folder.rglob("*.o") if "_test.dir/" not in path.as_posix())
    if not any(isa_of(path) for path in objects):
        return [f"{folder}: no object of kernels/isa/ found, is this a finished build?"], 0
    breaches, isa_symbols = check_objects(objects, folder)
    program = folder / "kvasir"
    if program.is_file():
        breaches += check_program(program, isa_symbols)
    return breaches, len(objects)


BASELINE = "float scale(float* x, int n) { float s = 0; for (int i = 0; i < n; ++i) s += x[i]; return s; }\n"
INLINE = "inline __attribute__((noinline)) float twice(const float* x) { return x[0] * 2 + x[1] * 3; }\n"
SELF_TEST = (
    # Files as (folder, flags, text), and how many breaches they make.
    (0, (("base", "", BASELINE), ("isa/avx2", "-mavx2", BASELINE.replace("scale", "scale2")))),
    (1, (("base", "-mavx2", BASELINE), ("isa/avx2", "-mavx2", BASELINE.replace("scale", "scale2")))),
    (1, (("isa/avx2", "-mavx512f -mavx512vl -mprefer-vector-width=512", BASELINE),)),
    (0, (("isa/avx512", "-mavx512f -mavx512vl -mprefer-vector-width=512", BASELINE),)),
    (1, (
        ("base", "", INLINE + "float a(const float* x) { return twice(x); }\n"),
        ("isa/avx2", "-mavx2", INLINE + "float b(const float* x) { return twice(x); }\n"),
    )),
    (0, (
        ("base", "", "float a(const float* x) { return *x; }\n"),
        ("isa/avx2", "-mavx2", INLINE + "float b(const float* x) { return twice(x); }\n"),
    )),
)


def self_test():
    for expected, files in SELF_TEST:
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary)
            for index, (folder, flags, text) in enumerate(files):
                (root / folder).mkdir(parents=True, exist_ok=True)
                source = root / folder / f"file{index}.cc"
                source.write_text(text)
                output_of("g++", "-O3", "-ffast-math", *flags.split(), "-c", source, "-o", source.with_suffix(".o"))
            breaches, _ = check_build(root)
            if len(breaches) != expected:
                raise AssertionError(f"{files}: {expected} breaches expected, found {breaches}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        print(f"symbols: nothing to check on {platform.machine()}")
        return 0
    if options.self_test:
        self_test()
        print("check_symbols: the checker finds what it should")
        return 0
    breaches, count = check_build(options.build)
    for breach in breaches:
        print(breach)
    print(f"symbols: {count} objects, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
