#include "decoding/race.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/philox.h"
#include "decoding/det_math.h"

namespace kvasir {
namespace {

constexpr size_t kBlock = 64;  // tokens looked at together
constexpr size_t kCounters = kBlock / 4;

double finishing_time(uint32_t word, float x) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;
  const double p = det_exp(static_cast<double>(x));
  return p > 0.0 ? -det_log(1.0 - v) / p : std::numeric_limits<double>::infinity();
}

uint32_t word_of(TokenId token, const RaceKey& key) {
  const auto id = static_cast<uint32_t>(token);
  const auto words = philox4x32({id / 4, key.position, key.choice, key.stream},
                                {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return words[id % 4];
}

// The first to finish so far.
struct Leader {
  double time = std::numeric_limits<double>::infinity();
  TokenId id = kNoToken;

  // Whether the token took the lead.
  bool offer(double t, TokenId token) {
    if (id != kNoToken && !(t < time || (t == time && token < id))) return false;
    time = t;
    id = token;
    return true;
  }
};

// philox4x32 for kCounters counters in a row, in a shape that vectorises.
void philox_block(uint32_t first_counter, const RaceKey& key, uint32_t* words) {
  constexpr uint64_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t c0[kCounters], c1[kCounters], c2[kCounters], c3[kCounters];
  for (size_t j = 0; j < kCounters; ++j) {
    c0[j] = first_counter + static_cast<uint32_t>(j);
    c1[j] = key.position;
    c2[j] = key.choice;
    c3[j] = key.stream;
  }
  auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (size_t j = 0; j < kCounters; ++j) {
      const uint64_t p0 = kMul0 * c0[j], p1 = kMul1 * c2[j];
      c0[j] = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ k0;
      c1[j] = static_cast<uint32_t>(p1);
      c2[j] = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ k1;
      c3[j] = static_cast<uint32_t>(p0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  for (size_t j = 0; j < kCounters; ++j) {
    words[4 * j] = c0[j];
    words[4 * j + 1] = c1[j];
    words[4 * j + 2] = c2[j];
    words[4 * j + 3] = c3[j];
  }
}

// A token can beat the leader only if v / p < time, that is log2(v) - x log2(e) < log2(time). headroom[j] is
// a lower bound of the left side: a float's bits read as an integer interpolate log2 linearly between powers
// of two, and log2 is concave.
void lower_bounds(const float* x, const uint32_t* words, float* headroom) {
  constexpr float kLog2E = 1.44269504f;
  for (size_t j = 0; j < kBlock; ++j) {
    const float v = static_cast<float>(static_cast<int32_t>(words[j] >> 1)) + 0.25f;  // <= v_i * 2^31
    const int32_t bits = std::bit_cast<int32_t>(v) - 0x3f800000;
    headroom[j] = (static_cast<float>(bits) * 0x1p-23f - 31.0f) - x[j] * kLog2E;
  }
}

constexpr float kRounding = 1e-3f;  // far above the float errors in lower_bounds

float log2_time(double time) {
  if (time == std::numeric_limits<double>::infinity()) return std::numeric_limits<float>::infinity();
  constexpr double kLog2E = 1.4426950408889634;
  return static_cast<float>(det_log(time) * kLog2E) + kRounding;
}

bool any_at_least(const float* x, float floor) {
  constexpr size_t kLanes = 16;
  int32_t hit[kLanes] = {};
  for (size_t i = 0; i < kBlock; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) hit[j] |= x[i + j] >= floor ? -1 : 0;
  int32_t any = 0;
  for (int32_t h : hit) any |= h;
  return any != 0;
}

}  // namespace

TokenId race(std::span<const Candidate> runners, const RaceKey& key) {
  Leader leader;
  for (const Candidate& c : runners) leader.offer(finishing_time(word_of(c.id, key), c.x), c.id);
  return leader.id;
}

TokenId race_row(std::span<const float> row, TokenId best, float floor, const RaceKey& key) {
  constexpr float kLn2 = 0.693147181f, kSmallestLog2V = -33.0f;
  Leader leader;
  leader.offer(finishing_time(word_of(best, key), row[static_cast<size_t>(best)]), best);
  float limit = log2_time(leader.time);
  float padded[kBlock], headroom[kBlock];
  uint32_t words[kBlock];
  for (size_t i = 0; i < row.size(); i += kBlock) {
    const float* x = row.data() + i;
    if (row.size() - i < kBlock) {
      std::fill(padded, padded + kBlock, -std::numeric_limits<float>::infinity());
      std::copy(row.begin() + static_cast<std::ptrdiff_t>(i), row.end(), padded);
      x = padded;
    }
    // Below this even the smallest v cannot win.
    const float reach = (kSmallestLog2V - limit) * kLn2 - kRounding;
    if (!any_at_least(x, std::max(floor, reach))) continue;
    philox_block(static_cast<uint32_t>(i / 4), key, words);
    lower_bounds(x, words, headroom);
    for (size_t j = 0; j < kBlock; ++j) {
      if (headroom[j] >= limit || x[j] < floor) continue;
      if (leader.offer(finishing_time(words[j], x[j]), static_cast<TokenId>(i + j)))
        limit = log2_time(leader.time);
    }
  }
  return leader.id;
}

}  // namespace kvasir
