#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/kvasir/model_facts.h"
#include "apps/kvasir/speculation_prompts.h"
#include "base/result.h"
#include "engine/llm.h"

namespace kvasir {

// In place of a drafter's name: one whose guesses are as sure as can be and never right.
inline constexpr std::string_view kAdversary = "adversary";

// One way of speculating: a drafter with a fixed number of guesses, or the engine's own choice among
// drafters.
struct SpeculationVariant {
  std::string drafter;        // as --speculate takes it; "off"; kAdversary
  std::optional<uint32_t> k;  // guesses per step; 0: made and compared, none verified; none: the controller's
  std::string name() const;   // "off", "ngram k=4", "auto"
};

// What one variant did with one workload at one batch size.
struct SpeculationRow {
  std::string workload = "";
  uint32_t batch = 1;
  SpeculationVariant variant;
  std::vector<double> tokens_per_second = {};  // one per round
  double median = 0;
  double gain = 0;         // median of what it is over "off" in the same round
  uint64_t differing = 0;  // answers that are not those of "off": none, unless something is broken
  // Of all rounds:
  uint64_t tokens = 0, drafts = 0, whole = 0, drafted = 0, accepted = 0;
  std::array<uint64_t, Draft::kMost> accepted_at{};
  std::array<uint64_t, kNoDrafts> without{};  // steps of answers that verified nothing, by reason

  // Tokens that a verification gave, the one after the last right guess counted in.
  double tokens_per_draft() const;
  // Chance of a guess that was reached: accepted over those that were looked at, right or the first wrong
  // one.
  double acceptance() const;
};

// Decodes prompts with each variant in turns, on one loaded model; each round goes on with the workload's
// next prompts. They are in the prefix cache, so that what is timed is the answers.
class SpeculationBench {
 public:
  struct Options {
    Llm::Options llm;
    uint32_t tokens = 128;  // most of an answer
    uint32_t rounds = 3;
    double temperature = 0;
  };
  // `largest_batch` sequences at once. Errors are those of Llm::open.
  static Result<std::unique_ptr<SpeculationBench>> open(const std::string& path, const Options& options,
                                                        uint32_t largest_batch);
  ~SpeculationBench();

  // Opens what the variants need; else measure() does when it comes to them. Errors are those of Llm::open.
  Status prepare(const std::vector<SpeculationVariant>& variants);

  // Rows in the order of the variants; the first must be "off".
  Result<std::vector<SpeculationRow>> measure(const std::string& workload,
                                              const std::vector<SpeculationPrompt>& prompts, uint32_t batch,
                                              const std::vector<SpeculationVariant>& variants);

 private:
  SpeculationBench() = default;
  Result<Engine*> engine_for(const SpeculationVariant& variant);
  Result<std::vector<Request>> requests(const std::vector<SpeculationPrompt>& prompts, uint32_t first,
                                        uint32_t batch) const;
  Status run_round(Engine& engine, const std::vector<Request>& requests, SpeculationRow& row);

  Options options_;
  std::unique_ptr<Llm> llm_;
  LoadedTemplate chat_template_;
  ServedModel served_;
  std::vector<std::pair<std::string, std::unique_ptr<Engine>>> engines_;  // by variant; end before llm_
  std::vector<std::vector<TokenId>> expected_;                            // of "off" in this round
};

}  // namespace kvasir
