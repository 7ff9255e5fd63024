#include "tools/chaos/chaos_plan_file.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/progress_page.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "launcher/plan/plan_parts.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kKeyBytesShown = 80;
constexpr absl::Duration kChaosTimeMax = absl::Hours(7 * 24);

// One mapping of the plan: asks for keys by name, with errors that name file, line and key.
class PlanMap {
 public:
  PlanMap(const std::string& file, const YamlNode& node) : file_(file), node_(node) {}

  absl::Status WrongAt(int line, absl::string_view what) const {
    return UsageError(absl::StrCat(file_, ":", line, ": ", what));
  }
  absl::Status Wrong(const std::string& key, absl::string_view what) const {
    const YamlNode* value = node_.Find(key);
    return WrongAt(value == nullptr ? node_.line : value->line, absl::StrCat(key, ": ", what));
  }
  int line() const { return node_.line; }

  // Every key is one of these. Params: what — a mapping for what: "a fault".
  absl::Status CheckKeys(const std::string& what, const std::vector<std::string>& known) const {
    for (size_t i = 0; i < node_.keys.size(); ++i) {
      const std::string& key = node_.keys[i];
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string best = NearestWord(key, known);
      return WrongAt(node_.items[i].line,
                     absl::StrCat(Shown(key, kKeyBytesShown), " is no key of ", what, "; ",
                                  best.empty() ? absl::StrCat("it has ", absl::StrJoin(known, ", "))
                                               : absl::StrCat("did you mean ", best, "?")));
    }
    return absl::OkStatus();
  }

  const YamlNode* Get(const std::string& key) const { return node_.Find(key); }
  bool Has(const std::string& key) const { return Get(key) != nullptr; }

  // Requires of each: the key is there.
  absl::StatusOr<std::string> Text(const std::string& key) const {
    const YamlNode* value = Get(key);
    if (value->kind != YamlNode::Kind::kScalar) return Wrong(key, "must be one text or number");
    return value->text;
  }
  absl::StatusOr<uint64_t> Number(const std::string& key, uint64_t min, uint64_t max) const {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, Text(key));
    uint64_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < min || number > max) {
      return Wrong(key, absl::StrCat(Quoted(text), " is no whole number from ", min, " to ", max));
    }
    return number;
  }
  absl::StatusOr<absl::Duration> Time(const std::string& key, absl::Duration min,
                                      absl::Duration max) const {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, Text(key));
    const std::optional<absl::Duration> time = ReadDuration(text);
    if (!time.has_value()) {
      return Wrong(key, absl::StrCat(Quoted(text), " is no time; give it as 500ms, 2s or 10m"));
    }
    if (*time < min || *time > max) {
      return Wrong(key, absl::StrCat(Quoted(text), " is not from ", absl::FormatDuration(min),
                                     " to ", absl::FormatDuration(max)));
    }
    return *time;
  }
  // The index of the word in the list.
  absl::StatusOr<size_t> Word(const std::string& key, const std::vector<std::string>& words) const {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, Text(key));
    const auto found = std::find(words.begin(), words.end(), text);
    if (found != words.end()) return static_cast<size_t>(found - words.begin());
    const std::string best = NearestWord(text, words);
    return Wrong(key, absl::StrCat(Quoted(text), " is none of ", absl::StrJoin(words, ", "),
                                   best.empty() ? "" : absl::StrCat("; did you mean ", best, "?")));
  }

 private:
  const std::string& file_;
  const YamlNode& node_;
};

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (size_t i = 0; i < kFaultKindCount; ++i) names.push_back(FaultName(FaultKind(i)));
  return names;
}

bool MayEnd(FaultKind kind) {
  return kind != FaultKind::kWorkerKilled && kind != FaultKind::kAgentKilled &&
         kind != FaultKind::kServiceKilled;
}

std::vector<std::string> KeysOf(FaultKind kind) {
  std::vector<std::string> keys = {"fault", "at", "since", "step", "moment", "every", "times"};
  if (HitsWorker(kind)) keys.push_back("worker");
  if (!HitsWorker(kind) && !HitsService(kind)) keys.push_back("node");
  if (MayEnd(kind)) keys.push_back("for");
  if (kind == FaultKind::kWorkerKilled) keys.push_back("signal");
  if (kind == FaultKind::kAgentKilled) keys.push_back("rejoin");
  if (kind == FaultKind::kNetworkCut) keys.push_back("direction");
  if (kind == FaultKind::kPacketLoss) keys.push_back("loss");
  return keys;
}

absl::StatusOr<Victim> ReadVictim(const PlanMap& map, FaultKind kind) {
  Victim victim;
  if (HitsService(kind)) return victim;
  const std::string key = HitsWorker(kind) ? "worker" : "node";
  if (!map.Has(key)) {
    return map.WrongAt(map.line(),
                       absl::StrCat(FaultName(kind), " needs ", key, ": ",
                                    HitsWorker(kind) ? "a global rank, or random"
                                                     : "a node's rank or host name, or random"));
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, map.Text(key));
  if (text == "random") {
    victim.random = true;
    return victim;
  }
  if (HitsWorker(kind)) {
    DDPRUN_ASSIGN_OR_RETURN(
        victim.rank,
        map.Number(key, 0, uint64_t{rendezvous::kNodesMax} * rendezvous::kWorkersPerNodeMax - 1));
    return victim;
  }
  if (std::all_of(text.begin(), text.end(), absl::ascii_isdigit)) {
    DDPRUN_ASSIGN_OR_RETURN(victim.group_rank, map.Number(key, 0, rendezvous::kNodesMax - 1));
    return victim;
  }
  victim.host = text;
  return victim;
}

absl::Status ReadEvery(const PlanMap& map, Trigger* trigger) {
  const bool once_each = trigger->kind == Trigger::Kind::kMoment || trigger->each_generation;
  if (map.Has("every")) {
    if (once_each) {
      return map.Wrong("every", "comes once in each generation already; times says how often");
    }
    if (trigger->kind == Trigger::Kind::kStep) {
      DDPRUN_ASSIGN_OR_RETURN(trigger->every_steps, map.Number("every", 1, kProgressStepMax));
    } else {
      DDPRUN_ASSIGN_OR_RETURN(trigger->every,
                              map.Time("every", absl::Milliseconds(100), kChaosTimeMax));
    }
    trigger->times = 0;
  }
  if (!map.Has("times")) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const uint64_t times, map.Number("times", 1, 1'000'000));
  if (times > 1 && !map.Has("every") && !once_each) {
    return map.Wrong("times", "needs every: how far they are apart");
  }
  trigger->times = static_cast<uint32_t>(times);
  return absl::OkStatus();
}

absl::StatusOr<Trigger> ReadTrigger(const PlanMap& map) {
  Trigger trigger;
  if (map.Has("at") + map.Has("step") + map.Has("moment") != 1) {
    return map.WrongAt(map.line(),
                       "a fault needs one of at (a time), step and moment: when it comes");
  }
  if (map.Has("at")) {
    DDPRUN_ASSIGN_OR_RETURN(trigger.at, map.Time("at", absl::ZeroDuration(), kChaosTimeMax));
  } else if (map.Has("step")) {
    trigger.kind = Trigger::Kind::kStep;
    DDPRUN_ASSIGN_OR_RETURN(trigger.step, map.Number("step", 0, kProgressStepMax));
  } else {
    trigger.kind = Trigger::Kind::kMoment;
    DDPRUN_ASSIGN_OR_RETURN(const size_t moment,
                            map.Word("moment", {"starting", "running", "saving"}));
    trigger.moment = static_cast<Moment>(moment);
  }
  if (map.Has("since")) {
    if (!map.Has("at")) return map.Wrong("since", "belongs to at");
    DDPRUN_ASSIGN_OR_RETURN(const size_t since, map.Word("since", {"job", "generation"}));
    trigger.each_generation = since == 1;
  }
  DDPRUN_RETURN_IF_ERROR(ReadEvery(map, &trigger));
  return trigger;
}

absl::Status ReadLasts(const PlanMap& map, FaultPlan* fault) {
  const FaultKind kind = fault->kind;
  if (!map.Has("for")) {
    if (!MayEnd(kind) || kind == FaultKind::kWorkerStopped) return absl::OkStatus();
    return map.WrongAt(map.line(), absl::StrCat(FaultName(kind), " needs for: how long it lasts"));
  }
  DDPRUN_ASSIGN_OR_RETURN(
      fault->lasts,
      map.Time("for", absl::Milliseconds(1), HitsNetwork(kind) ? kNetworkFaultMax : kChaosTimeMax));
  return absl::OkStatus();
}

absl::Status ReadLoss(const PlanMap& map, FaultPlan* fault) {
  if (!map.Has("loss")) {
    return map.WrongAt(map.line(), "packet_loss needs loss: a share of the packets, as in 5%");
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, map.Text("loss"));
  const std::string number(absl::StripSuffix(text, "%"));
  if (!absl::EndsWith(text, "%") || !absl::SimpleAtod(number, &fault->loss_percent) ||
      !(fault->loss_percent >= 0.1 && fault->loss_percent <= 100)) {
    return map.Wrong("loss", absl::StrCat(Quoted(text), " is no share from 0.1% to 100%"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FaultPlan> ReadFault(const std::string& file, const YamlNode& node) {
  const PlanMap map(file, node);
  if (node.kind != YamlNode::Kind::kMap) {
    return map.WrongAt(node.line, "a fault is a mapping that begins with '- fault: worker_killed'");
  }
  if (!map.Has("fault")) {
    return map.WrongAt(node.line, absl::StrCat("the fault has no key fault; it is one of ",
                                               absl::StrJoin(KindNames(), ", ")));
  }
  FaultPlan fault{.line = node.line};
  DDPRUN_ASSIGN_OR_RETURN(const size_t kind, map.Word("fault", KindNames()));
  fault.kind = static_cast<FaultKind>(kind);
  DDPRUN_RETURN_IF_ERROR(map.CheckKeys(FaultName(fault.kind), KeysOf(fault.kind)));
  DDPRUN_ASSIGN_OR_RETURN(fault.victim, ReadVictim(map, fault.kind));
  DDPRUN_ASSIGN_OR_RETURN(fault.trigger, ReadTrigger(map));
  DDPRUN_RETURN_IF_ERROR(ReadLasts(map, &fault));
  if (map.Has("signal")) {
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, map.Text("signal"));
    const std::optional<int> number = ReadSignal(text);
    if (!number.has_value() || *number == SIGSTOP || *number == SIGCONT) {
      return map.Wrong("signal", absl::StrCat(Quoted(text),
                                              " doesn't kill; give a name like "
                                              "SIGKILL, SIGSEGV or SIGTERM"));
    }
    fault.signal = *number;
  }
  if (map.Has("rejoin")) {
    DDPRUN_ASSIGN_OR_RETURN(fault.rejoin, map.Time("rejoin", absl::ZeroDuration(), kChaosTimeMax));
  }
  if (map.Has("direction")) {
    DDPRUN_ASSIGN_OR_RETURN(const size_t way, map.Word("direction", {"both", "in", "out"}));
    fault.direction = static_cast<Direction>(way);
  }
  if (fault.kind == FaultKind::kPacketLoss) DDPRUN_RETURN_IF_ERROR(ReadLoss(map, &fault));
  return fault;
}

absl::StatusOr<Expectations> ReadExpectations(const std::string& file, const YamlNode& node) {
  const PlanMap map(file, node);
  if (node.kind != YamlNode::Kind::kMap) {
    return map.WrongAt(node.line, "expect: must be a mapping, as in {resumed: 5s, steps_lost: 0}");
  }
  DDPRUN_RETURN_IF_ERROR(map.CheckKeys(
      "expect", {"noticed", "released", "resumed", "training", "steps_lost", "restarts"}));
  Expectations expect;
  const std::pair<const char*, std::optional<absl::Duration>*> times[] = {
      {"noticed", &expect.noticed},
      {"released", &expect.released},
      {"resumed", &expect.resumed},
      {"training", &expect.training}};
  for (const auto& [key, target] : times) {
    if (!map.Has(key)) continue;
    DDPRUN_ASSIGN_OR_RETURN(*target, map.Time(key, absl::ZeroDuration(), kChaosTimeMax));
  }
  const std::pair<const char*, std::optional<uint64_t>*> numbers[] = {
      {"steps_lost", &expect.steps_lost}, {"restarts", &expect.restarts}};
  for (const auto& [key, target] : numbers) {
    if (!map.Has(key)) continue;
    DDPRUN_ASSIGN_OR_RETURN(*target, map.Number(key, 0, kProgressStepMax));
  }
  return expect;
}

}  // namespace

absl::StatusOr<ChaosPlan> ReadChaosPlan(const std::string& file, const std::string& text) {
  const absl::StatusOr<YamlNode> document = ReadYaml(text);
  if (!document.ok()) {
    const std::string message(document.status().message());
    absl::string_view rest = message;
    return UsageError(absl::ConsumePrefix(&rest, "line ") ? absl::StrCat(file, ":", rest)
                                                          : absl::StrCat(file, ": ", message));
  }
  const PlanMap map(file, *document);
  if (document->kind != YamlNode::Kind::kMap) {
    return map.WrongAt(document->line, "a plan has the keys faults, seed and expect");
  }
  DDPRUN_RETURN_IF_ERROR(map.CheckKeys("a plan", {"seed", "faults", "expect"}));
  ChaosPlan plan;
  if (map.Has("seed")) {
    DDPRUN_ASSIGN_OR_RETURN(plan.seed, map.Number("seed", 0, UINT64_MAX));
  }
  if (const YamlNode* expect = map.Get("expect"); expect != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(plan.expect, ReadExpectations(file, *expect));
  }
  // A run for comparison has no faults: "faults: []".
  const YamlNode* faults = map.Get("faults");
  if (faults == nullptr) return map.WrongAt(document->line, "the plan has no key faults");
  if (faults->kind != YamlNode::Kind::kList) {
    return map.WrongAt(faults->line, "faults: must be a list of '- fault: …'");
  }
  if (faults->items.size() > kFaultsMax) {
    return map.WrongAt(faults->line, absl::StrCat("faults: more than ", kFaultsMax));
  }
  for (const YamlNode& item : faults->items) {
    DDPRUN_ASSIGN_OR_RETURN(plan.faults.emplace_back(), ReadFault(file, item));
  }
  return plan;
}

}  // namespace ddprun::launcher
