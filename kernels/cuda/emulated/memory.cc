#include "kernels/cuda/emulated/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/format.h"

namespace fluvial::kernels::emulated {
namespace {

constexpr std::size_t kPackAlignment = 16;
constexpr int kPoison = 0xa5;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // a process that maps it never meets its end

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A file in memory, with a page behind it that may not be touched.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_ + page_bytes());
  }
  static std::optional<Mapping> make(int fd, std::size_t file_bytes, int protection) {
    void* const begin = ::mmap(nullptr, file_bytes + page_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return std::nullopt;
    Mapping mapping;
    mapping.begin_ = static_cast<std::byte*>(begin);
    mapping.bytes_ = file_bytes;
    if (::mmap(begin, file_bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return std::nullopt;
    return mapping;
  }
  void protect(int protection) const {
    FLUVIAL_CHECK(::mprotect(begin_, bytes_, protection) == 0, "memory of an emulated device");
  }
  std::byte* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;  // without the page
};

struct Piece {
  Descriptor file;
  Mapping mapping;
  std::size_t bytes = 0;
  int device_index = 0;
};

// By where their memory begins.
using Pieces = std::map<const void*, Piece>;

struct State {
  std::mutex mutex;
  Pieces own;
  Pieces opened;  // without a file
  std::size_t limit = std::numeric_limits<std::size_t>::max();

  std::size_t in_use(int device_index) const {
    std::size_t bytes = 0;
    for (const auto& [memory, piece] : own) bytes += piece.device_index == device_index ? piece.bytes : 0;
    return bytes;
  }
};

State& state() {
  static State state;
  return state;
}

std::optional<Allocation> find_in(const Pieces& pieces, const void* address) {
  auto found = pieces.upper_bound(address);
  if (found == pieces.begin()) return std::nullopt;
  --found;
  if (address >= static_cast<const std::byte*>(found->first) + found->second.bytes) return std::nullopt;
  return Allocation{const_cast<void*>(found->first), found->second.bytes, found->second.device_index};
}

void protect_all_but(int device_index, const Pieces& pieces, int protection) {
  for (const auto& [memory, piece] : pieces) {
    if (piece.device_index != device_index) piece.mapping.protect(protection);
  }
}

Error no_memory(std::size_t bytes) {
  return {Code::kResourceExhausted, format_text("no {} bytes for an emulated device: {}", bytes, std::strerror(errno))};
}

Error refused(std::string_view why) {
  return {Code::kInvalidArgument, format_text("a handle of emulated memory: {}", why)};
}

// The file that a handle names, once it is known to be memory that can only be read and never shrinks.
Result<Descriptor> open_file(const HandleParts& parts) {
  const std::string path = format_text("/proc/{}/fd/{}", parts.process, parts.descriptor);
  struct stat there = {};
  if (::stat(path.c_str(), &there) != 0) {
    return refused(
        format_text("{}: {} (has process {} ended, or freed it?)", path, std::strerror(errno), parts.process));
  }
  if (!S_ISREG(there.st_mode) || there.st_ino != parts.inode) return refused(path + " is something else");
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (file.get() < 0) return refused(format_text("{}: {}", path, std::strerror(errno)));
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(file.get(), &there) != 0 || there.st_ino != parts.inode) {
    return refused(path + " is something else");
  }
  if (static_cast<std::uint64_t>(there.st_size) != parts.file_bytes) {
    return refused(format_text("{} has {} bytes, not {}", path, there.st_size, parts.file_bytes));
  }
  return file;
}

}  // namespace

DeviceUuid uuid_of(int device_index) {
  DeviceUuid uuid{};
  std::memcpy(uuid.data(), "fluvial emulated", uuid.size());
  uuid.back() = static_cast<std::byte>(device_index);
  return uuid;
}

bool beyond_limit(int device_index, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  const std::size_t in_use = state().in_use(device_index);
  return in_use > state().limit || bytes > state().limit - in_use;
}

Result<void*> allocate_memory(int device_index, std::size_t bytes) {
  if (beyond_limit(device_index, bytes)) return no_memory(bytes);
  const std::size_t room = round_up(bytes, kPackAlignment);
  const std::size_t file_bytes = round_up(room, page_bytes());
  Piece piece{.file = {}, .mapping = {}, .bytes = bytes, .device_index = device_index};
  piece.file = Descriptor(::memfd_create("emulated", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (piece.file.get() < 0 || ::ftruncate(piece.file.get(), static_cast<off_t>(file_bytes)) != 0 ||
      ::fcntl(piece.file.get(), F_ADD_SEALS, kSeals) != 0) {
    return no_memory(bytes);
  }
  std::optional<Mapping> mapping = Mapping::make(piece.file.get(), file_bytes, PROT_READ | PROT_WRITE);
  if (!mapping) return no_memory(bytes);
  void* const memory = mapping->begin() + (file_bytes - room);  // ends where the page begins
  std::memset(memory, kPoison, room);
  piece.mapping = std::move(*mapping);
  const std::lock_guard lock(state().mutex);
  state().own.emplace(memory, std::move(piece));
  return memory;
}

std::size_t memory_in_use(int device_index) {
  const std::lock_guard lock(state().mutex);
  return state().in_use(device_index);
}

void limit_memory(std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().limit = bytes;
}

void free_memory(void* memory) {
  const std::lock_guard lock(state().mutex);
  FLUVIAL_CHECK(state().own.erase(memory) == 1, "memory of an emulated device is freed that is none");
}

std::optional<Allocation> find_memory(const void* address) {
  const std::lock_guard lock(state().mutex);
  const std::optional<Allocation> own = find_in(state().own, address);
  return own ? own : find_in(state().opened, address);
}

MemoryHandle export_memory(const void* memory) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().own.find(memory);
  FLUVIAL_CHECK(found != state().own.end(), "memory of an emulated device is exported that is none");
  const Piece& piece = found->second;
  struct stat file = {};
  FLUVIAL_CHECK(::fstat(piece.file.get(), &file) == 0, "a descriptor of our own");
  return std::bit_cast<MemoryHandle>(HandleParts{
      .device_index = piece.device_index,
      .process = ::getpid(),
      .descriptor = piece.file.get(),
      .inode = file.st_ino,
      .file_bytes = piece.mapping.bytes(),
      .first_byte = static_cast<std::uint64_t>(static_cast<const std::byte*>(memory) - piece.mapping.begin()),
      .bytes = piece.bytes,
  });
}

Result<OpenedView> open_memory(int device_index, const MemoryHandle& handle) {
  const auto parts = std::bit_cast<HandleParts>(handle);
  if (parts.magic != HandleParts::kMagic || parts.reserved != 0 || parts.rest != 0) return refused("it is none");
  if (parts.process <= 0 || parts.descriptor < 0) return refused("no process and descriptor");
  if (parts.device_index != device_index) {
    return refused(format_text("memory of device {}, opened on {}", parts.device_index, device_index));
  }
  if (parts.bytes == 0 || parts.first_byte > parts.file_bytes || parts.bytes > parts.file_bytes - parts.first_byte ||
      parts.first_byte % kPackAlignment != 0) {
    return refused("no place in its file");
  }
  FLUVIAL_ASSIGN(const Descriptor file, open_file(parts));
  std::optional<Mapping> mapping = Mapping::make(file.get(), parts.file_bytes, PROT_READ);
  if (!mapping) return no_memory(parts.bytes);
  const OpenedView view{mapping->begin() + parts.first_byte, parts.bytes};
  Piece piece{.file = {}, .mapping = std::move(*mapping), .bytes = parts.bytes, .device_index = device_index};
  const std::lock_guard lock(state().mutex);
  state().opened.emplace(view.memory, std::move(piece));
  return view;
}

void close_memory(const OpenedView& view) {
  const std::lock_guard lock(state().mutex);
  FLUVIAL_CHECK(state().opened.erase(view.memory) == 1, "memory of an emulated device is closed that is not open");
}

std::size_t views_open(int device_index) {
  const std::lock_guard lock(state().mutex);
  return static_cast<std::size_t>(std::ranges::count_if(
      state().opened, [device_index](const auto& piece) { return piece.second.device_index == device_index; }));
}

OnlyMemoryOf::OnlyMemoryOf(int device_index) : device_index_(device_index) {
  const std::lock_guard lock(state().mutex);
  protect_all_but(device_index_, state().own, PROT_NONE);
  protect_all_but(device_index_, state().opened, PROT_NONE);
}

OnlyMemoryOf::~OnlyMemoryOf() {
  const std::lock_guard lock(state().mutex);
  protect_all_but(device_index_, state().own, PROT_READ | PROT_WRITE);
  protect_all_but(device_index_, state().opened, PROT_READ);
}

}  // namespace fluvial::kernels::emulated
