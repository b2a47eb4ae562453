// Model files: safetensors, strict (docs/formats/model.md). Files that this room writes have their tensors in schema
// order without gaps, so the data section is the model's bytes as they are. Files that it reads must have no gaps
// either; their schema order is the order of the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/round/schema.h"
#include "core/store/file_system.h"

namespace fluvial::store {

inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = std::uint64_t{16} << 20;  // names, shapes, metadata

using Metadata = std::map<std::string, std::string>;

struct Model {
  round::Schema schema;
  Buffer bytes;  // the tensors one after the other, in schema order
  Metadata metadata;
};

struct ModelHeader {
  round::Schema schema;
  Metadata metadata;
  std::uint64_t data_offset = 0;  // of the model's bytes in the file
};

// A file of others, or a shard of one: its tensors may stand in other precisions than those of a model.
enum class StoredAs { kPlain, kF16, kBF16, kF64 };
struct StoredTensor {
  round::Tensor tensor;  // F32, unless it is plain
  StoredAs stored = StoredAs::kPlain;
  std::uint64_t begin = 0;  // of its data, and its end
  std::uint64_t end = 0;
  std::size_t position = 0;  // in the header: orders tensors without data
};
struct StoredHeader {
  std::vector<StoredTensor> tensors;  // in the order of their data, without gaps
  Metadata metadata;
  std::uint64_t data_offset = 0;
};
std::size_t stored_bytes(const StoredTensor& tensor);  // of a value

// Errors: kNotFound; kInvalidArgument for a file that is no valid model (naming file and tensor); kDataLoss for a file
// that is cut short. Nothing is allocated before its size was compared with the file's.
Result<ModelHeader> read_model_header(File& file, const std::string& path);
Result<Model> read_model(FileSystem& files, const std::string& path);
Result<Model> read_model(File& file, const std::string& path);
Result<StoredHeader> read_stored_header(File& file, const std::string& path);

// Parses the JSON part alone. `data_bytes` is what follows it; `where` starts the messages.
Result<ModelHeader> parse_model_header(std::string_view json, std::uint64_t data_bytes, const std::string& where);
// kInvalidArgument: with names and shapes that are this long a model that is written here could not be read again.
Status check_header_fits(const round::Schema& schema);
// Length field and JSON, padded with spaces so that the data starts at a multiple of 8.
std::string format_model_header(const round::Schema& schema, const Metadata& metadata);

// Atomic and durable (write_file_atomically). The bytes go straight from the caller's span to the file.
Status write_model(FileSystem& files, const std::string& path, const round::Schema& schema, ByteSpan bytes,
                   const Metadata& metadata);

Digest model_digest(ByteSpan model);  // SHA-256; about a second for 1.5 GB

}  // namespace fluvial::store
