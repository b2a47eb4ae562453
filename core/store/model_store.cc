#include "core/store/model_store.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "core/digest/sha256.h"
#include "core/store/spare_models.h"

namespace fluvial::store {
namespace {

constexpr std::string_view kRunPrefix = "run-";
constexpr std::string_view kRoundPrefix = "round-";
constexpr std::string_view kModelSuffix = ".safetensors";
constexpr std::string_view kOptimizerSuffix = ".optimizer.safetensors";
constexpr std::string_view kTrainedSuffix = ".trained.safetensors";
constexpr std::string_view kOptimizerTensor = "state";
constexpr std::string_view kCodecTensor = "codec";
constexpr std::string_view kAsideSuffix = ".aside";

// The number in prefix<number>suffix, and only in that form.
std::optional<std::uint64_t> number_in(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  if (name.size() <= prefix.size() + suffix.size()) return std::nullopt;
  const std::string_view digits = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || std::to_string(number) != digits) {
    return std::nullopt;
  }
  return number;
}

std::string_view suffix_of(ModelFile file) {
  switch (file) {
    case ModelFile::kModel: return kModelSuffix;
    case ModelFile::kOptimizer: return kOptimizerSuffix;
    case ModelFile::kTrained: return kTrainedSuffix;
  }
  return kModelSuffix;
}

std::optional<ModelVersion> version_of(std::string_view name) {
  for (const ModelFile file : kModelFiles) {
    if (const auto number = number_in(name, kRoundPrefix, suffix_of(file))) return ModelVersion(*number);
  }
  return std::nullopt;
}
bool is_trained(std::string_view name) { return number_in(name, kRoundPrefix, kTrainedSuffix).has_value(); }

std::map<RunId, ModelVersion> newest_of(const std::set<round::ModelKey>& models) {
  std::map<RunId, ModelVersion> newest;
  for (const round::ModelKey& model : models) newest[model.run] = std::max(newest[model.run], model.version);
  return newest;
}

Metadata metadata_of(round::ModelKey key, const Digest& digest) {
  return {{"run", std::to_string(key.run.value())},
          {"round", std::to_string(key.version.value())},
          {"sha256", to_hex(digest)}};
}

// Of a file of states; empty: it has no such tensor.
ByteSpan tensor_of(const Model& file, std::string_view name) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < file.schema.tensors().size(); ++i) {
    const auto size = static_cast<std::size_t>(file.schema.tensor_values(i)) * sizeof(float);
    if (file.schema.tensors()[i].name == name) return file.bytes.span().subspan(at, size);
    at += size;
  }
  return {};
}

std::string stem(round::ModelKey key) {
  return std::string(kRunPrefix) + std::to_string(key.run.value()) + "/" + std::string(kRoundPrefix) +
         std::to_string(key.version.value());
}

}  // namespace

Result<ModelStore> ModelStore::open(FileSystem& files, std::string folder) {
  FLUVIAL_TRY(files.make_folder(folder));
  return ModelStore(files, std::move(folder));
}

std::string ModelStore::path_of(round::ModelKey key) const { return join_path(folder_, name_of(key)); }
Result<bool> ModelStore::has(round::ModelKey key) const { return files_->exists(path_of(key)); }
std::string ModelStore::name_of(round::ModelKey key, ModelFile file) {
  return stem(key) + std::string(suffix_of(file));
}
std::optional<round::ModelKey> ModelStore::key_of(std::string_view name, ModelFile file) {
  const std::size_t slash = std::min(name.find('/'), name.size());
  const auto run = number_in(name.substr(0, slash), kRunPrefix, "");
  const auto round = number_in(name.substr(std::min(slash + 1, name.size())), kRoundPrefix, suffix_of(file));
  if (!run || !round) return std::nullopt;
  return round::ModelKey{RunId(*run), ModelVersion(*round)};
}
std::string ModelStore::run_folder(RunId run) const {
  return join_path(folder_, std::string(kRunPrefix) + std::to_string(run.value()));
}

ModelWriter::~ModelWriter() {
  if (file_ == nullptr) return;
  file_.reset();
  static_cast<void>(files_.remove(temporary_of(path_)));  // else the next start does it
}

std::string ModelWriter::header(const Digest& digest) const {
  return format_model_header(schema_, metadata_of(key_, digest));
}

Status ModelWriter::write(std::uint64_t offset, ByteSpan bytes) {
  FLUVIAL_CHECK(offset <= schema_.model_bytes() && bytes.size() <= schema_.model_bytes() - offset,
                "bytes beyond the model");
  FLUVIAL_TRY(file_->write_at(header_bytes_ + offset, bytes));
  written_bytes_ += bytes.size();
  return {};
}

Result<ModelWriter> ModelStore::begin(round::ModelKey key, const round::Schema& schema) {
  FLUVIAL_TRY(files_->make_folder(run_folder(key.run)));
  // The run before writes no more.
  if (key.version == ModelVersion(0) && key.run.value() > 0) {
    const Status dropped = drop_spare_models(*files_, run_folder(RunId(key.run.value() - 1)));
    if (!dropped.ok() && dropped.error().code != Code::kNotFound) return dropped.error();
  }
  ModelWriter writer(*files_, path_of(key), key, schema);
  writer.header_bytes_ = writer.header({}).size();
  FLUVIAL_ASSIGN(writer.file_, open_model_file(*files_, writer.path_, writer.header_bytes_ + schema.model_bytes()));
  return writer;
}

Result<std::string> ModelStore::keep(ModelWriter writer, const Digest& digest, std::span<const float> optimizer,
                                     const std::optional<TrainedFile>& trained, ByteSpan codec_state) {
  if (writer.written_bytes_ != writer.schema_.model_bytes()) {
    return Error{Code::kFailedPrecondition, writer.path_ + ": " + std::to_string(writer.written_bytes_) + " of " +
                                                std::to_string(writer.schema_.model_bytes()) + " bytes were written"};
  }
  const std::string header = writer.header(digest);
  FLUVIAL_CHECK(header.size() == writer.header_bytes_, "a header of another length");
  FLUVIAL_TRY(writer.file_->write_at(0, as_byte_span(header)));
  FLUVIAL_TRY(writer.file_->sync());

  std::string reference;
  if (!optimizer.empty() || !codec_state.empty()) {
    reference = name_of(writer.key_, ModelFile::kOptimizer);
    std::vector<round::Tensor> tensors;
    if (!optimizer.empty()) tensors.push_back({std::string(kOptimizerTensor), round::DType::kF32, {optimizer.size()}});
    if (!codec_state.empty()) {
      tensors.push_back({std::string(kCodecTensor), round::DType::kF32, {codec_state.size() / sizeof(float)}});
    }
    FLUVIAL_ASSIGN(const round::Schema state, round::Schema::make(std::move(tensors)));
    const std::string state_header = format_model_header(state, {{"model_sha256", to_hex(digest)}});
    const ByteSpan state_parts[] = {as_byte_span(state_header), std::as_bytes(optimizer), codec_state};
    const std::string state_path = join_path(folder_, reference);
    FLUVIAL_TRY(write_temporary(*files_, state_path, state_parts));
    FLUVIAL_TRY(files_->rename(temporary_of(state_path), state_path));
  }
  if (trained.has_value()) {
    const std::string own_header = format_model_header(writer.schema_, metadata_of(writer.key_, trained->digest));
    const ByteSpan parts[] = {as_byte_span(own_header), trained->bytes};
    const std::string path = join_path(folder_, name_of(writer.key_, ModelFile::kTrained));
    FLUVIAL_TRY(write_temporary(*files_, path, parts));
    FLUVIAL_TRY(files_->rename(temporary_of(path), path));
  }
  FLUVIAL_TRY(files_->rename(temporary_of(writer.path_), writer.path_));
  writer.file_.reset();
  FLUVIAL_TRY(files_->sync_folder(run_folder(writer.key_.run)));
  return reference;
}

Result<std::string> ModelStore::put(round::ModelKey key, const round::Schema& schema, ByteSpan model,
                                    const Digest& digest, std::span<const float> optimizer, ByteSpan codec_state) {
  FLUVIAL_ASSIGN(ModelWriter writer, begin(key, schema));
  FLUVIAL_TRY(writer.write(0, model));
  return keep(std::move(writer), digest, optimizer, {}, codec_state);
}

Result<Model> ModelStore::load(round::ModelKey key, const Digest& expected, ModelFile file) const {
  const std::string path = join_path(folder_, name_of(key, file));
  FLUVIAL_ASSIGN(Model model, read_model(*files_, path));
  const Digest found = model_digest(model.bytes.span());
  if (found != expected) {
    return Error{Code::kDataLoss,
                 path + ": its model has the digest " + to_hex(found) + ", expected " + to_hex(expected)};
  }
  return model;
}

Result<std::vector<float>> ModelStore::load_optimizer(const std::string& reference, std::uint64_t value_count) const {
  const std::string path = join_path(folder_, reference);
  FLUVIAL_ASSIGN(const Model file, read_model(*files_, path));
  const ByteSpan state = file.schema.all_averaged() ? tensor_of(file, kOptimizerTensor) : ByteSpan();
  if (state.size() != value_count * sizeof(float)) {
    return Error{Code::kDataLoss, path + ": " + std::to_string(state.size() / sizeof(float)) + " values, expected " +
                                      std::to_string(value_count)};
  }
  std::vector<float> values(value_count);
  std::ranges::copy(state, std::as_writable_bytes(std::span(values)).begin());
  return values;
}

Result<Buffer> ModelStore::load_codec_state(const std::string& reference, const Digest& expected) const {
  const std::string path = join_path(folder_, reference);
  FLUVIAL_ASSIGN(const Model file, read_model(*files_, path));
  const ByteSpan state = file.schema.all_averaged() ? tensor_of(file, kCodecTensor) : ByteSpan();
  if (state.empty() || sha256(state) != expected) {
    return Error{Code::kDataLoss, path + ": its codec state is none, or another than " + to_hex(expected)};
  }
  return Buffer::copy_of(state);
}

Result<std::vector<round::ModelKey>> ModelStore::list() const {
  std::vector<round::ModelKey> found;
  FLUVIAL_ASSIGN(const std::vector<std::string> runs, files_->list(folder_));
  for (const std::string& run : runs) {
    const auto id = number_in(run, kRunPrefix, "");
    if (!id) continue;
    FLUVIAL_ASSIGN(const std::vector<std::string> names, files_->list(join_path(folder_, run)));
    for (const std::string& name : names) {
      const auto version = number_in(name, kRoundPrefix, kModelSuffix);
      if (version) found.push_back({RunId(*id), ModelVersion(*version)});
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// All files of this store in the runs' folders.
Result<std::vector<ModelStore::Found>> ModelStore::find() const {
  std::vector<Found> found;
  FLUVIAL_ASSIGN(const std::vector<std::string> runs, files_->list(folder_));
  for (const std::string& run : runs) {
    const auto id = number_in(run, kRunPrefix, "");
    if (!id) continue;
    const std::string folder = join_path(folder_, run);
    FLUVIAL_ASSIGN(const std::vector<std::string> names, files_->list(folder));
    for (const std::string& name : names) {
      const bool aside = name.ends_with(kAsideSuffix);
      const auto version = version_of(aside ? name.substr(0, name.size() - kAsideSuffix.size()) : name);
      const bool temporary = name.starts_with(kRoundPrefix) && name.ends_with(kTemporarySuffix);
      if (version || temporary) found.push_back({folder, name, RunId(*id), version, aside});
    }
  }
  return found;
}

Result<std::size_t> ModelStore::sweep(const std::set<round::ModelKey>& keep) {
  const std::map<RunId, ModelVersion> newest = newest_of(keep);
  FLUVIAL_ASSIGN(const std::vector<Found> files, find());
  for (const Found& file : files) {
    if (!file.version) continue;
    const auto last = newest.find(file.run);
    if (last != newest.end() && *file.version <= last->second.next()) continue;
    const std::string journal =
        last == newest.end() ? "does not know this run" : "ends at round " + std::to_string(last->second.value());
    return Error{Code::kFailedPrecondition,
                 join_path(file.folder, file.name) + " is newer than the journal, which " + journal +
                     ": the journal is an older copy. If it was restored on purpose, run the coordinator once with "
                     "--restored, which sets newer models aside, and start it again. Nothing was removed"};
  }
  std::size_t removed = 0;
  for (const Found& file : files) {
    if (file.version && keep.contains({file.run, *file.version}) && !file.aside) continue;
    const std::string path = join_path(file.folder, file.name);
    if (file.version && *file.version > newest.at(file.run)) {
      if (!file.aside) FLUVIAL_TRY(files_->rename(path, path + std::string(kAsideSuffix)));
      continue;
    }
    FLUVIAL_TRY(files_->remove(path));
    ++removed;
  }
  return removed;
}

Result<std::size_t> ModelStore::set_aside(const std::set<round::ModelKey>& keep, const std::string& folder) {
  const std::map<RunId, ModelVersion> newest = newest_of(keep);
  FLUVIAL_ASSIGN(const std::vector<Found> files, find());
  std::size_t moved = 0;
  for (const Found& file : files) {
    const auto last = newest.find(file.run);
    if (!file.version || (last != newest.end() && *file.version <= last->second)) continue;
    const std::string to =
        join_path(join_path(folder_, folder), std::string(kRunPrefix) + std::to_string(file.run.value()));
    FLUVIAL_TRY(files_->make_folder(to));
    FLUVIAL_TRY(files_->rename(join_path(file.folder, file.name), join_path(to, file.name)));
    FLUVIAL_TRY(files_->sync_folder(to));
    FLUVIAL_TRY(files_->sync_folder(file.folder));
    ++moved;
  }
  return moved;
}

Status ModelStore::prune(RunId run, ModelVersion last, std::uint64_t kept, const std::set<ModelVersion>& others) {
  const std::string folder = run_folder(run);
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files_->list(folder));
  std::set<ModelVersion> versions;
  for (const std::string& name : names) {
    const auto version = version_of(name);
    if (version && *version <= last && !is_trained(name)) versions.insert(*version);
  }
  // Newest first; `last` stays even where its own file is not listed yet.
  std::set<ModelVersion> stay = {last};
  for (auto it = versions.rbegin(); it != versions.rend() && stay.size() < kept; ++it) stay.insert(*it);
  // The one that this commit has pushed out. Whatever else goes is to give its room back: a label was taken away, say.
  const std::uint64_t window = std::max<std::uint64_t>(kept, 1);
  const std::string next_spare =
      last.value() < window
          ? ""
          : std::string(kRoundPrefix) + std::to_string(last.value() - window) + std::string(kModelSuffix);
  for (const std::string& name : names) {
    const auto version = version_of(name);
    const bool stays =
        !version || *version > last ||
        (is_trained(name) ? version->next() >= last : stay.contains(*version) || others.contains(*version));
    if (stays) continue;
    FLUVIAL_TRY(name == next_spare ? retire_model(*files_, folder, name, names)
                                   : files_->remove(join_path(folder, name)));
  }
  return {};
}

}  // namespace fluvial::store
