#pragma once

#include <string>
#include <string_view>

namespace kvasir {

// Who may share cached prefixes with a request: those of the same API key and the same `cache_salt`. The
// result is what Request::cache_salt holds. api_key "": nobody's in particular, where no keys are needed or
// keys share on purpose. Domains are told apart by their first bytes and keys have one length there, so that
// no `cache_salt` a client can send names the domain of another key; the key itself is not in it, only its
// SHA-256.
std::string cache_domain(std::string_view api_key, std::string_view cache_salt);

}  // namespace kvasir
