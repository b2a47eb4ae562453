// Where a token's text comes from and goes to: a secret, so a file that nobody else reads.
#pragma once

#include <string>

#include "core/base/result.h"
#include "core/config/reader.h"

namespace fluvial::cli {

struct GivenToken {
  std::string text;     // without blanks around it; empty: none was given
  std::string warning;  // others on this machine can read the file it came from
};

// A file's content; kInvalidArgument where that is no token, with the name of the file that a person fills. Files below
// /run/secrets are a container's own and need no warning, whatever their mode.
Result<GivenToken> read_token_file(const std::string& path);

// Of FLUVIAL_TOKEN_FILE or FLUVIAL_TOKEN; kInvalidArgument when both are set.
Result<GivenToken> token_from(const config::Environment& environment);

// A new file of mode 0600, made before there is a token to lose. Removed when dropped, unless write() was done.
class TokenFile {
 public:
  static Result<TokenFile> make(const std::string& path);  // kAlreadyExists: no file is written over
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();
  Status write(const std::string& token);  // durable when it returns

 private:
  TokenFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::string path_;
  int descriptor_;
  bool written_ = false;
};

}  // namespace fluvial::cli
