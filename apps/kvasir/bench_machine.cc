#include "apps/kvasir/bench_machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/machine_file.h"
#include "apps/kvasir/machine_reference.h"
#include "apps/kvasir/output.h"
#include "base/numa.h"
#include "base/thread_pool.h"
#include "perf/machine_bench.h"

namespace kvasir {
namespace {

struct MachineFlags {
  std::string isa;
  std::string format = "md";
  std::string file;
  uint32_t threads = 0;
  bool quick = false;
};

constexpr double kGiga = 1e9;

std::string size_name(uint64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

std::string rate_row(const std::string& name, const HardwareProfile::Rate& rate, double unit,
                     const char* unit_name) {
  return fmt::format("| {:<20} | {:>10.1f} | {:>11.1f} | {:<7} |\n", name, rate.one_thread / unit,
                     rate.all_threads / unit, unit_name);
}

std::string cores_line(const HardwareProfile& m) {
  if (m.threads == 1) return "one thread\n";
  const std::string topology =
      m.cores == 0 ? "/sys does not say on how many cores" : fmt::format("on {} cores as /sys says", m.cores);
  return fmt::format("{} threads, {}; together {:.2f} times one thread's int8 rate: {}\n", m.threads,
                     topology, m.scaling(),
                     m.shares_cores() ? "they share cores, or others use them" : "cores of their own");
}

// What was measured is printed already: only a file that was asked for must be written.
int keep(const HardwareProfile& machine, const MachineFlags& f, const std::string& path) {
  const Status saved = path.empty() ? not_found("not kept: $HOME is not set") : save_machine(machine, path);
  if (saved.ok()) return f.format == "md" ? print_or_fail(fmt::format("\nkept in {}\n", path)) : kExitOk;
  const int code =
      fail(kExitFailure, saved.message(), f.file.empty() ? "--output FILE names another place." : "");
  return f.file.empty() ? kExitOk : code;
}

int measure(const MachineFlags& f) {
  if (f.file == "md" || f.file == "json")
    return fail(kExitUsage, fmt::format("--output {}: takes a file", f.file),
                fmt::format("`-o {}` chooses the format.", f.file));
  const Result<Isa> isa = isa_of_flag(f.isa);
  if (!isa.ok()) return fail(kExitUsage, isa.message());
  const std::string path = f.file.empty() ? default_machine_path() : f.file;
  const Result<uint32_t> threads = threads_of_flag(f.threads, usable_cpus());
  if (!threads.ok()) return fail(kExitUsage, threads.message());
  interleave_memory();
  ThreadPool pool(*threads);
  const auto machine =
      measure_machine(pool, {.isa = *isa,
                             .memory_limit = machine_bench_memory(),
                             .quick = f.quick,
                             .progress = [](const std::string& what) { show_progress(what + " ..."); }});
  end_progress();
  if (!machine.ok()) return fail(kExitMemory, machine.message());
  if (const int code = print_or_fail(f.format == "json" ? machine->to_json() : machine_md(*machine));
      code != kExitOk)
    return code;
  return keep(*machine, f, path);
}

}  // namespace

std::string machine_md(const HardwareProfile& m) {
  std::string out = fmt::format("{}, {}\n", m.cpu.empty() ? "unnamed processor" : m.cpu, isa_name(m.isa));
  out += cores_line(m);
  out += fmt::format("clock {:.2f} GHz; a barrier of all threads takes {:.0f} ns\n", m.clock_hz / kGiga,
                     m.barrier_seconds * 1e9);
  out +=
      fmt::format("meanwhile others used {:.1f} % of the CPUs, and {:.1f} % were stolen{}\n\n",
                  100 * m.others, 100 * m.steal, m.disturbed() ? ": measure again when they are idle" : "");
  out += fmt::format("| {:<20} | {:>10} | {:>11} | {:<7} |\n", "peak", "one thread", "all threads", "");
  out += fmt::format("|{:-<22}|{:->11}:|{:->12}:|{:-<9}|\n", "", "", "", "");
  out += rate_row("int8 multiply-adds", m.int8_macs, kGiga, "GMAC/s");
  out += rate_row("f32 fused", m.f32_macs, kGiga / 2, "GFLOP/s");
  for (const HardwareProfile::ReadRate& read : m.reads)
    out += rate_row("reading " + size_name(read.bytes), read.rate, kGiga, "GB/s");
  return out;
}

Verb add_machine_verb(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand("machine", "Measure what this machine can do at most");
  const auto f = std::make_shared<MachineFlags>();
  verb->add_option("-t,--threads", f->threads, "Threads (default: the CPUs this process may use)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1024u));
  verb->add_option("--isa", f->isa, "Instruction set (default: the best)")->type_name("NAME");
  verb->add_option("-o,--format", f->format, "md or json (default md)")->check(CLI::IsMember({"md", "json"}));
  verb->add_option("--output", f->file, "Where to keep it (default: ~/.cache/kvasir/machine.json)")
      ->type_name("FILE");
  verb->add_flag("--quick", f->quick, "Fewer sizes and repetitions: 8 seconds instead of 15");
  verb->footer(
      "Times the processor's best int8 and f32 multiply-adds on registers, reads of working sets\n"
      "from the first cache to main memory, and the barrier of the engine's threads. A working set\n"
      "is dealt out over the threads, as weights are. Then times the engine's own kernels: weights of\n"
      "every format for 1 to 512 rows, from cache and from memory, attention, and row-wise work. From\n"
      "these `kvasir serve` predicts its steps, and `kvasir plan MODEL --check` says how well.\n\n"
      "Each peak is the best of several tries, because others can only take away; still, run it\n"
      "while nothing else runs. `kvasir bench MODEL` states its speeds as parts of these.\n\n"
      "Examples:\n"
      "  kvasir bench machine\n"
      "  kvasir bench machine -o json --output machine.json\n\n" +
      std::string(kExitCodesHelp));
  return {verb, [f] { return measure(*f); }};
}

}  // namespace kvasir
