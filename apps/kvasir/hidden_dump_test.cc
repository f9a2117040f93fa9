#include "apps/kvasir/hidden_dump.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(HiddenDump, PointsAreLayersAndTheOutput) {
  EXPECT_EQ(parse_points("output", 30).value(), std::vector<uint32_t>{HiddenTap::kOutputNorm});
  EXPECT_EQ(parse_points("0,15,30,output", 30).value(),
            (std::vector<uint32_t>{0, 15, 30, HiddenTap::kOutputNorm}));
  EXPECT_NE(parse_points("31", 30).message().find("'31' is no point of this model; there are 0 to 30"),
            std::string::npos);
  for (const char* wrong : {"", "2,", "2,2", "3,2", "output,2", "x", "-1", "1x"})
    EXPECT_FALSE(parse_points(wrong, 30).ok()) << wrong;
}

TEST(HiddenDump, PromptsAreLinesOrJsonStrings) {
  EXPECT_EQ(parse_prompts("one\n\ntwo words\r\n\"three\\nfour\"\nlast").value(),
            (std::vector<std::string>{"one", "two words", "three\nfour", "last"}));
  EXPECT_NE(parse_prompts("one\n\"two").message().find("line 2"), std::string::npos);
  EXPECT_TRUE(parse_prompts("\n\n").value().empty());
}

}  // namespace
}  // namespace kvasir
