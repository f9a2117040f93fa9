#include "safetensors/safetensors_writer.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kvasir {
namespace {

namespace json = boost::json;

// Values of 8 bytes are aligned where the tensors begin at a multiple of 8: the header is filled up with
// spaces.
std::string padded(std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<Entry>& entries,
                                                    const std::map<std::string, std::string>& metadata) {
  json::object header;
  json::object& notes = header.emplace("__metadata__", json::object()).first->value().get_object();
  for (const auto& [key, value] : metadata) notes.emplace(key, value);
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    uint64_t bytes = entry.type->bytes;
    for (const uint64_t n : entry.shape) bytes *= n;
    header.emplace(entry.name, json::object{{"dtype", entry.type->name},
                                            {"shape", json::array(entry.shape.begin(), entry.shape.end())},
                                            {"data_offsets", json::array{at, at + bytes}}});
    at += bytes;
  }
  SafetensorsWriter writer(path, nullptr);
  writer.file_.reset(std::fopen(writer.unfinished().c_str(), "wb"));
  if (writer.file_ == nullptr) return writer.failure("open");
  const std::string text = padded(json::serialize(header));
  const uint64_t length = text.size();
  writer.expected_ = sizeof(length) + length + at;
  KVASIR_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(&length, 1))));
  KVASIR_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(text))));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ != nullptr) std::remove(unfinished().c_str());
}

Status SafetensorsWriter::failure(const std::string& what) const {
  return io_error(fmt::format("cannot {} '{}': {}", what, unfinished(), std::strerror(errno)));
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) return failure("write");
  given_ += bytes.size();
  return {};
}

Status SafetensorsWriter::finish() {
  CHECK(given_ == expected_);
  if (std::fflush(file_.get()) != 0) return failure("write");
  if (std::rename(unfinished().c_str(), path_.c_str()) != 0) return failure("rename");
  file_.reset();
  return {};
}

}  // namespace kvasir
