#include "server/access_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cstdint>

namespace kvasir {
namespace {

// The host of a Host header or authority, without port and brackets.
std::string_view host_name(std::string_view authority) {
  if (!authority.empty() && authority.front() == '[') {
    const size_t end = authority.find(']');
    return end == std::string_view::npos ? std::string_view() : authority.substr(1, end - 1);
  }
  return authority.substr(0, authority.find(':'));
}

bool is_loopback_name(std::string_view host) {
  const std::string name = lower_case(host);
  boost::system::error_code not_an_address;
  const auto address = boost::asio::ip::make_address(name, not_an_address);
  if (!not_an_address) return address.is_loopback();
  return name == "localhost" || name.ends_with(".localhost");
}

std::string_view origin_authority(std::string_view origin) {
  const size_t at = origin.find("://");
  return at == std::string_view::npos ? std::string_view() : origin.substr(at + 3);
}

bool safe_method(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS";
}

std::string_view presented_key(const HttpRequest& request) {
  const std::string_view authorization = request.header("Authorization");
  const size_t scheme_end = std::min(authorization.find(' '), authorization.size());
  const size_t key = authorization.find_first_not_of(' ', scheme_end);
  const bool bearer = equal_ignoring_case(authorization.substr(0, scheme_end), "Bearer");
  if (bearer && key != std::string_view::npos) return authorization.substr(key);
  return request.header("x-api-key");
}

}  // namespace

bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  if (secret.empty()) return false;
  unsigned difference = given.size() != secret.size();
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<uint8_t>(given[i]) ^
                                        static_cast<uint8_t>(secret[i % secret.size()]));
  }
  return difference == 0;
}

bool AccessPolicy::host_accepted(std::string_view host) const {
  const std::string_view name = host_name(host);
  return is_loopback_name(name) ||
         std::any_of(allowed_hosts.begin(), allowed_hosts.end(),
                     [&](const std::string& allowed) { return equal_ignoring_case(allowed, name); });
}

bool AccessPolicy::origin_allowed(const HttpRequest& request) const {
  const std::string_view origin = request.header("Origin");
  if (origin.empty() || equal_ignoring_case(origin_authority(origin), request.header("Host"))) return true;
  return std::any_of(cors_origins.begin(), cors_origins.end(),
                     [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

std::string_view AccessPolicy::key_of(const HttpRequest& request) const {
  const std::string_view key = presented_key(request);
  std::string_view found;
  for (const std::string& secret : api_keys) {
    if (equal_in_constant_time(key, secret)) found = secret;
  }
  return found;
}

Problem AccessPolicy::check(const HttpRequest& request, bool open_route) const {
  ApiError error;
  error.status = 403;
  error.type = "permission_error";
  if (check_host && request.version >= 11 && !host_accepted(request.header("Host"))) {
    error.message = fmt::format("the server does not answer to the host name '{}'; --allowed-host adds names",
                                request.header("Host").substr(0, 256));
    return error;
  }
  if (!safe_method(request.method) && !origin_allowed(request)) {
    error.message = "requests from this origin are not allowed; --cors-origin adds origins";
    return error;
  }
  if (open_route || request.method == "OPTIONS" || api_keys.empty() || !key_of(request).empty())
    return std::nullopt;
  error.status = 401;
  error.type = "authentication_error";
  error.code = "invalid_api_key";
  error.message = presented_key(request).empty() ? "an API key is needed: send 'Authorization: Bearer KEY'"
                                                 : "the API key is not valid here";
  return error;
}

std::vector<HttpHeader> AccessPolicy::cors_headers(const HttpRequest& request) const {
  const std::string_view origin = request.header("Origin");
  if (origin.empty() || !origin_allowed(request)) return {};
  std::vector<HttpHeader> headers{{"Access-Control-Allow-Origin", std::string(origin)}, {"Vary", "Origin"}};
  headers.push_back({"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"});
  if (request.method == "OPTIONS") {
    // Which headers a page may send is the browser's question, not ours: none of them is a right by itself,
    // and clients have their own (X-Stainless-* of OpenAI's).
    const std::string_view asked = request.header("Access-Control-Request-Headers");
    headers.push_back({"Access-Control-Allow-Methods", "GET, POST, OPTIONS"});
    headers.push_back(
        {"Access-Control-Allow-Headers",
         asked.empty() ? "Authorization, Content-Type, X-Request-Id, X-Api-Key" : std::string(asked)});
    headers.push_back({"Access-Control-Max-Age", "600"});
  }
  return headers;
}

}  // namespace kvasir
