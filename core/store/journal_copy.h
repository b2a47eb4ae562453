// A coordinator's journal as a backup takes it: copied as it is, whatever version wrote it, and read without a change.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/store/file_system.h"
#include "core/store/model_store.h"
#include "core/store/rows.h"

namespace fluvial::store {

// What a backup needs to know of a journal.
struct JournalContent {
  struct Run {
    RunId run;
    RunStatus status = RunStatus::kRunning;
    RoundId round;          // its last commit; 0: none
    std::string optimizer;  // the reference of that commit's file of states, or of what the run began with; "": none
    std::optional<Digest> trained = {};  // of the model that sites train from, if it has a file of its own
    bool is_open() const { return !is_over(status); }
  };
  std::uint64_t format = 0;  // the journal's version
  std::string federation;
  std::uint64_t restores = 0;
  std::vector<Run> runs;
  std::vector<std::string> authorities;      // PEM chains of every authority that there was; none before format 7
  std::map<round::ModelKey, Digest> models;  // all that a record names, also those pruned already
};

// Copies the journal of a coordinator that is not running into one durable file at `to`. kNotFound when there is no
// journal, kFailedPrecondition while a coordinator holds it.
Status copy_journal(FileSystem& files, const std::string& path, const std::string& to);

// kDataLoss when SQLite finds the copy damaged, kFailedPrecondition when a newer version wrote it.
Result<JournalContent> read_journal_copy(FileSystem& files, const std::string& path);

std::uint64_t journal_format();  // the newest that this build knows

}  // namespace fluvial::store
