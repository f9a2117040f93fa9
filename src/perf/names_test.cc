#include "perf/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::string> kNames = {"Llama 2 7B", "Llama 2 13B", "Mistral 7B", "A100 80GB"};

TEST(Names, OnlyLettersAndDigitsCount) {
  EXPECT_EQ(plain_name("Llama-2_7b (HF)"), "llama27bhf");
  EXPECT_EQ(plain_name("\xc3\xa9-"), "");
}

TEST(Names, TheNearestComeFirst) {
  EXPECT_THAT(nearest_names("llama 2 14b", kNames), ElementsAre("Llama 2 13B", "Llama 2 7B"));
  EXPECT_THAT(nearest_names("llama 2 14b", kNames, 1), ElementsAre("Llama 2 13B"));
  EXPECT_THAT(nearest_names("a100", kNames), ElementsAre("A100 80GB"));  // held by it
  EXPECT_THAT(nearest_names("NVIDIA A100 80GB PCIe", kNames), ElementsAre("A100 80GB"));
  EXPECT_THAT(nearest_names("xyzxyz", kNames), IsEmpty());
  EXPECT_THAT(nearest_names("--", kNames), IsEmpty());
}

TEST(Names, Suggestions) {
  EXPECT_EQ(did_you_mean({}), "");
  EXPECT_EQ(did_you_mean(std::vector<std::string>{"A"}), "; did you mean A?");
  EXPECT_EQ(did_you_mean(std::vector<std::string>{"A", "B", "C"}), "; did you mean A, B or C?");
}

}  // namespace
}  // namespace kvasir
