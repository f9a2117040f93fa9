#include "apps/kvasir/plan_page.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace kvasir {
namespace {

constexpr const char* kStyle =
    "body{font-family:DejaVu Sans,Arial,sans-serif;margin:2em auto;max-width:1180px;color:#222;padding:0 1em}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}svg{width:100%;height:auto}"
    "table{border-collapse:collapse;font-size:.9em;display:block;overflow-x:auto}th,td{border-bottom:1px "
    "solid #ddd;padding:.25em .8em;"
    "text-align:left}th.n,td.n{text-align:right}td[title]{cursor:help;text-decoration:underline dotted #aaa}"
    "pre{white-space:pre-wrap;font-size:.85em}code{background:#f2f2f2;padding:.2em .4em}"
    "details{margin:.2em 0}summary{cursor:pointer}";

// A sentence in which `words` between backquotes are code.
std::string sentence_html(std::string_view text) {
  std::string out;
  bool code = false;
  for (size_t at = text.find('`'); at != std::string_view::npos; at = text.find('`')) {
    out += xml_text(text.substr(0, at)) + (code ? "</code>" : "<code>");
    code = !code;
    text.remove_prefix(at + 1);
  }
  return out + xml_text(text) + (code ? "</code>" : "");
}

std::string explanation(const PlanReport& report, const std::string& id, bool recursive) {
  const Result<std::string> text = report.derivation.explain(id, recursive);
  return text.ok() ? *text : "";
}

std::string cell_html(const PlanReport& report, const PlanTable& table, const std::vector<PlanCell>& row,
                      size_t i) {
  const PlanCell& cell = row[i];
  const std::string title =
      cell.quantity.empty() || cell.text == cell.quantity
          ? ""
          : fmt::format(" title=\"{}\"", xml_text(explanation(report, cell.quantity, false)));
  return fmt::format("<td{}{}>{}</td>", table.columns[i].number ? " class=\"n\"" : "", title,
                     xml_text(cell.text));
}

std::string table_html(const PlanReport& report, const PlanTable& table) {
  std::string out = fmt::format("<h2>{}</h2>\n", xml_text(table.title));
  if (!table.rows.empty()) {
    out += "<table><tr>";
    for (const PlanTable::Column& column : table.columns)
      out += fmt::format("<th{}>{}</th>", column.number ? " class=\"n\"" : "", xml_text(column.name));
    out += "</tr>\n";
    for (const auto& row : table.rows) {
      out += "<tr>";
      for (size_t i = 0; i < row.size(); ++i) out += cell_html(report, table, row, i);
      out += "</tr>\n";
    }
    out += "</table>\n";
  }
  if (!table.list.empty()) {
    out += "<ol>\n";
    for (const std::string& line : table.list) out += fmt::format("<li>{}</li>\n", xml_text(line));
    out += "</ol>\n";
  }
  if (!table.note.empty()) out += fmt::format("<p>{}</p>\n", sentence_html(table.note));
  return out;
}

std::string derivations_html(const PlanReport& report) {
  std::string out = "<h2>How every number came about</h2>\n";
  for (const Quantity& q : report.derivation.quantities())
    out += fmt::format("<details><summary><code>{}</code> {}: {} {}</summary><pre>{}</pre></details>\n",
                       xml_text(q.id), xml_text(q.title), number_text(q.value), xml_text(q.unit),
                       xml_text(explanation(report, q.id, false)));
  return out;
}

}  // namespace

std::string plan_page(const PlanReport& report) {
  const PlanInput& in = report.request.input;
  const std::string title = fmt::format("{} on {}", in.shape.name, in.machine.name);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<meta name=\"viewport\" "
      "content=\"width=device-width\"><style>{1}</style></head><body>\n<h1>{0}</h1>\n<p>",
      xml_text(title), kStyle);
  for (const std::string& line : plan_head(report)) out += xml_text(line) + "<br>\n";
  out += "</p>\n" + plan_svg(report);
  out +=
      "<p>In the roofline a mark is one kind of layer: rings are the decode of a step, discs the prompt. "
      "Marks in "
      "one place stand inside each other.</p>\n";
  for (const PlanTable& table : plan_tables(report)) out += table_html(report, table);
  if (report.serves)
    out += fmt::format("<p>To serve it so: <code>{}</code></p>\n", xml_text(report.serve));
  else
    out += fmt::format("<p>{}</p>\n", xml_text(report.serve));
  for (const std::string& note : plan_notes(report)) out += fmt::format("<p>{}</p>\n", sentence_html(note));
  return out + derivations_html(report) + "</body></html>\n";
}

}  // namespace kvasir
