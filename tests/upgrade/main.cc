// upgrade_fixtures FOLDER: records what this version sends and writes, but the federation of real processes, which
// integration_test records (./dev fixtures does both).
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/upgrade/recording.h"

namespace fluvial::upgrade {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

Status record(const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (const char* made : {"coordinator", "site"}) std::filesystem::remove_all(folder + "/" + made);
  write(folder + "/session.txt", to_text(session_of_this_version()));
  write(folder + "/local.txt", to_text(local_session_of_this_version()));
  write(folder + "/codecs.txt", to_text(chunks_of_this_version()));
  FLUVIAL_TRY(write_coordinator(folder + "/coordinator"));
  FLUVIAL_TRY(write_site(folder + "/site"));
  for (const char* made : {"coordinator", "site"}) FLUVIAL_TRY(compact_databases(folder + "/" + made));
  // Of copies: who opens a folder changes it.
  const std::string copies = folder + "/copies";
  for (const char* made : {"coordinator", "site"}) {
    std::filesystem::create_directories(copies);
    std::filesystem::copy(folder + "/" + made, copies + "/" + made, std::filesystem::copy_options::recursive);
  }
  FLUVIAL_ASSIGN(const std::string coordinator, describe_coordinator(copies + "/coordinator"));
  FLUVIAL_ASSIGN(const std::string site, describe_site(copies + "/site"));
  std::filesystem::remove_all(copies);
  write(folder + "/coordinator.txt", coordinator);
  write(folder + "/site.txt", site);
  return {};
}

}  // namespace
}  // namespace fluvial::upgrade

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: upgrade_fixtures FOLDER\n", stderr);
    return 2;
  }
  const fluvial::Status recorded = fluvial::upgrade::record(argv[1]);
  if (!recorded.ok()) std::fprintf(stderr, "upgrade_fixtures: %s\n", recorded.error().to_string().c_str());
  return recorded.ok() ? 0 : 1;
}
