#include "decoding/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "decoding/candidates.h"
#include "decoding/det_math.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;
constexpr double kNucleusSlack = 1e-6;
constexpr uint32_t kMaxVocab = 1u << 22;  // keeps sums of fixed-point masses below 2^63

// The loops below step by sixteen so that the compiler uses vector registers.

// First index holding a NaN or +infinity, or the row's size.
size_t find_unsound(std::span<const float> row) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr size_t kLanes = 16;
  int32_t bad[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) bad[j] |= row[i + j] <= kLargest ? 0 : -1;
  int32_t any = 0;
  for (int32_t b : bad) any |= b;
  for (; i < row.size(); ++i) any |= row[i] <= kLargest ? 0 : -1;
  if (any == 0) return row.size();
  return static_cast<size_t>(std::find_if(row.begin(), row.end(), [](float x) { return !(x <= kLargest); }) -
                             row.begin());
}

// x = (x - max) * factor.
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
  if (params_.ignore_eos)
    for (TokenId t : end_tokens_) logits[static_cast<size_t>(t)] = -kInfinity;
  if (output_count < params_.min_tokens)
    for (TokenId t : late_tokens_) logits[static_cast<size_t>(t)] = -kInfinity;
}

Result<SampledToken> Sampler::sample(std::span<float> logits, uint32_t position, uint32_t output_count,
                                     SamplerScratch& scratch) const {
  CHECK(logits.size() == vocab_size_);
  if (const size_t bad = find_unsound(logits); bad < logits.size())
    return internal_error(
        fmt::format("the model's logit of token {} at position {} is {}", bad, position, logits[bad]));
  const bool scored = params_.logprobs >= 0;
  const std::span<const float> raw = scored ? keep_row(logits, scratch) : std::span<const float>();
  adjust(logits);
  mask(logits, output_count, scratch);

  const auto best = static_cast<TokenId>(kernels_->argmax(logits.data(), vocab_size_));
  const float max = logits[static_cast<size_t>(best)];
  if (max == -kInfinity) {
    if (params_.allowed_tokens || params_.ignore_eos || output_count < params_.min_tokens)
      return invalid_argument("allowed_tokens, min_tokens and ignore_eos leave no token to choose");
    return internal_error(fmt::format("every logit of the model at position {} is -inf", position));
  }
  if (max == kInfinity)
    return invalid_argument("logit_bias and penalties push a logit beyond the range of a float");

  TokenId token = best;
  if (params_.temperature >= kGreedyBelow) {
    scale(logits, max, 1.0f / params_.temperature);
    token = draw(logits, best, {params_.seed, position, choice_}, scratch);
  }
  if (scored) return score_token(raw, token, static_cast<uint32_t>(params_.logprobs), *kernels_, scratch);
  SampledToken out;
  out.token = token;
  return out;
}

TokenId Sampler::draw(std::span<float> row, TokenId best, const RaceKey& key, SamplerScratch& scratch) const {
  const float floor =
      params_.min_p > 0.0f ? static_cast<float>(det_log(static_cast<double>(params_.min_p))) : -kInfinity;
  const bool by_rank = params_.top_k > 0 && static_cast<uint32_t>(params_.top_k) < vocab_size_;
  const bool by_mass = params_.top_p < 1.0f;
  if (!by_rank && !by_mass) return race_row(row, best, floor, key);

  auto& kept = scratch.candidates;
  const double share = static_cast<double>(params_.top_p) * (1.0 - kNucleusSlack);
  if (by_rank) {
    gather_largest(row, static_cast<size_t>(params_.top_k), scratch);
    if (by_mass) keep_nucleus(kept, static_cast<uint64_t>(share * static_cast<double>(total_mass(kept))));
  } else {
    // e^lse: at most the size of the vocabulary, as the maximum is 0.
    const double lse = static_cast<double>(kernels_->log_sum_exp(row.data(), vocab_size_));
    const auto target = static_cast<uint64_t>(share * kMassOne / det_exp(-std::max(lse, 0.0)));
    for (size_t k : {size_t{128}, size_t{4096}, row.size()}) {  // few tokens usually hold the mass
      gather_largest(row, k, scratch);
      if (kept.size() < k || k == row.size() || total_mass(kept) >= target) break;
    }
    keep_nucleus(kept, target);
  }
  std::erase_if(kept, [&](const Candidate& c) { return c.x < floor; });
  return race(kept, key);
}

}  // namespace kvasir
