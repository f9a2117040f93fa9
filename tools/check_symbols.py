#!/usr/bin/env python3
"""Checks that a build runs on any processor of its family: newer instructions stay in kernels/isa/<isa>/.

    tools/check_symbols.py build/release

1. No object outside kernels/isa/ holds an instruction beyond the baseline of x86-64 (AVX, AVX2, FMA, BMI, AVX-512,
   AMX) or of AArch64 (dot products, ARMv8.1 atomics, SVE); none in kernels/isa/<isa>/ holds one that the table
   ALLOWED does not name.
2. No function that an object in kernels/isa/ defines weakly (an inline or template function compiled with that
   folder's flags) is known to an object elsewhere: the linker keeps one copy and could keep the wrong one.
3. In the linked binary, only functions defined in kernels/isa/ hold such instructions.

On x86-64, instructions are told apart by their first byte: C4 and C5 begin VEX, 62 begins EVEX, and VEX encodes AMX
too, which goes by its mnemonics. On AArch64 all go by their mnemonics. Prints each breach and exits 1 if there is
any. The build may be one for another processor family than this machine's, as `build/neon` is. `--self-test` compiles
small programs that break each rule, for AArch64 too where there is a cross compiler.
"""

import argparse
import collections
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ISA = re.compile(r"/isa/([a-z0-9]+)/[^/]+\.o$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
X86_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t((?:[0-9a-f]{2} )+)\s*(\w*)")
ARM_INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\t[0-9a-f]{8} +\t(\S+)(.*)")
LEGACY_PREFIXES = {"26", "2e", "36", "3e", "64", "65", "67"}
AMX_MNEMONIC = re.compile(r"(?:ld|st)tilecfg|tile|tdp")
ARM_DOT = re.compile(r"[su]dot|usdot|sudot|[su]?mmla")
ARM_ATOMIC = re.compile(r"cas|swp|(?:ld|st)(?:add|clr|eor|set|[su]max|[su]min)")
ARM_SVE = re.compile(r"\bz\d+\.|\bp\d+/")
ALLOWED = {
    None: set(),
    "avx2": {"VEX"},
    "avxvnni": {"VEX"},
    "avx512": {"VEX", "EVEX"},
    "amx": {"VEX", "EVEX", "AMX"},
    "neon": {"dot product"},
}
ELF_AARCH64 = b"\xb7\x00"


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def x86_encoding(raw, mnemonic):
    """AMX, VEX, EVEX or None, for the bytes of one instruction as objdump prints them."""
    for byte in raw.split():
        if byte in ("c4", "c5"):
            return "AMX" if AMX_MNEMONIC.match(mnemonic) else "VEX"
        if byte == "62":
            return "EVEX"
        if byte not in LEGACY_PREFIXES:
            return None
    return None


def arm_kind(mnemonic, operands):
    """The extension of AArch64 that an instruction belongs to, or None for the baseline."""
    if ARM_SVE.search(operands):
        return "SVE"
    if ARM_DOT.match(mnemonic):
        return "dot product"
    if ARM_ATOMIC.match(mnemonic):
        return "ARMv8.1 atomic"
    return None


def kind_of(line, arm):
    """(whether this line of objdump is an instruction, the kind of newer instruction it is or None)"""
    match = (ARM_INSTRUCTION if arm else X86_INSTRUCTION).match(line)
    if not match:
        return False, None
    return True, (arm_kind if arm else x86_encoding)(*match.groups())


def tool_for(path, tool):
    """objdump or nm for the processor family of an object file, and whether that is AArch64."""
    with open(path, "rb") as file:
        arm = file.read(20)[18:20] == ELF_AARCH64
    return ("aarch64-linux-gnu-" if arm and platform.machine() != "aarch64" else "") + tool, arm


def newer_instructions(path):
    """For each function in an object or program: the encodings beyond the baseline that it uses."""
    found = collections.defaultdict(set)
    function = "?"
    objdump, arm = tool_for(path, "objdump")
    with subprocess.Popen([objdump, "-d", "-w", str(path)], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            is_instruction, kind = kind_of(line, arm)
            if kind:
                found[function].add(kind)
            elif not is_instruction and (match := FUNCTION.match(line)):
                function = match.group(1)
    if process.returncode != 0:
        raise OSError(f"{objdump} could not read {path}")
    return found


def symbols(path):
    """Yields (kind, name) as nm prints them, for example ('W', '_ZN...')."""
    for line in output_of(tool_for(path, "nm")[0], path).splitlines():
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
            if beyond := kinds - ALLOWED.get(isa, set()):
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
        if function.startswith("__aarch64_"):  # libgcc's atomics, which ask the processor first
            continue
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
TILES = "#include <immintrin.h>\nvoid release() { _tile_release(); }\n"
SELF_TEST = (
    # Files as (folder, flags, text), and how many breaches they make.
    (0, (("base", "", BASELINE), ("isa/avx2", "-mavx2", BASELINE.replace("scale", "scale2")))),
    (1, (("base", "-mavx2", BASELINE), ("isa/avx2", "-mavx2", BASELINE.replace("scale", "scale2")))),
    (1, (("isa/avx2", "-mavx512f -mavx512vl -mprefer-vector-width=512", BASELINE),)),
    (0, (("isa/avx512", "-mavx512f -mavx512vl -mprefer-vector-width=512", BASELINE),)),
    (1, (("isa/avxvnni", "-mavx512f -mavx512vl -mprefer-vector-width=512", BASELINE),)),
    (1, (("isa/avx512", "-mamx-tile", TILES),)),
    (0, (("isa/amx", "-mamx-tile", TILES),)),
    (1, (("isa/unnamed", "-mavx2", BASELINE),)),
    (1, (
        ("base", "", INLINE + "float a(const float* x) { return twice(x); }\n"),
        ("isa/avx2", "-mavx2", INLINE + "float b(const float* x) { return twice(x); }\n"),
    )),
    (0, (
        ("base", "", "float a(const float* x) { return *x; }\n"),
        ("isa/avx2", "-mavx2", INLINE + "float b(const float* x) { return twice(x); }\n"),
    )),
)


DOT = """#include <arm_neon.h>
int32x4_t dot(int32x4_t s, int8x16_t a, int8x16_t b) { return vdotq_s32(s, a, b); }
"""
ATOMIC = "int next(int* p) { return __atomic_add_fetch(p, 1, __ATOMIC_SEQ_CST); }\n"
ARM_COMPILER = "aarch64-linux-gnu-g++"
ARM_SELF_TEST = (
    (0, (("base", "", BASELINE), ("isa/neon", "-march=armv8.2-a+dotprod", DOT))),
    (1, (("base", "-march=armv8.2-a+dotprod", DOT), ("isa/neon", "", BASELINE))),
    (1, (("isa/neon", "-march=armv8.2-a+dotprod", ATOMIC),)),
    (1, (("isa/neon", "-march=armv8.2-a+sve", BASELINE),)),
)


def self_test(compiler, cases):
    for expected, files in cases:
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary)
            for index, (folder, flags, text) in enumerate(files):
                (root / folder).mkdir(parents=True, exist_ok=True)
                source = root / folder / f"file{index}.cc"
                source.write_text(text)
                output_of(compiler, "-O3", "-ffast-math", *flags.split(), "-c", source, "-o", source.with_suffix(".o"))
            breaches, _ = check_build(root)
            if len(breaches) != expected:
                raise AssertionError(f"{files}: {expected} breaches expected, found {breaches}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        if platform.machine() != "x86_64":
            print(f"check_symbols: no self-test on {platform.machine()}")
            return 0
        self_test("g++", SELF_TEST)
        if shutil.which(ARM_COMPILER):
            self_test(ARM_COMPILER, ARM_SELF_TEST)
        print("check_symbols: the checker finds what it should")
        return 0
    breaches, count = check_build(options.build)
    for breach in breaches:
        print(breach)
    print(f"symbols: {count} objects, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
