#include "core/store/model_source.h"

#include <algorithm>
#include <bit>
#include <boost/json/object.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "core/store/json.h"

namespace fluvial::store {
namespace {

namespace json = boost::json;

constexpr std::string_view kIndexSuffix = ".json";
constexpr std::size_t kConvertedValues = std::size_t{1} << 20;  // at a time

float as_float(StoredAs stored, const std::byte* from) {
  switch (stored) {
    case StoredAs::kBF16: return std::bit_cast<float>(std::uint32_t{load_le<std::uint16_t>(from)} << 16U);
    case StoredAs::kF16: return static_cast<float>(std::bit_cast<_Float16>(load_le<std::uint16_t>(from)));
    case StoredAs::kF64: {
      const auto value = std::bit_cast<double>(load_le<std::uint64_t>(from));
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      if (std::abs(value) > std::numeric_limits<float>::max()) return value > 0 ? kInfinity : -kInfinity;
      return static_cast<float>(value);
    }
    case StoredAs::kPlain: break;
  }
  FLUVIAL_CHECK(false, "no conversion");
}

// Where a tensor is: in a shard, at this byte.
struct Place {
  std::size_t shard = 0;
  std::uint64_t offset = 0;
  StoredAs stored = StoredAs::kPlain;
  std::size_t value_bytes = 0;  // there
};

class SourceFile final : public File {
 public:
  SourceFile(FileSystem& files, std::vector<std::string> shards, round::Schema schema, std::vector<Place> places,
             const Metadata& metadata)
      : files_(files),
        shards_(std::move(shards)),
        schema_(std::move(schema)),
        places_(std::move(places)),
        header_(format_model_header(schema_, metadata)) {}

  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    std::size_t done = 0;
    while (done < into.size() && offset + done < end()) {
      FLUVIAL_ASSIGN(const std::size_t read, read_some(offset + done, into.subspan(done)));
      done += read;
    }
    return done;
  }
  Result<std::uint64_t> size() override { return end(); }
  Status write_at(std::uint64_t, ByteSpan) override { return only_read(); }
  Status truncate(std::uint64_t) override { return only_read(); }
  Status sync() override { return {}; }
  Status sync_data() override { return {}; }
  Result<bool> try_lock() override { return only_read(); }
  void unlock() override {}

 private:
  static Error only_read() { return {Code::kInternal, "a model of others is read alone"}; }
  std::uint64_t end() const { return header_.size() + schema_.model_bytes(); }

  // At least a byte, of the header or of one tensor.
  Result<std::size_t> read_some(std::uint64_t offset, MutableByteSpan into) {
    if (offset < header_.size()) {
      const std::size_t count = std::min<std::size_t>(into.size(), header_.size() - offset);
      std::memcpy(into.data(), header_.data() + offset, count);
      return count;
    }
    const std::uint64_t at = offset - header_.size();
    std::size_t low = 0;  // the last tensor that begins there or before: none behind it has values before `at`
    for (std::size_t high = places_.size(); low + 1 < high;) {
      const std::size_t middle = (low + high) / 2;
      (schema_.tensor_offset_bytes(middle) <= at ? low : high) = middle;
    }
    const std::size_t value_bytes = round::dtype_bytes(schema_.tensors()[low].dtype);
    const std::uint64_t skip = at - schema_.tensor_offset_bytes(low);
    const std::uint64_t left = schema_.tensor_values(low) * value_bytes - skip;
    const std::size_t count = std::min<std::uint64_t>(into.size(), left);
    const Place& place = places_[low];
    FLUVIAL_TRY(open(place.shard));
    if (place.stored != StoredAs::kPlain) return convert(place, skip, into.first(count));
    FLUVIAL_TRY(read_exactly(*open_, place.offset + skip, into.first(count), shards_[place.shard]));
    return count;
  }

  Result<std::size_t> convert(const Place& place, std::uint64_t skip, MutableByteSpan into) {
    const std::uint64_t first = skip / sizeof(float);
    const std::size_t within = skip % sizeof(float);
    const std::size_t values = std::min((within + into.size() + sizeof(float) - 1) / sizeof(float), kConvertedValues);
    const std::size_t width = place.value_bytes;
    stored_.resize(values * width);
    FLUVIAL_TRY(read_exactly(*open_, place.offset + first * width, stored_, shards_[place.shard]));
    converted_.resize(values);
    for (std::size_t i = 0; i < values; ++i) converted_[i] = as_float(place.stored, stored_.data() + i * width);
    const std::size_t count = std::min(into.size(), values * sizeof(float) - within);
    std::memcpy(into.data(), std::as_bytes(std::span(converted_)).data() + within, count);
    return count;
  }

  Status open(std::size_t shard) {
    if (open_ && opened_ == shard) return {};
    FLUVIAL_ASSIGN(open_, files_.open(shards_[shard], OpenMode::kRead));
    opened_ = shard;
    return {};
  }

  FileSystem& files_;
  const std::vector<std::string> shards_;
  const round::Schema schema_;
  const std::vector<Place> places_;  // by tensor
  const std::string header_;
  std::unique_ptr<File> open_;  // the shard that was read last
  std::size_t opened_ = 0;
  std::vector<std::byte> stored_;
  std::vector<float> converted_;
};

bool is_shard_name(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// The names of each shard's tensors.
Result<std::map<std::string, std::set<std::string>>> read_index(FileSystem& files, const std::string& path) {
  FLUVIAL_ASSIGN(const Buffer text, read_file(files, path, kSafetensorsHeaderBytesMax));
  FLUVIAL_ASSIGN(const json::value parsed, parse_json(as_text(text.span()), path));
  const json::value* map = parsed.is_object() ? parsed.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    return Error{
        Code::kInvalidArgument,
        path + ": no index of a model's shards: expected a weight_map, from each tensor's name to its shard's"};
  }
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, shard] : map->get_object()) {
    const std::string_view file = shard.is_string() ? view(shard.get_string()) : std::string_view();
    if (!is_shard_name(file)) {
      return Error{Code::kInvalidArgument,
                   path + ": tensor '" + printable(std::string_view(name.data(), name.size()), 64) + "' is in '" +
                       printable(file, 64) + "', expected the name of a .safetensors file in the index's folder"};
    }
    shards[std::string(file)].emplace(name.data(), name.size());
  }
  return shards;
}

Status check_shard(const std::string& shard, const StoredHeader& header, const std::set<std::string>& names) {
  std::set<std::string> missing = names;
  for (const StoredTensor& found : header.tensors) {
    if (missing.erase(found.tensor.name) > 0) continue;
    return Error{Code::kInvalidArgument, shard + ": tensor '" + printable(found.tensor.name, 64) +
                                             "' is in it as well, and the index does not say so"};
  }
  if (missing.empty()) return {};
  return Error{Code::kInvalidArgument,
               shard + ": tensor '" + printable(*missing.begin(), 64) + "' is not in it, and the index says so"};
}

Status check_finite(const Model& model, const std::string& path) {
  std::uint64_t coordinate = 0;
  for (std::size_t t = 0; t < model.schema.tensors().size(); ++t) {
    const round::Tensor& tensor = model.schema.tensors()[t];
    if (!round::is_averaged(tensor.dtype)) continue;
    const std::byte* const from = model.bytes.data() + model.schema.tensor_offset_bytes(t);
    for (std::uint64_t i = 0; i < model.schema.tensor_values(t); ++i, ++coordinate) {
      const auto value = std::bit_cast<float>(load_le<std::uint32_t>(from + i * sizeof(float)));
      if (std::isfinite(value)) continue;
      const char* const shown = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
      return Error{Code::kInvalidArgument, path + ": " + round::value_name(model.schema, coordinate) + " is " + shown +
                                               ", expected a finite number: leave out what is not trained, as "
                                               "save_model(..., only=[\"*\", \"!" +
                                               printable(tensor.name, 64) + "\"]) does"};
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<File>> open_model(FileSystem& files, const std::string& path) {
  std::map<std::string, std::set<std::string>> shards{{path, {}}};
  const bool is_index = path.ends_with(kIndexSuffix);
  if (is_index) {
    FLUVIAL_ASSIGN(shards, read_index(files, path));
  }
  std::vector<std::string> paths;
  std::vector<round::Tensor> tensors;
  std::vector<Place> places;
  Metadata metadata;
  bool is_plain = !is_index;
  for (const auto& [name, named] : shards) {
    paths.push_back(is_index ? join_path(folder_of(path), name) : name);
    FLUVIAL_ASSIGN(const std::unique_ptr<File> file, files.open(paths.back(), OpenMode::kRead));
    FLUVIAL_ASSIGN(const StoredHeader header, read_stored_header(*file, paths.back()));
    if (is_index) FLUVIAL_TRY(check_shard(paths.back(), header, named));
    if (!is_index) metadata = header.metadata;
    for (const StoredTensor& found : header.tensors) {
      is_plain = is_plain && found.stored == StoredAs::kPlain;
      places.push_back({paths.size() - 1, header.data_offset + found.begin, found.stored, stored_bytes(found)});
      tensors.push_back(found.tensor);
    }
  }
  if (is_plain) return files.open(path, OpenMode::kRead);
  Result<round::Schema> schema = round::Schema::make(std::move(tensors));
  if (!schema.ok()) return Error{Code::kInvalidArgument, path + ": " + schema.error().message};
  return std::unique_ptr<File>(
      std::make_unique<SourceFile>(files, std::move(paths), std::move(*schema), std::move(places), metadata));
}

Result<std::unique_ptr<File>> open_to_send(FileSystem& files, const std::string& path) {
  return path.ends_with(kIndexSuffix) ? open_model(files, path) : files.open(path, OpenMode::kRead);
}

Result<Model> read_initial_model(FileSystem& files, const std::string& path) {
  FLUVIAL_ASSIGN(const std::unique_ptr<File> file, open_model(files, path));
  FLUVIAL_ASSIGN(Model model, read_model(*file, path));
  FLUVIAL_TRY(check_finite(model, path));
  return model;
}

}  // namespace fluvial::store
