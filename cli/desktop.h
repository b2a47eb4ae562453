// The desktop that a person sits at, if there is one.
#pragma once

#include <string>

namespace fluvial::cli {

bool has_desktop();
// With the program that the desktop takes for it (xdg-open), which goes on by itself. False: there is none.
bool open_on_desktop(const std::string& path);

}  // namespace fluvial::cli
