#include "core/net/record_cipher.h"

#include <gtest/gtest.h>

#include <vector>

namespace fluvial::net {
namespace {

std::vector<std::byte> sample(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

TEST(RecordCipher, OpensWhatItSealedWholeRecordsAndAShortOne) {
  for (const std::size_t count : {std::size_t{1}, kRecordBytes, 3 * kRecordBytes + 5}) {
    const std::vector<std::byte> plain = sample(count);
    std::vector<std::byte> bytes = plain;
    std::vector<std::byte> tags(record_tag_bytes(count));
    ASSERT_TRUE(seal_records(bytes, tags).ok());
    EXPECT_NE(bytes, plain);
    ASSERT_TRUE(open_records(bytes, tags).ok());
    EXPECT_EQ(bytes, plain);
  }
}

TEST(RecordCipher, ARecordIsSealedUnderItsOwnNumber) {
  std::vector<std::byte> bytes(2 * kRecordBytes);
  std::vector<std::byte> tags(record_tag_bytes(bytes.size()));
  ASSERT_TRUE(seal_records(bytes, tags).ok());
  EXPECT_FALSE(std::equal(bytes.begin(), bytes.begin() + kRecordBytes, bytes.begin() + kRecordBytes));
}

TEST(RecordCipher, AChangedByteIsFound) {
  std::vector<std::byte> bytes = sample(kRecordBytes + 9);
  std::vector<std::byte> tags(record_tag_bytes(bytes.size()));
  ASSERT_TRUE(seal_records(bytes, tags).ok());
  bytes.back() ^= std::byte{1};
  const Status opened = open_records(bytes, tags);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace fluvial::net
