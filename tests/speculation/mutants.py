#!/usr/bin/env python3
"""Plants faults in the verification of guesses, one at a time, and shows which tests find each.

Nothing in the working tree changes: a mutated copy of one source file is linked into a test program of its own under
build/mutants (tests/planting.py says how). Build the two test programs first:

    cmake --build --preset release --target kvasir_decoding_test kvasir_engine_test
    tests/speculation/mutants.py [NAME ...]

Exits 1 if a fault was not found. --check compiles nothing and only sees whether each fault can still be planted. The
statistics of rejection sampling are shown to have teeth in rejection_test.cc itself too, with verifiers that have each
of the usual faults (Mutant.*).
"""

import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from planting import ROOT, add_arguments, build, check  # noqa: E402

REJECTION, ROWS, CORE = "src/decoding/rejection.cc", "src/engine/row_sampler.cc", "src/engine/engine_core.cc"
STATISTICS = ("src/decoding/kvasir_decoding_test", "Rejection.*:Sampler*")
ANSWERS = ("src/engine/kvasir_engine_test", "Speculation.*:ModelDrafter.*")

# Name: what is broken, file, what is there, what stands there instead, test program and its tests.
MUTANTS = {
    # The five of every verifier by rejection (Leviathan et al., arXiv 2211.17192).
    "accepts-too-often": ("guesses are accepted 5 % too often", REJECTION,
                          "odds_of(q, guess, guess) < p)", "odds_of(q, guess, guess) < 1.05 * p)", *STATISTICS),
    "number-reused": ("the accept number decides the redraw too", REJECTION, "key.stream = kRedrawStream;\n",
                      "key.stream = kAcceptStream;\n  if (uniform(key) < 0.5) return survivors[0].id;\n", *STATISTICS),
    "bonus-of-row-before": ("the token behind the guesses comes from the row before", ROWS,
                            "sample(choice, row, scratch, guess)",
                            "sample(choice, rows[std::max(sequence.tokens, 1u) - 1], scratch, guess)", *ANSWERS),
    "residual-unchanged": ("a refused guess is drawn again from all of p", REJECTION,
                           "const double left = det_exp(static_cast<double>(c.x)) / total - odds_of(q, c.id, guess);",
                           "const double left = det_exp(static_cast<double>(c.x)) / total;", *STATISTICS),
    "residual-not-normed": ("p in the residual is not divided by its sum", REJECTION,
                            "const double left = det_exp(static_cast<double>(c.x)) / total -",
                            "const double left = det_exp(static_cast<double>(c.x)) -", *STATISTICS),
    "temperature-of-q": ("q is taken at another temperature than p", REJECTION,
                         "static_cast<double>(q[static_cast<size_t>(token)]) : 0.0",
                         "__builtin_sqrt(static_cast<double>(q[static_cast<size_t>(token)])) : 0.0", *STATISTICS),
    # Those of matching what was sampled.
    "never-compared": ("every guess counts as right", ROWS,
                       "if (choice.draft.tokens[sequence.tokens - 1] != token) return;", "(void)token;", *ANSWERS),
    "compared-with-next": ("a token is compared with the guess behind it", ROWS,
                           "choice.draft.tokens[sequence.tokens - 1] != token",
                           "choice.draft.tokens[sequence.tokens] != token", *ANSWERS),
    "past-the-end": ("tokens are taken behind the end of an answer", ROWS,
                     "if (sequence.finish != FinishReason::kNone || sequence.tokens == rows.size()) return;",
                     "if (sequence.tokens == rows.size()) return;", *ANSWERS),
    "wrong-kv-kept": ("K and V of a wrong guess count as computed", CORE,
                      "choice.computed = choice.known() - 1;", "choice.computed = choice.known();", *ANSWERS),
}


def first_failure(program, tests):
    """The name of the first test that fails, or None."""
    try:
        done = subprocess.run([program, f"--gtest_filter={tests}", "--gtest_fail_fast", "--gtest_brief=1"],
                              capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "no end within 300 s"
    if done.returncode == 0:
        return None
    failed = re.search(r"\[  FAILED  \] (\S+)", done.stdout)
    return failed[1].rstrip(",") if failed else f"ended with {done.returncode}: {done.stderr.strip()[-80:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args = add_arguments(parser, MUTANTS)
    if args.check:
        return check(MUTANTS, "faults of the verifier")
    print("| fault | found by |\n|---|---|", flush=True)
    missed = 0
    for name in args.names or MUTANTS:
        what, source, old, new, program, tests = MUTANTS[name]
        text = (ROOT / source).read_text()
        if old not in text:
            raise SystemExit(f"{name}: {source} no longer has its place")
        found = first_failure(build(name, source, text.replace(old, new), program), tests)
        missed += found is None
        print(f"| {name}: {what} | {found or 'NOT FOUND'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
