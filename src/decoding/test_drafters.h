#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "decoding/drafter.h"

// Drafters whose guesses are right as often as a test wants, for showing that what they guess changes no
// token.
namespace kvasir::testing_drafters {

// The tokens that really follow `known` in a slot, `count` of them or as many as there are; what is generated
// with speculation off, say.
using Continuation =
    std::function<std::vector<TokenId>(uint32_t slot, std::span<const TokenId> known, uint32_t count)>;

// Draws that depend on nothing but the seed and the place, so that a draft is the same whenever it is asked
// for and whatever else is drafted beside it.
inline std::mt19937_64 draws_at(uint64_t seed, const DraftJob& job) {
  std::seed_seq place{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), job.slot,
                      static_cast<uint32_t>(job.known.size())};
  return std::mt19937_64(place);
}

// Some token that is not `token`.
inline TokenId other_than(TokenId token, uint32_t vocab, std::mt19937_64& draws) {
  const auto id = static_cast<TokenId>(draws() % (vocab - 1));
  return id >= token ? id + 1 : id;
}

// What they have in common: slots that hold nothing, and a draft from the job alone.
class TestDrafter : public Drafter {
 public:
  explicit TestDrafter(std::string_view name) : name_(name) {}
  std::string_view name() const override { return name_; }
  void open(uint32_t, uint32_t) override {}
  void close(uint32_t) override {}
  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      job.draft->clear();
      if (job.most > 0) draft(job, *job.draft);
    }
  }

 protected:
  virtual void draft(const DraftJob& job, Draft& draft) = 0;

 private:
  std::string_view name_;
};

// Always right, as far as the continuation goes.
class OracleDrafter : public TestDrafter {
 public:
  explicit OracleDrafter(Continuation right) : TestDrafter("oracle"), right_(std::move(right)) {}

 protected:
  void draft(const DraftJob& job, Draft& draft) override {
    const auto tokens = right_(job.slot, job.known, job.most);
    for (size_t i = 0; i < std::min<size_t>(job.most, tokens.size()); ++i) draft.add(tokens[i]);
    draft.evidence = Draft::kEvidences - 1;
  }

 private:
  Continuation right_;
};

// Never right: at every place another token than the true one, of a vocabulary of at least two; as long as it
// may be, and as sure of itself as can be. Past the end of the continuation any token.
class AdversarialDrafter : public TestDrafter {
 public:
  AdversarialDrafter(Continuation right, uint32_t vocab, uint64_t seed = 1)
      : TestDrafter("adversarial"), right_(std::move(right)), vocab_(vocab), seed_(seed) {}

 protected:
  void draft(const DraftJob& job, Draft& draft) override {
    auto draws = draws_at(seed_, job);
    const auto tokens = right_(job.slot, job.known, job.most);
    for (size_t i = 0; i < job.most; ++i)
      draft.add(i < tokens.size() ? other_than(tokens[i], vocab_, draws)
                                  : static_cast<TokenId>(draws() % vocab_));
    draft.evidence = Draft::kEvidences - 1;
  }

 private:
  Continuation right_;
  uint32_t vocab_;
  uint64_t seed_;
};

// Any tokens, any number of them, of any evidence.
class RandomDrafter : public TestDrafter {
 public:
  explicit RandomDrafter(uint32_t vocab, uint64_t seed = 1)
      : TestDrafter("random"), vocab_(vocab), seed_(seed) {}

 protected:
  void draft(const DraftJob& job, Draft& draft) override {
    auto draws = draws_at(seed_, job);
    for (uint64_t n = draws() % (job.most + 1); n > 0; --n) draft.add(static_cast<TokenId>(draws() % vocab_));
    draft.evidence = static_cast<uint32_t>(draws() % Draft::kEvidences);
  }

 private:
  uint32_t vocab_;
  uint64_t seed_;
};

// Right, and each time of another length from 0 to the most.
class ReplayDrafter : public TestDrafter {
 public:
  explicit ReplayDrafter(Continuation right, uint64_t seed = 1)
      : TestDrafter("replay"), right_(std::move(right)), seed_(seed) {}

 protected:
  void draft(const DraftJob& job, Draft& draft) override {
    auto draws = draws_at(seed_, job);
    const auto length = static_cast<uint32_t>(draws() % (job.most + 1));
    const auto tokens = right_(job.slot, job.known, length);
    for (size_t i = 0; i < std::min<size_t>(length, tokens.size()); ++i) draft.add(tokens[i]);
    draft.evidence = static_cast<uint32_t>(draws() % Draft::kEvidences);
  }

 private:
  Continuation right_;
  uint64_t seed_;
};

// Each token right with probability `rate`, whatever the others are; as long as it may be.
class FixedRateDrafter : public TestDrafter {
 public:
  FixedRateDrafter(Continuation right, double rate, uint32_t vocab, uint64_t seed = 1)
      : TestDrafter("fixed-rate"), right_(std::move(right)), rate_(rate), vocab_(vocab), seed_(seed) {}

 protected:
  void draft(const DraftJob& job, Draft& draft) override {
    auto draws = draws_at(seed_, job);
    const auto tokens = right_(job.slot, job.known, job.most);
    for (size_t i = 0; i < std::min<size_t>(job.most, tokens.size()); ++i) {
      const bool right = static_cast<double>(draws() >> 11) * 0x1p-53 < rate_;
      draft.add(right ? tokens[i] : other_than(tokens[i], vocab_, draws));
    }
  }

 private:
  Continuation right_;
  double rate_;
  uint32_t vocab_;
  uint64_t seed_;
};

// The continuation that texts give: texts[slot], of which `known` is the beginning.
inline Continuation continuation_of(std::vector<std::vector<TokenId>> texts) {
  return [texts = std::move(texts)](uint32_t slot, std::span<const TokenId> known, uint32_t count) {
    const std::vector<TokenId>& text = texts.at(slot);
    const size_t begin = std::min(known.size(), text.size());
    const size_t end = std::min(begin + count, text.size());
    return std::vector<TokenId>(text.begin() + static_cast<ptrdiff_t>(begin),
                                text.begin() + static_cast<ptrdiff_t>(end));
  };
}

}  // namespace kvasir::testing_drafters
