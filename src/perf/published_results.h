#pragma once

#include <string>
#include <vector>

namespace kvasir {

// A number that others published, and what the formulas say from the model's shape and the machine alone.
struct PublishedResult {
  std::string what;
  std::string unit;
  double published = 0;
  double predicted = 0;
  std::string source;    // where it stands
  std::string gap = {};  // why they differ, where by more than a fifth

  double error() const { return predicted / published - 1; }
};

// Sizes, counts, times and rates: of papers, of the book, of engines that state their bandwidth, and of
// engines on machines of data/machines.json. Computed anew at every call.
std::vector<PublishedResult> published_results();

// The same as a Markdown table.
std::string published_table();

}  // namespace kvasir
