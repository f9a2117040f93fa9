#include "decoding/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "decoding/candidates.h"
#include "decoding/det_math.h"
#include "decoding/rejection.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;
constexpr double kNucleusSlack = 1e-6;
constexpr uint32_t kMaxVocab = 1u << 22;  // keeps sums of fixed-point masses below 2^63

// x = (x - max) * factor. In steps of sixteen, so that the compiler uses vector registers.
void scale(std::span<float> row, float max, float factor) {
  constexpr size_t kLanes = 16;
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) row[i + j] = (row[i + j] - max) * factor;
  for (; i < row.size(); ++i) row[i] = (row[i] - max) * factor;
}

std::span<const float> keep_row(std::span<const float> row, SamplerScratch& scratch) {
  if (scratch.raw.size() < row.size_bytes()) scratch.raw = AlignedBuffer(row.size_bytes());
  std::memcpy(scratch.raw.data(), row.data(), row.size_bytes());
  return scratch.raw.as<const float>().first(row.size());
}

void keep_known(std::vector<TokenId>& ids, uint32_t vocab_size) {
  std::erase_if(ids, [&](TokenId t) { return t < 0 || static_cast<uint32_t>(t) >= vocab_size; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

Sampler::Sampler(SamplingParams params, uint32_t choice, uint32_t vocab_size,
                 std::span<const TokenId> end_tokens, const KernelTable& kernels)
    : params_(std::move(params)),
      choice_(choice),
      vocab_size_(vocab_size),
      end_tokens_(end_tokens.begin(), end_tokens.end()),
      kernels_(&kernels) {
  CHECK(vocab_size > 0 && vocab_size <= kMaxVocab);
  keep_known(end_tokens_, vocab_size);
  late_tokens_ = end_tokens_;
  late_tokens_.insert(late_tokens_.end(), params_.stop_token_ids.begin(), params_.stop_token_ids.end());
  keep_known(late_tokens_, vocab_size);
  if (params_.allowed_tokens) keep_known(*params_.allowed_tokens, vocab_size);
  std::erase_if(params_.logit_bias,
                [&](const auto& b) { return b.first < 0 || static_cast<uint32_t>(b.first) >= vocab_size; });
}

bool Sampler::penalises() const {
  return params_.repetition_penalty != 1.0f || params_.frequency_penalty != 0.0f ||
         params_.presence_penalty != 0.0f;
}

void Sampler::observe_prompt(std::span<const TokenId> tokens) {
  if (params_.repetition_penalty == 1.0f)  // the others look at the output only
    return;
  for (TokenId t : tokens) history_.add_prompt(t);
}

void Sampler::observe_output(TokenId token) {
  if (penalises()) history_.add_output(token);
}

void Sampler::adjust(std::span<float> logits) const {
  for (const auto& [token, bias] : params_.logit_bias) logits[static_cast<size_t>(token)] += bias;
  if (!penalises()) return;
  history_.for_each([&](const TokenCounts::Entry& e) {
    if (static_cast<uint32_t>(e.token) >= vocab_size_) return;
    float& x = logits[static_cast<size_t>(e.token)];
    x = x > 0.0f ? x / params_.repetition_penalty : x * params_.repetition_penalty;
    x -= params_.frequency_penalty * static_cast<float>(e.in_output);
    if (e.in_output > 0) x -= params_.presence_penalty;
  });
}

void Sampler::mask(std::span<float> logits, uint32_t output_count, SamplerScratch& scratch) const {
  if (params_.allowed_tokens) {
    auto& kept = scratch.candidates;
    kept.clear();
    for (TokenId t : *params_.allowed_tokens) kept.push_back({logits[static_cast<size_t>(t)], t});
    std::fill(logits.begin(), logits.end(), -kInfinity);
    for (const Candidate& c : kept) logits[static_cast<size_t>(c.id)] = c.x;
  }
  for (const auto tokens : masked_tokens(output_count))
    for (TokenId t : tokens) logits[static_cast<size_t>(t)] = -kInfinity;
}

namespace {

Status unsound_error(const Candidate& logit, uint32_t position) {
  return internal_error(
      fmt::format("the model's logit of token {} at position {} is {}", logit.id, position, logit.x));
}

SampledToken unscored(TokenId token) {
  SampledToken out;
  out.token = token;
  return out;
}

}  // namespace

Status Sampler::check_row(std::span<const float> logits, uint32_t position) const {
  CHECK(logits.size() == vocab_size_);
  if (!kernels_->scan_logits(logits.data(), vocab_size_).unsound) return {};
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !(x < kInfinity); });
  return unsound_error({*bad, static_cast<TokenId>(bad - logits.begin())}, position);
}

Result<SampledToken> Sampler::sample(std::span<float> logits, uint32_t position, uint32_t output_count,
                                     SamplerScratch& scratch, TokenId guess) const {
  KVASIR_RETURN_IF_ERROR(check_row(logits, position));
  const bool scored = params_.logprobs >= 0;
  const std::span<const float> raw = scored ? keep_row(logits, scratch) : std::span<const float>();
  KVASIR_ASSIGN_OR_RETURN(const TokenId token, choose_sound(logits, position, output_count, scratch, guess));
  if (scored) return score_token(raw, token, static_cast<uint32_t>(params_.logprobs), *kernels_, scratch);
  return unscored(token);
}

Result<TokenId> Sampler::choose(std::span<float> logits, uint32_t position, uint32_t output_count,
                                SamplerScratch& scratch) const {
  KVASIR_RETURN_IF_ERROR(check_row(logits, position));
  return choose_sound(logits, position, output_count, scratch, kNoToken);
}

Result<TokenId> Sampler::choose_sound(std::span<float> logits, uint32_t position, uint32_t output_count,
                                      SamplerScratch& scratch, TokenId guess) const {
  adjust(logits);
  mask(logits, output_count, scratch);

  const auto best = static_cast<TokenId>(kernels_->argmax(logits.data(), vocab_size_));
  const float max = logits[static_cast<size_t>(best)];
  if (max == -kInfinity) return nothing_left(position, output_count);
  if (max == kInfinity)
    return invalid_argument("logit_bias and penalties push a logit beyond the range of a float");

  const RaceKey key = {params_.seed, position, choice_, kDrawStream};
  if (greedy()) return best;
  if (by_rank()) {
    gather_largest(logits, static_cast<size_t>(params_.top_k), scratch);
    return draw_ranked(max, key, scratch, guess);
  }
  scale(logits, max, 1.0f / params_.temperature);
  return draw_row(logits, best, key, scratch, guess);
}

uint32_t Sampler::logits_to_choose(uint32_t output_count) const {
  if (penalises() || !params_.logit_bias.empty() || params_.allowed_tokens) return kAllLogits;
  if (!greedy() && !by_rank()) return kAllLogits;
  size_t wanted = greedy() ? 1 : static_cast<size_t>(params_.top_k);
  for (const auto tokens : masked_tokens(output_count)) wanted += tokens.size();
  return wanted <= BestLogits::kMost ? static_cast<uint32_t>(wanted) : kAllLogits;
}

uint32_t Sampler::logits_wanted(uint32_t output_count) const {
  return params_.logprobs >= 0 ? kAllLogits : logits_to_choose(output_count);
}

Result<SampledToken> Sampler::sample(const BestLogits& best, uint32_t position, uint32_t output_count,
                                     SamplerScratch& scratch, TokenId guess) const {
  CHECK(best.wanted == logits_wanted(output_count));
  KVASIR_ASSIGN_OR_RETURN(const TokenId token, choose_best(best, position, output_count, scratch, guess));
  return unscored(token);
}

Result<TokenId> Sampler::choose(const BestLogits& best, uint32_t position, uint32_t output_count,
                                SamplerScratch& scratch) const {
  return choose_best(best, position, output_count, scratch, kNoToken);
}

Result<TokenId> Sampler::choose_best(const BestLogits& best, uint32_t position, uint32_t output_count,
                                     SamplerScratch& scratch, TokenId guess) const {
  CHECK(best.wanted >= logits_to_choose(output_count));
  if (best.unsound.id != kNoToken) return unsound_error(best.unsound, position);
  auto& kept = scratch.candidates;
  kept.assign(best.list().begin(), best.list().end());
  for (const auto tokens : masked_tokens(output_count))
    std::erase_if(kept,
                  [&](const Candidate& c) { return std::binary_search(tokens.begin(), tokens.end(), c.id); });
  if (kept.empty()) return nothing_left(position, output_count);
  keep_best(kept, greedy() ? 1 : static_cast<size_t>(params_.top_k));
  if (greedy()) return kept[0].id;
  const float max = std::min_element(kept.begin(), kept.end(), ranks_before)->x;
  return draw_ranked(max, {params_.seed, position, choice_, kDrawStream}, scratch, guess);
}

std::array<std::span<const TokenId>, 2> Sampler::masked_tokens(uint32_t output_count) const {
  std::array<std::span<const TokenId>, 2> masked;
  if (params_.ignore_eos) masked[0] = end_tokens_;
  if (output_count < params_.min_tokens) masked[1] = late_tokens_;
  return masked;
}

Status Sampler::nothing_left(uint32_t position, uint32_t output_count) const {
  if (params_.allowed_tokens || params_.ignore_eos || output_count < params_.min_tokens)
    return invalid_argument("allowed_tokens, min_tokens and ignore_eos leave no token to choose");
  return internal_error(fmt::format("every logit of the model at position {} is -inf", position));
}

bool Sampler::greedy() const {
  return params_.temperature < kGreedyBelow;
}

bool Sampler::by_rank() const {
  return params_.top_k > 0 && static_cast<uint32_t>(params_.top_k) < vocab_size_;
}

float Sampler::race_floor() const {
  return params_.min_p > 0.0f ? static_cast<float>(det_log(static_cast<double>(params_.min_p))) : -kInfinity;
}

namespace {

TokenId draw_survivor(SamplerScratch& scratch, const RaceKey& key, TokenId guess) {
  return guess == kNoToken ? race(scratch.candidates, key)
                           : accept_or_redraw(scratch.candidates, {}, guess, key);
}

}  // namespace

// Over scratch.candidates, the top_k best tokens, of which the best has the logit `max`.
TokenId Sampler::draw_ranked(float max, const RaceKey& key, SamplerScratch& scratch, TokenId guess) const {
  auto& kept = scratch.candidates;
  const float factor = 1.0f / params_.temperature;
  for (Candidate& c : kept) c.x = (c.x - max) * factor;
  if (params_.top_p < 1.0f) keep_nucleus(kept, mass_share(static_cast<double>(total_mass(kept))));
  std::erase_if(kept, [floor = race_floor()](const Candidate& c) { return c.x < floor; });
  return draw_survivor(scratch, key, guess);
}

// Over all tokens of a row whose maximum is 0, that of `best`.
TokenId Sampler::draw_row(std::span<float> row, TokenId best, const RaceKey& key, SamplerScratch& scratch,
                          TokenId guess) const {
  const float floor = race_floor();
  if (params_.top_p >= 1.0f) {
    if (guess == kNoToken) return race_row(row, best, floor, key);
    auto& all = scratch.candidates;
    all.clear();
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] >= floor && row[i] > -kInfinity) all.push_back({row[i], static_cast<TokenId>(i)});
    }
    return draw_survivor(scratch, key, guess);
  }
  // e^lse: at most the size of the vocabulary, as the maximum is 0.
  const double lse = static_cast<double>(kernels_->log_sum_exp(row.data(), vocab_size_));
  const uint64_t target = mass_share(kMassOne / det_exp(-std::max(lse, 0.0)));
  auto& kept = scratch.candidates;
  for (size_t k : {size_t{128}, size_t{4096}, row.size()}) {  // few tokens usually hold the mass
    gather_largest(row, k, scratch);
    if (kept.size() < k || k == row.size() || total_mass(kept) >= target) break;
  }
  keep_nucleus(kept, target);
  std::erase_if(kept, [floor](const Candidate& c) { return c.x < floor; });
  return draw_survivor(scratch, key, guess);
}

// The mass that a nucleus has to reach, of this total.
uint64_t Sampler::mass_share(double total) const {
  return static_cast<uint64_t>(static_cast<double>(params_.top_p) * (1.0 - kNucleusSlack) * total);
}

}  // namespace kvasir
