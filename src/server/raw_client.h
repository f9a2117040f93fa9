#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir::testing {

// A TCP client for tests that sends and shows bytes as they are.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void reset() {  // RST instead of FIN
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // More bytes into received(); false at the end of input or after the time.
  bool receive_some(int timeout_ms = 5000) {
    pollfd descriptor{fd_, POLLIN, 0};
    if (::poll(&descriptor, 1, timeout_ms) <= 0) return false;
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    received_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  bool receive_until(std::string_view text, int timeout_ms = 5000) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (received_.find(text) == std::string::npos) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0 || !receive_some(static_cast<int>(left.count()))) return false;
    }
    return true;
  }
  // Reads to the end of input; false when it does not come in time.
  bool receive_to_end(int timeout_ms = 5000) {
    while (receive_some(timeout_ms)) {
    }
    return ended_;
  }

  // One answer with a Content-Length or chunked body, taken off received().
  struct Answer {
    int status = 0;
    std::string head;
    std::string body;
    std::string header(std::string_view name) const {
      std::string key = "\r\n" + std::string(name) + ": ";
      const size_t at = head.find(key);
      if (at == std::string::npos) return "";
      const size_t begin = at + key.size();
      return head.substr(begin, head.find("\r\n", begin) - begin);
    }
  };
  Answer receive_answer(bool has_body = true, int timeout_ms = 10000) {
    Answer answer;
    if (!receive_until("\r\n\r\n", timeout_ms)) return answer;
    const size_t head_end = received_.find("\r\n\r\n");
    answer.head = received_.substr(0, head_end + 2);
    received_.erase(0, head_end + 4);
    answer.status = std::stoi(answer.head.substr(9, 3));
    if (!has_body) return answer;
    if (!answer.header("Content-Length").empty()) {
      const size_t length = std::stoul(answer.header("Content-Length"));
      while (received_.size() < length && receive_some(timeout_ms)) {
      }
      answer.body = received_.substr(0, length);
      received_.erase(0, length);
    } else if (answer.header("Transfer-Encoding") == "chunked") {
      read_chunks(&answer.body, timeout_ms);
    }
    return answer;
  }

  std::string& received() { return received_; }

 private:
  void read_chunks(std::string* body, int timeout_ms) {
    while (true) {
      if (!receive_until("\r\n", timeout_ms)) return;
      const size_t line_end = received_.find("\r\n");
      const size_t size = std::stoul(received_.substr(0, line_end), nullptr, 16);
      while (received_.size() < line_end + 2 + size + 2 && receive_some(timeout_ms)) {
      }
      body->append(received_, line_end + 2, size);
      received_.erase(0, line_end + 2 + size + 2);
      if (size == 0) return;
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  bool ended_ = false;
  std::string received_;
};

}  // namespace kvasir::testing
