#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace kvasir {

// Candidate merges in the order in which BPE takes them: lowest rank first, then leftmost. A queue for every
// rank, and a heap only over the ranks in use: candidates of one rank mostly arrive from left to right, so
// that even a megabyte of one letter costs constant time per candidate. Late arrivals go to a heap of their
// own; O(log n) at worst.
class MergeQueue {
 public:
  struct Candidate {
    uint32_t rank;
    uint32_t position;
  };
  void push(Candidate candidate);
  bool empty() const { return active_.empty(); }
  Candidate pop();  // not when empty
  void clear();     // keeps the memory

 private:
  struct Bucket {
    std::vector<uint32_t> ordered;  // ascending from `head` on
    size_t head = 0;
    std::vector<uint32_t> late;  // min-heap

    bool empty() const { return head == ordered.size() && late.empty(); }
    void push(uint32_t position);
    uint32_t pop();
  };
  uint32_t bucket_of(uint32_t rank);

  std::vector<Bucket> buckets_;
  size_t used_buckets_ = 0;
  std::unordered_map<uint32_t, uint32_t> bucket_by_rank_;
  std::vector<uint64_t> active_;  // min-heap of rank << 32 | bucket, for the buckets that are not empty
};

}  // namespace kvasir
