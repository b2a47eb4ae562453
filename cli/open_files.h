// How many files a process of ours may have open.
#pragma once

namespace fluvial::cli {

// As many as the hard limit lets it: a shell's soft limit, often 1024, is less than a hundred sessions and their files
// take. Where that is refused, nothing changes.
void raise_open_files();

}  // namespace fluvial::cli
