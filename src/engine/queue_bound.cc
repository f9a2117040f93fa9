#include "engine/queue_bound.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace kvasir {

Status QueueBound::enter(const std::string& user) {
  if (size_ >= most_) {
    ++refused_.full;
    return resource_exhausted(fmt::format("{} requests are waiting; the queue holds {}", size_, most_));
  }
  const auto found = by_user_.find(user);
  const uint32_t mine = found != by_user_.end() ? found->second : 0;
  const uint64_t free = most_ - size_;
  if (most_per_user_ > 0 ? mine >= most_per_user_ : mine >= kFreePlaces * free) {
    ++refused_.user;
    return resource_exhausted(
        most_per_user_ > 0
            ? fmt::format("{} requests of this user are waiting; the queue holds {} of one user", mine,
                          most_per_user_)
            : fmt::format(
                  "{} requests of this user are waiting; the last {} of the queue's {} places are for "
                  "others",
                  mine, free, most_));
  }
  ++size_;
  ++by_user_[user];
  return {};
}

void QueueBound::leave(const std::string& user) {
  const auto found = by_user_.find(user);
  CHECK(found != by_user_.end());
  --size_;
  if (--found->second == 0) by_user_.erase(found);
}

uint32_t QueueBound::most_of_one(uint32_t most, uint32_t most_per_user) {
  if (most_per_user > 0) return std::min(most, most_per_user);
  // The least m with m >= kFreePlaces * (most - m).
  return static_cast<uint32_t>((uint64_t{kFreePlaces} * most + kFreePlaces) / (kFreePlaces + 1));
}

}  // namespace kvasir
