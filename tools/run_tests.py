#!/usr/bin/env python3
"""Builds what the named suites need, runs them in order and ends with one line:

    N passed, N failed, N skipped

checks   layering, formatting, test models that their maker made, faults that the simulator must find, and no
         instruction of a newer processor outside its folder
unit     every GoogleTest of the release build, through ctest
e2e      pytest over tests/e2e, against the release binary
asan     every unit test again under AddressSanitizer and UndefinedBehaviorSanitizer
tsan     thread pool, engine and server tests under ThreadSanitizer
neon     kernels and a small model as AArch64 programs, cross-compiled and run under qemu
tidy     clang-tidy over every source

A suite that cannot be built counts as one failure. With --budget, a suite that would start after that many
minutes is skipped and counts as one skipped. The exit status is 1 if anything failed.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"
VENV_PYTHON = ROOT / ".venv" / "bin" / "python"
PROGRAM_TIMEOUT_S = 1500
QEMU = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]


class Tally:
    """Counts over all suites, and the names of what failed."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.failures = []

    def add(self, name, ok):
        if ok:
            self.passed += 1
        else:
            self.fail(name)

    def fail(self, name):
        self.failed += 1
        self.failures.append(name)

    def add_junit(self, path):
        """Adds the test cases of a JUnit file; returns how many failed, or None if there is no such file."""
        try:
            cases = list(ElementTree.parse(path).getroot().iter("testcase"))
        except (OSError, ElementTree.ParseError):
            return None
        failed = 0
        for case in cases:
            skipped = case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                group, name = case.get("classname", ""), case.get("name", "")
                self.fail(name if group in ("", name) else f"{group}.{name}")
            elif skipped:
                self.skipped += 1
            else:
                self.passed += 1
        return failed


def run(command, **kwargs):
    """Runs `command` in the repository's root and returns its exit status; 124 after `timeout` seconds."""
    print("$", " ".join(str(word) for word in command), flush=True)
    try:
        return subprocess.run([str(word) for word in command], cwd=ROOT, **kwargs).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {kwargs['timeout']} s", flush=True)
        return 124


def build(preset, jobs, targets=()):
    configure = ["cmake", "--preset", preset]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    if run(configure, stdout=subprocess.DEVNULL) != 0:
        return False
    command = ["cmake", "--build", "--preset", preset, "-j", jobs]
    for target in targets:
        command += ["--target", target]
    return run(command) == 0


def sources():
    found = []
    for folder in ("src", "apps", "tests", "bench"):
        for suffix in ("*.h", "*.cc"):
            found += (ROOT / folder).rglob(suffix)
    return sorted(found)


def suite_checks(tally, jobs):
    for check in ("check_layers", "check_symbols", "check_tiny_models"):
        tally.add(f"{check} --self-test", run([sys.executable, f"tools/{check}.py", "--self-test"]) == 0)
    tally.add("layers", run([sys.executable, "tools/check_layers.py"]) == 0)
    tally.add("planted faults", run([sys.executable, "tests/sim/mutants.py", "--check"]) == 0)
    tally.add("planted faults of the verifier",
              run([sys.executable, "tests/speculation/mutants.py", "--check"]) == 0)
    tally.add("tiny models", run([sys.executable, "tools/check_tiny_models.py"]) == 0)
    clang_format = ROOT / ".venv" / "bin" / "clang-format"
    formatted = subprocess.run([clang_format, "--dry-run", "-Werror", *sources()], cwd=ROOT).returncode == 0
    print("format:", "every source is formatted" if formatted else "run `make format`", flush=True)
    tally.add("format", formatted)
    built = build("release", jobs)
    tally.add("release build", built)
    if built:
        tally.add("symbols", run([sys.executable, "tools/check_symbols.py", "build/release"]) == 0)


def suite_unit(tally, jobs):
    if not build("release", jobs):
        tally.fail("unit: build")
        return
    junit = RESULTS / "unit.xml"
    status = run(["ctest", "--preset", "release", "--no-tests=error", "--output-junit", junit])
    if tally.add_junit(junit) in (None, 0) and status != 0:
        tally.fail("unit: ctest")


def suite_e2e(tally, jobs):
    if not build("release", jobs, ["kvasir"]):
        tally.fail("e2e: build")
        return
    junit = RESULTS / "e2e.xml"
    status = run([VENV_PYTHON, "-m", "pytest", "-q", "-rs", "tests/e2e", f"--junitxml={junit}"])
    if tally.add_junit(junit) in (None, 0) and status != 0:
        tally.fail("e2e: pytest")


def run_programs(tally, preset, programs, command=()):
    """Runs whole test programs, one process each, where a process is slow to start; `command` stands before each."""
    for program in programs:
        junit = RESULTS / f"{preset}-{program.name}.xml"
        options = ["--gtest_brief=1", f"--gtest_output=xml:{junit}"]
        status = run([*command, program, *options], timeout=PROGRAM_TIMEOUT_S)
        if tally.add_junit(junit) in (None, 0) and status != 0:
            tally.fail(f"{preset}: {program.name} (exit status {status})")


def suite_asan(tally, jobs):
    if not build("dev", jobs):
        tally.fail("asan: build")
        return
    run_programs(tally, "dev", sorted((ROOT / "build" / "dev").rglob("kvasir_*_test")))


def suite_tsan(tally, jobs):
    targets = ["kvasir_base_test", "kvasir_engine_test", "kvasir_server_test"]
    if not build("tsan", jobs, targets):
        tally.fail("tsan: build")
        return
    programs = sorted((ROOT / "build" / "tsan").rglob("kvasir_*_test"))
    run_programs(tally, "tsan", [program for program in programs if program.name in targets])


def suite_neon(tally, jobs):
    parts = ["base", "gguf", "kvcache", "kernels", "system"]
    targets = [f"kvasir_{part}_test" for part in parts]
    if not build("neon", jobs, targets):
        tally.fail("neon: build")
        return
    tally.add("neon: symbols", run([sys.executable, "tools/check_symbols.py", "build/neon"]) == 0)
    programs = {program.name: program for program in (ROOT / "build" / "neon").rglob("kvasir_*_test")}
    run_programs(tally, "neon", [programs[name] for name in targets[:-1]], QEMU)
    # A whole model by the scalar reference and by NEON: the smallest, the rest would take hours.
    whole_model = [programs["kvasir_system_test"], "--gtest_brief=1", "--gtest_filter=ScalarReference.*"]
    tally.add("neon: ScalarReference", run([*QEMU, *whole_model]) == 0)
    # A processor without dot products: only the scalar table may be chosen.
    old = [QEMU[0], "-cpu", "cortex-a72", *QEMU[1:], programs["kvasir_kernels_test"]]
    tally.add("neon: cortex-a72", run([*old, "--gtest_brief=1", "--gtest_filter=*Dispatch*:CpuFeatures.*"]) == 0)


def suite_tidy(tally, jobs):
    if not build("release", jobs):
        tally.fail("tidy: build")
        return
    command = ["run-clang-tidy", "-quiet", "-p", "build/release", "-j", jobs, f"^{ROOT}/(src|apps)/.*"]
    tally.add("clang-tidy", run(command) == 0)


SUITES = {
    "checks": suite_checks,
    "unit": suite_unit,
    "e2e": suite_e2e,
    "asan": suite_asan,
    "tsan": suite_tsan,
    "neon": suite_neon,
    "tidy": suite_tidy,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE")
    parser.add_argument("--jobs", type=int, default=2, help="parallel compilations")
    parser.add_argument("--budget", type=float, help="minutes after which no further suite starts")
    options = parser.parse_args()

    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    started = time.monotonic()
    tally = Tally()
    for name in options.suites:
        minutes = (time.monotonic() - started) / 60
        if options.budget and minutes > options.budget:
            print(f"\n=== {name}: skipped, {minutes:.0f} minutes are spent", flush=True)
            tally.skipped += 1
            continue
        print(f"\n=== {name} ({minutes:.0f} min)", flush=True)
        SUITES[name](tally, options.jobs)
    print(f"\nAfter {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
    for failure in tally.failures:
        print(f"FAILED {failure}")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped", flush=True)
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
