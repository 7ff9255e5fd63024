#include "tests/sim/sim_service.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "rendezvous/journal/record_proto.h"

namespace ddprun::sim {

using rendezvous::Effect;
using rendezvous::Event;
using rendezvous::Note;
using rendezvous::Persist;
using rendezvous::PersistDone;
using rendezvous::StateMachine;
using rendezvous::Term;

namespace {

// A write that takes longer is given up (R10).
constexpr absl::Duration kWriteMost = absl::Seconds(5);

// Whether an effect may carry a decision, so that the record must be written before it (R10).
// Persist is that write; a Welcome, and a probe outside of the stream's order, carry none.
bool IsOrdinary(const Effect& effect) {
  if (std::holds_alternative<Persist>(effect)) return false;
  const auto* send = std::get_if<rendezvous::Send>(&effect);
  if (send == nullptr) return true;
  const auto* probe = std::get_if<rendezvous::Probe>(&*send->message);
  const bool measures = probe != nullptr && !probe->in_order;
  return !measures && !std::holds_alternative<rendezvous::Welcome>(*send->message);
}

bool IsSend(const Effect& effect) { return std::holds_alternative<rendezvous::Send>(effect); }

}  // namespace

SimService::SimService(EventQueue* queue, Rng* rng, Storage storage, SimStore* store, bool few,
                       const SimService* former, Hooks hooks)
    : queue_(queue),
      rng_(rng),
      storage_(storage),
      few_(few),
      hooks_(std::move(hooks)),
      store_(store),
      leadership_(store->Take()) {
  if (former == nullptr) {
    machine_ = std::make_unique<StateMachine>(Term(7), kToken, storage_.keeps);
    return;
  }
  life_ = former->life_ + 1;
  step_ = former->step_;
  effects_ = rendezvous::EffectQueue(/*recorded=*/true);
}

void SimService::Step(const Event& event) {
  DDPRUN_CHECK(up(), "a service that is dead");
  ++step_;
  std::vector<Effect> effects = machine_->Step(queue_->now(), event);
  // An invariant that a renewal or a tick breaks is still broken at the next step with an effect
  // other than a message. With many nodes the checks cost as much as all else, so only every 16th
  // step has them.
  constexpr uint64_t kLook = 16;
  const bool matters = few_ && !std::all_of(effects.begin(), effects.end(), IsSend);
  if (matters || step_ % kLook == 0) machine_->CheckInvariants();
  hooks_.stepped(event, effects);
  for (const Effect& effect : effects) {
    const Note* note = std::get_if<Note>(&effect);
    if (note != nullptr && !former_) noted_.push_back({step_, queue_->now(), *note});
  }
  for (const Effect& effect : effects) {
    if (std::holds_alternative<Persist>(effect)) decided_ = step_;
    if (IsOrdinary(effect)) needs_.push_back(decided_);
  }
  if (storage_.tells_before || (former_ && storage_.former_notices)) {
    for (const Effect& effect : effects) {
      if (!std::holds_alternative<Persist>(effect)) Do(effect);
      if (!up()) return;
    }
    std::erase_if(effects, [](const Effect& e) { return !std::holds_alternative<Persist>(e); });
  }
  for (const Effect& effect : effects_.Add(std::move(effects))) Do(effect);
  CarryOut();
}

void SimService::CarryOut() {
  if (std::exchange(carrying_out_, true)) return;
  while (up()) {
    const std::optional<Effect> effect = effects_.Take();
    if (!effect) break;
    Do(*effect);
  }
  carrying_out_ = false;
}

void SimService::Do(const Effect& effect) {
  if (!up()) return;
  if (may_die() && effects_left_ && (*effects_left_)-- == 0) return Die();
  if (std::holds_alternative<Persist>(effect)) return Write();
  if (IsOrdinary(effect)) ExpectRecorded(effect);
  Instant decided = queue_->now();
  if (std::holds_alternative<Note>(effect)) {
    if (former_) return;  // a former service's notes don't count any more
    decided = noted_.front().at;
    noted_.pop_front();
  }
  hooks_.carry_out(effect, decided);
}

// R10: no effect reaches an agent before its decision is in a record.
void SimService::ExpectRecorded(const Effect& effect) {
  const uint64_t need = needs_.front();
  needs_.pop_front();
  if (!storage_.keeps || failed_ || need <= recorded_) return;
  if (!std::holds_alternative<Note>(effect))
    hooks_.broken("a decision is sent before it is in a record");
}

void SimService::Write() {
  writing_.emplace(machine_->TakeRecord(queue_->now()), queue_->now(), step_);
  // A slow first record holds up the most.
  const bool slow =
      rng_->Chance(store_->kept() ? storage_.slow_percent : 5 * storage_.slow_percent);
  const bool hangs = rng_->Chance(storage_.hangs_percent);
  const bool fails = hangs || rng_->Chance(storage_.fails_percent);
  const absl::Duration takes =
      hangs ? kWriteMost
            : absl::Microseconds(static_cast<int64_t>(rng_->Below(slow ? 3'000'000 : 3'000)));
  queue_->After(takes, [this, fails, life = life_] {
    if (life == life_ && up()) OnWritten(fails);
  });
}

void SimService::OnWritten(bool fails) {
  Kept kept = *std::move(writing_);
  writing_.reset();
  const uint64_t step = kept.step;
  const bool arrived = std::exchange(arrived_, false);
  fails = fails && !arrived;
  // After the first write that fails, the record is retracted.
  const bool writes = !failed_ && !fails;
  const bool holds =
      writes ? arrived || Put(std::move(kept)) : failed_ || store_->Retract(leadership_);
  if (!holds) {
    End();
    return hooks_.fenced();
  }
  if (writes) recorded_ = step;
  failed_ = failed_ || fails;
  for (const Effect& effect : effects_.EndWriting()) Do(effect);
  if (!up()) return;
  Step(PersistDone{failed_ ? absl::DataLossError("disk full") : absl::OkStatus()});
}

// Writes a record and reads it back, as a file does: a record that no other service can read would
// be none. This costs as much as a hundred steps, and returns what it was given.
rendezvous::JobRecord SimService::ReadBack(const rendezvous::JobRecord& record) {
  auto read = rendezvous::FromProto(rendezvous::ToProto(record));
  DDPRUN_CHECK(read.ok(), read.status().ToString());
  DDPRUN_CHECK(*read == record, "a record that is read back as another one");
  return *std::move(read);
}

// False: another service has the store.
bool SimService::Put(Kept&& kept) {
  constexpr uint64_t kReadBack = 64;
  if (kept.step % kReadBack == 0) ReadBack(kept.record);
  return store_->Put(leadership_, std::move(kept));
}

void SimService::DieAfter(uint64_t effects) {
  if (up()) effects_left_ = effects;
}

void SimService::Die() {
  DDPRUN_CHECK(up(), "it is dead already");
  machine_->CheckInvariants();
  // A write that was under way has reached the disk, or not.
  if (writing_ && rng_->Chance(50)) Put(*std::exchange(writing_, std::nullopt));
  End();
  ++life_;
  NotifyOwed();
  hooks_.died();
}

void SimService::BecomeFormer() {
  Live();
  former_ = true;
  if (writing_ && rng_->Chance(50)) arrived_ = Put(Kept(*writing_));
  NotifyOwed();
}

void SimService::End() {
  writing_.reset();
  machine_.reset();
  effects_ = rendezvous::EffectQueue(/*recorded=*/true);
  effects_left_.reset();
  needs_.clear();
}

void SimService::NotifyOwed() {
  const std::deque<Noted> noted = std::exchange(noted_, {});
  const std::optional<Kept>& kept = store_->kept();
  for (const Noted& each : noted) {
    if (kept && each.step <= kept->step) hooks_.owed(each.note, each.at);
  }
}

bool SimService::Start() {
  DDPRUN_CHECK(!up(), "it runs already");
  const bool last = storage_.keeps_the_last && store_->before().has_value();
  const std::optional<Kept>& kept = last ? store_->before() : store_->kept();
  if (!kept || storage_.forgets || damage_ == RecordDamage::kGone) {
    BeginAnew();
    return true;
  }
  std::optional<rendezvous::JobRecord> record = Read(kept->record);
  if (!record) return false;
  recorded_ = decided_ = step_;
  misread_ = *record != kept->record;
  record->life = life_;
  machine_ = std::make_unique<StateMachine>(queue_->now(), *std::move(record),
                                            queue_->now() - kept->taken, kToken);
  machine_->CheckInvariants();
  Step(rendezvous::TimerDue{});
  return true;
}

std::string SimService::CheckBeginning() const {
  return misread_ ? "a service goes on from a record that was damaged" : "";
}

void SimService::BeginAnew() {
  effects_ = rendezvous::EffectQueue();
  store_->Retract(leadership_);
  machine_ = std::make_unique<StateMachine>(Term(7 + life_), kToken, storage_.keeps);
}

// Reads a record as from a file with a checksum. Returns nullopt if the record can't be believed.
std::optional<rendezvous::JobRecord> SimService::Read(const rendezvous::JobRecord& record) const {
  constexpr uint64_t kReadBack = 4;
  if (damage_ == RecordDamage::kNone) {
    return life_ % kReadBack == 1 ? ReadBack(record) : record;
  }
  std::string bytes = rendezvous::ToProto(record).SerializeAsString();
  const size_t checksum = std::hash<std::string>()(bytes);
  // The damaged places follow from the record, so that a seed stays one history.
  if (damage_ == RecordDamage::kCutOff) bytes.resize(checksum % bytes.size());
  if (damage_ == RecordDamage::kBitFlipped) bytes[checksum % bytes.size()] ^= 1;
  if (!storage_.believes && std::hash<std::string>()(bytes) != checksum) return std::nullopt;
  rendezvous::v1::JobRecord proto;
  if (!proto.ParseFromString(bytes)) return std::nullopt;
  absl::StatusOr<rendezvous::JobRecord> read = rendezvous::FromProto(proto);
  if (!read.ok()) return std::nullopt;
  return *std::move(read);
}

}  // namespace ddprun::sim
