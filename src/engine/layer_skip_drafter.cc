#include "engine/layer_skip_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/draft_work.h"
#include "engine/guess_chooser.h"

namespace kvasir {
namespace {

std::optional<uint32_t> number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// First and last layer of "7" or "3-9".
std::optional<std::pair<uint32_t, uint32_t>> range(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return std::pair{*first, *last};
}

}  // namespace

LayerSkipDrafter::LayerSkipDrafter(CausalLm& model, ThreadPool& pool, const DraftBatch::Options& batch,
                                   std::vector<TokenId> end_tokens, DraftForecast forecast)
    : batch_(model, pool, batch), end_tokens_(std::move(end_tokens)), forecast_(std::move(forecast)) {}

// One row per sequence and pass: its last known token, then the newest guess.
void LayerSkipDrafter::propose(std::span<DraftJob> jobs) {
  CHECK(kv_ != nullptr);
  if (jobs.empty()) return;
  mean_known_ = mean_known(jobs);
  bool any = true;
  for (uint32_t guess = 0; any; ++guess) {
    any = false;
    for (DraftJob& job : jobs) {
      if (job.draft->size != guess || guess >= job.most) continue;
      const TokenId last = guess == 0 ? job.known.back() : job.draft->tokens[guess - 1];
      if (guess > 0 && !more_guesses_wanted(job, end_tokens_)) continue;
      if (batch_.room() == 0 || batch_.choices_left() == 0) run_batch();
      batch_.add(job.tables, static_cast<uint32_t>(job.known.size()) - 1 + guess, {&last, 1});
      batch_.choose_for(job);
      any = true;
    }
    run_batch();
  }
}

void LayerSkipDrafter::run_batch() {
  batch_.give_guesses(*kv_, forecast_, mean_known_);
}

double LayerSkipDrafter::seconds(uint32_t sequences, uint32_t tokens) const {
  return tokens * forecast_.seconds(sequences, 1, mean_known_);
}

Result<std::vector<uint32_t>> parse_layers(std::string_view text, uint32_t layers) {
  std::vector<bool> chosen(layers, false);
  if (const auto count = number(text)) {
    if (*count == 0 || *count > layers)
      return invalid_argument(fmt::format("layers={}: the model has {} layers", text, layers));
    std::fill_n(chosen.begin(), *count, true);
  } else {
    for (std::string_view rest = text;;) {
      const size_t plus = rest.find('+');
      const auto part = range(rest.substr(0, plus));
      if (!part)
        return invalid_argument(
            fmt::format("layers={}: '{}' is no range; layers=12 are the first twelve, layers=0-7+20-29 these",
                        text, rest.substr(0, plus)));
      if (part->second >= layers)
        return invalid_argument(
            fmt::format("layers={}: there is no layer {}, the model has those from 0 to {}", text,
                        part->second, layers - 1));
      std::fill(chosen.begin() + part->first, chosen.begin() + part->second + 1, true);
      if (plus == std::string_view::npos) break;
      rest.remove_prefix(plus + 1);
    }
  }
  std::vector<uint32_t> list;
  for (uint32_t l = 0; l < layers; ++l) {
    if (chosen[l]) list.push_back(l);
  }
  return list;
}

}  // namespace kvasir
