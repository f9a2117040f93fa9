#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/llm.h"

namespace kvasir {

// The flags that say which model runs and how; shared by the verbs that run one.
struct EngineFlags {
  std::string verb_name;  // whose flags these are
  std::string model;
  std::string chat_template;  // a file
  uint32_t threads = 0;
  std::string isa;
  std::string kv_memory;
  std::string kv_cache_dtype = "auto";
  std::string speculate = "auto";
  std::string spec_accept = "match";
  std::string log_level = "info";
  EngineConfig engine;

  void add_to(CLI::App& verb);

  // Sets up logging and translates the flags; warns of what will be slow. kInvalidArgument names the flag.
  Result<Llm::Options> options() const;

 private:
  void add_speculation_flags(CLI::App& verb);
};

// The instruction set of an --isa flag: the best there is for "", an error for one that this machine lacks.
Result<Isa> isa_of_flag(const std::string& flag);

// The threads of a --threads flag where the process may use `cpus`: all of those for 0. A step waits for its
// slowest thread, so more threads than CPUs are a warning on standard error, and more than both 16 and four
// per CPU an error. Both name both numbers.
Result<uint32_t> threads_of_flag(uint32_t flag, uint32_t cpus);
inline constexpr const char* kThreadsHelp =
    "Threads (default: the CPUs this process may use; more is slower, and at most 4 per CPU or 16 are taken)";

// --kv-cache-dtype, with the same help on every verb that has it; and what its value stands for.
CLI::Option* add_kv_cache_dtype(CLI::App& verb, std::string& target);
Result<KvType> kv_type_of_flag(const std::string& flag);

}  // namespace kvasir
