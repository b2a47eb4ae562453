// The coordinator's folder of committed models: run-<id>/round-<n>.safetensors, and beside it
// round-<n>.optimizer.safetensors where the server optimizer has a state, and round-<n>.trained.safetensors where the
// sites train from another model, which the next difference begins at. Round 0 is a run's initial model.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/round/record.h"
#include "core/store/safetensors.h"

namespace fluvial::store {

// What a file of a round holds.
enum class ModelFile : std::uint8_t {
  kModel,
  kOptimizer,  // the state of the server optimizer, and of a codec with one that is alike at all sites
  kTrained,    // the model that sites train from (docs/design/down.md)
};
inline constexpr ModelFile kModelFiles[] = {ModelFile::kModel, ModelFile::kOptimizer, ModelFile::kTrained};

// The model that sites train from, where it has a file of its own.
struct TrainedFile {
  ByteSpan bytes;
  Digest digest{};
};

// A model's file while it is being written, from its first bytes on: its name, its header and its place in the folder
// come with ModelStore::keep(). One that is not kept leaves nothing behind. Not thread safe.
class ModelWriter {
 public:
  ModelWriter(ModelWriter&&) = default;
  ModelWriter& operator=(ModelWriter&&) = delete;
  ~ModelWriter();

  // Bytes of the model, in any order; each once.
  Status write(std::uint64_t offset, ByteSpan bytes);

 private:
  friend class ModelStore;
  ModelWriter(FileSystem& files, std::string path, round::ModelKey key, round::Schema schema)
      : files_(files), path_(std::move(path)), key_(key), schema_(std::move(schema)) {}
  std::string header(const Digest& digest) const;  // as long for each digest

  FileSystem& files_;
  std::string path_;
  round::ModelKey key_;
  round::Schema schema_;
  std::unique_ptr<File> file_;  // of temporary_of(path); null once it is kept
  std::uint64_t written_bytes_ = 0;
  std::uint64_t header_bytes_ = 0;
};

// Not thread safe for one run; different runs may be used at once. `files` outlives it.
class ModelStore {
 public:
  static Result<ModelStore> open(FileSystem& files, std::string folder);

  // One model a key at a time.
  Result<ModelWriter> begin(round::ModelKey key, const round::Schema& schema);
  // Both files, then their folder, are fsynced when it returns; until then a crash leaves at most temporary files and
  // files without a journal record, which sweep() removes. The digest is the caller's (model_digest) and goes into the
  // metadata. `optimizer` and `codec_state` (of 4 bytes, or some more times 4) share a file, and may be empty: without
  // both there is none. Returns its reference for the journal ("" = none). kFailedPrecondition when not all of the
  // model has been written.
  Result<std::string> keep(ModelWriter writer, const Digest& digest, std::span<const float> optimizer,
                           const std::optional<TrainedFile>& trained = {}, ByteSpan codec_state = {});
  // Both at once.
  Result<std::string> put(round::ModelKey key, const round::Schema& schema, ByteSpan model, const Digest& digest,
                          std::span<const float> optimizer, ByteSpan codec_state = {});

  // kDataLoss when the bytes do not have the digest. `file`: the model, or the one that sites train from.
  Result<Model> load(round::ModelKey key, const Digest& expected, ModelFile file = ModelFile::kModel) const;
  // What put() returned. kDataLoss when it does not hold `value_count` values.
  Result<std::vector<float>> load_optimizer(const std::string& reference, std::uint64_t value_count) const;
  // What keep() returned. kDataLoss when it holds another codec state, or none.
  Result<Buffer> load_codec_state(const std::string& reference, const Digest& expected) const;

  // Called at start; `keep` is the journal's referenced_models(). Removes temporary files, and models that are not in
  // `keep` and older than the newest there of their run. A model of the round after that newest one was written and not
  // committed, unless the journal is an older copy: so it is set aside (round-<n>.safetensors.aside, one a run) until
  // that round is committed. kFailedPrecondition, with nothing touched, when there is a model that no crash explains:
  // of a later round, or of a run that `keep` does not name. Then the journal is an older copy. Returns how many files
  // were removed.
  Result<std::size_t> sweep(const std::set<round::ModelKey>& keep);
  // Moves models that are newer than those in `keep`, or of a run that `keep` does not name, to `folder` beside the
  // runs' folders. Returns how many files it moved.
  Result<std::size_t> set_aside(const std::set<round::ModelKey>& keep, const std::string& folder);
  // Removes a run's models but the `kept` newest up to `last`, which always stays, and `others`; newer ones are not
  // touched. Of the models that sites train from the last two stay: a difference is made of them.
  Status prune(RunId run, ModelVersion last, std::uint64_t kept, const std::set<ModelVersion>& others = {});
  Result<bool> has(round::ModelKey key) const;

  std::string path_of(round::ModelKey key) const;
  // The file's path in the folder, "run-<id>/round-<n>.safetensors", of a model or of a file beside it. And the key of
  // the model that such a path belongs to; none for any other path.
  static std::string name_of(round::ModelKey key, ModelFile file = ModelFile::kModel);
  static std::optional<round::ModelKey> key_of(std::string_view name, ModelFile file = ModelFile::kModel);
  Result<std::vector<round::ModelKey>> list() const;

 private:
  ModelStore(FileSystem& files, std::string folder) : files_(&files), folder_(std::move(folder)) {}
  std::string run_folder(RunId run) const;
  struct Found {
    std::string folder;  // of its run
    std::string name;
    RunId run;
    std::optional<ModelVersion> version;  // none: a temporary file
    bool aside = false;
  };
  Result<std::vector<Found>> find() const;

  FileSystem* files_;
  std::string folder_;
};

}  // namespace fluvial::store
