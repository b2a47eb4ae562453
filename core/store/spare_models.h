// The file of the model that has just left the window of those kept is the one that the next model is written into: its
// blocks on the disk and its pages in the kernel are there already.
//
//   retire_model()     round-<n>.safetensors becomes round-<n>.spare.tmp
//   open_model_file()  the spare file becomes round-<m>.safetensors.tmp, to be written from its beginning
//
// Nobody sees it, because before the first byte is overwritten
//   1. its old name is gone durably: no crash brings back a model under a name with other bytes;
//   2. nobody has it open or mapped, and it has no second name (sole.h). Who reads a model reads it to the end.
// Otherwise the next model gets a new file. Spare files end as temporary files do: ModelStore::sweep() removes them at
// the next start, whichever version that is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/file_system.h"

namespace fluvial::store {

bool is_spare_model(std::string_view name);

// Takes `name` out of `folder`, whose files are `names`. At most one spare file stays there.
Status retire_model(FileSystem& files, const std::string& folder, const std::string& name,
                    const std::vector<std::string>& names);

// temporary_of(path), of `bytes` bytes when it is a spare one and empty when it is new. What it holds counts for
// nothing.
Result<std::unique_ptr<File>> open_model_file(FileSystem& files, const std::string& path, std::uint64_t bytes);

Status drop_spare_models(FileSystem& files, const std::string& folder);

}  // namespace fluvial::store
