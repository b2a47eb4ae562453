// What a site's workers are told of their run besides its tasks: each committed model, and the run's end. A pure step
// machine.
//
// A run's end, from when the site hears of it until its workers do:
//
//   ended -> awaiting its last model -> due -> told
//        `-> due, when no model of it was committed, or the site has begun another run
//
// It promises:
// - Workers are told of a committed model when it is here, and only of runs that opened here.
// - They are told of a run's end after its last model, unless that does not arrive or another run began.
// - They are told of no end while their memory is read, nor while tasks of that run are out whose results will be read
//   in place: a worker frees that memory when it hears of the end.
// - They are told of a run that goes on, whether it asks this site or not, before its end. Of others they hear nothing.
// - Each end is told once, in the order in which they came due.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/round/record.h"

namespace fluvial::edge {

inline constexpr std::size_t kActiveRunsMax = 64;  // of which a site keeps track, the newest; the coordinator has one

struct RunEnd {
  RunId run;
  std::string name;
  std::string state;  // "done", "stopped"
};

// ---- effects ------------------------------------------------------------------------------------------------------
struct TellCommitted {  // workers that have answered or answer later; holds until the next of these two effects
  RunId run;
  std::string name;
  RoundId round;
  round::ModelRef model;  // the one that is held
};
struct TellNoneCommitted {};  // the newest committed model is not here
struct TellActive {           // the run goes on, or has begun
  RunId run;
  std::string name;
};
struct AwaitLastModel {  // until its workers had the model of this round; then last_model_over()
  RunId run;
  RoundId round;
};
struct TellEnded {
  RunEnd end;
  bool at_hand = false;  // it was the current run: what is kept of its workers' results can go
};
using RunEffect = std::variant<TellCommitted, TellNoneCommitted, TellActive, AwaitLastModel, TellEnded>;
using RunEffects = std::vector<RunEffect>;

class RunEnds {
 public:
  // `reads_in_place`: results may be read in their workers' memory, on a GPU, after the agent was told of them.
  explicit RunEnds(bool reads_in_place) : reads_in_place_(reads_in_place) {}

  // The site took part in it before its process was started anew, or a worker waits for its end; its name is not known.
  void known(RunId run) { unended_.try_emplace(run); }
  bool knows(RunId run) const { return unended_.contains(run); }
  RunEffects active(RunId run, const std::string& name);  // it has not ended
  RunEffects opened(RunId run, const std::string& name, RoundId round, const round::ModelRef& base);
  RunEffects committed(RunId run, RoundId round, const round::ModelRef& model);
  RunEffects model_held(const round::ModelRef& model);
  RunEffects ended(RunId run, std::string_view state, std::string_view name = {});  // without: the name that is known
  RunEffects last_model_over(RunId run);  // its workers have had it, or it does not arrive
  RunEffects history_entered();           // another history: no model of the one before counts as committed

  void tasks_out(RunId run) { tasks_out_ = run; }
  void trained();               // the tasks have their results, and these are read from now on
  RunEffects train_failed();    // the tasks are over
  void reads() { ++reading_; }  // another read of workers' memory begins
  RunEffects read();            // as often as trained() and reads()

  bool awaits_last_model(RunId run) const;
  RunId run() const { return run_; }        // the current run
  RoundId round() const { return round_; }  // its newest round heard of

 private:
  struct Ending {
    RunEnd end;
    bool at_hand = true;
    bool due = false;
  };
  struct Committed {
    RunId run;
    RoundId round;
    round::ModelRef model;
  };
  void begin(RunId run, RunEffects& out);
  void note_commit(RunId run, RoundId round, const round::ModelRef& model, RunEffects& out);
  void tell_committed(RunEffects& out) const;
  void tell_due(RunEffects& out);
  bool is_read(RunId run) const;  // its workers' memory

  bool reads_in_place_;
  RunId run_;
  RoundId round_;
  std::string name_;                      // of run_, once one of its rounds opened here
  std::map<RunId, std::string> unended_;  // runs whose end was not heard of, with names
  std::vector<Ending> endings_;           // heard, not told
  std::optional<Committed> committed_;    // the newest round that was
  std::optional<round::ModelRef> held_;
  std::optional<RunId> tasks_out_;
  std::size_t reading_ = 0;
};

}  // namespace fluvial::edge
