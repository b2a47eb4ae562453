// A model's file on its way to a coordinator on another machine: declared, then sent in parts that follow each other on
// one connection; after a cut the coordinator is asked what has come, and it goes on from there. Blocking; in memory
// are a few parts of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/admin_client.h"
#include "core/base/clock.h"
#include "core/store/file_system.h"

namespace fluvial::cli {

struct UploadWords {
  std::function<void(std::uint64_t sent, std::uint64_t bytes)> sent;  // as the coordinator has it
  std::function<void(const Error& why, Duration wait)> cut;           // and it is tried again after this
};

// The upload's name there, for the body of POST /v1/runs. kInvalidArgument, before anything is sent: it is no model
// file. Else what the coordinator says of it, or kUnavailable when it cannot be reached any more.
Result<std::string> upload_model(const AdminClient& client, store::FileSystem& files, const std::string& path,
                                 const UploadWords& words);

}  // namespace fluvial::cli
