#include "perf/kernel_rates_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <cmath>
#include <utility>

#include "perf/profile_reader.h"

namespace kvasir {
namespace {

namespace json = boost::json;

constexpr double kMostSeconds = 1;  // per value or position
constexpr size_t kMostEntries = 256;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;

constexpr std::pair<const char*, double RowRates::*> kRowKeys[] = {
    {"norm", &RowRates::norm},           {"quantize", &RowRates::quantize},
    {"rope", &RowRates::rope},           {"silu", &RowRates::silu},
    {"gelu", &RowRates::gelu},           {"add", &RowRates::add},
    {"store_f16", &RowRates::store_f16}, {"store_int8", &RowRates::store_int8},
    {"open_f16", &RowRates::open_f16},   {"open_int8", &RowRates::open_int8},
    {"trig", &RowRates::trig},           {"scan", &RowRates::scan}};

template <class List>
std::string list_json(const List& list) {
  return fmt::format("[{}]", fmt::join(list, ", "));
}

std::vector<uint32_t> ascending(ProfileReader& in, const char* key) {
  std::vector<uint32_t> out;
  for (const double d : in.numbers(key, 0, 1, 1 << 20)) {
    if (d != std::floor(d) || (!out.empty() && d <= out.back())) {
      in.fail(key, "does not hold ascending whole numbers");
      return out;
    }
    out.push_back(static_cast<uint32_t>(d));
  }
  if (out.size() == 1) in.fail(key, "has 1 entry; it must have at least 2");
  return out;
}

std::vector<double> seconds(ProfileReader& in, const char* key, size_t count) {
  return in.numbers(key, count, 0, kMostSeconds);
}

const DTypeInfo* dtype_of_name(const std::string& name) {
  for (const DTypeInfo& info : dtype_table()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

LinearRates read_linear(ProfileReader& in, size_t rows) {
  LinearRates r;
  const std::string name = in.text("format");
  const DTypeInfo* info = dtype_of_name(name);
  if (info == nullptr)
    in.fail("format", fmt::format("is '{}', no format that we know", name));
  else
    r.type = info->type;
  r.unpack = in.number("unpack", 0, kMostSeconds);
  r.cached = seconds(in, "cached", rows);
  r.memory = seconds(in, "memory", rows);
  return r;
}

AttentionRates read_attention(ProfileReader& in, size_t rows) {
  AttentionRates r;
  const Result<KvType> type = parse_kv_type(in.text("kv"));
  if (type.ok())
    r.kv_type = *type;
  else
    in.fail("kv", "is an " + type.message());
  r.head_dim = static_cast<uint32_t>(in.count("head_dim", 16, 4096));
  r.call = seconds(in, "call", rows);
  r.begin = seconds(in, "begin", rows);
  r.cached = seconds(in, "cached", rows);
  r.memory = seconds(in, "memory", rows);
  return r;
}

// The objects of a list, each read by fn.
template <class Fn>
void each(ProfileReader& in, const char* key, const Fn& fn) {
  const json::array* list = in.array(key);
  if (list == nullptr) return;
  if (list->empty() || list->size() > kMostEntries)
    return in.fail(key, fmt::format("has {} entries; it must have 1 .. {}", list->size(), kMostEntries));
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string name = fmt::format("{}[{}]", key, i);
    if (!(*list)[i].is_object()) return in.fail(name, "is not an object");
    ProfileReader entry((*list)[i].get_object(), in.prefix() + name + ".");
    fn(entry);
    if (!entry.status().ok()) return in.fail(entry.status());
  }
}

}  // namespace

std::string kernel_rates_json(const KernelRates& rates) {
  std::string out =
      fmt::format("{{\n    \"linear_rows\": {},\n    \"linear\": [", list_json(rates.linear_rows));
  const char* comma = "";
  for (const LinearRates& r : rates.linear) {
    out += fmt::format(
        "{}\n      {{\"format\": \"{}\", \"unpack\": {},\n       \"cached\": {},\n       \"memory\": {}}}",
        comma, dtype_info(r.type).name, r.unpack, list_json(r.cached), list_json(r.memory));
    comma = ",";
  }
  out += fmt::format("\n    ],\n    \"attention_rows\": {},\n    \"attention\": [",
                     list_json(rates.attention_rows));
  comma = "";
  for (const AttentionRates& r : rates.attention) {
    out += fmt::format(
        "{}\n      {{\"kv\": \"{}\", \"head_dim\": {},\n       \"call\": {},\n       \"begin\": {},\n       "
        "\"cached\": {},\n       \"memory\": {}}}",
        comma, kv_type_name(r.kv_type), r.head_dim, list_json(r.call), list_json(r.begin),
        list_json(r.cached), list_json(r.memory));
    comma = ",";
  }
  out += fmt::format(
      "\n    ],\n    \"memory_bytes\": {},\n    \"begin_cached\": {},\n    \"begin_memory\": {},\n    "
      "\"per_value\": {{",
      rates.memory_bytes, rates.begin_cached, rates.begin_memory);
  comma = "";
  for (const auto& [key, member] : kRowKeys) {
    out += fmt::format("{}\"{}\": {}", comma, key, rates.rows.*member);
    comma = ", ";
  }
  return out + "}\n  }";
}

Result<KernelRates> read_kernel_rates(const json::object& object, const std::string& prefix) {
  ProfileReader in(object, prefix);
  KernelRates rates;
  rates.linear_rows = ascending(in, "linear_rows");
  rates.attention_rows = ascending(in, "attention_rows");
  KVASIR_RETURN_IF_ERROR(in.status());
  each(in, "linear",
       [&](ProfileReader& entry) { rates.linear.push_back(read_linear(entry, rates.linear_rows.size())); });
  each(in, "attention", [&](ProfileReader& entry) {
    rates.attention.push_back(read_attention(entry, rates.attention_rows.size()));
  });
  rates.memory_bytes = in.count("memory_bytes", 1, kMostBytes);
  rates.begin_cached = in.number("begin_cached", 0, kMostSeconds);
  rates.begin_memory = in.number("begin_memory", 0, kMostSeconds);
  if (const json::object* values = in.object("per_value")) {
    ProfileReader entry(*values, prefix + "per_value.");
    for (const auto& [key, member] : kRowKeys) rates.rows.*member = entry.number(key, 0, kMostSeconds);
    if (!entry.status().ok()) in.fail(entry.status());
  }
  KVASIR_RETURN_IF_ERROR(in.status());
  return rates;
}

}  // namespace kvasir
