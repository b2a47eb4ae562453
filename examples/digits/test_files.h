// Files for tests, in a folder that is gone at the end.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace fluvial::digits {

class TestFiles {
 public:
  TestFiles() {
    std::string name = ::testing::TempDir() + "fluvial-digits-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  TestFiles(const TestFiles&) = delete;
  TestFiles& operator=(const TestFiles&) = delete;
  ~TestFiles() { std::filesystem::remove_all(folder_); }

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path plain(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  std::filesystem::path packed(const std::string& name, const std::string& content) const {
    gzFile_s* const file = ::gzopen((folder_ / name).c_str(), "wb");
    EXPECT_EQ(::gzwrite(file, content.data(), static_cast<unsigned>(content.size())), static_cast<int>(content.size()));
    EXPECT_EQ(::gzclose(file), Z_OK);
    return folder_ / name;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace fluvial::digits
