#include "core/local/shared_model.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <limits>

#include "core/local/test_support.h"

namespace fluvial::local {
namespace {

constexpr int kModelSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

UniqueFd model_memfd(std::uint64_t size_bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedModel, HoldsWhatWasWrittenAndNobodyCanChangeItAnyMore) {
  Result<MemfdWriter> writer = MemfdWriter::create(5);
  ASSERT_TRUE(writer.ok());
  std::memcpy(writer->span().data(), "river", 5);
  const Result<std::shared_ptr<const SharedModel>> sealed = std::move(*writer).seal();
  ASSERT_TRUE(sealed.ok()) << sealed.error().to_string();
  const SharedModel& model = **sealed;
  EXPECT_EQ(as_text(model.bytes()), "river");
  EXPECT_LT(::pwrite(model.fd(), "x", 1, 0), 0);
  EXPECT_LT(::ftruncate(model.fd(), 1), 0);
  EXPECT_LT(::ftruncate(model.fd(), 9), 0);
  EXPECT_EQ(::mmap(nullptr, 5, PROT_READ | PROT_WRITE, MAP_SHARED, model.fd(), 0), MAP_FAILED);
  EXPECT_LT(::fcntl(model.fd(), F_ADD_SEALS, F_SEAL_SEAL), 0);
}

TEST(SharedModel, SharedBytesKeepItAlive) {
  SharedBytes bytes;
  {
    const std::shared_ptr<const SharedModel> model = SharedModel::copy_of(as_byte_span("delta")).value();
    bytes = model->as_shared_bytes();
  }
  EXPECT_EQ(as_text(bytes.bytes), "delta");
}

TEST(SharedModel, MayBeEmpty) {
  const auto model = SharedModel::copy_of({});
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE((*model)->bytes().empty());
}

TEST(SharedModel, AdoptsASealedMemfdOfTheRightSize) {
  const auto model = SharedModel::adopt(model_memfd(8, kModelSeals), 8);
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  EXPECT_EQ((*model)->bytes().size(), 8u);
}

TEST(SharedModel, AdoptRefusesWhatIsNotSealed) {
  for (const auto& [missing, name] :
       {std::pair{F_SEAL_SHRINK, "F_SEAL_SHRINK"}, {F_SEAL_GROW, "F_SEAL_GROW"}, {F_SEAL_WRITE, "F_SEAL_WRITE"}}) {
    const auto model = SharedModel::adopt(model_memfd(8, kModelSeals & ~missing), 8);
    ASSERT_FALSE(model.ok());
    EXPECT_NE(model.error().message.find(name), std::string::npos) << model.error().message;
  }
}

TEST(SharedModel, AWorkersResultMayStayWritableForIt) {
  EXPECT_TRUE(SharedModel::adopt(model_memfd(8, F_SEAL_SHRINK | F_SEAL_GROW), 8, Seals::kSize).ok());
  EXPECT_FALSE(SharedModel::adopt(model_memfd(8, F_SEAL_SHRINK), 8, Seals::kSize).ok());
  EXPECT_FALSE(SharedModel::adopt(model_memfd(8, F_SEAL_GROW), 8, Seals::kSize).ok());
  EXPECT_FALSE(SharedModel::adopt(model_memfd(7, kModelSeals), 8, Seals::kSize).ok());

  Result<ResultBuffer> buffer = ResultBuffer::create(5);
  ASSERT_TRUE(buffer.ok());
  std::memcpy(buffer->span().data(), "river", 5);
  const auto first = buffer->share();
  const auto second = buffer->share();
  ASSERT_TRUE(first.ok() && second.ok());
  std::memcpy(buffer->span().data(), "delta", 5);
  EXPECT_EQ(as_text((*first)->bytes()), "delta") << "the same memory";
  EXPECT_EQ(as_text((*second)->bytes()), "delta");
  EXPECT_LT(::ftruncate((*first)->fd(), 1), 0);
  EXPECT_LT(::ftruncate((*first)->fd(), 9), 0);
}

TEST(SharedModel, AdoptRefusesAnotherSize) {
  for (const std::uint64_t expected : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{9}, ~std::uint64_t{0}}) {
    EXPECT_FALSE(SharedModel::adopt(model_memfd(8, kModelSeals), expected).ok()) << expected;
  }
}

TEST(SharedModel, AdoptRefusesWhatIsNoMemfdAndClosesIt) {
  const std::size_t before = open_fds();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_FALSE(SharedModel::adopt(UniqueFd(ends[0]), 0).ok());
  EXPECT_FALSE(SharedModel::adopt(UniqueFd(ends[1]), 0).ok());
  EXPECT_FALSE(SharedModel::adopt(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 8).ok());
  EXPECT_FALSE(SharedModel::adopt(UniqueFd(::open("/", O_RDONLY | O_CLOEXEC)), 8).ok());
  EXPECT_FALSE(SharedModel::adopt(UniqueFd(), 8).ok());
  EXPECT_EQ(open_fds(), before);
}

TEST(MemfdWriter, RefusesWhatNoMachineHas) {
  const Result<MemfdWriter> writer = MemfdWriter::create(std::numeric_limits<std::uint64_t>::max());
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace fluvial::local
