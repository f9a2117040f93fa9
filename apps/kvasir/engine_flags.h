#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/llm.h"

namespace kvasir {

// The flags that say which model runs and how; shared by the verbs that run one.
struct EngineFlags {
  std::string model;
  std::string chat_template;  // a file
  uint32_t threads = 0;
  std::string isa;
  std::string kv_memory;
  std::string kv_cache_dtype = "auto";
  std::string log_level = "info";
  EngineConfig engine;

  void add_to(CLI::App& verb);

  // Sets up logging and translates the flags. kInvalidArgument names the flag.
  Result<Llm::Options> options() const;
};

// The instruction set of an --isa flag: the best there is for "", an error for one that this machine lacks.
Result<Isa> isa_of_flag(const std::string& flag);

// --kv-cache-dtype, with the same help on every verb that has it; and what its value stands for.
CLI::Option* add_kv_cache_dtype(CLI::App& verb, std::string& target);
Result<KvType> kv_type_of_flag(const std::string& flag);

}  // namespace kvasir
