#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {

// One curve, or a set of marks.
struct ChartSeries {
  enum class Mark { kNone, kDisc, kRing, kSquare };
  std::string name = {};  // in the legend; "" keeps it out of it
  std::string colour = "#444444";
  std::vector<std::pair<double, double>> points = {};
  bool line = true;
  bool dashed = false;
  Mark mark = Mark::kNone;
  double size = 4;  // of a mark, in pixels
};

// Two axes with units, series, and a legend under them.
struct Chart {
  std::string title;
  std::string x_title = {}, y_title = {};
  bool log_x = false, log_y = false;  // logarithmic; all values must be positive
  std::vector<ChartSeries> series = {};
};

struct ChartBox {
  double x = 0, y = 0, width = 520, height = 420;
};

// The chart as an SVG group in the box. A chart without points is its title and the words "nothing to show".
std::string svg_chart(const Chart& chart, const ChartBox& box);

// The text with <, >, & and quotes as entities.
std::string xml_text(std::string_view text);

// Where an axis from `least` to `most` has its ticks: 1, 2 or 5 times powers of ten, about `wanted` of them;
// on a logarithmic axis powers of ten, with 2 and 5 between where there are few. For tests.
std::vector<double> axis_ticks(double least, double most, bool logarithmic, int wanted = 6);
// "0.001", "250", "4k", "1.5M"
std::string tick_text(double value);

}  // namespace kvasir
