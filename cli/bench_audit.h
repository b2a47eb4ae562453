// The independent check behind `exact`: makes every update again, encodes and decodes it, sums in a plain loop, takes
// the server's step, and compares with what the federation committed, bit for bit. Shares with the federation only the
// encoder (its output is what a codec is); decoding, fixed point, mean and step are written here or in
// kernels/reference from the documentation. Optimizers that take a rate of their own for each layer are beyond it.
//
// A site that was not counted in a round has folded what it trained into its residual, or has lost it before it was
// durable (killed while training: then there was never an update). The journal cannot say which. The digest of what it
// sends when it is counted again can: the audit tries both for each such round, and one history must fit. With a codec
// of several passes that is what it sends in the first: who is in that one has certainly made its update. With 1-bit
// Adam a site may also have sent what was late, with the momentum that it was lent. That it gives back, so that the
// third fate differs from the first in roundings alone, and a bit a value need not tell them apart: then the audit goes
// on with both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_encoded.h"
#include "cli/bench_history.h"
#include "cli/bench_onebit.h"
#include "cli/bench_passes.h"
#include "cli/json.h"
#include "core/round/fairness.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "kernels/codec.h"

namespace fluvial::cli {

struct AuditSite {
  std::uint64_t index = 0;  // 1, 2, ...: of its updates
  std::uint32_t node = 0;   // its id in the federation
  std::string name = {};
};

// Rounds are given in order. Memory: about 4 bytes a parameter and site (8 with dgc and onebit_adam), 40 a parameter,
// and 4 a parameter (likewise) for each round that a site has missed since it was last counted.
class Audit {
 public:
  // Every site has the same registered maximum weight. `schema`: the model's, of whose integers each is a
  // bench_integer(); may be left out of a model without any, if the codec has one pass.
  Audit(round::Plan plan, std::uint64_t seed, std::uint64_t run, std::vector<AuditSite> sites, std::uint64_t weight_max,
        round::Schema schema = {});

  // A run with this plan that continues this one, which is at rest: each site begins with what it has left unspent.
  // Before the first round of that one.
  void continue_as(round::Plan plan, std::uint64_t run);

  // What is known of a site's update of a round that it was not counted in, when `next` is the next that counts it (0:
  // none, it is at rest). kYes: the process that was handed it made that next one, too, so it lived to fold this one.
  enum class Made { kNo, kPerhaps, kYes };
  using Known = std::function<Made(std::uint64_t site_index, std::uint64_t round, std::uint64_t next)>;
  void set_known(Known known) { known_ = std::move(known); }  // none: kPerhaps, always

  // `round` as the admin API gives it. An error says what differed first; a committed sum was then not exact.
  // `trained`: from which the sites trained, if not from the base.
  Status check_round(const json::value& round, std::span<const float> base, std::span<const float> committed,
                     std::span<const float> trained = {});
  // The model that the round must have committed.
  Result<std::vector<float>> next_model(const json::value& round, std::span<const float> base,
                                        std::span<const float> trained = {});

  // A restored backup has undone this round: what the site trained from `base` in it may be in its residual. With 1-bit
  // Adam only if it began with the momentum that the next round begins with, or the site had not sent it.
  void undone(std::uint64_t site_index, std::uint64_t round, std::span<const float> base);

  // Whether a site that has an outcome for every round checked so far may hold this residual: what it trained, less
  // what of it was counted.
  Status check_residual(std::uint64_t site_index, std::span<const float> held) const;

 private:
  using Base = std::shared_ptr<const std::vector<float>>;
  struct Missed {  // a round that closed without this site
    std::uint64_t round;
    Base base;
    OnebitAudit::Momentum momentum = {};  // that it began with
    bool certain = false;                 // an update was made
  };
  struct Carried {
    std::vector<float> residual;
    std::vector<float> state;  // dgc: the moment; onebit_adam: what the site was lent; else empty
    bool operator==(const Carried&) const = default;
  };
  struct SiteState {
    AuditSite site;
    std::vector<Carried> carried;  // one of these, as it was after the last round that counted it
    std::vector<Missed> missed;    // since
  };
  // Whether this is what the site had, and what it made of it; both may be changed when they are. Asked until it is so,
  // and then of the other histories in which the same updates were made.
  using Fits = std::function<Result<bool>(Carried& carried, std::vector<float>& p)>;
  // p = (base - local) + residual, where local is what the worker made of base. dgc: the moment moves on, and is added
  // in the place of base - local. onebit_adam: the residual with what it is lent of `momentum`.
  void make_update(const AuditSite& site, std::uint64_t round, std::span<const float> base,
                   const OnebitAudit::Momentum& momentum, Carried& carried, std::vector<float>& p) const;
  OnebitAudit::Momentum momentum() const { return onebit_ ? onebit_->momentum() : nullptr; }
  std::vector<std::byte> trailer_of(const AuditSite& site, std::uint64_t round) const;
  Result<Encoded> encode(const AuditSite& site, const kernels::StreamKey& key, std::span<const float> p) const;
  Status count(SiteState& state, const json::value& entry, std::uint64_t round, std::span<const float> base);
  // Among the histories that its missed rounds allow.
  Status find_history(SiteState& state, std::uint64_t round, std::span<const float> base, const Fits& fits) const;
  Status check_named_once(const json::value& round, const json::array& entries) const;  // each of them one of ours
  void miss(SiteState& state, const json::value& round, Base& kept, std::span<const float> trained) const;
  // What the round's contributors, by their weights, make of the model together.
  Result<std::vector<float>> mean_update(const json::value& round, std::span<const float> trained);
  Result<std::vector<float>> mean_update_of_passes(const json::value& round, std::span<const float> trained);
  Result<std::uint64_t> add_first_pass(const json::value& round, const json::array& entries,
                                       std::span<const float> trained);
  Result<std::uint64_t> add_last_pass(const json::value& round, const json::array& before);
  std::vector<float> mean_of_sum(double weight) const;
  static Result<std::vector<History>> possible(const SiteState& state);  // kFailedPrecondition: too many
  // What the site holds that had `carried` before the rounds that it missed.
  Carried carried_by(const SiteState& state, Carried carried, const History& history) const;
  std::vector<Missed> really_missed(const SiteState& state, std::uint64_t next) const;  // but those without an update
  std::vector<Missed> missed_after(const SiteState& state, std::uint64_t round) const;
  double parts(std::uint64_t staleness) const;
  double parts_of(const json::value& entry) const;  // by its site's rate as well
  Result<double> divided_by(const json::value& round, std::uint64_t total_weight);
  int scale_of(std::uint64_t weight_sum) const;  // of the sum of participants with these maximum weights
  Result<Base> base_of_own(const SiteState& state, std::uint64_t own) const;
  Status add_decoded(std::span<const double> decoded, std::uint64_t weight, double of_512);
  // The server's step for one coordinate, from the formulas of kernels/vector.h and kernels/optimizer.h.
  float step(std::uint64_t round, std::size_t i, float model, float mean, double lr);
  Result<std::vector<float>> stepped(const json::value& round, std::span<const float> base,
                                     std::span<const float> mean);

  round::Plan plan_;
  std::uint64_t seed_;
  std::uint64_t run_;
  std::uint64_t weight_max_;
  round::Schema schema_;
  Known known_;
  std::vector<float> moment_;    // the optimizer's, from the first round on
  std::vector<float> variance_;  // or delayed_nesterov's buffer
  int scale_bits_ = 0;
  round::Rates rates_;  // of a run that is fair by rate
  std::unique_ptr<kernels::Codec> codec_;
  std::unique_ptr<PassesAudit> passes_;  // of a codec with several
  std::unique_ptr<OnebitAudit> onebit_;  // of 1-bit Adam
  std::vector<SiteState> sites_;
  std::vector<std::int64_t> sum_;
};

}  // namespace fluvial::cli
