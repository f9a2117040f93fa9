#include "apps/kvasir/machine_reference.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/kvasir/machine_file.h"
#include "apps/kvasir/output.h"
#include "base/log.h"
#include "engine/memory_plan.h"
#include "perf/machine_bench.h"
#include "perf/machine_info.h"

namespace kvasir {
namespace {

// Why a profile does not describe this run; "" where it does.
std::string mismatch(const HardwareProfile& p, const ThreadPool& pool, Isa isa) {
  if (p.cpu != cpu_name()) return fmt::format("is of '{}', this is '{}'", p.cpu, cpu_name());
  if (p.isa != isa) return fmt::format("is of {}, this runs {}", isa_name(p.isa), isa_name(isa));
  if (p.threads < pool.size()) return fmt::format("is of {} threads, this runs {}", p.threads, pool.size());
  return "";
}

MachineReference from_file(HardwareProfile profile, const std::string& path) {
  const std::string source = fmt::format("{} of {}{}", path, profile.measured_at,
                                         profile.disturbed() ? ", while others used the CPUs too" : "");
  return {std::move(profile), source};
}

void note(const std::string& text) {
  tell("kvasir: {}\n", text);
}

}  // namespace

uint64_t machine_bench_memory() {
  return usable_memory(read_memory()) / 2;
}

MachineReference named_machine(HardwareProfile profile, const std::string& path, const ThreadPool& pool,
                               Isa isa) {
  const std::string why = mismatch(profile, pool, isa);
  if (!why.empty()) note(fmt::format("{} {}", path, why));
  return from_file(std::move(profile), path);
}

Result<MachineReference> machine_reference(ThreadPool& pool, Isa isa, bool kernels) {
  const std::string left = default_machine_path();
  if (!left.empty()) {
    auto found = load_machine(left);
    std::string why = found.ok() ? mismatch(*found, pool, isa) : "";
    if (found.ok() && why.empty() && kernels && !found->kernels) why = "holds no kernel rates";
    if (found.ok() && why.empty()) return from_file(std::move(found).value(), left);
    if (found.ok()) note(fmt::format("{} {}: measuring quickly instead", left, why));
    if (!found.ok() && found.status().code() != ErrorCode::kNotFound)
      note(fmt::format("{}: measuring quickly instead", found.message()));
  }
  show_progress("measuring the machine (`kvasir bench machine` keeps it) ...");
  auto measured = measure_machine(pool, {.isa = isa,
                                         .memory_limit = machine_bench_memory(),
                                         .quick = true,
                                         .kernels = kernels,
                                         .progress = {}});
  end_progress();
  if (!measured.ok()) return measured.status();
  return MachineReference{std::move(measured).value(), "measured just now"};
}

Result<HardwareProfile> serving_machine(ThreadPool& pool, Isa isa, const ModelConfig& config,
                                        const WeightSizes& weights, KvType kv_type) {
  const std::string left = default_machine_path();
  std::string why = "no profile of this machine is kept";
  if (!left.empty()) {
    auto found = load_machine(left);
    if (found.ok()) {
      why = mismatch(*found, pool, isa);
      if (why.empty() && !found->kernels) why = "holds no kernel rates";
      if (why.empty() && found->disturbed())
        why = fmt::format("was measured while others used {:.0f} % of the CPUs", 100 * found->others);
      if (why.empty()) {
        spdlog::info("steps are predicted from {} of {}", left, found->measured_at);
        return found;
      }
      why = left + " " + why;
    } else if (found.status().code() != ErrorCode::kNotFound) {
      why = found.message();
    }
  }
  spdlog::info("measuring the machine, for {}; `kvasir bench machine` keeps a better measurement", why);
  return measure_machine(pool, {.isa = isa,
                                .memory_limit = machine_bench_memory(),
                                .brief = true,
                                .formats = weights.formats(),
                                .head_dims = {config.mla ? kAttnMaxHeadDim : config.head_dim},
                                .kv_types = {kv_type},
                                .working_set = weights.working_set(),
                                .progress = {}});
}

}  // namespace kvasir
