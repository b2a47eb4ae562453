// What kernels/nccl.h declares is what nccl.h declares, but for enumerations that are int there and pointers to what
// only NCCL and CUDA know. Compiled where nccl.h is found.
#include <nccl.h>

#include <type_traits>

#include "kernels/nccl.h"

namespace fluvial::gpu_test {
namespace {

using kernels::NcclFunctions;

template <typename Ours, typename Theirs>
constexpr bool same = std::is_same_v<Ours, Theirs> || (std::is_same_v<Ours, int> && std::is_enum_v<Theirs>);
template <typename Ours, typename Theirs>
constexpr bool same<Ours*, Theirs*> = same<Ours, Theirs>;
template <>
constexpr bool same<kernels::NcclComm*, ncclComm_t> = true;
template <>
constexpr bool same<kernels::NcclComm**, ncclComm_t*> = true;
template <>
constexpr bool same<void*, cudaStream_t> = true;
template <typename Ours, typename... OurParameters, typename Theirs, typename... TheirParameters>
  requires(sizeof...(OurParameters) == sizeof...(TheirParameters))
constexpr bool same<Ours (*)(OurParameters...), Theirs (*)(TheirParameters...)> =
    same<Ours, Theirs> && (same<OurParameters, TheirParameters> && ...);

static_assert(same<decltype(NcclFunctions::get_version), decltype(&ncclGetVersion)>);
static_assert(same<decltype(NcclFunctions::get_error_string), decltype(&ncclGetErrorString)>);
static_assert(same<decltype(NcclFunctions::comm_init_all), decltype(&ncclCommInitAll)>);
static_assert(same<decltype(NcclFunctions::comm_abort), decltype(&ncclCommAbort)>);
static_assert(same<decltype(NcclFunctions::comm_get_async_error), decltype(&ncclCommGetAsyncError)>);
static_assert(same<decltype(NcclFunctions::group_start), decltype(&ncclGroupStart)>);
static_assert(same<decltype(NcclFunctions::group_end), decltype(&ncclGroupEnd)>);
static_assert(same<decltype(NcclFunctions::reduce), decltype(&ncclReduce)>);
static_assert(!same<decltype(NcclFunctions::group_end), decltype(&ncclCommAbort)>);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
              sizeof(ncclRedOp_t) == sizeof(int));
static_assert(NcclFunctions::kSuccess == static_cast<int>(ncclSuccess));
static_assert(NcclFunctions::kFloat == static_cast<int>(ncclFloat32));
static_assert(NcclFunctions::kSum == static_cast<int>(ncclSum));

}  // namespace
}  // namespace fluvial::gpu_test
