#include "engine/hidden_window.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

HiddenWindow window_with(uint32_t first, uint32_t end) {
  HiddenWindow window;
  window.open(4, 1);
  for (uint32_t p = first; p < end; ++p) *window.place(p) = static_cast<float>(p);
  return window;
}

void expect_holds(const HiddenWindow& window, uint32_t begin, uint32_t end) {
  EXPECT_EQ(window.begin(), begin);
  EXPECT_EQ(window.end(), end);
  for (uint32_t p = begin; p < end; ++p) EXPECT_EQ(*window.at(p), static_cast<float>(p));
}

TEST(HiddenWindow, KeepsTheLast) {
  expect_holds(window_with(0, 3), 0, 3);
  expect_holds(window_with(0, 9), 5, 9);
  expect_holds(window_with(7, 9), 7, 9);
}

TEST(HiddenWindow, BeginsAnewBehindAGap) {
  HiddenWindow window = window_with(0, 3);
  *window.place(5) = 5;
  expect_holds(window, 5, 6);
}

// Rows of guesses that were wrong come again.
TEST(HiddenWindow, ForgetsWhatWasBehindAPosition) {
  HiddenWindow window = window_with(0, 6);  // 2 to 5
  *window.place(4) = 4;
  expect_holds(window, 2, 5);
  *window.place(1) = 1;  // before everything: what is behind it is not the sequence's any more
  expect_holds(window, 1, 2);
}

TEST(HiddenWindow, IsCut) {
  HiddenWindow window = window_with(0, 6);
  window.cut(9);
  expect_holds(window, 2, 6);
  window.cut(3);
  expect_holds(window, 2, 3);
  window.cut(1);
  EXPECT_EQ(window.begin(), window.end());
  *window.place(1) = 1;
  expect_holds(window, 1, 2);
}

}  // namespace
}  // namespace kvasir
