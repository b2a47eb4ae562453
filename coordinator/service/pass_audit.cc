#include "coordinator/service/pass_audit.h"

#include <memory>

#include "core/aggregate/pass_mean.h"
#include "core/aggregate/shapes.h"
#include "core/round/pass.h"
#include "kernels/codec.h"

namespace fluvial::coordinator {
namespace {

// `pass`: the later one.
void compare(std::size_t pass, const round::ContributorSet& in, const round::ContributorSet& before,
             std::vector<std::string>* faults) {
  for (const auto& [site, entry] : in.entries()) {
    const std::string who = "site " + std::to_string(site.value()) + ": ";
    const round::Contribution* const earlier = before.find(site);
    if (earlier == nullptr) {
      faults->push_back(who + "it is in " + round::pass_name(pass) + ", and not in " + round::pass_name(pass - 1));
    } else if (earlier->weight != entry.weight) {
      faults->push_back(who + "it has the weight " + std::to_string(entry.weight) + " in " + round::pass_name(pass) +
                        ", and " + std::to_string(earlier->weight) + " in " + round::pass_name(pass - 1));
    }
  }
}

void compare_bytes(const std::string& what, std::uint64_t bytes, std::uint64_t expected,
                   std::vector<std::string>* faults) {
  if (bytes == expected) return;
  faults->push_back(what + " has " + std::to_string(bytes) + " bytes, expected " + std::to_string(expected));
}

}  // namespace

Result<PassAudit> PassAudit::of(const store::RunRow& run) {
  PassAudit audit;
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(run.plan.codec));
  FLUVIAL_ASSIGN(const std::shared_ptr<const kernels::Codec> codec, kernels::make_codec(spec));
  if (!codec->hands_down()) return audit;
  const auto shapes = std::make_shared<const aggregate::Shapes>(run.schema, run.plan.chunk_values);
  FLUVIAL_ASSIGN(std::vector<std::uint64_t> values, aggregate::pass_values(*codec, *shapes));
  values.pop_back();  // the last mean makes the model, and goes nowhere
  for (const std::uint64_t count : values) {
    audit.mean_bytes_.push_back(aggregate::kMeanHeadBytes + count * sizeof(float));
  }
  audit.codec_ = codec;
  audit.shapes_ = shapes;
  return audit;
}

std::vector<std::string> PassAudit::faults_of(const round::CommitRecord& record) const {
  std::vector<std::string> faults;
  const std::vector<round::PassRecord>& passes = record.passes;
  if (passes.size() != mean_bytes_.size()) {
    faults.push_back("passes in the commit: " + std::to_string(passes.size() + 1) +
                     ", by its codec: " + std::to_string(mean_bytes_.size() + 1));
    return faults;
  }
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    const bool is_last = pass + 1 == passes.size();
    compare(pass + 1, is_last ? record.contributors : passes[pass + 1].contributors, passes[pass].contributors,
            &faults);
    compare_bytes("the mean of " + round::pass_name(pass), passes[pass].mean.bytes, mean_bytes_[pass], &faults);
  }
  compare_bytes("the codec's state", record.codec_state ? record.codec_state->bytes : 0,
                codec_ ? codec_->handed_bytes(shapes_->schema(), record.round.value()) : 0, &faults);
  return faults;
}

}  // namespace fluvial::coordinator
