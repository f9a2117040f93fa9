#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir {

// A message of data/speculation_prompts.json: what speculation is measured on.
struct SpeculationPrompt {
  std::string kind;  // "code-edit", "quote", "json", "chat", "story"
  std::string name;
  std::string ask;
};

// All of them, in the file's order.
std::vector<SpeculationPrompt> speculation_prompts();

// The kinds there are, in order of their first prompt.
std::vector<std::string> speculation_workloads();

// Those of a kind; kInvalidArgument lists the kinds when there is no such.
Result<std::vector<SpeculationPrompt>> prompts_of_workload(std::string_view kind);

}  // namespace kvasir
