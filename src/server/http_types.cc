#include "server/http_types.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <ctime>

namespace kvasir {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& h : headers) {
    if (equal_ignoring_case(h.name, name)) return h.value;
  }
  return {};
}

bool HttpRequest::has_header(std::string_view name) const {
  return std::any_of(headers.begin(), headers.end(),
                     [&](const HttpHeader& h) { return equal_ignoring_case(h.name, name); });
}

std::string_view http_reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string http_response_head(const HttpResponse& response, const std::vector<HttpHeader>& common,
                               int version, bool keep_alive, std::optional<size_t> length) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, http_reason(response.status));
  const auto add = [&](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  add("Date", fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(std::time(nullptr))));
  if (!response.content_type.empty()) add("Content-Type", response.content_type);
  for (const HttpHeader& h : common) add(h.name, h.value);
  for (const HttpHeader& h : response.headers) add(h.name, h.value);
  if (length) {
    if (response.status != 204) add("Content-Length", std::to_string(*length));
  } else if (version >= 11) {
    add("Transfer-Encoding", "chunked");
  }
  if (!keep_alive)
    add("Connection", "close");
  else if (version < 11)
    add("Connection", "keep-alive");
  head += "\r\n";
  return head;
}

std::string http_chunk(std::string_view bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

std::string http_target_path(std::string_view target) {
  if (target == "*") return "*";
  const bool origin_form = !target.empty() && target.front() == '/';
  const auto parsed = origin_form ? boost::urls::parse_origin_form({target.data(), target.size()})
                                  : boost::urls::parse_absolute_uri({target.data(), target.size()});
  if (!parsed) return "";
  std::string path = parsed->path();
  if (path.empty()) return origin_form ? "" : "/";
  return path.find('\0') == std::string::npos ? path : "";
}

}  // namespace kvasir
