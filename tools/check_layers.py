#!/usr/bin/env python3
"""Checks that every folder includes only what its row allows (the table of docs/structure.md).

Also: no two files include each other, directly or in a circle; every quoted include exists; intrinsics
headers and the headers of kernels/isa/<isa>/ are included inside kernels/isa/ only (kernels/dispatch.cc may
name the latter, it chooses among them). Prints each breach as file:line and exits 1 if there is any.
`--self-test` checks the checker on small trees made up for it.
"""

import argparse
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder: the folders it may include beside itself. Each row names only rows above it.
MAY_INCLUDE = {
    "base": "",
    "gguf": "base",
    "kernels": "base",
    "safetensors": "base gguf kernels",
    "kvcache": "base",
    "tokenizer": "base gguf",
    "models": "base gguf kernels kvcache",
    "decoding": "base kernels kvcache models",
    "perf": "base gguf kernels kvcache models",
    "engine": "base gguf kernels kvcache safetensors tokenizer models decoding perf",
    "server": "base tokenizer perf engine",
}
INTRINSICS = re.compile(r"^(?:[a-z0-9]*intrin|cpuid|arm_\w+)\.h$")
ISA_FOLDER = "kernels/isa/"
ISA_CHOOSER = "kernels/dispatch.cc"
CPU_PROBE = "kernels/cpu_features.cc"
ISA_HEADER = re.compile(r"^kernels/isa/[^/]+/")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def includes(path):
    """Yields (line number, path in quotes or None, path in angle brackets or None)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if match := INCLUDE.match(line):
            yield number, match.group(1), match.group(2)


def check_table():
    seen = set()
    for folder, row in MAY_INCLUDE.items():
        for other in row.split():
            if other not in seen:
                raise AssertionError(f"{folder} names {other}, which is not above it")
        seen.add(folder)


def check_quoted(name, target, src):
    """The breach, if any, of file `name` (relative to src/) including "target"."""
    if not (src / target).is_file():
        return f'"{target}" is not a file under src/'
    folder, other = name.split("/")[0], target.split("/")[0]
    if other != folder and other not in MAY_INCLUDE[folder].split():
        return f"{folder} may not include {other} (only: {MAY_INCLUDE[folder] or 'nothing'})"
    if ISA_HEADER.match(target) and not name.startswith(ISA_FOLDER) and name != ISA_CHOOSER:
        return f'"{target}" may be included only in {ISA_FOLDER} and {ISA_CHOOSER}'
    return None


def check_system(name, target):
    if INTRINSICS.match(target) and not name.startswith(ISA_FOLDER):
        if not (target == "cpuid.h" and name == CPU_PROBE):
            return f"<{target}> may be included only in {ISA_FOLDER}"
    return None


def find_circles(graph):
    """Circles of files that include each other, each named once."""
    circles, state, stack = [], {}, []

    def visit(name):
        state[name] = "open"
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if state.get(other) == "open":
                circles.append(" -> ".join(stack[stack.index(other):] + [other]))
            elif other not in state:
                visit(other)
        stack.pop()
        state[name] = "done"

    for name in sorted(graph):
        if name not in state:
            visit(name)
    return circles


def check_app(path, src):
    """Apps may include every folder, their own headers, and no intrinsics."""
    for number, quoted, system in includes(path):
        if quoted and not (src / quoted).is_file() and not (src.parent / quoted).is_file():
            yield number, f'"{quoted}" is neither a file under src/ nor under the root'
        elif quoted and ISA_HEADER.match(quoted):
            yield number, f'"{quoted}" may be included only in {ISA_FOLDER} and {ISA_CHOOSER}'
        elif system and (breach := check_system("apps/" + path.name, system)):
            yield number, breach


def check_tree(root):
    """Returns the breaches in the tree at `root`, as lines of text, and the number of files read."""
    src = root / "src"
    breaches, graph, files = [], {}, 0
    for path in sorted(p for suffix in ("*.h", "*.cc") for p in src.rglob(suffix)):
        files += 1
        name = path.relative_to(src).as_posix()
        if name.split("/")[0] not in MAY_INCLUDE:
            breaches.append(f"src/{name}: no row for this folder in tools/check_layers.py")
            continue
        for number, quoted, system in includes(path):
            breach = check_quoted(name, quoted, src) if quoted else check_system(name, system)
            if breach:
                breaches.append(f"src/{name}:{number}: {breach}")
            if quoted:
                graph.setdefault(name, set()).add(quoted)
    for path in sorted(p for suffix in ("*.h", "*.cc") for p in (root / "apps").rglob(suffix)):
        files += 1
        for number, breach in check_app(path, src):
            breaches.append(f"{path.relative_to(root)}:{number}: {breach}")
    breaches += [f"circle: {circle}" for circle in find_circles(graph)]
    return breaches, files


def self_test():
    """Each case is a tree of files with the number of breaches it must show."""
    cases = (
        (0, {"src/base/a.h": "", "src/gguf/b.cc": '#include "base/a.h"\n#include <vector>\n'}),
        (1, {"src/base/a.h": '#include "gguf/b.h"\n', "src/gguf/b.h": ""}),
        (1, {"src/server/a.cc": '#include "kernels/b.h"\n', "src/kernels/b.h": ""}),
        (1, {"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": ' # include "base/a.h"\n'}),
        (1, {"src/base/a.h": '#include "base/gone.h"\n'}),
        (1, {"src/kernels/a.cc": "#include <immintrin.h>\n"}),
        (0, {"src/kernels/isa/avx2/a.cc": "#include <immintrin.h>\n"}),
        (1, {"src/kernels/a.cc": '#include "kernels/isa/avx2/b.h"\n', "src/kernels/isa/avx2/b.h": ""}),
        (0, {"src/kernels/dispatch.cc": '#include "kernels/isa/avx2/b.h"\n', "src/kernels/isa/avx2/b.h": ""}),
        (1, {"src/misc/a.h": ""}),
        (0, {"src/base/a.h": "", "apps/x/b.h": "", "apps/x/b.cc": '#include "apps/x/b.h"\n#include "base/a.h"\n'}),
        (1, {"apps/kvasir/main.cc": "#include <immintrin.h>\n"}),
    )
    for expected, files in cases:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            breaches, _ = check_tree(pathlib.Path(folder))
            if len(breaches) != expected:
                raise AssertionError(f"{files}: {expected} breaches expected, found {breaches}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    check_table()
    if parser.parse_args().self_test:
        self_test()
        print("check_layers: the checker finds what it should")
        return 0
    breaches, files = check_tree(ROOT)
    for breach in breaches:
        print(breach)
    print(f"layers: {files} files, {len(breaches)} breaches")
    return 1 if breaches or not files else 0


if __name__ == "__main__":
    sys.exit(main())
