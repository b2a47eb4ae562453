// SQLite's operating-system layer over FileSystem. No shared memory: databases are opened with locking_mode=EXCLUSIVE,
// which keeps the WAL index on the heap. Inside this room only.
#pragma once

#include <memory>
#include <string>

#include "core/store/file_system.h"

struct sqlite3_vfs;

namespace fluvial::store {

// Registered with SQLite for as long as it lives; it outlives every database opened through it.
class SqliteVfs {
 public:
  explicit SqliteVfs(FileSystem& files);
  ~SqliteVfs();
  SqliteVfs(const SqliteVfs&) = delete;
  SqliteVfs& operator=(const SqliteVfs&) = delete;

  const char* name() const { return name_.c_str(); }
  // The file system's message for the last input/output error that SQLite reported; "" before any.
  const std::string& last_error() const { return last_error_; }

 private:
  friend struct VfsAccess;
  FileSystem& files_;
  std::string name_;
  std::string last_error_;
  std::unique_ptr<sqlite3_vfs> vfs_;
};

}  // namespace fluvial::store
