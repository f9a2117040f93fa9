#!/usr/bin/env python3
"""Plants faults in the scheduler and the KV cache, one at a time, and shows how soon the simulator finds each.

Nothing in the working tree changes: a mutated copy of one source file is compiled as build/release compiles
the original, and linked in its place into a kvasir_sim of its own under build/mutants. Build kvasir_sim first:

    cmake --build --preset release --target kvasir_sim
    tests/sim/mutants.py [--seeds 20000] [NAME ...]

Exits 1 if a fault was not found. --check compiles nothing and only sees whether each fault can still be planted
in the sources as they are now.
"""

import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from planting import ROOT, add_arguments, build, check  # noqa: E402

SCHEDULER, ADMISSION = "src/engine/scheduler.cc", "src/engine/scheduler_admission.cc"
QUEUE, TABLE = "src/engine/fair_queue.cc", "src/kvcache/block_table.cc"
CACHE, POOL = "src/kvcache/prefix_cache.cc", "src/kvcache/block_pool.cc"

# Name: what is broken, file, what is there, what stands there instead (every occurrence).
MUTANTS = {
    "leak-on-preempt": ("a preempted sequence keeps its blocks", SCHEDULER,
                        "  s.table.release();\n  drop_followers(s);", "  drop_followers(s);"),
    "preempt-oldest": ("the oldest is preempted", SCHEDULER,
                       "if (s != oldest_ && (worst == nullptr || s->rank() >= worst->rank())) worst = s;",
                       "if (worst == nullptr) worst = s;"),
    "preempt-best": ("who has the best priority is preempted", SCHEDULER,
                     "s != oldest_ && (worst == nullptr || s->rank() >= worst->rank())",
                     "s != oldest_ && (worst == nullptr || s->rank() <= worst->rank())"),
    "priority-ignored": ("priority does not count in the queue", QUEUE,
                         "if (a.rank() != b.rank()) return a.rank() < b.rank();\n  const double mine",
                         "const double mine"),
    "turn-by-age": ("users are not told apart", QUEUE, "return mine != theirs ? mine < theirs : a.age < b.age;",
                    "return a.age < b.age;"),
    "answers-free": ("nobody is charged for answers", QUEUE, "prices_.output * (end - prompt_end)", "0.0"),
    "weights-ignored": ("all users weigh the same", QUEUE, ") / u.weight;", ");"),
    "charged-twice": ("what is computed again is charged again", QUEUE, "begin = s.charged,", "begin = s.computed,"),
    "never-woken": ("a follower is not woken when its blocks are there", ADMISSION,
                    "f->leader_tokens <= r->computed;", "false;"),
    "dead-leader": ("a follower waits on for a sequence that has gone", SCHEDULER,
                    "  sequence.table.release();\n  drop_followers(sequence);", "  sequence.table.release();"),
    "no-following": ("what another is computing is computed again", ADMISSION,
                     "if (common > best && common > r->computed)", "if (false && common > best)"),
    "scored-from-cache": ("rows whose logits are wanted come from the cache", ADMISSION,
                          "std::min(s.known() - 1, s.logits_from())", "s.known() - 1"),
    "overcommit": ("more rows are planned than the pool has blocks for", SCHEDULER,
                   "return rows;\n}\n\n// Gives s up to", "return std::max(rows, 1u);\n}\n\n// Gives s up to"),
    "early-entry": ("a block enters the cache before its last token is computed", TABLE,
                    "(entered_ + 1) * size <= computed)",
                    "(entered_ + 1) * size <= std::min<size_t>(computed + 1, tokens.size()))"),
    "write-shared": ("a block of two owners is written", TABLE, "> 1", "> 2"),
    "write-cached": ("a cached block is written", TABLE, "cache_.forget(id);", ";"),
    "lost-copy": ("a shared block is replaced without its copy", TABLE,
                  "    copies->push_back({id, fresh});\n", "    (void)copies;\n"),
    "fork-unshared": ("a fork does not count as owner", TABLE,
                      "if (id != kNoBlock) pool_.share(id);", "(void)id;"),
    "exchange-leak": ("the copy of an equal block is not given back", TABLE,
                      "      pool_.release(mine[u]);\n      mine[u] = there[u];", "      mine[u] = there[u];"),
    "window-early": ("blocks leave a window too early", TABLE,
                     "first_visible(group.window, computed)", "first_visible(group.window, computed + 17)"),
    "window-leak": ("blocks that left a window are not given back", TABLE,
                    "for (; group.first < first; ++group.first) release_entry(group, group.first);",
                    "group.first = std::max(group.first, first);"),
    "part-entered": ("a block of which a part was taken counts as the sequence's own", TABLE,
                     "entered_ = hit.tokens / layout_.block_size();", "entered_ = hit.entries;"),
    "pin-leak": ("a table that is given up keeps its place in the tree", TABLE,
                 "    cache_.unpin(node_);\n    node_ = up;", "    node_ = up;"),
    "salt-leak": ("salts are never forgotten", TABLE, "  release();\n  cache_.close_salt(salt_);",
                  "  release();"),
    "hash-trusted": ("a prefix is found by its hash alone", CACHE,
                     "node.hash == hash && node.parent == parent &&\n        std::memcmp(tokens_of(n), tokens, "
                     "block_size_ * sizeof(TokenId)) == 0", "node.hash == hash"),
    "parent-ignored": ("a block is found under another's parent", CACHE,
                       "node.hash == hash && node.parent == parent &&", "node.hash == hash &&"),
    "salt-ignored": ("prefixes are shared across salts", CACHE, "kRoot | salt", "(salt, kRoot)"),
    "window-unchecked": ("a hit lacks blocks of a window", CACHE,
                         "usable = usable && runs_[g] >= depth - first;", "(void)first;"),
    "no-part": ("the last block of a hit is never used in part", CACHE,
                "if (usable) best =", "if (usable && boundary == depth * block_size_) best ="),
    "stale-tag": ("a block that is written stays in the tree", CACHE,
                  "    pool_.forget(ids[u]);\n    ids[u] = kNoBlock;", "    pool_.forget(ids[u]);"),
    "cached-twice": ("a block is owned and cached", POOL,
                     "if (b.refs == 0) unlink_cached(index);\n  ++b.refs;", "++b.refs;"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20000)
    args = add_arguments(parser, MUTANTS)
    if args.check:
        return check(MUTANTS, "faults")
    print("| fault | seeds until found | operations after shrinking | what was said |\n|---|---|---|---|", flush=True)
    missed = 0
    for name in args.names or MUTANTS:
        what, source, old, new = MUTANTS[name]
        text = (ROOT / source).read_text()
        if old not in text:
            print(f"| {name} | {source} no longer reads so | | |", flush=True)
            missed += 1
            continue
        program = build(name, source, text.replace(old, new), "tests/sim/kvasir_sim")
        result = subprocess.run([program, "--seeds", str(args.seeds)], capture_output=True, text=True)
        found = re.search(r"^seed (\d+) failed: (.*)", result.stdout, re.M)
        if result.returncode == 0 or not found:
            missed += 1
            print(f"| {name}: {what} | NOT FOUND in {args.seeds} | | {result.stdout[-200:]!r} |", flush=True)
            continue
        operations = len(re.findall(r"^ {2} *\d+ (?:arrive|step|cancel|lend|give)", result.stdout, re.M))
        print(f"| {name}: {what} | {int(found[1]) + 1} | {operations} | {found[2][:110]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
