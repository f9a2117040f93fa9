#include "kvcache/kv_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "kvcache/kv_file_format.h"

namespace kvasir {
namespace {

constexpr uint64_t kMaxDirectoryBytes = uint64_t{1} << 32;  // some 25 million blocks of 32 tokens

Status io_failure(const char* what, const std::string& path, int error) {
  const std::string message = fmt::format("cannot {} '{}': {}", what, path, std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? resource_exhausted(message) : io_error(message);
}

// All bytes at the offset; false at the end of the file or on an error.
bool read_at(int fd, uint64_t offset, void* to, size_t bytes) {
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

uint64_t hash_of_header(const KvFileHeader& header, const std::string& key) {
  const uint64_t of_fields = XXH3_64bits(&header, offsetof(KvFileHeader, header_hash));
  return XXH3_64bits_withSeed(key.data(), key.size(), of_fields);
}

template <class T>
void put_values(std::vector<std::byte>* to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to->insert(to->end(), bytes.begin(), bytes.end());
}

template <class T>
void take_values(const std::byte** from, size_t count, std::vector<T>* to) {
  to->resize(count);
  if (count > 0) std::memcpy(to->data(), *from, count * sizeof(T));
  *from += count * sizeof(T);
}

// The first part of the key that is not as it should be.
Status compare_keys(const std::string& path, const std::string& found, const KvFileKey& key) {
  std::istringstream lines(found);
  std::string line;
  for (const auto& [name, value] : key.parts) {
    const std::string wanted = name + ": " + value;
    if (!std::getline(lines, line)) line.clear();
    if (line != wanted)
      return invalid_argument(fmt::format("'{}' is of another {}: it says '{}', and this server has '{}'",
                                          path, name, line, wanted));
  }
  if (std::getline(lines, line))
    return invalid_argument(fmt::format("'{}' depends on more than this server knows: '{}'", path, line));
  return {};
}

Status check_header(const std::string& path, const KvFileHeader& h, uint64_t bytes) {
  if (std::memcmp(h.magic, kKvMagic, sizeof(kKvMagic)) != 0)
    return corrupt(fmt::format("'{}' is no file of KV blocks", path));
  if (h.byte_order != kKvByteOrder)
    return corrupt(fmt::format("'{}' was written on a machine of another byte order", path));
  if (h.version != kKvFileVersion)
    return corrupt(
        fmt::format("'{}' has the format {}; this server reads {}", path, h.version, kKvFileVersion));
  if (h.file_bytes != bytes)
    return corrupt(
        fmt::format("'{}' has {} bytes of {}: it was cut short or added to", path, bytes, h.file_bytes));
  if (h.key_bytes > kKvMaxKeyBytes)
    return corrupt(fmt::format("'{}' says that its key has {} bytes; at most {} fit", path, h.key_bytes,
                               kKvMaxKeyBytes));
  return {};
}

Status check_sizes(const std::string& path, const KvFileHeader& h, const KvLayout& layout) {
  if (h.block_bytes != layout.block_bytes() || h.block_size != layout.block_size())
    return corrupt(fmt::format("'{}' has blocks of {} bytes and {} tokens; the layout's have {} and {}", path,
                               h.block_bytes, h.block_size, layout.block_bytes(), layout.block_size()));
  const uint64_t directory = directory_bytes(h.salts, h.nodes, h.entries, h.blocks, h.block_size);
  const uint64_t all = kKvPayloadOffset + uint64_t{h.blocks} * h.block_bytes + directory;
  if (directory > kMaxDirectoryBytes)
    return corrupt(fmt::format("'{}' has a directory of {} bytes; at most {} are read", path, directory,
                               kMaxDirectoryBytes));
  if (directory != h.directory_bytes || all != h.file_bytes)
    return corrupt(
        fmt::format("'{}' says that it has {} bytes, and its parts need {}", path, h.file_bytes, all));
  return {};
}

}  // namespace

std::string KvFileKey::text() const {
  std::string text;
  for (const auto& [name, value] : parts) text += name + ": " + value + "\n";
  return text;
}

KvFileKey kv_file_key(const KvLayout& layout, std::string model, uint32_t numerics) {
  std::string groups, layers;
  for (const KvLayout::Group& g : layout.groups())
    groups += fmt::format("window {} x {}; ", g.window, g.units);
  for (uint32_t l = 0; l < layout.layer_count(); ++l) {
    const KvLayout::Layer& layer = layout.layer(l);
    layers += fmt::format("{} {} {} {} {} {};", layer.group, layer.unit, layer.offset_bytes, layer.kv_heads,
                          layer.head_dim, layer.plane_bytes);
    if (layer.latent != 0) layers += fmt::format(" latent {};", layer.latent);
  }
  return {{{"model", std::move(model)},
           {"KV type", std::string(kv_type_name(layout.type()))},
           {"block size", fmt::format("{} tokens, {} bytes", layout.block_size(), layout.block_bytes())},
           {"KV groups", std::move(groups)},
           {"KV layers", hex_text(domain_digest("kvasir layers of a KV layout", layers))},
           {"numerics version", std::to_string(numerics)}}};
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

// --- writing ---

Result<KvFileWriter> KvFileWriter::create(std::string path, const KvLayout& layout, const KvFileKey& key) {
  std::string text = key.text();
  if (text.size() > kKvMaxKeyBytes)
    return invalid_argument(
        fmt::format("the key of '{}' has {} bytes; at most {} fit", path, text.size(), kKvMaxKeyBytes));
  const std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());  // of a server that was killed
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) return io_failure("create", temporary, errno);
  return KvFileWriter(std::move(path), std::move(file), layout, std::move(text));
}

KvFileWriter::KvFileWriter(KvFileWriter&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      file_(std::move(other.file_)),
      layout_(other.layout_),
      key_(std::move(other.key_)),
      hashes_(std::move(other.hashes_)) {}

KvFileWriter::~KvFileWriter() {
  if (!path_.empty()) ::unlink((path_ + ".tmp").c_str());
}

Status KvFileWriter::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_failure("write", path_ + ".tmp", errno);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status KvFileWriter::append(std::span<const std::byte> block) {
  const uint64_t number = hashes_.size();
  hashes_.push_back(XXH3_64bits_withSeed(block.data(), block.size(), number));
  return write_at(kKvPayloadOffset + number * layout_.block_bytes(), block);
}

Result<uint64_t> KvFileWriter::finish(const PrefixSnapshot& s) {
  CHECK(s.blocks.size() == hashes_.size());
  std::vector<std::byte> directory;
  put_values<Sha256Digest>(&directory, s.salts);
  put_values<PrefixSnapshot::Node>(&directory, s.nodes);
  put_values<TokenId>(&directory, s.tokens);
  put_values<PrefixSnapshot::Entry>(&directory, s.entries);
  put_values<uint64_t>(&directory, hashes_);

  KvFileHeader h{};
  std::memcpy(h.magic, kKvMagic, sizeof(kKvMagic));
  h.version = kKvFileVersion;
  h.byte_order = kKvByteOrder;
  h.block_bytes = layout_.block_bytes();
  h.directory_bytes = directory.size();
  h.directory_hash = XXH3_64bits(directory.data(), directory.size());
  h.key_bytes = static_cast<uint32_t>(key_.size());
  h.block_size = layout_.block_size();
  h.salts = static_cast<uint32_t>(s.salts.size());
  h.nodes = static_cast<uint32_t>(s.nodes.size());
  h.entries = static_cast<uint32_t>(s.entries.size());
  h.blocks = static_cast<uint32_t>(s.blocks.size());
  const uint64_t directory_offset = kKvPayloadOffset + uint64_t{h.blocks} * h.block_bytes;
  h.file_bytes = directory_offset + directory.size();
  h.header_hash = hash_of_header(h, key_);

  std::vector<std::byte> first(kKvPayloadOffset);
  std::memcpy(first.data(), &h, sizeof(h));
  std::memcpy(first.data() + sizeof(h), key_.data(), key_.size());
  KVASIR_RETURN_IF_ERROR(write_at(directory_offset, directory));
  KVASIR_RETURN_IF_ERROR(write_at(0, first));
  const std::string temporary = path_ + ".tmp";
  if (::fsync(file_.get()) != 0) return io_failure("write", temporary, errno);
  if (::rename(temporary.c_str(), path_.c_str()) != 0) return io_failure("rename", temporary, errno);
  const std::string folder = std::filesystem::path(std::exchange(path_, {})).parent_path().string();
  const FileDescriptor parent(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC));
  if (parent.get() >= 0) (void)::fsync(parent.get());  // so that the name outlives a loss of power
  return h.file_bytes;
}

// --- reading ---

Result<KvFileReader> KvFileReader::open(const std::string& path, const KvLayout& layout, const KvFileKey& key,
                                        uint32_t vocab) {
  KvFileReader reader(FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
  const int fd = reader.file_.get();
  if (fd < 0 && errno == ENOENT) return not_found(fmt::format("'{}' does not exist", path));
  if (fd < 0) return io_failure("open", path, errno);
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return corrupt(fmt::format("'{}' is no regular file", path));
  KvFileHeader h{};
  if (!read_at(fd, 0, &h, sizeof(h)))
    return corrupt(fmt::format("'{}' has {} bytes, too few for a header", path, info.st_size));
  KVASIR_RETURN_IF_ERROR(check_header(path, h, static_cast<uint64_t>(info.st_size)));
  std::string found(h.key_bytes, '\0');
  if (!read_at(fd, sizeof(h), found.data(), found.size()) || hash_of_header(h, found) != h.header_hash)
    return corrupt(fmt::format("the header of '{}' is damaged: its checksum is wrong", path));
  KVASIR_RETURN_IF_ERROR(compare_keys(path, found, key));
  KVASIR_RETURN_IF_ERROR(check_sizes(path, h, layout));

  // As long as the file is, and so no longer than what the disk really gave.
  std::vector<std::byte> directory(h.directory_bytes);
  if (!read_at(fd, h.file_bytes - h.directory_bytes, directory.data(), directory.size()) ||
      XXH3_64bits(directory.data(), directory.size()) != h.directory_hash)
    return corrupt(fmt::format("the directory of '{}' is damaged: its checksum is wrong", path));
  PrefixSnapshot& s = reader.snapshot_;
  const std::byte* at = directory.data();
  take_values(&at, h.salts, &s.salts);
  take_values(&at, h.nodes, &s.nodes);
  take_values(&at, size_t{h.nodes} * h.block_size, &s.tokens);
  take_values(&at, h.entries, &s.entries);
  take_values(&at, h.blocks, &reader.hashes_);
  for (uint32_t b = 0; b < h.blocks; ++b) s.blocks.push_back(BlockId{b});
  if (const Status status = check_snapshot(layout, s, vocab); !status.ok())
    return corrupt(fmt::format("the directory of '{}' is damaged: {}", path, status.message()));
  reader.file_bytes_ = h.file_bytes;
  return reader;
}

bool KvFileReader::read_block(uint32_t number, std::span<std::byte> out) const {
  return read_at(file_.get(), kKvPayloadOffset + uint64_t{number} * out.size(), out.data(), out.size()) &&
         XXH3_64bits_withSeed(out.data(), out.size(), number) == hashes_[number];
}

}  // namespace kvasir
