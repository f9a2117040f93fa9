#include "apps/kvasir/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvasir {
namespace {

constexpr double kLeft = 64, kRight = 14, kTop = 34, kAxis = 44, kLegendRow = 17, kLetter = 7.3;

// One axis: values to pixels.
struct Axis {
  double least = 0, most = 1;  // values
  bool logarithmic = false;
  double from = 0, to = 1;  // pixels

  double at(double value) const {
    const auto scale = [&](double v) { return logarithmic ? std::log10(std::max(v, 1e-300)) : v; };
    const double part = (scale(value) - scale(least)) / (scale(most) - scale(least));
    return from + part * (to - from);
  }
};

Axis axis_of(const Chart& chart, bool x, double from, double to) {
  Axis axis{std::numeric_limits<double>::max(), std::numeric_limits<double>::lowest(),
            x ? chart.log_x : chart.log_y, from, to};
  for (const ChartSeries& series : chart.series) {
    for (const auto& point : series.points) {
      const double value = x ? point.first : point.second;
      axis.least = std::min(axis.least, value);
      axis.most = std::max(axis.most, value);
    }
  }
  if (axis.logarithmic) {
    if (axis.most / axis.least < 2) axis.most = axis.least * 2;
    const double room = x ? 1.06 : 1.3;
    axis.least /= room;
    axis.most *= room;
  } else {
    axis.least = std::min(axis.least, 0.0);
    if (axis.most <= axis.least) axis.most = axis.least + 1;
    axis.most += (axis.most - axis.least) * 0.06;
  }
  return axis;
}

std::string text_at(double x, double y, std::string_view text, const char* anchor, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, more,
                     xml_text(text));
}

std::string line_from(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1,
                     y1, x2, y2, colour);
}

std::string mark_at(const ChartSeries& series, double x, double y) {
  const double r = series.size;
  switch (series.mark) {
    case ChartSeries::Mark::kNone:
      return "";
    case ChartSeries::Mark::kDisc:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\"/>\n", x, y, r,
                         series.colour);
    case ChartSeries::Mark::kRing:
      return fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"none\" stroke=\"{}\" "
          "stroke-width=\"2\"/>\n",
          x, y, r, series.colour);
    case ChartSeries::Mark::kSquare:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                         x - r, y - r, 2 * r, 2 * r, series.colour);
  }
  return "";
}

std::string series_svg(const ChartSeries& series, const Axis& x, const Axis& y) {
  std::string out;
  if (series.line && series.points.size() > 1) {
    std::string points;
    for (const auto& p : series.points)
      points += fmt::format("{:.1f},{:.1f} ", x.at(p.first), y.at(p.second));
    out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", points,
                       series.colour, series.dashed ? " stroke-dasharray=\"6 4\"" : "");
  }
  for (const auto& p : series.points) out += mark_at(series, x.at(p.first), y.at(p.second));
  return out;
}

std::string axes_svg(const Chart& chart, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : axis_ticks(x.least, x.most, x.logarithmic)) {
    out += line_from(x.at(tick), y.from, x.at(tick), y.to, "#e4e4e4");
    out += text_at(x.at(tick), y.from + 16, tick_text(tick), "middle");
  }
  for (const double tick : axis_ticks(y.least, y.most, y.logarithmic)) {
    out += line_from(x.from, y.at(tick), x.to, y.at(tick), "#e4e4e4");
    out += text_at(x.from - 6, y.at(tick) + 4, tick_text(tick), "end");
  }
  out +=
      line_from(x.from, y.from, x.to, y.from, "#888888") + line_from(x.from, y.from, x.from, y.to, "#888888");
  out += text_at((x.from + x.to) / 2, y.from + 34, chart.x_title, "middle");
  const double middle = (y.from + y.to) / 2;
  const std::string turned = fmt::format("transform=\"rotate(-90 {:.1f} {:.1f})\"", x.from - 46, middle);
  return out + text_at(x.from - 46, middle, chart.y_title, "middle", turned.c_str());
}

// A legend entry's place, in rows of the box's width.
struct Entry {
  const ChartSeries* series = nullptr;
  double x = 0;
  size_t row = 0;
};

std::vector<Entry> legend_of(const Chart& chart, double width) {
  std::vector<Entry> entries;
  double x = 0;
  size_t row = 0;
  for (const ChartSeries& series : chart.series) {
    if (series.name.empty()) continue;
    const double needed = 34 + kLetter * static_cast<double>(series.name.size());
    if (x > 0 && x + needed > width) {
      x = 0;
      ++row;
    }
    entries.push_back({&series, x, row});
    x += needed;
  }
  return entries;
}

std::string legend_svg(const std::vector<Entry>& entries, double left, double top) {
  std::string out;
  for (const Entry& entry : entries) {
    const double x = left + entry.x, y = top + static_cast<double>(entry.row) * kLegendRow;
    ChartSeries sample = *entry.series;
    sample.size = std::min(sample.size, 5.0);
    if (sample.line)
      out += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{2:.1f}\" x2=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
          "stroke-width=\"2\"{4}/>\n",
          x, x + 18, y, sample.colour, sample.dashed ? " stroke-dasharray=\"6 4\"" : "");
    out += mark_at(sample, x + 9, y) + text_at(x + 24, y + 4, sample.name, "start");
  }
  return out;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> axis_ticks(double least, double most, bool logarithmic, int wanted) {
  std::vector<double> ticks;
  const double slack = 1e-9;
  if (logarithmic) {
    const bool few = std::log10(most / least)<2.5, many = std::log10(most / least)> 8;
    for (int power = static_cast<int>(std::floor(std::log10(least))); power <= std::ceil(std::log10(most));
         ++power) {
      if (many && power % 2 != 0) continue;
      for (const double digit : {1.0, 2.0, 5.0}) {
        if (digit > 1 && !few) continue;
        const double tick = digit * std::pow(10.0, power);
        if (tick >= least * (1 - slack) && tick <= most * (1 + slack)) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double rough = (most - least) / wanted;
  double step = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (step >= rough) break;
    step *= factor;
  }
  for (double n = std::ceil(least / step - slack); n * step <= most + slack * step; ++n)
    ticks.push_back(n * step + 0.0);  // never -0
  return ticks;
}

std::string tick_text(double value) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (std::abs(value) >= 1000 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.4g}{}", value, kUnits[unit]);
}

std::string svg_chart(const Chart& chart, const ChartBox& box) {
  const std::vector<Entry> legend = legend_of(chart, box.width - 24);
  const double rows = legend.empty() ? 0 : static_cast<double>(legend.back().row + 1);
  const double bottom = box.y + box.height - kAxis - rows * kLegendRow - 6;
  std::string out = "<g>\n" + text_at(box.x + box.width / 2, box.y + 18, chart.title, "middle",
                                      "font-weight=\"bold\" font-size=\"14\"");
  const bool empty = std::all_of(chart.series.begin(), chart.series.end(),
                                 [](const ChartSeries& s) { return s.points.empty(); });
  if (empty)
    return out + text_at(box.x + box.width / 2, box.y + box.height / 2, "nothing to show", "middle") +
           "</g>\n";
  const Axis x = axis_of(chart, true, box.x + kLeft, box.x + box.width - kRight);
  const Axis y = axis_of(chart, false, bottom, box.y + kTop);
  out += axes_svg(chart, x, y);
  for (const ChartSeries& series : chart.series) out += series_svg(series, x, y);
  return out + legend_svg(legend, box.x + 16, bottom + kAxis + 8) + "</g>\n";
}

}  // namespace kvasir
