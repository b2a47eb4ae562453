// The console's page: the files of this folder, which are compiled into the executable.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fluvial::console {

struct File {
  std::string_view name;  // "main.js"
  std::string_view text;
};

std::span<const File> files();
const File* find_file(std::string_view name);  // null: there is none

std::string_view content_type_of(std::string_view name);  // by its ending

}  // namespace fluvial::console
