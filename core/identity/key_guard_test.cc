#include "core/identity/key_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/testing.h"
#include "core/identity/key.h"

namespace fluvial::identity {
namespace {

constexpr std::size_t kScalarBytes = 32;

// In a process of its own, whose wait status it is. -1: it could not be started.
int in_child(const std::function<void()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    act();
    ::_exit(0);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child ? status : -1;
}

// Dies as by a bug, in a folder that is its own, with every limit on core dumps lifted.
int status_of_a_crash(const std::string& folder, const std::function<void()>& before) {
  return in_child([&] {
    rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_CORE, &all) != 0 && ::getrlimit(RLIMIT_CORE, &all) == 0) {
      all.rlim_cur = all.rlim_max;
      ::setrlimit(RLIMIT_CORE, &all);
    }
    std::filesystem::current_path(folder);
    before();
    std::abort();
  });
}

TEST(KeyGuard, AProcessThatDiesLeavesNoCoreDump) {
  const TemporaryFolder folder;
  const int plain = status_of_a_crash(folder.path(), [] {});
  ASSERT_TRUE(WIFSIGNALED(plain));
  if (!WCOREDUMP(plain)) GTEST_SKIP() << "no process leaves a core dump here";
  EXPECT_FALSE(WCOREDUMP(status_of_a_crash(folder.path(), guard_keys)));
  EXPECT_TRUE(WCOREDUMP(status_of_a_crash(folder.path(), [] {
    guard_keys();
    allow_dumps();
  }))) << "where a person asked for it";
}

TEST(KeyGuard, TheProcessIsClosedToOthersOfItsUserUntilItIsOpenedAgain) {
  EXPECT_EQ(in_child([] {
              guard_keys();
              rlimit now{};
              ::getrlimit(RLIMIT_CORE, &now);
              if (::prctl(PR_GET_DUMPABLE) != 0 || now.rlim_cur != 0) ::_exit(1);
              allow_dumps();
              if (::prctl(PR_GET_DUMPABLE) != 1) ::_exit(2);
            }),
            0);
}

// Of this process, what a core dump would hold: the mappings that are not left out of it.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
std::vector<Mapping> dumped() {
  std::vector<Mapping> found;
  std::ifstream lines("/proc/self/smaps");
  Mapping now;
  bool is_readable = false;
  for (std::string line; std::getline(lines, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    std::array<char, 5> rights{};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights.data()) == 3) {
      now = {begin, end};
      is_readable = rights[0] == 'r' && line.find("[v") == std::string::npos;
    } else if (line.starts_with("VmFlags:") && is_readable && line.find(" dd") == std::string::npos) {
      found.push_back(now);
    }
  }
  return found;
}

struct SecureFree {
  void operator()(std::byte* bytes) const { OPENSSL_secure_free(bytes); }
};
using Hidden = std::unique_ptr<std::byte, SecureFree>;  // itself out of dumps
Hidden hidden(std::size_t size) { return Hidden(static_cast<std::byte*>(OPENSSL_secure_zalloc(size))); }

bool is_dumped(const std::byte* wanted) {
  constexpr std::size_t kPiece = 1 << 16;
  const Hidden piece = hidden(kPiece);
  const int memory = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  bool found = false;
  for (const Mapping& mapping : dumped()) {
    for (std::uintptr_t at = mapping.begin; at < mapping.end && !found; at += kPiece - kScalarBytes) {
      const std::size_t size = std::min<std::size_t>(kPiece, mapping.end - at);
      const ssize_t got = ::pread(memory, piece.get(), size, static_cast<off_t>(at));
      found = got > 0 && ::memmem(piece.get(), static_cast<std::size_t>(got), wanted, kScalarBytes) != nullptr;
    }
  }
  ::close(memory);
  return found;
}

Hidden reversed(const std::byte* bytes) {
  Hidden other = hidden(kScalarBytes);
  std::reverse_copy(bytes, bytes + kScalarBytes, other.get());
  return other;
}

// The secret number of a key as OpenSSL has it in memory: its words, the lowest first. In a file it is the other way.
Hidden scalar_of(const PrivateKey& key) {
  BIGNUM* number = nullptr;
  EXPECT_EQ(EVP_PKEY_get_bn_param(key.native(), OSSL_PKEY_PARAM_PRIV_KEY, &number), 1);
  Hidden bytes = hidden(kScalarBytes);
  EXPECT_EQ(BN_bn2lebinpad(number, reinterpret_cast<unsigned char*>(bytes.get()), kScalarBytes), int{kScalarBytes});
  BN_clear_free(number);
  return bytes;
}

// As a process that has not used OpenSSL before, such as one that starts: exits with what is wrong, 0 if nothing is.
[[noreturn]] void look_for_a_key() {
  guard_keys();
  allow_dumps();  // otherwise its memory is closed to itself, too, unless it is root's; what a dump leaves out stays so
  static const TemporaryFolder folder;  // removed by std::exit()
  const std::string path = folder / "key.pem";
  if (!PrivateKey::generate()->save(path).ok()) std::exit(1);
  const Result<PrivateKey> key = PrivateKey::load(path);
  if (!key.ok()) std::exit(2);
  const Hidden scalar = scalar_of(*key);
  if (is_dumped(scalar.get())) std::exit(3);
  if (is_dumped(reversed(scalar.get()).get())) std::exit(4);
  static std::array<std::byte, kScalarBytes> leak;
  std::memcpy(leak.data(), scalar.get(), leak.size());
  asm volatile("" : : "r"(leak.data()) : "memory");
  if (!is_dumped(scalar.get())) std::exit(5);  // the search itself finds what is there
  std::exit(0);
}

TEST(KeyGuard, KeysAreInNoMemoryThatACoreDumpHolds) {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  GTEST_SKIP() << "a sanitizer keeps what was freed, and terabytes beside it";
#endif
  const std::string before = GTEST_FLAG_GET(death_test_style);
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // starts this program again, for this test
  EXPECT_EXIT(look_for_a_key(), testing::ExitedWithCode(0), "") << "3, 4: the key lies where a dump would hold it";
  GTEST_FLAG_SET(death_test_style, before);
}

}  // namespace
}  // namespace fluvial::identity
