#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace kvasir {

class KvStore;
class Sampler;

// Tokens that a drafter guesses to follow a sequence, as a chain: each on the condition that those before it
// are right.
struct Draft {
  static constexpr uint32_t kMost = 16;
  // Classes of what a guess rests on; how often guesses are right is learnt for each class apart.
  static constexpr uint32_t kEvidences = 8;

  // Classes of how surely a guess was chosen from logits, the surest one last.
  static constexpr uint32_t kGrades = 8;

  std::array<TokenId, kMost> tokens{};
  std::array<uint8_t, kMost> grades{};  // of each guess, where `graded`
  bool graded = false;                  // the drafter chooses from logits
  bool gave_up = false;                 // no more guesses were made because of DraftStop
  uint32_t size = 0;
  uint32_t evidence = 0;   // below kEvidences; the drafter's own scale, a higher one the surer
  bool from_less = false;  // in a trial, guessed from a part of the text: says less than other guesses would

  void clear() { size = 0, evidence = 0, from_less = graded = gave_up = false; }
  void add(TokenId token) { tokens[size++] = token; }
  void add(TokenId token, uint8_t grade) {
    grades[size] = grade;
    graded = true;
    add(token);
  }
  std::span<const TokenId> list() const { return {tokens.data(), size}; }
};

// How often a guess is right, by what is known before any was compared: the first of a draft, and each later
// one where those before it are right.
struct DraftChance {
  double first = 0.5, later = 0.5;
};
using DraftChances = std::array<DraftChance, Draft::kEvidences>;  // by evidence

// By how much the likeliest token's logit leads the second's, as a class.
uint8_t grade_of(float lead);

// When a further guess is not worth its pass: what it rests on is too unsure.
struct DraftStop {
  std::array<double, Draft::kGrades>
      right{};       // chance of a guess of each grade, where those before it are right
  double least = 0;  // chance that all guesses so far are right, for a further one

  bool ends(const Draft& draft) const;
};

// A sequence that wants a draft.
struct DraftJob {
  uint32_t slot = 0;                 // of the sequence
  std::span<const TokenId> known;    // its prompt and what was generated; grows at the end between calls
  uint32_t most = 0;                 // tokens wanted; at most Draft::kMost
  const Sampler* sampler = nullptr;  // how its tokens are chosen, for drafters that compute logits
  uint32_t output_tokens = 0;        // how many of `known` were generated
  // Where the target keeps the K and V of `known` (but of its last token), and has room for those of the
  // guesses; for drafters that run the target's own layers.
  std::span<const BlockId* const> tables = {};
  std::string_view cache_salt = {};  // sequences share what was computed for them only with the same salt
  // Only to learn whether such guesses are right now: a drafter that has much to catch up with first may
  // guess from less.
  bool trial = false;
  const DraftStop* stop = nullptr;  // for drafters that make one guess a pass; null: there is none
  Draft* draft = nullptr;           // receives at most `most` tokens, perhaps none
};

// What of the target's passes a drafter wants to see.
struct HiddenWish {
  std::vector<uint32_t> points;  // as HiddenTap::points; none: nothing
  uint32_t rows = 0;             // of the rows of a sequence in a pass the last ones, at most so many
};

// Hidden states of rows of a sequence that the target has just computed, at positions from `first` on.
struct HiddenRows {
  uint32_t first = 0;
  uint32_t rows = 0;
  uint32_t width = 0;
  std::span<const uint32_t> points;  // ascending; those of all drafters
  const float* values = nullptr;     // [rows][points][width]

  const float* at(uint32_t row, uint32_t point) const {
    size_t p = 0;
    while (points[p] != point) ++p;
    return values + (size_t{row} * points.size() + p) * width;
  }
};

// Guesses the next tokens of sequences, which are then verified all at once (speculative decoding, Leviathan
// et al., arXiv 2211.17192). What it guesses changes how fast tokens come and never which: a draft is only
// compared with the tokens that the target's sampler chooses.
//
// Sequences live in slots from 0 to the number given at construction less one; all memory is allocated there
// or when a slot is opened. Not thread-safe.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;

  // What is expected of its guesses until they have been compared.
  virtual DraftChances chances() const { return {}; }

  // Where the target keeps K and V; before anything else, once.
  virtual void attach(KvStore& kv) { (void)kv; }

  // The same for its whole life.
  virtual HiddenWish hidden_wish() const { return {}; }
  // Hidden states of a slot's sequence, after each pass that computed some of it. The last rows may be those
  // of guesses, which turn out wrong where the next question's `known` does not reach beyond them. A row's
  // state is there for whoever guesses what follows the token after it: the last known one has none yet.
  virtual void see(uint32_t slot, const HiddenRows& rows) { (void)slot, (void)rows; }

  // A sequence of at most max_tokens tokens moves into a free slot.
  virtual void open(uint32_t slot, uint32_t max_tokens) = 0;
  // It has ended or gives its slot up.
  virtual void close(uint32_t slot) = 0;

  // Fills the drafts of all jobs. May read `known` from where it last was; must not allocate.
  virtual void propose(std::span<DraftJob> jobs) = 0;

  // Seconds that drafting `tokens` tokens for each of `sequences` sequences takes; 0 where that is nothing
  // beside a step. Drafters that cost nothing are asked before a step is planned, also for guesses that are
  // only compared afterwards; the others are asked once the step has room for their guesses.
  virtual double seconds(uint32_t sequences, uint32_t tokens) const {
    (void)sequences, (void)tokens;
    return 0;
  }
  // What it takes beside that until the drafter has read as many tokens of a slot's sequence as are known, or
  // those that it needs for a trial.
  virtual double catch_up_seconds(uint32_t slot, uint32_t known, bool trial) const {
    (void)slot, (void)known, (void)trial;
    return 0;
  }
  virtual bool is_free() const { return true; }
  // Guesses that it makes at most for a sequence.
  virtual uint32_t most() const { return Draft::kMost; }
};

}  // namespace kvasir
