// Implements the rendezvous of a single node.
#include <ctime>
#include <optional>

#include "base/log.h"
#include "launch/agent/rendezvous.h"
#include "launch/system/job_store.h"
#include "launch/system/secret.h"
#include "launch/workers/failure_list.h"
#include "launch/workers/restarts.h"

namespace lockstep::launch {
namespace {

class Alone : public Rendezvous {
 public:
  Alone(Guard& guard, const LaunchPlan& plan) : guard_(guard), plan_(plan) {}

  std::optional<Round> next_round() override {
    if (guard_.signal()) {
      return std::nullopt;
    }
    Round round;
    round.number = rounds_++;
    round.restarts = restarts_.count();
    round.world_size = plan_.workers;
    round.job = job_;
    round.job.first_world_size = plan_.workers;
    // Each round has a new store, without the keys of the previous round.
    store_.emplace("127.0.0.1", round.number == 0 ? plan_.rendezvous.store_port : 0);
    round.master_port = store_->port();
    return round;
  }

  Interruption interruption() const override { return Interruption::kNone; }
  void ending(const AttemptResult&) override {}

  Verdict conclude(const AttemptResult& result) override {
    Verdict verdict;
    verdict.end = result.end;
    verdict.failures = result.failures;
    verdict.exit_code = result.exit_code;
    bool again = result.end == AttemptEnd::kFailed && !result.stuck &&
                 restarts_.may_be_one_more(plan_.restarts);
    if (again && repetition_.expected(result.failures, result.step)) {
      log_info("not restarting the workers: they would fail in the same way");
      again = false;
    }
    if (again && progress_.in_vain(result.step, cause_of(result.failures, "a worker failed"))) {
      verdict.reason = "not restarting the workers: " + progress_.told();
      again = false;
    }
    if (again) {
      restarts_.add();
    }
    verdict.next = again ? Verdict::Next::kAgain : Verdict::Next::kEnd;
    return verdict;
  }

 private:
  Guard& guard_;
  const LaunchPlan& plan_;
  const JobIdentity job_ = JobIdentity::draw();
  int rounds_ = 0;
  Restarts restarts_;
  Repetition repetition_;
  Progress progress_;
  std::optional<JobStore> store_;
};

}  // namespace

JobIdentity JobIdentity::draw() {
  return {random_hex().substr(0, 16), static_cast<int64_t>(std::time(nullptr)), 0};
}

std::unique_ptr<Rendezvous> make_single_node_rendezvous(Guard& guard, const LaunchPlan& plan) {
  return std::make_unique<Alone>(guard, plan);
}

}  // namespace lockstep::launch
