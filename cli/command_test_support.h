// What the room's tests share: a command line carried out in this process, and what it printed.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace fluvial::cli {

struct Ran {
  int status = -1;
  std::string out;
  std::string err;
};

inline std::string content_of(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

inline Ran run(const std::vector<std::string>& arguments, std::map<std::string, std::string> variables = {}) {
  const Io io{.out = std::tmpfile(), .err = std::tmpfile()};
  Ran ran;
  store::PosixFileSystem files;
  const auto environment = [&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  ran.status = run_command_line(arguments, io, environment, files);
  ran.out = content_of(io.out);
  ran.err = content_of(io.err);
  return ran;
}

inline std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace fluvial::cli
