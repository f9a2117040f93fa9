#include "tokenizer/merge_queue.h"

#include <algorithm>
#include <functional>

namespace kvasir {

void MergeQueue::Bucket::push(uint32_t position) {
  if (head == ordered.size() || position >= ordered.back()) {
    ordered.push_back(position);
  } else {
    late.push_back(position);
    std::push_heap(late.begin(), late.end(), std::greater<>());
  }
}

uint32_t MergeQueue::Bucket::pop() {
  if (late.empty() || (head < ordered.size() && ordered[head] <= late.front())) {
    const uint32_t position = ordered[head++];
    if (head == ordered.size()) {
      ordered.clear();
      head = 0;
    }
    return position;
  }
  std::pop_heap(late.begin(), late.end(), std::greater<>());
  const uint32_t position = late.back();
  late.pop_back();
  return position;
}

uint32_t MergeQueue::bucket_of(uint32_t rank) {
  const auto [it, added] = bucket_by_rank_.try_emplace(rank, static_cast<uint32_t>(used_buckets_));
  if (added && ++used_buckets_ > buckets_.size()) buckets_.emplace_back();
  return it->second;
}

void MergeQueue::push(Candidate candidate) {
  const uint32_t index = bucket_of(candidate.rank);
  Bucket& bucket = buckets_[index];
  if (bucket.empty()) {
    active_.push_back((static_cast<uint64_t>(candidate.rank) << 32) | index);
    std::push_heap(active_.begin(), active_.end(), std::greater<>());
  }
  bucket.push(candidate.position);
}

MergeQueue::Candidate MergeQueue::pop() {
  const uint64_t top = active_.front();
  Bucket& bucket = buckets_[static_cast<uint32_t>(top)];
  const Candidate candidate{static_cast<uint32_t>(top >> 32), bucket.pop()};
  if (bucket.empty()) {
    std::pop_heap(active_.begin(), active_.end(), std::greater<>());
    active_.pop_back();
  }
  return candidate;
}

void MergeQueue::clear() {
  for (size_t i = 0; i < used_buckets_; ++i) {
    buckets_[i].ordered.clear();
    buckets_[i].head = 0;
    buckets_[i].late.clear();
  }
  used_buckets_ = 0;
  bucket_by_rank_.clear();
  active_.clear();
}

}  // namespace kvasir
