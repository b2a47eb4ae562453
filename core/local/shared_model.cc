#include "core/local/shared_model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/local/model_memory.h"
#include "core/local/socket.h"

namespace fluvial::local {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kAllSeals = kSizeSeals | F_SEAL_WRITE;
constexpr std::uint64_t kSharedBytesMax = std::uint64_t{1} << 46;  // well within off_t and any address space

Result<Mapping> map(int fd, std::uint64_t size_bytes, int protection) {
  if (size_bytes == 0) return Mapping();  // mmap refuses it
  // A mapping for writing will be written whole. Populating it at once is cheaper than a fault for each page, and a
  // later mapping for reading costs half as much when the pages are active already.
  const int flags = (protection & PROT_WRITE) != 0 ? MAP_SHARED | MAP_POPULATE : MAP_SHARED;
  void* const data = ::mmap(nullptr, size_bytes, protection, flags, fd, 0);
  if (data == MAP_FAILED) return system_error(Code::kResourceExhausted, fmt::format("mapping {} bytes", size_bytes));
  return Mapping(static_cast<std::byte*>(data), size_bytes);
}

Status check_sealed(int fd, std::uint64_t size_bytes, int required) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return system_error(Code::kInvalidArgument, "the model's descriptor");
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (!S_ISREG(status.st_mode) || seals < 0) {
    return Error{Code::kInvalidArgument, "the model's descriptor is no memfd"};
  }
  for (const auto& [seal, name] :
       {std::pair{F_SEAL_SHRINK, "F_SEAL_SHRINK"}, {F_SEAL_GROW, "F_SEAL_GROW"}, {F_SEAL_WRITE, "F_SEAL_WRITE"}}) {
    const int as_good = seal == F_SEAL_WRITE ? F_SEAL_WRITE | F_SEAL_FUTURE_WRITE : seal;
    if ((required & seal) != 0 && (seals & as_good) == 0)
      return Error{Code::kInvalidArgument, fmt::format("the model's memfd lacks {}", name)};
  }
  // After the seals: from here on the size cannot change.
  if (::fstat(fd, &status) != 0) return system_error(Code::kInvalidArgument, "the model's descriptor");
  if (static_cast<std::uint64_t>(status.st_size) != size_bytes) {
    return Error{Code::kInvalidArgument,
                 fmt::format("the model's memfd has {} bytes; expected {}", status.st_size, size_bytes)};
  }
  return {};
}

}  // namespace

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<std::shared_ptr<const SharedModel>> SharedModel::adopt(UniqueFd fd, std::uint64_t size_bytes, Seals seals) {
  FLUVIAL_TRY(check_sealed(fd.get(), size_bytes, seals == Seals::kSize ? kSizeSeals : kAllSeals));
  FLUVIAL_ASSIGN(Mapping mapping, map(fd.get(), size_bytes, PROT_READ));
  return std::shared_ptr<const SharedModel>(new SharedModel(std::move(fd), std::move(mapping)));
}

SharedModel::~SharedModel() {
  const std::shared_ptr<ModelMemory> home = home_.lock();
  if (!home) return;
  fd_.reset();
  home->give_back({std::move(lease_), std::move(mapping_), std::move(use_)});
}

Result<std::shared_ptr<const SharedModel>> SharedModel::copy_of(ByteSpan bytes) {
  FLUVIAL_ASSIGN(MemfdWriter writer, MemfdWriter::create(bytes.size()));
  if (!bytes.empty()) std::memcpy(writer.span().data(), bytes.data(), bytes.size());
  return std::move(writer).seal();
}

namespace {

struct Memory {
  UniqueFd fd;
  Mapping mapping;
};

Result<Memory> reserve(std::uint64_t size_bytes) {
  if (size_bytes > kSharedBytesMax) {
    return Error{Code::kInvalidArgument, fmt::format("a model of {} bytes is beyond shared memory", size_bytes)};
  }
  UniqueFd fd(::memfd_create("fluvial-model", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return system_error(Code::kResourceExhausted, "memfd_create");
  // posix_fallocate rather than ftruncate: missing memory is an error here, and not SIGBUS at the first write.
  if (size_bytes > 0) {
    const int failed = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size_bytes));
    if (failed != 0) {
      errno = failed;
      return system_error(Code::kResourceExhausted, fmt::format("reserving {} bytes of shared memory", size_bytes));
    }
  }
  FLUVIAL_ASSIGN(Mapping mapping, map(fd.get(), size_bytes, PROT_READ | PROT_WRITE));
  return Memory{std::move(fd), std::move(mapping)};
}

}  // namespace

Result<MemfdWriter> MemfdWriter::create(std::uint64_t size_bytes) {
  FLUVIAL_ASSIGN(Memory memory, reserve(size_bytes));
  return MemfdWriter(std::move(memory.fd), std::move(memory.mapping));
}

Result<ResultBuffer> ResultBuffer::create(std::uint64_t size_bytes) {
  FLUVIAL_ASSIGN(Memory memory, reserve(size_bytes));
  if (::fcntl(memory.fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return system_error(Code::kInternal, "sealing shared memory");
  }
  return ResultBuffer(std::move(memory.fd), std::move(memory.mapping));
}

Result<std::shared_ptr<const SharedModel>> ResultBuffer::share() const {
  UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return system_error(Code::kResourceExhausted, "a second descriptor of shared memory");
  return SharedModel::adopt(std::move(copy), mapping_.span().size(), Seals::kSize);
}

Result<std::shared_ptr<const SharedModel>> MemfdWriter::seal() && {
  if (use_) {
    UniqueFd reading = open_again(fd_.get(), O_RDONLY);
    if (!reading.valid()) return system_error(Code::kResourceExhausted, "a second descriptor of shared memory");
    std::shared_ptr<SharedModel> model(new SharedModel(std::move(reading), std::move(mapping_)));
    model->lease_ = std::move(fd_);
    model->use_ = std::move(use_);
    model->home_ = std::move(home_);
    return std::shared_ptr<const SharedModel>(std::move(model));
  }
  const std::uint64_t size_bytes = mapping_.span().size();
  {
    const Mapping unmapped = std::move(mapping_);
  }  // F_SEAL_WRITE is refused while a writable mapping lives
  if (::fcntl(fd_.get(), F_ADD_SEALS, kAllSeals | F_SEAL_SEAL) != 0) {
    return system_error(Code::kInternal, "sealing shared memory");
  }
  return SharedModel::adopt(std::move(fd_), size_bytes);
}

}  // namespace fluvial::local
