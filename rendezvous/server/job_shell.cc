#include "rendezvous/server/job_shell.h"

#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"

namespace ddprun::rendezvous {

namespace {

template <typename Body>
const Body* BodyOf(const Effect& effect) {
  const Send* send = std::get_if<Send>(&effect);
  return send == nullptr ? nullptr : std::get_if<Body>(send->message.get());
}

bool MeasuresLease(const Effect& effect) {
  const Probe* probe = BodyOf<Probe>(effect);
  return probe != nullptr && !probe->in_order;
}

bool IsAssignment(const Effect& effect) { return BodyOf<Assignment>(effect) != nullptr; }

}  // namespace

JobShell::JobShell(EventLoop* loop, EventLog* events, Journal* journal, Host* host,
                   std::string run_id, Term term, const std::string& token)
    : loop_(loop),
      events_(events),
      journal_(journal),
      host_(host),
      run_id_(std::move(run_id)),
      machine_(term, token),
      timer_(loop, [this] { Step(TimerDue{}); }) {}

JobShell::~JobShell() {
  *alive_ = false;
  ring_->Close();
}

void JobShell::Step(const Event& event) {
  if (ended_) return;
  // Whose Welcome waits: nothing may come before that.
  std::set<StreamKey> unwelcomed;
  for (const Effect& effect : waiting_) {
    if (BodyOf<Welcome>(effect) != nullptr) unwelcomed.insert(std::get<Send>(effect).stream);
  }
  for (Effect& effect : machine_.Step(loop_->Now(), event)) {
    if (BodyOf<Welcome>(effect) != nullptr) unwelcomed.insert(std::get<Send>(effect).stream);
    if (persisting_ && MeasuresLease(effect) &&
        !unwelcomed.contains(std::get<Send>(effect).stream)) {
      Do(std::get<Send>(effect));
    } else {
      waiting_.push_back(std::move(effect));
    }
  }
  timer_.Arm(machine_.NextDeadline());
  CarryOut();
}

void JobShell::CarryOut() {
  if (carrying_out_) return;
  carrying_out_ = true;
  while (!persisting_ && !waiting_.empty()) {
    const Effect effect = std::move(waiting_.front());
    waiting_.pop_front();
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  carrying_out_ = false;
}

void JobShell::Do(const Send& effect) { host_->SendTo(effect.stream, effect.message); }

void JobShell::Do(const CloseStream& effect) { host_->EndStream(effect.stream, effect.status); }

void JobShell::Do(const Persist& /*effect*/) {
  persisting_ = true;
  journal_->Write(run_id_, JobRecord{}, [this, alive = alive_](const absl::Status& status) {
    if (*alive) OnPersisted(status);
  });
}

void JobShell::OnPersisted(const absl::Status& status) {
  persisting_ = false;
  // What couldn't be recorded is not told to anybody; the verdict follows.
  if (!status.ok()) std::erase_if(waiting_, IsAssignment);
  Step(PersistDone{status});
}

void JobShell::Do(const Note& effect) {
  ring_->Add(loop_->Now(), absl::Now(), effect);
  if (events_->enabled()) {
    nlohmann::json fields = {{"run_id", run_id_}};
    for (const auto& [key, value] : effect.fields) fields[key] = value;
    events_->Write(loop_->Now(), effect.event, std::move(fields));
  }
  if (!LogEnabled(LogLevel::kInfo)) return;
  std::string line = absl::StrCat(effect.event, " job=", run_id_);
  for (const auto& [key, value] : effect.fields) absl::StrAppend(&line, " ", key, "=", value);
  Log(LogLevel::kInfo, line);
}

void JobShell::Do(const Ended& /*effect*/) {
  ended_ = true;
  WriteLedger();
  timer_.Disarm();
  journal_->Forget(run_id_);
  ring_->Close();
  host_->OnJobEnded(this);
}

// Where all the job's time went (docs/GOODPUT.md).
void JobShell::WriteLedger() {
  const TimeSpent spent = machine_.View(loop_->Now()).spent;
  Note note{.event = "ledger",
            .fields = {{"wall_ms", absl::StrCat(absl::ToInt64Milliseconds(spent.Total()))}}};
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (spent.by[i] == absl::ZeroDuration()) continue;
    note.fields.emplace_back(absl::StrCat(TimeCauseName(static_cast<TimeCause>(i)), "_ms"),
                             absl::StrCat(absl::ToInt64Milliseconds(spent.by[i])));
  }
  Do(note);
}

}  // namespace ddprun::rendezvous
