#include "apps/kvasir/bench_report.h"

#include <fmt/format.h>

#include "server/json_writer.h"

namespace kvasir {
namespace {

constexpr double kGiga = 1e9;

std::string percent(double part) {
  return fmt::format("{:.0f} %", 100 * part);
}

void probe_field(JsonWriter& out, const char* name, const MachineProbe& probe) {
  out.key(name).begin_object().field("clock_hz", probe.clock_hz);
  out.field("int8_macs_per_second", probe.int8_macs).field("read_bytes_per_second", probe.read_rate);
  out.field("working_set", probe.read_bytes).end_object();
}

}  // namespace

BenchRow bench_row(const BenchResult& result, const HardwareProfile* machine, uint32_t threads) {
  BenchRow row{.test = result.shape.name(),
               .tokens_per_second = result.median,
               .spread = result.spread,
               .samples = result.tokens_per_second};
  const double seconds = result.shape.tokens() / result.median;
  row.gb_per_second = static_cast<double>(result.cost.read_bytes()) / seconds / kGiga;
  row.gmac_per_second = static_cast<double>(result.cost.linear_macs) / seconds / kGiga;
  row.profile = result.profile;
  if (machine != nullptr) {
    const StepFloor floor = step_floor(result.cost, *machine, threads, result.steps);
    row.parts = {.read = floor.read_seconds / seconds, .compute = floor.compute_seconds / seconds};
  }
  return row;
}

std::string md_head(const BenchSetting& setting) {
  return fmt::format(
      "{}, {} threads, {}\n\n"
      "| {:<16} | {:>10} | {:>7} | {:>7} | {:>8} | {:>8} | {:>10} | {:<8} |\n"
      "|{:-<18}|{:->11}:|{:->8}:|{:->8}:|{:->9}:|{:->9}:|{:->11}:|{:-<10}|\n",
      setting.model_name, setting.threads, isa_name(setting.isa), "test", "tokens/s", "spread", "GB/s",
      "GMAC/s", "of reads", "of compute", "bound by", "", "", "", "", "", "", "", "");
}

std::string md_row(const BenchRow& row) {
  const std::string read = row.parts ? percent(row.parts->read) : "";
  const std::string compute = row.parts ? percent(row.parts->compute) : "";
  const char* bound = !row.parts ? "" : row.parts->memory_bound() ? "memory" : "compute";
  return fmt::format("| {:<16} | {:>10.2f} | {:>5.1f} % | {:>7.2f} | {:>8.1f} | {:>8} | {:>10} | {:<8} |\n",
                     row.test, row.tokens_per_second, 100 * row.spread, row.gb_per_second,
                     row.gmac_per_second, read, compute, bound);
}

std::string md_foot(const BenchSetting& setting) {
  std::string out;
  if (setting.machine) {
    const HardwareProfile& m = *setting.machine;
    out += fmt::format(
        "\nmachine: {}, {} threads: clock {:.2f} GHz, int8 {:.0f} GMAC/s, f32 {:.0f} GFLOP/s ({})\n", m.cpu,
        m.threads, m.clock_hz / kGiga, m.int8_macs.all_threads / kGiga, 2 * m.f32_macs.all_threads / kGiga,
        setting.machine_source);
  }
  if (setting.before && setting.after) {
    const MachineProbe &b = *setting.before, &a = *setting.after;
    out += fmt::format(
        "before and after: clock {:.2f}, {:.2f} GHz; int8 {:.0f}, {:.0f} GMAC/s; reads of {} MiB {:.1f}, "
        "{:.1f} "
        "GB/s\nmeanwhile: others used {:.1f} % of the CPUs, and {:.1f} % were stolen\n",
        b.clock_hz / kGiga, a.clock_hz / kGiga, b.int8_macs / kGiga, a.int8_macs / kGiga, b.read_bytes >> 20,
        b.read_rate / kGiga, a.read_rate / kGiga, 100 * setting.meanwhile.others,
        100 * setting.meanwhile.stolen);
  }
  return out;
}

std::string md_profile(const std::vector<BenchRow>& rows) {
  std::string out = fmt::format("\n| {:<17} |", "where time went");
  for (const BenchRow& row : rows) out += fmt::format(" {:>10} |", row.test);
  out += fmt::format("\n|{:-<19}|", "");
  for (size_t i = 0; i < rows.size(); ++i) out += "-----------:|";
  for (size_t phase = 0; phase < kStepPhases; ++phase) {
    out += fmt::format("\n| {:<17} |", kStepPhaseNames[phase]);
    for (const BenchRow& row : rows) {
      const double total = row.profile.total();
      out += fmt::format(" {:>8.1f} % |", total > 0 ? 100 * row.profile.seconds[phase] / total : 0.0);
    }
  }
  return out + "\n";
}

std::string csv_head() {
  return "test,tokens_per_second,spread,gb_per_second,gmac_per_second,read_part,compute_part,bound\n";
}

std::string csv_row(const BenchRow& row) {
  std::string out = fmt::format("{},{:.3f},{:.4f},{:.3f},{:.3f},", row.test, row.tokens_per_second,
                                row.spread, row.gb_per_second, row.gmac_per_second);
  if (!row.parts) return out + ",,\n";
  return out + fmt::format("{:.4f},{:.4f},{}\n", row.parts->read, row.parts->compute,
                           row.parts->memory_bound() ? "memory" : "compute");
}

std::string rows_json(const BenchSetting& setting, const std::vector<BenchRow>& rows) {
  JsonWriter out;
  out.begin_array();
  for (const BenchRow& row : rows) {
    out.begin_object()
        .field("test", row.test)
        .field("model", setting.model)
        .field("threads", setting.threads);
    out.field("isa", isa_name(setting.isa)).field("parameters", setting.parameters);
    out.field("tokens_per_second", row.tokens_per_second).field("spread", row.spread);
    out.key("samples").begin_array();
    for (const double sample : row.samples) out.value(sample);
    out.end_array().field("gb_per_second", row.gb_per_second).field("gmac_per_second", row.gmac_per_second);
    if (row.parts) {
      out.field("read_part", row.parts->read).field("compute_part", row.parts->compute);
      out.field("bound", row.parts->memory_bound() ? "memory" : "compute");
    }
    if (setting.machine) out.field("machine_source", setting.machine_source);
    if (setting.before) probe_field(out, "machine_before", *setting.before);
    if (setting.after) {
      probe_field(out, "machine_after", *setting.after);
      out.field("others", setting.meanwhile.others).field("steal", setting.meanwhile.stolen);
    }
    out.end_object();
  }
  out.end_array();
  return out.take() + "\n";
}

}  // namespace kvasir
