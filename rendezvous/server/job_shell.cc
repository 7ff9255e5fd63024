#include "rendezvous/server/job_shell.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

// The warning on the service's node about a node that was started with other options, because the
// user may watch only this console. "" = the note is no such refusal.
std::string MismatchText(const Note& note) {
  if (note.event != "node_refused") return "";
  std::string node;
  std::string why;
  for (const auto& [name, value] : note.fields) {
    if (name == "node") node = value;
    if (name == "why") why = value;
  }
  const bool is_mismatch = absl::StrContains(why, "this node differs in") ||
                           absl::StrContains(why, "give this node another");
  if (!is_mismatch) return "";
  return Printable(absl::StrCat("warning: node ", node, " was refused, with this message: ", why));
}

}  // namespace

JobShell::JobShell(EventLoop* loop, EventLog* events, Journal* journal, Host* host,
                   std::string run_id, Term term, const std::string& token)
    : loop_(loop),
      log_(events),
      journal_(journal),
      host_(host),
      run_id_(std::move(run_id)),
      machine_(term, token, journal->keeps()),
      timer_(loop, [this] { Step(TimerDue{}); }) {}

JobShell::JobShell(EventLoop* loop, EventLog* events, Journal* journal, Host* host, KeptJob kept,
                   const std::string& token)
    : loop_(loop),
      log_(events),
      journal_(journal),
      host_(host),
      run_id_(std::move(kept.run_id)),
      machine_(loop->Now(), std::move(kept.record), kept.elapsed, token),
      timer_(loop, [this] { Step(TimerDue{}); }),
      effects_(/*recorded=*/true) {}

JobShell::~JobShell() {
  *alive_ = false;
  ring_->Close();
}

JobView JobShell::View() const {
  JobView view = machine_.View(loop_->Now());
  view.record = journal_->where();
  return view;
}

void JobShell::Step(const Event& event) {
  if (ended_) return;
  for (const Effect& effect : effects_.Add(machine_.Step(loop_->Now(), event))) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  timer_.Arm(machine_.NextDeadline());
  CarryOut();
}

void JobShell::CarryOut() {
  if (carrying_out_) return;
  carrying_out_ = true;
  while (const std::optional<Effect> effect = effects_.Take()) {
    std::visit([this](const auto& e) { Do(e); }, *effect);
  }
  carrying_out_ = false;
}

void JobShell::Do(const Send& effect) { host_->SendTo(effect.stream, effect.message); }

void JobShell::Do(const CloseStream& effect) { host_->EndStream(effect.stream, effect.status); }

void JobShell::Do(const Persist& /*effect*/) {
  journal_->Write(run_id_, machine_.TakeRecord(loop_->Now()),
                  [this, alive = alive_](const absl::Status& status) {
                    if (*alive) OnPersisted(status);
                  });
}

void JobShell::OnPersisted(const absl::Status& status) {
  if (status.ok() || std::exchange(retracts_, true)) return EndPersist(status);
  // The next message makes this record outdated, and no other service may believe it then.
  journal_->Retract(run_id_, [this, status, alive = alive_](const absl::Status& retracted) {
    if (*alive) OnRetracted(status, retracted);
  });
}

void JobShell::OnRetracted(const absl::Status& status, const absl::Status& retracted) {
  Notify(absl::StrCat("warning: the record of job ", run_id_, " can't be kept: ", status.message(),
                      ". The job goes on, but from now on it ends if its rendezvous service does"));
  if (!retracted.ok()) {
    const std::string why =
        absl::StrCat("what is kept of job ", run_id_, " is of the past: ", retracted.message());
    Notify(absl::StrCat("warning: ", why, ". Remove it before a service is started from it"));
    host_->OnRecordStale(this, why);
  }
  EndPersist(status);
}

void JobShell::EndPersist(const absl::Status& status) {
  for (const Effect& effect : effects_.EndWriting()) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  Step(PersistDone{status});
}

void JobShell::Do(const Note& effect) {
  ring_->Add(loop_->Now(), absl::Now(), effect);
  if (const std::string warning = MismatchText(effect); !warning.empty()) Notify(warning);
  if (log_->enabled()) {
    nlohmann::json fields = {{"run_id", run_id_}};
    for (const auto& [key, value] : effect.fields) fields[key] = value;
    log_->Write(loop_->Now(), effect.event, fields);
  }
  if (!LogEnabled(LogLevel::kInfo)) return;
  std::string line = absl::StrCat(effect.event, " job=", run_id_);
  for (const auto& [key, value] : effect.fields) absl::StrAppend(&line, " ", key, "=", value);
  Log(LogLevel::kInfo, line);
}

void JobShell::Do(const Ended& effect) {
  ended_ = true;
  WriteLedger();
  timer_.Disarm();
  journal_->Forget(run_id_);
  ring_->Close();
  host_->OnJobEnded(this, effect.outcome);
}

// Logs how the job's time was spent (docs/GOODPUT.md).
void JobShell::WriteLedger() {
  const TimeSpent spent = machine_.View(loop_->Now()).spent;
  Note note{.event = "ledger",
            .fields = {{"wall_ms", absl::StrCat(absl::ToInt64Milliseconds(spent.Total()))}}};
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (spent.by[i] == absl::ZeroDuration()) continue;
    note.fields.emplace_back(absl::StrCat(TimeCauseName(static_cast<TimeCause>(i)), "_ms"),
                             absl::StrCat(absl::ToInt64Milliseconds(spent.by[i])));
  }
  absl::Duration saved;
  for (const GenerationView& generation : machine_.generations()) {
    if (generation.warm) saved += generation.warm->saved;
  }
  if (saved > absl::ZeroDuration()) {
    note.fields.emplace_back("warm_saved_ms", absl::StrCat(absl::ToInt64Milliseconds(saved)));
  }
  Do(note);
}

}  // namespace ddprun::rendezvous
