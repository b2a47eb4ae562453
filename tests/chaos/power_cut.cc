#include "tests/chaos/power_cut.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <vector>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "tests/chaos/shadow_disk.h"

namespace fluvial::chaos {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kSectorBytes = 512;

struct Names {
  DurableNames live;
  DurableNames durable;
};

// By folder; of files alone that were opened through the disk.
std::map<std::string, Names> names_in(const std::string& folder, const std::string& shadow) {
  std::map<std::string, Names> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat status{};
    if (!entry.is_regular_file() || ::stat(entry.path().c_str(), &status) != 0) continue;
    if (::access(pin_of(shadow, status.st_ino).c_str(), F_OK) != 0) continue;
    found[entry.path().parent_path().string()].live[entry.path().filename().string()] = status.st_ino;
  }
  for (const auto& entry : fs::directory_iterator(shadow + "/names")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(store::kTemporarySuffix)) continue;  // it was killed while it wrote this down
    found[folder_of_names(name)].durable = read_names(entry.path().string());
  }
  return found;
}

std::string torn(const std::string& live, const std::string& durable, Rng& rng) {
  std::string content(rng.below(2) == 1 ? live.size() : durable.size(), '\0');
  for (std::size_t from = 0; from < content.size(); from += kSectorBytes) {
    const std::string& source = rng.below(2) == 1 ? live : durable;
    const std::size_t end = std::min({from + kSectorBytes, content.size(), source.size()});
    if (end > from) content.replace(from, end - from, source, from, end - from);
  }
  return content;
}

Status failed(const std::string& what) {
  return Error{Code::kInternal, fmt::format("chaos cannot rebuild {}: errno {}", what, errno)};
}

Status write_whole(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  return file.good() ? Status() : failed(path);
}

class Cut {
 public:
  Cut(std::string folder, std::string shadow, Unsynced unsynced, std::uint64_t seed)
      : folder_(std::move(folder)), shadow_(std::move(shadow)), unsynced_(unsynced), rng_(seed) {}

  Status run() {
    const std::map<std::string, Names> all = names_in(folder_, shadow_);
    std::map<std::string, DurableNames> after;
    for (const auto& [folder, names] : all) after[folder] = chosen(names);
    std::map<ino_t, std::string> contents;
    for (const auto& [folder, names] : after) {
      for (const auto& [name, inode] : names) {
        if (!contents.contains(inode)) contents[inode] = content_of(inode);
      }
    }
    for (const auto& [folder, names] : all) {
      for (const auto& [name, inode] : names.live) {
        if (::unlink((folder + "/" + name).c_str()) != 0) return failed(folder + "/" + name);
      }
    }
    fs::remove_all(shadow_);
    fs::create_directories(shadow_ + "/names");
    return build(after, contents);
  }

 private:
  DurableNames chosen(const Names& names) {
    if (unsynced_ == Unsynced::kLost) return names.durable;
    DurableNames after;
    std::set<std::string> known;
    for (const auto& [name, inode] : names.live) known.insert(name);
    for (const auto& [name, inode] : names.durable) known.insert(name);
    for (const std::string& name : known) {
      const DurableNames& source = rng_.below(2) == 1 ? names.live : names.durable;
      if (const auto found = source.find(name); found != source.end()) after.insert(*found);
    }
    return after;
  }

  std::string content_of(ino_t inode) {
    const std::string durable = text_of_file(durable_of(shadow_, inode));
    return unsynced_ == Unsynced::kLost ? durable : torn(text_of_file(pin_of(shadow_, inode)), durable, rng_);
  }

  // What is there after it is durable.
  Status build(const std::map<std::string, DurableNames>& after, const std::map<ino_t, std::string>& contents) {
    store::PosixFileSystem files;
    std::map<ino_t, std::string> paths;
    for (const auto& [folder, names] : after) {
      DurableNames now;
      for (const auto& [name, inode] : names) {
        const std::string path = folder + "/" + name;
        if (const auto first = paths.find(inode); first != paths.end()) {
          if (::link(first->second.c_str(), path.c_str()) != 0) return failed(path);
        } else {
          FLUVIAL_TRY(write_whole(path, contents.at(inode)));
          paths[inode] = path;
        }
        struct stat status{};
        if (::stat(path.c_str(), &status) != 0) return failed(path);
        now[name] = status.st_ino;
        if (::link(path.c_str(), pin_of(shadow_, status.st_ino).c_str()) != 0 && errno != EEXIST) return failed(path);
        FLUVIAL_TRY(write_whole(durable_of(shadow_, status.st_ino), contents.at(inode)));
      }
      FLUVIAL_TRY(write_names(files, names_of(shadow_, folder), now));
    }
    return {};
  }

  const std::string folder_;
  const std::string shadow_;
  const Unsynced unsynced_;
  Rng rng_;
};

}  // namespace

std::string_view unsynced_name(Unsynced unsynced) { return unsynced == Unsynced::kLost ? "lost" : "torn"; }

Status cut_power(const std::string& folder, const std::string& shadow, Unsynced unsynced, std::uint64_t seed) {
  if (!fs::exists(shadow)) return {};  // it never got so far
  return Cut(folder, shadow, unsynced, seed).run();
}

}  // namespace fluvial::chaos
