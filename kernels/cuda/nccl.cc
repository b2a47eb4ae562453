#include "kernels/nccl.h"

#include <dlfcn.h>

#include <optional>
#include <vector>

#include "core/base/format.h"
#include "kernels/device_backend.h"

namespace fluvial::kernels {
namespace {

Error unavailable(const std::string& library, std::string_view why) {
  return {Code::kUnavailable, format_text("{}: {}", library, why)};
}

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

// Used by one thread: every call is a group of all devices' parts, as NCCL requires in this case.
class Nccl final : public GroupTransport {
 public:
  Nccl(const NcclFunctions& functions, std::string name) : nccl_(functions), name_(std::move(name)) {}
  ~Nccl() override { give_up(); }

  Status init(std::span<const Device> devices) {
    std::vector<int> indices;
    for (const Device& device : devices) indices.push_back(device.index);
    std::vector<NcclComm*> comms(devices.size(), nullptr);  // its content after an error is not specified
    FLUVIAL_TRY(status_of("ncclCommInitAll",
                          nccl_.comm_init_all(comms.data(), static_cast<int>(indices.size()), indices.data())));
    comms_ = std::move(comms);
    return {};
  }

  const std::string& name() const override { return name_; }

  Status reduce(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out,
                std::span<Stream> streams) override {
    if (!failed_) {
      const Status done = try_reduce(from, out, streams);
      if (done.ok()) return {};
      failed_ = done.error();
      give_up();  // a device may be waiting for another that does not come, and the caller for its stream
    }
    return *failed_;
  }

 private:
  // Not ncclCommDestroy, which would wait for what cannot end when a device failed.
  void give_up() {
    for (NcclComm* const comm : comms_) nccl_.comm_abort(comm);
    comms_.clear();
  }

  Status status_of(std::string_view call, int result) const {
    if (result == NcclFunctions::kSuccess) return {};
    return Error{Code::kInternal,
                 format_text("{}: {} (NCCL_DEBUG=WARN says more)", call, nccl_.get_error_string(result))};
  }

  Status try_reduce(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out, std::span<Stream> streams) {
    for (NcclComm* const comm : comms_) {
      int before = NcclFunctions::kSuccess;
      FLUVIAL_TRY(status_of("ncclCommGetAsyncError", nccl_.comm_get_async_error(comm, &before)));
      FLUVIAL_TRY(status_of("NCCL, in an earlier call", before));
    }
    FLUVIAL_TRY(status_of("ncclGroupStart", nccl_.group_start()));
    Status posted;
    for (std::size_t i = 0; i < comms_.size() && posted.ok(); ++i) {
      void* const stream = streams[i].backend().native_stream(streams[i].get());
      posted = status_of("ncclReduce", nccl_.reduce(from[i].data(), i == 0 ? out.data() : nullptr, out.size(),
                                                    NcclFunctions::kFloat, NcclFunctions::kSum, 0, comms_[i], stream));
    }
    const Status ended = status_of("ncclGroupEnd", nccl_.group_end());
    return posted.ok() ? ended : posted;
  }

  NcclFunctions nccl_;
  std::string name_;
  std::vector<NcclComm*> comms_;
  std::optional<Error> failed_;  // then the state of its communicators is unknown
};

std::string version_text(int version) {
  return format_text("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

}  // namespace

Result<NcclFunctions> load_nccl(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();  // begins with the library's name
    return Error{Code::kUnavailable, why == nullptr ? library : why};
  }
  NcclFunctions nccl;
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto* function) {
    if (!find(handle, name, function) && missing == nullptr) missing = name;
  };
  need("ncclGetVersion", &nccl.get_version);
  need("ncclGetErrorString", &nccl.get_error_string);
  need("ncclCommInitAll", &nccl.comm_init_all);
  need("ncclCommAbort", &nccl.comm_abort);
  need("ncclCommGetAsyncError", &nccl.comm_get_async_error);
  need("ncclGroupStart", &nccl.group_start);
  need("ncclGroupEnd", &nccl.group_end);
  need("ncclReduce", &nccl.reduce);
  if (missing != nullptr) return unavailable(library, format_text("it has no {}", missing));
  return nccl;
}

Result<std::unique_ptr<GroupTransport>> make_nccl(const std::string& library, std::span<const Device> devices) {
  FLUVIAL_ASSIGN(const NcclFunctions functions, load_nccl(library));
  int version = 0;
  if (functions.get_version(&version) != NcclFunctions::kSuccess) return unavailable(library, "it says no version");
  auto nccl = std::make_unique<Nccl>(functions, format_text("nccl {}", version_text(version)));
  if (const Status made = nccl->init(devices); !made.ok()) return unavailable(library, made.error().message);
  return std::unique_ptr<GroupTransport>(std::move(nccl));
}

}  // namespace fluvial::kernels
