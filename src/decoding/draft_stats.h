#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "decoding/drafter.h"

namespace kvasir {

// Why a sequence's step carried no draft, or why a drafter made none: nobody had a guess, none was worth its
// cost, prompts were being read, the request refused, or another drafter's guesses were worth more.
enum class NoDraft : uint8_t { kNoGuess, kNoGain, kPrompts, kRefused, kOutbid };
constexpr uint32_t kNoDrafts = 5;
inline std::string_view no_draft_name(NoDraft reason) {
  constexpr std::array<std::string_view, kNoDrafts> kNames = {"no_guess", "no_gain", "prompts", "refused",
                                                              "outbid"};
  return kNames[static_cast<size_t>(reason)];
}

// What drafts have done since the engine started, by drafter.
struct DrafterStats {
  std::string_view name;
  uint64_t drafts = 0, whole = 0;                    // whole: every guess of it came true
  uint64_t drafted = 0, accepted = 0;                // tokens; accepted: those that became part of an answer
  std::array<uint64_t, Draft::kMost> accepted_at{};  // by place in the draft
  std::array<uint64_t, kNoDrafts> off{};             // tokens chosen without a draft of its, by reason
};

}  // namespace kvasir
