#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/http_types.h"

namespace kvasir {

// What a key's requests are entitled to.
struct KeyTerms {
  double weight = 1;                  // of its share of the engine, above 0
  int32_t best_priority = INT32_MIN;  // the lowest number that its requests may ask for
};

// Who may talk to the server: API keys, the Host check that stops DNS rebinding, and cross-origin rules. A
// page of a foreign origin is refused what changes or costs something; GET, HEAD and OPTIONS do neither, and
// without CORS headers the browser keeps their answers from it. (Refusing those by Origin would guard
// nothing: images and links send none.)
struct AccessPolicy {
  std::vector<std::string> api_keys;                   // empty: no key is needed
  std::map<std::string, KeyTerms, std::less<>> terms;  // of the keys that have other than the default ones
  std::vector<std::string> cors_origins;               // "https://chat.example"; "*" allows every origin
  std::vector<std::string> allowed_hosts;              // names besides localhost and loopback addresses
  bool check_host = true;                              // set when listening on loopback only

  // nullopt when the request may go on. `open_route`: health checks, which need no key.
  Problem check(const HttpRequest& request, bool open_route) const;

  // Which of the keys the request presents; "" where none is needed, or it presents none of them.
  std::string_view key_of(const HttpRequest& request) const;

  // The CORS headers of an answer; empty for same-origin requests and for origins that are not allowed.
  std::vector<HttpHeader> cors_headers(const HttpRequest& request) const;

 private:
  bool origin_allowed(const HttpRequest& request) const;
  bool host_accepted(std::string_view host) const;
};

// Compares in a time that depends on the length of `given` only.
bool equal_in_constant_time(std::string_view given, std::string_view secret);

}  // namespace kvasir
