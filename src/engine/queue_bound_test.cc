#include "engine/queue_bound.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

uint32_t fill(QueueBound& queue, const std::string& user) {
  uint32_t entered = 0;
  while (queue.enter(user).ok()) ++entered;
  return entered;
}

TEST(QueueBound, OneUserLeavesAnEighthToOthers) {
  QueueBound queue(256, 0);
  EXPECT_EQ(fill(queue, "flood"), 224u);
  EXPECT_EQ(queue.enter("flood").code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(queue.enter("flood").message(),
            "224 requests of this user are waiting; the last 32 of the queue's 256 places are for others");
  EXPECT_TRUE(queue.enter("guest").ok());
  EXPECT_EQ(queue.size(), 225u);
  EXPECT_EQ(queue.refused().user, 3u);
  EXPECT_EQ(queue.refused().full, 0u);
}

TEST(QueueBound, AfterTwoFloodsANewcomerFindsAPlace) {
  QueueBound queue(256, 0);
  EXPECT_EQ(fill(queue, "first"), 224u);
  EXPECT_EQ(fill(queue, "second"), 28u);  // the 28th while 5 places are free; then 28 are not below 7 * 4
  EXPECT_TRUE(queue.enter("guest").ok());
}

TEST(QueueBound, ALoneUserMayHaveWhatMostOfOneSays) {
  for (const uint32_t most : {1u, 2u, 7u, 8u, 9u, 100u, 256u}) {
    for (const uint32_t per_user : {0u, 1u, 5u, 1000u}) {
      QueueBound queue(most, per_user);
      EXPECT_EQ(fill(queue, ""), QueueBound::most_of_one(most, per_user)) << most << " " << per_user;
    }
  }
}

TEST(QueueBound, FullIsFullForEverybody) {
  QueueBound queue(4, 3);
  EXPECT_EQ(fill(queue, "a"), 3u);
  EXPECT_EQ(fill(queue, "b"), 1u);
  EXPECT_EQ(queue.enter("c").message(), "4 requests are waiting; the queue holds 4");
  EXPECT_EQ(queue.refused().full, 2u);
  queue.leave("a");
  EXPECT_TRUE(queue.enter("c").ok());
}

TEST(QueueBound, WhoLeavesIsForgotten) {
  QueueBound queue(8, 2);
  for (int i = 0; i < 1000; ++i) {
    const std::string user = "user " + std::to_string(i);
    ASSERT_TRUE(queue.enter(user).ok());
    queue.leave(user);
  }
  EXPECT_EQ(queue.size(), 0u);
}

}  // namespace
}  // namespace kvasir
