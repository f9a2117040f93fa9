"""Programs with a fault in one of their sources, without a change to the working tree: a copy of the source is compiled
as build/release compiles the original, and linked in its place into a program of its own under build/mutants.

Scripts keep their faults by name: (what is broken, source, what is there, what stands there instead, ...).
"""

import json
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
OUT = ROOT / "build" / "mutants"


def compile_command(source):
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if entry["file"].endswith("/" + source):
            return entry["command"].split(" && ")[-1], entry["directory"]
    raise SystemExit(f"{source} is not in {BUILD}/compile_commands.json; run cmake --preset release")


def link_command(program):
    """The command that links a program, given by its path in the build folder."""
    lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", program], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    line = [l for l in lines if f"-o {program} " in l][-1]
    return re.sub(r"^: && | && :$", "", line)


def build(name, source, text, program):
    """A copy of a program with `text` in place of a source file."""
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    mutated = folder / pathlib.Path(source).name
    mutated.write_text(text)
    command, directory = compile_command(source)
    words = shlex.split(command)
    words = [w for w in words if "ccache" not in w]
    at = words.index("-o")
    words[at + 1] = str(folder / "mutant.o")
    words[words.index("-c") + 1] = str(mutated)
    words += ["-Wno-error", "-w"]
    subprocess.run(words, cwd=directory, check=True)
    link = shlex.split(link_command(program))
    made = folder / pathlib.Path(program).name
    link[link.index("-o") + 1] = str(made)
    # An object before the libraries is taken instead of a library's member of the same symbols.
    link.insert(link.index("-o"), str(folder / "mutant.o"))
    subprocess.run(link, cwd=BUILD, check=True)
    return made


def add_arguments(parser, mutants):
    """Adds what every script takes, and returns the arguments; an unknown name ends the script."""
    parser.add_argument("--check", action="store_true", help="only see whether each fault can be planted")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    unknown = set(args.names) - mutants.keys()
    if unknown:
        parser.error(f"no mutant {', '.join(sorted(unknown))}; there are {', '.join(mutants)}")
    return args


def check(mutants, faults):
    """Whether each fault can be planted in the sources as they are: an exit status. `faults`: what they are called."""
    wrong = [f"{name}: {source} no longer has its place" for name, (_, source, old, *_) in mutants.items()
             if old not in (ROOT / source).read_text()]
    print("\n".join(wrong) if wrong else f"{len(mutants)} {faults} can be planted")
    return 1 if wrong else 0
