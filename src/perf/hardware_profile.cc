#include "perf/hardware_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "base/text_file.h"
#include "perf/kernel_rates_json.h"
#include "perf/profile_reader.h"

namespace kvasir {
namespace {

namespace json = boost::json;

// Between one thread's rate and all threads'; linear, since nothing is measured in between.
double rate_of(const HardwareProfile::Rate& rate, uint32_t used, uint32_t all) {
  if (used <= 1 || all <= 1) return rate.one_thread;
  if (used >= all) return rate.all_threads;
  const double part = (used - 1.0) / (all - 1.0);
  return rate.one_thread + part * (rate.all_threads - rate.one_thread);
}

constexpr size_t kMaxReads = 64;
constexpr size_t kMostFileBytes = size_t{1} << 20;

Status wrong(std::string_view key, std::string_view what) {
  return invalid_argument(fmt::format("machine profile: '{}' {}", key, what));
}

HardwareProfile::Rate both_rates(ProfileReader& in, const char* key) {
  const json::object* object = in.object(key);
  if (object == nullptr) return {};
  ProfileReader inner(*object, in.prefix() + key + ".");
  const HardwareProfile::Rate r{inner.rate("one_thread"), inner.rate("all_threads")};
  if (!inner.status().ok()) in.fail(inner.status());
  return r;
}

Result<std::vector<HardwareProfile::ReadRate>> read_rates(const json::array& list) {
  if (list.empty() || list.size() > kMaxReads)
    return wrong("read_bytes_per_second",
                 fmt::format("has {} entries; it must have 1 .. {}", list.size(), kMaxReads));
  std::vector<HardwareProfile::ReadRate> reads;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = fmt::format("read_bytes_per_second[{}]", i);
    if (!list[i].is_object()) return wrong(name, "is not an object");
    ProfileReader in(list[i].get_object(), name + ".");
    HardwareProfile::ReadRate read;
    read.bytes = in.count("working_set", 1, uint64_t{1} << 50);
    read.rate = {in.rate("one_thread"), in.rate("all_threads")};
    KVASIR_RETURN_IF_ERROR(in.status());
    if (!reads.empty() && reads.back().bytes >= read.bytes)
      return wrong(name + ".working_set", "is not larger than the one before");
    reads.push_back(read);
  }
  return reads;
}

std::string rate_json(const HardwareProfile::Rate& r) {
  return fmt::format(R"({{"one_thread": {}, "all_threads": {}}})", r.one_thread, r.all_threads);
}

}  // namespace

double HardwareProfile::int8_rate(uint32_t threads_used) const {
  return rate_of(int8_macs, threads_used, threads);
}

double HardwareProfile::f32_rate(uint32_t threads_used) const {
  return rate_of(f32_macs, threads_used, threads);
}

double HardwareProfile::read_rate(uint64_t bytes, uint32_t threads_used) const {
  const auto at = [&](const ReadRate& r) { return rate_of(r.rate, threads_used, threads); };
  const auto next = std::find_if(reads.begin(), reads.end(), [&](const auto& r) { return r.bytes >= bytes; });
  if (next == reads.end()) return at(reads.back());
  if (next == reads.begin() || next->bytes == bytes) return at(*next);
  const auto before = next - 1;
  const auto inverse = [](uint64_t size) { return 1 / static_cast<double>(size); };
  const double part =
      (inverse(before->bytes) - inverse(bytes)) / (inverse(before->bytes) - inverse(next->bytes));
  return 1 / ((1 - part) / at(*before) + part / at(*next));
}

std::string HardwareProfile::to_json() const {
  std::string out = "{\n";
  const auto line = [&](const char* key, const std::string& value) {
    out += fmt::format("  \"{}\": {},\n", key, value);
  };
  line("version", fmt::format("{}", kVersion));
  line("cpu", json::serialize(json::string(cpu)));
  line("isa", fmt::format("\"{}\"", isa_name(isa)));
  line("measured_at", json::serialize(json::string(measured_at)));
  line("threads", fmt::format("{}", threads));
  line("cores", fmt::format("{}", cores));
  line("clock_hz", fmt::format("{}", clock_hz));
  line("int8_macs_per_second", rate_json(int8_macs));
  line("f32_macs_per_second", rate_json(f32_macs));
  line("barrier_seconds", fmt::format("{}", barrier_seconds));
  line("others", fmt::format("{}", others));
  line("steal", fmt::format("{}", steal));
  out += "  \"read_bytes_per_second\": [";
  for (size_t i = 0; i < reads.size(); ++i)
    out += fmt::format(R"({}{{"working_set": {}, "one_thread": {}, "all_threads": {}}})",
                       i == 0 ? "\n    " : ",\n    ", reads[i].bytes, reads[i].rate.one_thread,
                       reads[i].rate.all_threads);
  out += "\n  ]";
  if (kernels) out += ",\n  \"kernels\": " + kernel_rates_json(*kernels);
  return out + "\n}\n";
}

Result<HardwareProfile> HardwareProfile::from_json(std::string_view text) {
  json::error_code error;
  const json::value root = json::parse({text.data(), text.size()}, error);
  if (error) return invalid_argument(fmt::format("machine profile: not JSON: {}", error.message()));
  if (!root.is_object()) return invalid_argument("machine profile: not a JSON object");
  ProfileReader in(root.get_object(), "");
  const uint64_t version = in.count("version", 0, UINT32_MAX);
  KVASIR_RETURN_IF_ERROR(in.status());
  if (version != kVersion)
    return wrong("version", fmt::format("is {}; this program reads version {}: measure again with "
                                        "`kvasir bench machine`",
                                        version, kVersion));
  HardwareProfile p;
  p.cpu = in.text("cpu");
  const std::string isa = in.text("isa");
  p.measured_at = in.text("measured_at");
  p.threads = static_cast<uint32_t>(in.count("threads", 1, 65536));
  p.cores = static_cast<uint32_t>(in.count("cores", 0, 65536));
  p.clock_hz = in.number("clock_hz", 1e6, 1e12);
  p.int8_macs = both_rates(in, "int8_macs_per_second");
  p.f32_macs = both_rates(in, "f32_macs_per_second");
  p.barrier_seconds = in.number("barrier_seconds", 0, 10);
  p.others = in.number("others", 0, 1);
  p.steal = in.number("steal", 0, 1);
  const json::array* reads = in.array("read_bytes_per_second");
  KVASIR_RETURN_IF_ERROR(in.status());
  const Result<Isa> parsed = parse_isa(isa);
  if (!parsed.ok()) return wrong("isa", "is an " + parsed.message());
  p.isa = *parsed;
  KVASIR_ASSIGN_OR_RETURN(p.reads, read_rates(*reads));
  if (!in.has("kernels")) return p;
  const json::object* kernels = in.object("kernels");
  KVASIR_RETURN_IF_ERROR(in.status());
  KVASIR_ASSIGN_OR_RETURN(p.kernels, read_kernel_rates(*kernels, "kernels."));
  return p;
}

Result<HardwareProfile> load_machine(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return not_found(fmt::format("{}: no such file", path));
  KVASIR_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  if (text.size() > kMostFileBytes)
    return invalid_argument(
        fmt::format("{}: larger than {} bytes, not a machine profile", path, kMostFileBytes));
  auto machine = HardwareProfile::from_json(text);
  if (!machine.ok()) return Status(machine.status().code(), fmt::format("{}: {}", path, machine.message()));
  return machine;
}

}  // namespace kvasir
