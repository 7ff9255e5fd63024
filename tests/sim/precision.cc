#include "tests/sim/precision.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/timing.h"
#include "tests/sim/checkers.h"

namespace ddprun::sim {

using rendezvous::Generation;
using rendezvous::Note;

namespace {

// For an answer to get back, and the next probe to be due.
constexpr absl::Duration kUnderWay = absl::Seconds(1);
// How long a service may take, beyond the rules' own times, to notice something that has happened,
// or hasn't.
constexpr absl::Duration kNoticing = absl::Seconds(1);
// The same for a node that falls silent, while a Join of its is under way.
constexpr absl::Duration kJoining = absl::Milliseconds(400);
// How long a service may take, beyond the rules' own times, to close a generation for newcomers.
constexpr absl::Duration kDeciding = absl::Seconds(2);

uint32_t NumberOf(const Note& note, const std::string& key) {
  uint32_t number = 0;
  return absl::SimpleAtoi(NoteField(note, key), &number) ? number : 0;
}

absl::Duration LeastUptime(uint32_t fruitless) {
  if (fruitless == 0) return absl::ZeroDuration();
  return std::min(rendezvous::kGrowthUptime * (int64_t{1} << std::min(fruitless - 1, 30U)),
                  rendezvous::kGrowthUptimeMax);
}

// What is known of each node, by its number.
template <typename Node>
Node& Of(int node, std::vector<Node>& nodes) {
  const auto number = static_cast<size_t>(node);
  if (number >= nodes.size()) nodes.resize(number + 1);
  return nodes[number];
}

template <typename Node>
Node Find(int node, const std::vector<Node>& nodes) {
  const auto number = static_cast<size_t>(node);
  return number < nodes.size() ? nodes[number] : Node();
}

}  // namespace

bool LeasePrecision::Observe(Instant now, int node, uint64_t stream, absl::Duration lease) {
  Node& known = Of(node, nodes_);
  if (known.stream == stream) return false;
  const bool was_sound = !known.since.is_infinite() && now >= known.since + lease + kUnderWay;
  known = {.stream = stream,
           .since = stream == 0 ? Instant::Infinite() : now,
           .sound_until = was_sound ? now : known.sound_until};
  return true;
}

Instant LeasePrecision::SoundSince(int node) const { return Find(node, nodes_).since; }

std::string LeasePrecision::OnLeaseExpired(Instant now, int node, const rendezvous::ProbePace& most,
                                           const rendezvous::ProbePace& least,
                                           absl::Duration slowest, Instant disturbed) const {
  const Instant since = SoundSince(node);
  const Instant until = Find(node, nodes_).sound_until;
  // The last probe that the node answered was sent an interval and two messages before.
  const absl::Duration spared = least.lease - most.interval - 2 * slowest - absl::Milliseconds(20);
  const bool early = !until.is_infinite() && now < until + spared;
  if (since.is_infinite() && early && until >= disturbed + most.lease + kUnderWay) {
    return absl::StrCat("node ", node, " is lost although it was reachable until ",
                        absl::FormatDuration(now - until), " ago");
  }
  if (since.is_infinite() || now < since + most.lease + kUnderWay) return "";
  return absl::StrCat("node ", node, " is lost although it has been reachable for ",
                      absl::FormatDuration(now - since));
}

bool LeasePrecision::WasSoundAt(int node, Instant at) const {
  return Find(node, nodes_).sound_until == at;
}

bool LossBound::Observe(Instant now, int node, bool mute, uint64_t wakes) {
  Node& known = Of(node, nodes_);
  const bool as_before = known.wakes == wakes && known.mute_since.is_infinite() != mute;
  if (as_before) return false;
  known = {.wakes = wakes, .mute_since = mute ? now : Instant::Infinite()};
  return true;
}

void LossBound::Excuse(Instant until) {
  excused_ = std::max(excused_, until);
  Disturb(excused_);
}

void LossBound::OnStall(absl::Duration stall, Instant now) {
  if (excused_ > now - stall) Excuse(excused_ + stall);
}

std::string LossBound::OnLook(int node, absl::Duration lease, Instant now) const {
  const Node known = Find(node, nodes_);
  if (known.mute_since.is_infinite()) return "";
  const Instant since = std::max(known.mute_since, disturbed_);
  if (now < since + lease + kJoining) return "";
  return absl::StrCat("node ", node, " can't be heard and isn't lost for ",
                      absl::FormatDuration(now - since));
}

void LossBound::SawOthers(bool enough, Instant now) {
  if (!enough) enough_since_ = Instant::Infinite();
  if (enough && enough_since_.is_infinite()) enough_since_ = now;
}

std::string LossBound::OnSilence(int node, const rendezvous::JobSpec& job, absl::Duration lease,
                                 Instant formed, Instant now) const {
  const Node known = Find(node, nodes_);
  if (known.mute_since.is_infinite()) return "";
  const Instant since = std::max(known.mute_since, disturbed_);
  const absl::Duration lived = std::max(since - formed, absl::ZeroDuration());
  Instant due = since + std::max(lease, job.join_timeout);
  if (!enough_since_.is_infinite()) {
    const absl::Duration loss = std::min(lived, rendezvous::kSilenceMax);
    due = std::min(due, std::max(since + std::max(lease, loss), enough_since_ + lease));
  }
  if (now < due + kJoining) return "";
  return absl::StrCat("node ", node, " can't be heard and is waited for for too long: ",
                      absl::FormatDuration(now - since));
}

std::string SilenceWatch::OnNote(const Note& note, const rendezvous::JobSpec& job,
                                 uint32_t others) {
  if (Is(note, "generation")) members_ = NodesOf(note);
  if (Is(note, "generation")) running_ = true;
  if (Is(note, "recovering")) running_ = NoteField(note, "phase") == "running";
  if (Is(note, "round_closing") || Is(note, "verdict")) running_ = false;
  if (!running_ || job.lease_is_proof || !Is(note, "node_lost")) return "";
  const std::string node = NoteField(note, "node");
  if (NoteField(note, "why") != "lease expired") return "";
  if (std::find(members_.begin(), members_.end(), node) == members_.end()) return "";
  if (others >= job.nodes_min || MillisecondsOf(note, "silent_ms") >= job.join_timeout) return "";
  return absl::StrCat(node, " is lost although the ", others, " others can't go on without it");
}

void SuccessBound::OnAllDone(Generation generation, Instant now) {
  if (generation_ == generation) return;
  generation_ = generation;
  done_ = now;
}

std::string SuccessBound::OnLook(Generation generation, Instant sound, absl::Duration writes,
                                 Instant now) const {
  if (generation != generation_ || sound.is_infinite()) return "";
  const Instant since = std::max({done_, sound, disturbed_});
  if (now < since + kNoticing + writes) return "";
  return absl::StrCat("all workers of the generation are done, and there is no verdict for ",
                      absl::FormatDuration(now - since));
}

void IsolationWatch::OnCutOff(std::set<std::string> sound, bool hosted) {
  sound_ = std::move(sound);
  hosted_ = hosted;
  ForgetAlone();
}

// If the service's own node is heard, a single other node is as likely to have died.
void IsolationWatch::ForgetAlone() {
  if (hosted_ && sound_.size() < 2) sound_.clear();
}

std::string IsolationWatch::OnNote(const Note& note) {
  if (Is(note, "generation")) running_ = true;
  if (Is(note, "round_closing") || Is(note, "verdict")) running_ = false;
  if (!Is(note, "node_lost") && !Is(note, "node_left")) return "";
  const std::string node = NoteField(note, "node");
  if (NoteField(note, "why") == "lease expired" && running_ && sound_.contains(node)) {
    return absl::StrCat(node, " counts as lost to a service that is cut off");
  }
  sound_.erase(node);
  ForgetAlone();
  return "";
}

std::string DoneWatch::OnNote(const Note& note) {
  if (Is(note, "generation")) {
    running_ = true;
    done_.clear();
  } else if (Is(note, "recovering")) {
    // The note that closed the generation may have died with the former service (seed 3904947).
    running_ = NoteField(note, "phase") == "running";
  } else if (Is(note, "node_joined") || Is(note, "node_left")) {  // another agent is there
    done_.erase(NoteField(note, "node"));
  } else if (Is(note, "round_closing") || Is(note, "verdict")) {
    running_ = false;
    if (NoteField(note, "trigger") == "growth" && !done_.empty()) {
      return absl::StrCat("a generation grows although ", *done_.begin(), " is done");
    }
  } else if (Is(note, "node_lost") && running_ && done_.contains(NoteField(note, "node"))) {
    return absl::StrCat(NoteField(note, "node"), " is done and counts as lost");
  }
  return "";
}

std::string GrowthWatch::OnNote(const Note& note, Instant now) {
  if (Is(note, "node_left") && absl::StartsWith(NoteField(note, "why"), "done")) OnDoneGone();
  if (Is(note, "generation")) {
    member_done_ = false;
    formed_ = now;
    generation_ = NumberOf(note, "generation");
    members_ = NumberOf(note, "nodes");
    if (members_before_ && members_ <= *members_before_) {
      members_before_.reset();
      ++fruitless_;
    }
    Disturb();
  } else if (Is(note, "round_closing")) {
    Disturb();
    const absl::Duration uptime = now - formed_;
    if (members_before_ && uptime >= rendezvous::kProgressUptime) {
      members_before_.reset();
      fruitless_ = 0;
    }
    if (NoteField(note, "trigger") != "growth") return "";
    members_before_ = members_;
    if (uptime < LeastUptime(fruitless_)) {
      return absl::StrCat("after ", fruitless_,
                          " growths that gained nothing another one comes after ",
                          absl::FormatDuration(uptime));
    }
  }
  return "";
}

std::string GrowthWatch::OnLook(const rendezvous::JobView& view, bool sound_newcomers,
                                Instant now) {
  uint32_t members = 0;
  bool waits = false;
  bool special = false;
  for (const rendezvous::NodeView& node : view.nodes) {
    members += node.group_rank ? 1 : 0;
    waits |= !node.group_rank && (node.state == "joined" || node.state == "spare");
    special |= node.state == "succeeded" || node.state == "draining";
    // No generation ends for newcomers while a member is silent, unless the lease is proof.
    special |= node.group_rank && node.silent > view.spec.lease / 2 && !view.spec.lease_is_proof;
  }
  const bool room = members < view.spec.nodes_max;
  // Since when the generation runs, and whether it gained anything, is in its note (seed 4117882).
  const bool known = view.generation == Generation(generation_);
  if (view.phase != "running" || !known || !waits || !room || special || member_done_ ||
      !sound_newcomers) {
    Disturb();
    return "";
  }
  if (waiting_since_.is_infinite()) waiting_since_ = now;
  const Instant due =
      std::max(waiting_since_ + view.spec.last_call_timeout, formed_ + LeastUptime(fruitless_));
  if (now < due + kDeciding) return "";
  return absl::StrCat("newcomers aren't let in, and have waited for ",
                      absl::FormatDuration(now - waiting_since_));
}

std::string SlotWatch::OnNote(const Note& note) {
  if (!Is(note, "generation")) return "";
  const std::vector<std::string> before = std::exchange(last_, NodesOf(note));
  if (last_.size() < before.size()) return "";
  for (size_t rank = 0; rank < before.size(); ++rank) {
    const auto now = std::find(last_.begin(), last_.end(), before[rank]);
    if (now == last_.end() || now - last_.begin() == static_cast<std::ptrdiff_t>(rank)) continue;
    return absl::StrCat(before[rank], " was group rank ", rank, " and is ", now - last_.begin());
  }
  return "";
}

std::string PortWatch::OnSpawned(const rendezvous::Assignment& assignment) {
  if (assignment.group_rank != 0) return "";
  const auto [known, fresh] = used_.emplace(
      std::pair(assignment.master_addr, assignment.master_port), assignment.generation);
  if (fresh || known->second == assignment.generation) return "";
  return absl::StrCat("generations ", known->second.value(), " and ", assignment.generation.value(),
                      " have one master port");
}

std::string OutsideKills::OnNote(const Note& note) const {
  if (!Is(note, "round_closed") || NoteField(note, "began_on").empty()) return "";
  if (own_.contains(Generation(NumberOf(note, "generation")))) return "";
  return absl::StrCat(NoteField(note, "began_on"), " is blamed for what was done to its workers");
}

}  // namespace ddprun::sim
