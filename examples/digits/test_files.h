// Files for tests, in a folder that is gone at the end.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/testing.h"

namespace fluvial::digits {

class TestFiles {
 public:
  std::filesystem::path folder() const { return folder_.path(); }
  std::filesystem::path plain(const std::string& name, const std::string& content) const {
    std::ofstream(folder() / name, std::ios::binary) << content;
    return folder() / name;
  }
  std::filesystem::path packed(const std::string& name, const std::string& content) const {
    gzFile_s* const file = ::gzopen((folder() / name).c_str(), "wb");
    EXPECT_EQ(::gzwrite(file, content.data(), static_cast<unsigned>(content.size())), static_cast<int>(content.size()));
    EXPECT_EQ(::gzclose(file), Z_OK);
    return folder() / name;
  }

 private:
  const TemporaryFolder folder_;
};

}  // namespace fluvial::digits
