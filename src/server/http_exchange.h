#pragma once

#include <cstdint>
#include <memory>

#include "server/http_types.h"

namespace kvasir {

class HttpConnection;
struct HttpServerState;

// The exchange of one request on a connection: hands every call over to the I/O thread.
std::shared_ptr<HttpExchange> make_connection_exchange(std::shared_ptr<HttpServerState> state,
                                                       std::shared_ptr<HttpConnection> connection,
                                                       uint64_t sequence, HttpRequest request);

}  // namespace kvasir
