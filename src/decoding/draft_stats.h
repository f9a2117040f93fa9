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

// What guesses did for one answer, or for several.
struct DraftCounts {
  uint32_t steps = 0;                  // that gave tokens, with drafts or without
  uint32_t drafts = 0;                 // verified
  uint32_t drafted = 0, accepted = 0;  // tokens
  std::array<uint32_t, Draft::kMost> accepted_at{};
  // Estimated: what the answer's tokens of steps with drafts would have taken in steps without, less what
  // they took. Below 0 where guesses cost more than they gained; 0 where nothing is predicted.
  double saved_seconds = 0;

  DraftCounts& operator+=(const DraftCounts& more) {
    steps += more.steps;
    drafts += more.drafts;
    drafted += more.drafted;
    accepted += more.accepted;
    for (size_t i = 0; i < accepted_at.size(); ++i) accepted_at[i] += more.accepted_at[i];
    saved_seconds += more.saved_seconds;
    return *this;
  }
  // Tokens that a verification gives on average, with the one chosen after the accepted guesses.
  double acceptance_length() const { return drafts == 0 ? 1 : 1 + static_cast<double>(accepted) / drafts; }
};

}  // namespace kvasir
