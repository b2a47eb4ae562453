// What a run may begin with, as others write it: a safetensors file with tensors of F16, BF16 and F64 beside those of
// model.md, or the index of one in shards (model.safetensors.index.json). It is read as one model file in fp32.
#pragma once

#include <memory>
#include <string>

#include "core/store/safetensors.h"

namespace fluvial::store {

// To read: a model file of which only what is asked for is read and converted. A value of F64 that fp32 cannot hold
// becomes infinite. Shards are beside their index, and stand in the order of their names. Errors as read_model();
// kInvalidArgument too for an index that is none, leads out of its folder, or is not what its shards hold.
Result<std::unique_ptr<File>> open_model(FileSystem& files, const std::string& path);

// As the coordinator reads it: a file as it is, shards as one file.
Result<std::unique_ptr<File>> open_to_send(FileSystem& files, const std::string& path);

// All of it. kInvalidArgument too for a value that is infinite or no number: no site's update would ever count.
Result<Model> read_initial_model(FileSystem& files, const std::string& path);

}  // namespace fluvial::store
