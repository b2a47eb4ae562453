#include "cli/open_files.h"

#include <sys/resource.h>

namespace fluvial::cli {

void raise_open_files() {
  struct rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace fluvial::cli
