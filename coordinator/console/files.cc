#include "coordinator/console/files.h"

namespace fluvial::console {

const File* find_file(std::string_view name) {
  for (const File& file : files()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

}  // namespace fluvial::console
