#include "core/store/sqlite_vfs.h"

#include <sqlite3.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace fluvial::store {

struct VfsAccess {
  static SqliteVfs& of(sqlite3_vfs* vfs) { return *static_cast<SqliteVfs*>(vfs->pAppData); }
  static FileSystem& files(SqliteVfs& vfs) { return vfs.files_; }
  // Remembers the file system's message and picks the result code.
  static int fail(SqliteVfs& vfs, const Error& error, int code) {
    vfs.last_error_ = error.message;
    return error.code == Code::kResourceExhausted ? SQLITE_FULL : code;
  }
};

namespace {

struct VfsFile : sqlite3_file {
  SqliteVfs* vfs = nullptr;
  std::unique_ptr<File> file;
  std::string path;
  bool sync_folder = true;  // with the first fsync: its name may be new, or a killed predecessor's
  bool locked = false;
  bool remove_on_close = false;
};

VfsFile& of(sqlite3_file* file) { return *static_cast<VfsFile*>(file); }
int fail(VfsFile& file, const Error& error, int code) { return VfsAccess::fail(*file.vfs, error, code); }

int close_file(sqlite3_file* base) {
  VfsFile& file = of(base);
  const bool remove = file.remove_on_close;
  FileSystem& files = VfsAccess::files(*file.vfs);
  const std::string path = file.path;
  file.~VfsFile();
  if (remove) static_cast<void>(files.remove(path));
  return SQLITE_OK;
}

int read_file_at(sqlite3_file* base, void* into, int amount, sqlite3_int64 offset) {
  VfsFile& file = of(base);
  const MutableByteSpan span(static_cast<std::byte*>(into), static_cast<std::size_t>(amount));
  const Result<std::size_t> got = file.file->read_at(static_cast<std::uint64_t>(offset), span);
  if (!got.ok()) return fail(file, got.error(), SQLITE_IOERR_READ);
  if (*got == span.size()) return SQLITE_OK;
  std::memset(span.data() + *got, 0, span.size() - *got);  // as SQLite asks
  return SQLITE_IOERR_SHORT_READ;
}

int write_file_at(sqlite3_file* base, const void* from, int amount, sqlite3_int64 offset) {
  VfsFile& file = of(base);
  const ByteSpan span(static_cast<const std::byte*>(from), static_cast<std::size_t>(amount));
  const Status status = file.file->write_at(static_cast<std::uint64_t>(offset), span);
  return status.ok() ? SQLITE_OK : fail(file, status.error(), SQLITE_IOERR_WRITE);
}

int truncate_file(sqlite3_file* base, sqlite3_int64 size) {
  const Status status = of(base).file->truncate(static_cast<std::uint64_t>(size));
  return status.ok() ? SQLITE_OK : fail(of(base), status.error(), SQLITE_IOERR_TRUNCATE);
}

int sync_file(sqlite3_file* base, int flags) {
  VfsFile& file = of(base);
  Status status = (flags & SQLITE_SYNC_DATAONLY) != 0 ? file.file->sync_data() : file.file->sync();
  if (!status.ok()) return fail(file, status.error(), SQLITE_IOERR_FSYNC);
  if (!file.sync_folder) return SQLITE_OK;
  status = VfsAccess::files(*file.vfs).sync_folder(folder_of(file.path));
  if (!status.ok()) return fail(file, status.error(), SQLITE_IOERR_DIR_FSYNC);
  file.sync_folder = false;
  return SQLITE_OK;
}

int size_of_file(sqlite3_file* base, sqlite3_int64* size) {
  const Result<std::uint64_t> got = of(base).file->size();
  if (!got.ok()) return fail(of(base), got.error(), SQLITE_IOERR_FSTAT);
  *size = static_cast<sqlite3_int64>(*got);
  return SQLITE_OK;
}

// One lock for every level: a database of ours has one connection at a time.
int lock_file(sqlite3_file* base, int level) {
  VfsFile& file = of(base);
  if (level == SQLITE_LOCK_NONE || file.locked) return SQLITE_OK;
  const Result<bool> locked = file.file->try_lock();
  if (!locked.ok()) return fail(file, locked.error(), SQLITE_IOERR_LOCK);
  file.locked = *locked;
  return *locked ? SQLITE_OK : SQLITE_BUSY;
}
int unlock_file(sqlite3_file* base, int level) {
  VfsFile& file = of(base);
  if (level != SQLITE_LOCK_NONE || !file.locked) return SQLITE_OK;
  file.file->unlock();
  file.locked = false;
  return SQLITE_OK;
}
int check_reserved_lock(sqlite3_file* base, int* reserved) {
  static_cast<void>(base);
  *reserved = 0;
  return SQLITE_OK;
}
int file_control(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int sector_size(sqlite3_file*) { return 4096; }
int device_characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

constexpr sqlite3_io_methods kMethods = {
    .iVersion = 1,
    .xClose = close_file,
    .xRead = read_file_at,
    .xWrite = write_file_at,
    .xTruncate = truncate_file,
    .xSync = sync_file,
    .xFileSize = size_of_file,
    .xLock = lock_file,
    .xUnlock = unlock_file,
    .xCheckReservedLock = check_reserved_lock,
    .xFileControl = file_control,
    .xSectorSize = sector_size,
    .xDeviceCharacteristics = device_characteristics,
    .xShmMap = nullptr,
    .xShmLock = nullptr,
    .xShmBarrier = nullptr,
    .xShmUnmap = nullptr,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

int open_file(sqlite3_vfs* base, const char* name, sqlite3_file* out, int flags, int* out_flags) {
  out->pMethods = nullptr;
  if (name == nullptr) return SQLITE_CANTOPEN;  // temporary files: temp_store=MEMORY keeps SQLite from asking
  SqliteVfs& vfs = VfsAccess::of(base);
  FileSystem& files = VfsAccess::files(vfs);
  const bool create = (flags & SQLITE_OPEN_CREATE) != 0;
  Result<std::unique_ptr<File>> file = files.open(name, create ? OpenMode::kCreate : OpenMode::kReadWrite);
  if (!file.ok()) return VfsAccess::fail(vfs, file.error(), SQLITE_CANTOPEN);
  auto* opened = new (out) VfsFile;
  opened->pMethods = &kMethods;
  opened->vfs = &vfs;
  opened->file = std::move(*file);
  opened->path = name;
  opened->remove_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs* base, const char* name, int sync) {
  SqliteVfs& vfs = VfsAccess::of(base);
  Status status = VfsAccess::files(vfs).remove(name);
  if (!status.ok() && status.error().code == Code::kNotFound) return SQLITE_IOERR_DELETE_NOENT;
  if (status.ok() && sync != 0) status = VfsAccess::files(vfs).sync_folder(folder_of(name));
  return status.ok() ? SQLITE_OK : VfsAccess::fail(vfs, status.error(), SQLITE_IOERR_DELETE);
}

// An empty WAL or journal counts as absent, as in SQLite's own layer.
int access_file(sqlite3_vfs* base, const char* name, int flags, int* result) {
  SqliteVfs& vfs = VfsAccess::of(base);
  FileSystem& files = VfsAccess::files(vfs);
  *result = 0;
  const Result<bool> there = files.exists(name);
  if (!there.ok()) return VfsAccess::fail(vfs, there.error(), SQLITE_IOERR_ACCESS);
  if (!*there) return SQLITE_OK;
  *result = 1;
  if (flags != SQLITE_ACCESS_EXISTS) return SQLITE_OK;
  const Result<std::unique_ptr<File>> file = files.open(name, OpenMode::kRead);
  if (!file.ok()) return VfsAccess::fail(vfs, file.error(), SQLITE_IOERR_ACCESS);
  const Result<std::uint64_t> size = (*file)->size();
  if (!size.ok()) return VfsAccess::fail(vfs, size.error(), SQLITE_IOERR_ACCESS);
  *result = *size > 0 ? 1 : 0;
  return SQLITE_OK;
}

int full_pathname(sqlite3_vfs*, const char* name, int size, char* out) {
  const int length = std::snprintf(out, static_cast<std::size_t>(size), "%s", name);
  return length < size ? SQLITE_OK : SQLITE_CANTOPEN;
}

sqlite3_vfs* system_vfs() { return sqlite3_vfs_find(nullptr); }
int randomness(sqlite3_vfs*, int size, char* out) { return system_vfs()->xRandomness(system_vfs(), size, out); }
int sleep_us(sqlite3_vfs*, int microseconds) { return system_vfs()->xSleep(system_vfs(), microseconds); }
int current_time(sqlite3_vfs*, double* out) { return system_vfs()->xCurrentTime(system_vfs(), out); }
int get_last_error(sqlite3_vfs*, int, char*) { return 0; }

std::string next_name() {
  static std::atomic<std::uint64_t> count{0};  // SQLite's registry is the process' own
  return "fluvial-" + std::to_string(count.fetch_add(1));
}

}  // namespace

SqliteVfs::SqliteVfs(FileSystem& files) : files_(files), name_(next_name()), vfs_(std::make_unique<sqlite3_vfs>()) {
  *vfs_ = {};
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(VfsFile);
  vfs_->mxPathname = 4096;
  vfs_->zName = name_.c_str();
  vfs_->pAppData = this;
  vfs_->xOpen = open_file;
  vfs_->xDelete = delete_file;
  vfs_->xAccess = access_file;
  vfs_->xFullPathname = full_pathname;
  vfs_->xRandomness = randomness;
  vfs_->xSleep = sleep_us;
  vfs_->xCurrentTime = current_time;
  vfs_->xGetLastError = get_last_error;
  FLUVIAL_CHECK(sqlite3_vfs_register(vfs_.get(), 0) == SQLITE_OK, "SQLite takes no VFS");
}

SqliteVfs::~SqliteVfs() { sqlite3_vfs_unregister(vfs_.get()); }

}  // namespace fluvial::store
