#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

using Region = AddedTokens::Region;

AddedTokens example() {
  AddedTokens tokens;
  tokens.add("<a>", 1, true);
  tokens.add("<a><b>", 2, true);
  tokens.add("<b>", 3, false);
  tokens.add("\n\n", 4, false);
  tokens.add("", 5, true);
  return tokens;
}

std::string find_all(const std::string& text, std::vector<Region> regions) {
  const AddedTokens tokens = example();
  AddedTokens::Search search(tokens, text, regions);
  std::string found;
  for (size_t pos = 0;;) {
    const auto match = search.next(pos);
    if (!match) return found;
    found += std::to_string(match->id) + "@" + std::to_string(match->begin) + " ";
    pos = match->end;
  }
}

TEST(AddedTokens, LeftmostThenLongest) {
  EXPECT_EQ(find_all("x<a><b><b>", {{0, 10}}), "2@1 3@7 ");
  EXPECT_EQ(find_all("<a<a>\n\n\n", {{0, 8}}), "1@2 4@5 ");
  EXPECT_EQ(find_all("", {{0, 0}}), "");
}

TEST(AddedTokens, ControlTokensOnlyInsideTheirRegions) {
  EXPECT_EQ(find_all("<a><b>", {}), "3@3 ");
  EXPECT_EQ(find_all("<a><b>", {{0, 5}}), "1@0 3@3 ");
  EXPECT_EQ(find_all("<a><a><a>", {{0, 3}, {6, 9}}), "1@0 1@6 ");
  EXPECT_EQ(find_all("<a><a>", {{1, 6}}), "1@3 ");
}

TEST(AddedTokens, NothingToFind) {
  const AddedTokens none;
  const std::string text = "anything";
  EXPECT_FALSE(AddedTokens::Search(none, text, {}).next(0).has_value());
}

}  // namespace
}  // namespace kvasir
