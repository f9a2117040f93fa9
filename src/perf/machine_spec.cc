#include "perf/machine_spec.h"

#include <fmt/format.h>

#include <utility>

#include "perf/json_fields.h"
#include "perf/named_rows.h"

namespace kvasir {

namespace embedded {
extern const std::string_view machines_json;  // data/machines.json
}

namespace {

namespace json = boost::json;

constexpr std::pair<std::string_view, MachineSpec::Kind> kKinds[] = {
    {"cpu", MachineSpec::Kind::kCpu}, {"gpu", MachineSpec::Kind::kGpu}, {"soc", MachineSpec::Kind::kSoc}};

NamedRows table() {
  return {embedded::machines_json, "machines", "machine"};
}

MachineSpec::Kind kind_of(const std::string& name) {
  for (const auto& [word, kind] : kKinds)
    if (word == name) return kind;
  CHECK(false);
  return MachineSpec::Kind::kCpu;
}

MachineSpec from_row(const json::object& row) {
  JsonFields in(row);
  MachineSpec m;
  m.name = in.text("name");
  m.kind = kind_of(in.text("kind"));
  m.source = in.text("source");
  m.note = in.text("note");
  m.memory_bytes = static_cast<uint64_t>(in.number_or("memory_bytes", 0));
  m.bandwidth = in.number_or("bandwidth", 0);
  m.peaks = {in.number_or("f32_macs", 0), in.number_or("f16_macs", 0), in.number_or("int8_macs", 0)};
  m.cores = in.count_or("cores", 0);
  m.reachable_bandwidth = in.number_or("reachable_bandwidth", 1);
  m.reachable_compute = in.number_or("reachable_compute", 1);
  m.reachable_source = in.text("reachable_source");
  CHECK(in.status().ok());
  return m;
}

Result<MachineSpec> measured_machine(const std::string& path, const HereMachine* here) {
  KVASIR_ASSIGN_OR_RETURN(const HardwareProfile profile, load_machine(path));
  return machine_from_profile(profile, here != nullptr ? here->memory_bytes : 0, path);
}

}  // namespace

double MachineSpec::macs(uint32_t bits) const {
  if (bits <= 8 && peaks.int8_macs > 0) return peaks.int8_macs;
  if (bits <= 16 && peaks.f16_macs > 0) return peaks.f16_macs;
  return peaks.f32_macs;
}

double MachineSpec::read_rate(uint64_t bytes) const {
  return profile ? profile->read_rate(bytes, profile->threads) : bandwidth;
}

std::string_view machine_kind_name(MachineSpec::Kind kind) {
  for (const auto& [word, value] : kKinds)
    if (value == kind) return word;
  return "";
}

MachineSpec machine_from_profile(const HardwareProfile& profile, uint64_t memory_bytes, std::string source) {
  MachineSpec m;
  m.name = profile.cpu;
  m.kind = MachineSpec::Kind::kCpu;
  m.source = std::move(source);
  m.note = fmt::format("measured {} with {} threads and {}{}", profile.measured_at, profile.threads,
                       isa_name(profile.isa), profile.disturbed() ? " while others used the CPUs too" : "");
  m.memory_bytes = memory_bytes;
  m.bandwidth = profile.read_rate(UINT64_MAX, profile.threads);
  m.peaks = {profile.f32_macs.all_threads, 0, profile.int8_macs.all_threads};
  m.cores = profile.cores;
  m.profile = profile;
  return m;
}

Result<MachineSpec> machine_by_name(std::string_view name) {
  const NamedRows rows = table();
  KVASIR_ASSIGN_OR_RETURN(const json::object* row, rows.find(name));
  return from_row(*row);
}

std::vector<std::string> known_machine_names() {
  return table().names();
}

Result<MachineSpec> resolve_machine(const std::string& text, const HereMachine& here) {
  if (text == "here") {
    Result<MachineSpec> m = here.profile_path.empty() ? not_found("no home folder is set")
                                                      : measured_machine(here.profile_path, &here);
    if (!m.ok() && m.status().code() == ErrorCode::kNotFound)
      return not_found(
          fmt::format("this machine is not measured yet ({}); `kvasir bench machine` does it", m.message()));
    return m;
  }
  if (text.find('/') != std::string::npos || text.ends_with(".json")) return measured_machine(text, nullptr);
  return machine_by_name(text);
}

}  // namespace kvasir
