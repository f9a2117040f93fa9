#include "kernels/best_logits.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kBlock = 64;

}  // namespace

void BestLogits::start(uint32_t k) {
  DCHECK(k >= 1 && k <= kMost);
  wanted = k;
  count = 0;
  unsound = {};
}

bool BestLogits::may_enter(float x) const {
  return full() ? x >= heap[0].x : x > -kInfinity;
}

// `heap` is one whose top is the least preferred.
void BestLogits::offer(const Candidate& c) {
  if (!full()) {
    heap[count++] = c;
    std::push_heap(heap, heap + count, ranks_before);
  } else if (ranks_before(c, heap[0])) {
    std::pop_heap(heap, heap + count, ranks_before);
    heap[count - 1] = c;
    std::push_heap(heap, heap + count, ranks_before);
  }
}

void BestLogits::note_unsound(const Candidate& c) {
  if (unsound.id == kNoToken || c.id < unsound.id) unsound = c;
}

void BestLogits::add(const float* x, uint32_t n, TokenId first, const KernelTable& kernels) {
  const LogitScan whole = kernels.scan_logits(x, n);
  const auto at = [&](uint32_t i) { return Candidate{x[i], first + static_cast<TokenId>(i)}; };
  for (uint32_t i = 0; whole.unsound && i < n; ++i) {
    if (!(x[i] < kInfinity)) {
      note_unsound(at(i));
      break;
    }
  }
  if (!may_enter(whole.largest)) return;
  if (wanted == 1) return offer(at(kernels.argmax(x, n)));
  for (uint32_t begin = 0; begin < n; begin += kBlock) {
    const uint32_t end = std::min(n, begin + kBlock);
    if (!may_enter(kernels.scan_logits(x + begin, end - begin).largest)) continue;
    for (uint32_t i = begin; i < end; ++i) {
      if (may_enter(x[i])) offer(at(i));
    }
  }
}

void BestLogits::merge(const BestLogits& other) {
  if (other.unsound.id != kNoToken) note_unsound(other.unsound);
  for (const Candidate& c : other.list()) offer(c);
}

}  // namespace kvasir
