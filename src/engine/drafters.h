#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decoding/drafter.h"
#include "engine/draft_model.h"
#include "engine/engine.h"

namespace kvasir {

// A kind of drafter that --speculate knows.
struct DrafterKind {
  std::string_view name;
  std::string_view argument;  // what follows "=", "" for nothing
  std::string_view help;      // one line
  bool automatic;             // one of those that "auto" stands for
};

// Every kind, one row each.
std::vector<DrafterKind> drafter_kinds();

// The drafters that a --speculate value asks for: "off", "auto", or names with their arguments, separated by
// commas; "auto" may be among them. kInvalidArgument names what is not known and what is.
Result<std::vector<DrafterSpec>> parse_drafters(std::string_view text);

// Makes them for an engine with this configuration (whose kv_bytes is known), in the order of the list.
// Errors name the drafter and what it lacks.
Result<std::vector<std::unique_ptr<Drafter>>> make_drafters(const EngineConfig& config,
                                                            const DraftGround& ground);

// Which of an engine's drafters a request's wish allows, as Request::drafters: "auto" for all, "off" for
// none, or names separated by commas. kInvalidArgument names what the engine does not have and what it has.
Result<uint32_t> drafter_mask(const std::vector<std::string>& names, std::string_view wish);

}  // namespace kvasir
