#include "apps/kvasir/speculation_prompts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

namespace kvasir {

namespace embedded {
extern const std::string_view speculation_prompts_json;  // data/speculation_prompts.json
}  // namespace embedded

std::vector<SpeculationPrompt> speculation_prompts() {
  const boost::json::value all = boost::json::parse(
      {embedded::speculation_prompts_json.data(), embedded::speculation_prompts_json.size()});
  std::vector<SpeculationPrompt> prompts;
  const auto text = [](const boost::json::value& v, const char* key) {
    return std::string(v.at(key).as_string());
  };
  for (const boost::json::value& v : all.as_array())
    prompts.push_back({text(v, "kind"), text(v, "name"), text(v, "ask")});
  return prompts;
}

std::vector<std::string> speculation_workloads() {
  std::vector<std::string> kinds;
  for (const SpeculationPrompt& p : speculation_prompts()) {
    if (std::find(kinds.begin(), kinds.end(), p.kind) == kinds.end()) kinds.push_back(p.kind);
  }
  return kinds;
}

Result<std::vector<SpeculationPrompt>> prompts_of_workload(std::string_view kind) {
  std::vector<SpeculationPrompt> prompts = speculation_prompts();
  std::erase_if(prompts, [&](const SpeculationPrompt& p) { return p.kind != kind; });
  if (prompts.empty())
    return invalid_argument(
        fmt::format("'{}' is no workload; there are {}", kind, fmt::join(speculation_workloads(), ", ")));
  return prompts;
}

}  // namespace kvasir
