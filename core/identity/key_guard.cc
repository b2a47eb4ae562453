#include "core/identity/key_guard.h"

#include <malloc.h>
#include <openssl/crypto.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace fluvial::identity {
namespace {

// One that is full fails handshakes. A handshake that is under way has at most some hundred bytes in it: room for tens
// of thousands of them. A power of two.
constexpr std::size_t kArenaBytes = 4 << 20;
constexpr std::size_t kLeastPieceBytes = 16;

std::optional<rlimit> core_before;  // none: not guarded

// OpenSSL's parsers leave what they took a key apart into in memory that they have freed. Whatever is small enough to
// be a part of a key is wiped there; the buffers of records are not, as there is one for each.
constexpr std::size_t kWipedBytesMax = 4096;

void* allocate(std::size_t size, const char*, int) { return std::malloc(size); }

void release(void* memory, const char*, int) {
  if (memory == nullptr) return;
  const std::size_t size = ::malloc_usable_size(memory);
  if (size <= kWipedBytesMax) OPENSSL_cleanse(memory, size);
  std::free(memory);
}

void* resize(void* memory, std::size_t size, const char* file, int line) {
  if (memory == nullptr) return std::malloc(size);
  if (size == 0) return release(memory, file, line), nullptr;
  const std::size_t before = ::malloc_usable_size(memory);
  if (before > kWipedBytesMax) return std::realloc(memory, size);
  void* moved = std::malloc(size);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, memory, std::min(size, before));
  release(memory, file, line);
  return moved;
}

}  // namespace

void guard_keys() {
  if (core_before) return;
  core_before.emplace();
  ::getrlimit(RLIMIT_CORE, &*core_before);
  const rlimit none{0, core_before->rlim_max};
  ::setrlimit(RLIMIT_CORE, &none);
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  (void)CRYPTO_set_mem_functions(allocate, resize, release);
  // Where it cannot be had, keys are in the heap, as ever.
  if (CRYPTO_secure_malloc_initialized() == 0) (void)CRYPTO_secure_malloc_init(kArenaBytes, kLeastPieceBytes);
}

void allow_dumps() {
  if (!core_before) return;
  ::setrlimit(RLIMIT_CORE, &*core_before);
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

}  // namespace fluvial::identity
