#include "tools/chaos/core/chaos_cost.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using TimelineLines = std::vector<TimelineLine>;

bool EndsGeneration(const TimelineLine& line) {
  return line.event == "round_closing" || line.event == "stop_begin";
}

// Whether a user or a scheduler ended the job, not a fault.
bool EndedFromOutside(const std::string& rule) { return rule == "stopped" || rule == "preempted"; }

// Reads the facts about one fault from the lines.
class FaultReader {
 public:
  // Params: lines — in their order. line — one of them.
  FaultReader(const TimelineLines& lines, const TimelineLine& line)
      : lines_(lines),
        line_(line),
        begin_(static_cast<size_t>(
            std::lower_bound(lines.begin(), lines.end(), line.at,
                             [](const TimelineLine& a, Instant at) { return a.at < at; }) -
            lines.begin())) {}

  FaultCost Read() {
    cost_.fault = line_.Number("fault").value_or(0);
    cost_.occurrence = line_.Number("occurrence").value_or(1);
    cost_.kind = line_.Field("kind");
    cost_.victim = line_.Field("victim");
    cost_.node = line_.Field("node");
    cost_.at = line_.at;
    cost_.generation = line_.Number("generation").value_or(0);
    ReadOver();
    closing_ = FindClosing();
    next_ = FindNext();
    ended_ = closing_ != nullptr || (next_ != nullptr && Kills());
    ReadNoticed();
    ReadSteps();
    if (ended_) {
      ReadReleased();
      ReadResumed();
    }
    Conclude();
    return std::move(cost_);
  }
  const TimelineLine* closing() const { return closing_; }

 private:
  using Test = std::function<bool(const TimelineLine&)>;

  // The first line from the fault on that passes.
  const TimelineLine* First(const Test& test) const {
    for (size_t i = begin_; i < lines_.size(); ++i) {
      if (test(lines_[i])) return &lines_[i];
    }
    return nullptr;
  }
  absl::Duration Since(const TimelineLine& line) const { return line.at - line_.at; }
  bool IsOf(const TimelineLine& line, uint64_t generation) const {
    return generation != 0 && line.Number("generation") == generation;
  }
  bool OnVictimNode(const TimelineLine& line) const {
    return line.who == absl::StrCat("agent:", cost_.node);
  }
  bool IsKind(FaultKind kind) const { return cost_.kind == FaultName(kind); }
  bool Kills() const {
    return IsKind(FaultKind::kAgentKilled) || IsKind(FaultKind::kServiceKilled);
  }
  bool HitsOneWorker() const {
    return IsKind(FaultKind::kWorkerKilled) || IsKind(FaultKind::kWorkerStopped);
  }

  void ReadOver() {
    over_ = First([this](const TimelineLine& line) {
      return line.event == "fault_over" && line.who == line_.who &&
             line.Number("fault") == cost_.fault && line.Number("occurrence") == cost_.occurrence;
    });
    if (over_ == nullptr) return;
    cost_.over = Since(*over_);
    again_ = over_->Field("agent_pid");
    if (again_.empty()) return;
    const TimelineLine* spawned = First([this](const TimelineLine& line) {
      return line.event == "worker_started" && line.Field("pid") == again_;
    });
    if (spawned != nullptr) cost_.rejoined = Since(*spawned);
  }

  const TimelineLine* FindClosing() const {
    const TimelineLine* closing = First([this](const TimelineLine& line) {
      return EndsGeneration(line) && IsOf(line, cost_.generation);
    });
    if (closing == nullptr) return nullptr;
    const bool too_late = over_ != nullptr && closing->at > over_->at + kAfterEffect;
    // If a fault was ridden out and a later one hit the same generation, the later one ended it.
    const TimelineLine* later = First([this, closing](const TimelineLine& line) {
      return line.event == "fault" && over_ != nullptr && line.at > over_->at &&
             line.at <= closing->at && IsOf(line, cost_.generation);
    });
    const TimelineLine* then = First([this, closing](const TimelineLine& line) {
      return line.event == "assignment" && line.at >= closing->at &&
             line.Number("generation").value_or(0) > cost_.generation;
    });
    return too_late || later != nullptr || (then != nullptr && then->Field("rule") == "growth")
               ? nullptr
               : closing;
  }

  // The first assignment of what comes after the generation of the fault.
  const TimelineLine* FindNext() const {
    return First([this](const TimelineLine& line) {
      if (line.event != "assignment") return false;
      // A job that started again counts its generations from 1.
      if (!again_.empty() && line.Field("pid") == again_) return true;
      return closing_ != nullptr && line.at >= closing_->at &&
             line.Number("generation").value_or(0) > cost_.generation;
    });
  }

  bool IsSign(const TimelineLine& line) const {
    if (EndsGeneration(line)) return ended_ && IsOf(line, cost_.generation);
    if (HitsOneWorker()) {
      if (line.event == "worker_exit") return line.Field("worker_pid") == line_.Field("worker_pid");
      const bool of_worker = line.event == "worker_suspended" || line.event == "hang_suspect";
      return of_worker && OnVictimNode(line) &&
             line.Field("local_rank") == line_.Field("local_rank");
    }
    if (line.event == "service_lost" || line.event == "service_restarted" ||
        line.event == "service_exited") {
      return true;
    }
    return line.event == "node_lost" && line.Field("node") == cost_.node;
  }

  // The service that was killed was started again.
  bool ServiceIsBack() const {
    return First([](const TimelineLine& line) { return line.event == "service_restarted"; }) !=
           nullptr;
  }

  void ReadNoticed() {
    const TimelineLine* sign = First([this](const TimelineLine& line) { return IsSign(line); });
    const bool too_late =
        sign != nullptr && over_ != nullptr && sign->at > over_->at + kAfterEffect;
    if (sign != nullptr && !too_late) cost_.noticed = Since(*sign);
  }

  void ReadReleased() {
    for (const TimelineLine& line : lines_) {
      if (line.at < line_.at || line.event != "group_empty" || !IsOf(line, cost_.generation)) {
        continue;
      }
      if (next_ != nullptr && line.at > next_->at) continue;
      if (!HitsOneWorker() && OnVictimNode(line)) continue;  // no survivor
      cost_.released = Since(line);
    }
  }

  void ReadResumed() {
    if (next_ == nullptr) return;
    const uint64_t generation = next_->Number("generation").value_or(0);
    for (const TimelineLine& line : lines_) {
      const bool begins = line.event == "worker_started" || line.event == "worker_kept";
      if (line.at >= next_->at && begins && IsOf(line, generation)) {
        cost_.resumed = Since(line);
      }
    }
    cost_.rule = next_->Field("rule");
    uint64_t before = 0;
    for (const TimelineLine& line : lines_) {
      if (line.event == "assignment" && line.at < next_->at) {
        before = line.Number("restart_count").value_or(0);
      }
    }
    const uint64_t after = next_->Number("restart_count").value_or(0);
    cost_.restarts = after > before ? after - before : 0;
    ReadTraining();
  }

  void ReadTraining() {
    const TimelineLine* first = First([this](const TimelineLine& line) {
      return line.event == "marked" && line.at >= next_->at;
    });
    if (first == nullptr) return;
    cost_.training = Since(*first);
    // Nodes see their own workers' marks; the earliest step is where the job went on.
    for (const TimelineLine& line : lines_) {
      if (line.event != "marked" || line.at < next_->at) continue;
      if (line.Field("generation") != first->Field("generation")) continue;
      const std::optional<uint64_t> step = line.Number("step");
      if (!step.has_value()) continue;
      cost_.step_after = std::min(cost_.step_after.value_or(*step), *step);
    }
    if (!cost_.step_before.has_value() || !cost_.step_after.has_value()) return;
    cost_.steps_lost =
        *cost_.step_before > *cost_.step_after ? *cost_.step_before - *cost_.step_after : 0;
  }

  void ReadSteps() {
    cost_.step_before = line_.Number("step");
    for (const TimelineLine& line : lines_) {
      if (line.event != "reached" || line.at < line_.at || !IsOf(line, cost_.generation)) continue;
      if (!ended_ || (next_ != nullptr && line.at > next_->at)) continue;
      const std::optional<uint64_t> step = line.Number("step");
      if (step.has_value()) cost_.step_before = std::max(cost_.step_before.value_or(0), *step);
    }
  }

  void Conclude() {
    const TimelineLine* verdict =
        First([](const TimelineLine& line) { return line.event == "verdict"; });
    if (next_ != nullptr && ended_) {
      cost_.outcome = "restarted";
      return;
    }
    const bool stopped = verdict != nullptr && EndedFromOutside(verdict->Field("rule"));
    const bool lasting = !line_.Field("for").empty();
    if (ended_ && !stopped) {
      cost_.outcome = "ended the job";
      if (verdict != nullptr) cost_.rule = verdict->Field("rule");
    } else if (over_ != nullptr || (lasting && !stopped) || ServiceIsBack()) {
      cost_.outcome = "ridden out";
    } else if (!HitsOneWorker()) {
      cost_.outcome = "not seen here";
    } else {
      // The workers were released by whatever ended the job, not by ddprun.
      cost_.outcome = "not over";
      cost_.released.reset();
    }
  }

  const TimelineLines& lines_;
  const TimelineLine& line_;  // the fault
  size_t begin_;              // of the lines that are not before it
  FaultCost cost_;
  const TimelineLine* over_ = nullptr;
  std::string again_;  // pid of the agent that was started again; "" = none
  const TimelineLine* closing_ = nullptr;
  const TimelineLine* next_ = nullptr;
  bool ended_ = false;
};

std::string ShownTime(absl::Duration time) { return absl::FormatDuration(time); }

void CheckTime(const char* what, const std::optional<absl::Duration>& bound,
               const std::optional<absl::Duration>& found, std::vector<std::string>* missed) {
  if (!bound.has_value()) return;
  if (!found.has_value()) {
    missed->push_back(
        absl::StrCat(what, ": expected within ", ShownTime(*bound), ", did not happen"));
  } else if (*found > *bound) {
    missed->push_back(
        absl::StrCat(what, ": after ", ShownTime(*found), ", expected within ", ShownTime(*bound)));
  }
}

// Judges the cost of a fault. A fault that was ridden out, or that only other nodes' logs show, has
// none.
void CheckFault(const Expectations& expect, FaultCost* cost) {
  if (cost->outcome == "ridden out" || cost->outcome == "not seen here") return;
  CheckTime("noticed", expect.noticed, cost->noticed, &cost->missed);
  CheckTime("released", expect.released, cost->released, &cost->missed);
  CheckTime("resumed", expect.resumed, cost->resumed, &cost->missed);
  CheckTime("training", expect.training, cost->training, &cost->missed);
  if (!expect.steps_lost.has_value()) return;
  if (!cost->steps_lost.has_value()) {
    cost->missed.push_back("steps_lost: not known, because no steps were marked");
  } else if (*cost->steps_lost > *expect.steps_lost) {
    cost->missed.push_back(
        absl::StrCat("steps_lost: ", *cost->steps_lost, ", expected ", *expect.steps_lost));
  }
}

void CollectOthers(const TimelineLines& lines, const std::set<const TimelineLine*>& explained,
                   ChaosReport* report) {
  std::set<std::string> seen;
  for (const TimelineLine* line : explained) seen.insert(line->Field("generation"));
  for (const TimelineLine& line : lines) {
    if (!EndsGeneration(line) || !seen.insert(line.Field("generation")).second) continue;
    OtherEnd other{.at = line.at, .generation = line.Number("generation").value_or(0)};
    other.reason = line.Field(line.event == "stop_begin" ? "why" : "reason");
    const auto next = std::find_if(lines.begin(), lines.end(), [&](const TimelineLine& then) {
      return then.event == "assignment" && then.at >= line.at &&
             then.Number("generation").value_or(0) > other.generation;
    });
    if (next != lines.end()) {
      other.rule = next->Field("rule");
    } else if (EndedFromOutside(report->rule) || report->rule == "all_succeeded") {
      continue;  // the job's own end
    } else {
      other.rule = report->rule;
    }
    report->others.push_back(std::move(other));
  }
}

}  // namespace

const std::string& TimelineLine::Field(const std::string& name) const {
  static const std::string& none = *new std::string();
  const auto found = fields.find(name);
  return found == fields.end() ? none : found->second;
}

std::optional<uint64_t> TimelineLine::Number(const std::string& name) const {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(Field(name), &number)) return std::nullopt;
  return number;
}

bool ChaosReport::kept() const {
  return missed.empty() && std::all_of(faults.begin(), faults.end(),
                                       [](const FaultCost& cost) { return cost.missed.empty(); });
}

ChaosReport WorkOutCosts(TimelineLines lines, const Expectations& expect,
                         const std::vector<size_t>& never) {
  std::stable_sort(lines.begin(), lines.end(),
                   [](const TimelineLine& a, const TimelineLine& b) { return a.at < b.at; });
  ChaosReport report;
  report.judged = expect.any();
  if (!lines.empty()) report.began = lines.front().at;
  std::set<const TimelineLine*> explained;
  for (const TimelineLine& line : lines) {
    if (line.event == "fault") {
      FaultReader reader(lines, line);
      report.faults.push_back(reader.Read());
      CheckFault(expect, &report.faults.back());
      if (reader.closing() != nullptr) explained.insert(reader.closing());
    } else if (line.event == "assignment" || line.event == "round_closed") {
      report.restarts = std::max(report.restarts, line.Number("restart_count").value_or(0));
    } else if (line.event == "verdict") {
      report.outcome = line.Field("outcome");
      report.reason = line.Field("reason");
      report.rule = line.Field("rule");
    }
  }
  CollectOthers(lines, explained, &report);
  if (expect.restarts.has_value() && report.restarts > *expect.restarts) {
    report.missed.push_back(
        absl::StrCat("restarts: ", report.restarts, ", expected ", *expect.restarts));
  }
  for (const size_t number : report.judged ? never : std::vector<size_t>()) {
    report.missed.push_back(absl::StrCat("fault ", number, " was never injected"));
  }
  return report;
}

}  // namespace ddprun::launcher
