#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvasir {

// The parts of `prefix-00002-of-00003.gguf`, the name of one file of a split model.
struct SplitName {
  std::string prefix;   // with its folder
  uint32_t number = 0;  // 1 to count
  uint32_t count = 0;

  // The name of another file of the same model.
  std::string sibling(uint32_t n) const;
};

// nullopt when `path` is not such a name.
std::optional<SplitName> parse_split_name(std::string_view path);

}  // namespace kvasir
