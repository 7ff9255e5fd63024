#ifndef DDPRUN_TESTS_SIM_SIM_SERVICE_H_
#define DDPRUN_TESTS_SIM_SIM_SERVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/rng.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/job/step_effects.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_store.h"

namespace ddprun::sim {

// The token of all simulated jobs.
inline constexpr char kToken[] = "secret";

// What has become of a record when a service starts.
enum class RecordDamage {
  kNone,
  kCutOff,      // its last bytes are missing
  kBitFlipped,  // somewhere
  kGone,        // all of it, and nothing says that there was one
};

// How a service keeps its record.
struct Storage {
  bool keeps = false;  // there is a journal
  // Percent of writes that are slow: these take up to 3 s, the others up to 3 ms.
  uint32_t slow_percent = 0;
  uint32_t fails_percent = 0;  // writes that fail
  uint32_t hangs_percent = 0;  // writes that are given up after 5 s
  // Bugs, for negative controls.
  bool tells_before = false;    // nothing waits for the record
  bool forgets = false;         // the service starts again without it
  bool keeps_the_last = false;  // it starts from the one before
  bool believes = false;        // it doesn't look whether a record is whole
  bool former_notices = false;  // nothing waits for the record of one that has lost the job
};

// One job's state machine as a process: it carries out effects in their order, keeps a record, may
// die between any two effects, and goes on from the last record that was kept.
class SimService {
 public:
  struct Hooks {
    // Called after each step, before its effects are carried out.
    std::function<void(const rendezvous::Event&, const std::vector<rendezvous::Effect>&)> stepped;
    // Params: decided: when the step was.
    std::function<void(const rendezvous::Effect&, Instant decided)> carry_out;
    // A decision that is in a kept record, with its note, was not carried out, because the service
    // has died. Agents may learn of it from the next service.
    std::function<void(const rendezvous::Note&, Instant decided)> owed;
    std::function<void()> died;
    // Another service has the store: this one has ended, and carries nothing out any more.
    std::function<void()> fenced;
    std::function<void(const std::string&)> broken;
  };

  // Params: few: the job has few nodes; former: the service that this one is to replace; null: this
  // is the first one, and up.
  SimService(EventQueue* queue, Rng* rng, Storage storage, SimStore* store, bool few,
             const SimService* former, Hooks hooks);

  // Requires: up().
  void Step(const rendezvous::Event& event);
  // Makes the service die when it has carried out so many more effects, or taken ten times as many
  // steps.
  void DieAfter(uint64_t effects);
  // Cancels DieAfter().
  void Live() { effects_left_.reset(); }
  void Die();
  // From now on the service reports to these.
  void Follow(Hooks hooks) { hooks_ = std::move(hooks); }
  // Another service has the job from now on, and this one doesn't know. A write that is under way
  // is kept, or not.
  void BecomeFormer();
  // Stops the service for good.
  void End();
  // False: the record to go on from can't be read, so the service doesn't serve (R5). Requires:
  // !up().
  bool Start();
  // From now on the record is read with this damage; kNone: as it was written.
  void Damage(RecordDamage how) { damage_ = how; }

  bool up() const { return machine_ != nullptr; }
  const rendezvous::StateMachine& machine() const { return *machine_; }
  // Whether a death would lose no decision: there is a record, and the journal hasn't failed.
  bool may_die() const { return store_->kept().has_value() && !failed_; }
  bool keeps() const { return storage_.keeps; }
  // Whether writes of the record may take seconds.
  bool slow() const {
    return storage_.keeps && (storage_.slow_percent > 0 || storage_.hangs_percent > 0);
  }
  uint64_t life() const { return life_; }
  // R5, R10: a service that has just started goes on with exactly what was kept, or has nothing.
  std::string CheckBeginning() const;

 private:
  struct Noted {
    uint64_t step = 0;
    Instant at;
    rendezvous::Note note;
  };
  void NotifyOwed();
  bool Put(Kept&& kept);
  void OnWritten(bool fails);
  void ExpectRecorded(const rendezvous::Effect& effect);
  void CarryOut();
  void Do(const rendezvous::Effect& effect);
  void Write();
  static rendezvous::JobRecord ReadBack(const rendezvous::JobRecord& record);
  std::optional<rendezvous::JobRecord> Read(const rendezvous::JobRecord& record) const;
  void BeginAnew();

  EventQueue* queue_;
  Rng* rng_;
  const Storage storage_;
  const bool few_;
  Hooks hooks_;
  std::unique_ptr<rendezvous::StateMachine> machine_;
  rendezvous::EffectQueue effects_;
  std::deque<Noted> noted_;  // not carried out yet
  uint64_t life_ = 0;
  uint64_t step_ = 0;
  bool carrying_out_ = false;
  bool failed_ = false;
  RecordDamage damage_ = RecordDamage::kNone;
  bool misread_ = false;                  // it began with another record than was kept
  std::optional<uint64_t> effects_left_;  // before it dies
  SimStore* const store_;
  uint64_t leadership_ = 0;
  bool former_ = false;  // another one has its place
  std::optional<Kept> writing_;
  bool arrived_ = false;        // what it writes is in the store already
  uint64_t decided_ = 0;        // the last step that had something to be recorded
  uint64_t recorded_ = 0;       // the last step that is in a record of its own
  std::deque<uint64_t> needs_;  // of what waits: the step that must be recorded before
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_SERVICE_H_
