#include "base/kv_type.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace kvasir {
namespace {

constexpr std::pair<std::string_view, KvType> kNames[] = {
    {"auto", KvType::kF16},    {"f16", KvType::kF16},   {"fp16", KvType::kF16},
    {"float16", KvType::kF16}, {"int8", KvType::kInt8}, {"int8_per_token_head", KvType::kInt8},
};

}  // namespace

std::string_view kv_type_name(KvType type) {
  return type == KvType::kInt8 ? "int8" : "f16";
}

Result<KvType> parse_kv_type(std::string_view name) {
  std::string known;
  for (const auto& [word, type] : kNames) {
    if (word == name) return type;
    known += known.empty() ? "" : ", ";
    known += word;
  }
  return invalid_argument(fmt::format("unknown KV type '{}': choose one of {}", name, known));
}

}  // namespace kvasir
