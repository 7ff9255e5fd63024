#include "tools/watch/status_text.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"
#include "rendezvous/wire/training.h"

namespace ddprun::launcher {

std::string TimeText(uint64_t ms) {
  const uint64_t seconds = ms / 1000;
  if (ms < 1000) return absl::StrCat(ms, " ms");
  if (seconds < 60) return absl::StrFormat("%.1f s", static_cast<double>(ms) / 1e3);
  if (seconds < 3600) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
  return absl::StrCat(seconds / 86400, " d ", seconds / 3600 % 24, " h");
}

std::string PhaseText(const rendezvous::v1::JobStatus& job) {
  const int generations = job.history_size();
  const bool between = job.phase() != "running" && generations > 0 &&
                       job.history(generations - 1).has_ended_ms_ago();
  if (!between) return absl::StrCat(job.phase(), " for ", TimeText(job.age_ms()));
  return absl::StrCat(job.phase(), " for ", TimeText(job.history(generations - 1).ended_ms_ago()),
                      " (the job is ", TimeText(job.age_ms()), " old)");
}

std::string RestartsText(const rendezvous::v1::JobStatus& job) {
  const std::string made = absl::StrCat("restarts ", job.restart_count());
  if (job.restart_count() <= job.restarts_charged()) {
    return absl::StrCat(made, " of ", job.max_restarts());
  }
  if (job.max_restarts() == 0) return made;
  return absl::StrCat(made, ", ", job.restarts_charged(), " of ", job.max_restarts(), " charged");
}

std::string RangeText(uint64_t first, uint64_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, " to ", last);
}

namespace {

// A driver that doesn't answer any more has no figures.
constexpr uint64_t kGpusFreshMs = 5000;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

bool GpusAreFresh(const rendezvous::v1::NodeStatus& node) {
  return node.gpus_age_ms() <= kGpusFreshMs;
}

}  // namespace

void GpuSum::Add(const rendezvous::v1::GpuStatus& gpu) {
  ++count;
  lost += gpu.lost() ? 1 : 0;
  if (gpu.has_utilization_percent()) {
    ++told;
    percent += gpu.utilization_percent();
  }
  used += gpu.memory_used_bytes();
  total += gpu.memory_total_bytes();
}

void GpuSum::Add(const GpuSum& other) {
  count += other.count;
  lost += other.lost;
  told += other.told;
  percent += other.percent;
  used += other.used;
  total += other.total;
}

GpuSum GpusOf(const rendezvous::v1::NodeStatus& node) {
  GpuSum sum;
  if (!GpusAreFresh(node)) return sum;
  for (const auto& gpu : node.gpus()) sum.Add(gpu);
  return sum;
}

GpuSum GpusOf(const rendezvous::v1::NodeStatus& node, size_t local_rank) {
  const auto count = static_cast<size_t>(node.gpus_size());
  if (count != node.worker_count() || local_rank >= count || !GpusAreFresh(node)) {
    return GpusOf(node);
  }
  GpuSum sum;
  sum.Add(node.gpus(static_cast<int>(local_rank)));
  return sum;
}

std::string GpuPercentText(const GpuSum& gpus) {
  if (gpus.count > 0 && gpus.lost == gpus.count) return "lost";
  return gpus.told == 0 ? "-" : absl::StrCat((gpus.percent + gpus.told / 2) / gpus.told, "%");
}

std::string GpuMemoryText(const GpuSum& gpus) {
  if (gpus.count == gpus.lost) return "-";
  return absl::StrFormat("%.1f/%.1f", static_cast<double>(gpus.used) / kGib,
                         static_cast<double>(gpus.total) / kGib);
}

std::string GpuListText(const rendezvous::v1::NodeStatus& node) {
  std::string text;
  if (!GpusAreFresh(node)) return text;
  for (const auto& gpu : node.gpus()) {
    GpuSum one;
    one.Add(gpu);
    absl::StrAppend(&text, text.empty() ? "" : "; ", gpu.index(), ": ", GpuPercentText(one));
    if (!gpu.lost()) absl::StrAppend(&text, ", ", GpuMemoryText(one), " GiB");
  }
  return text;
}

namespace {

using rendezvous::v1::DrainedNode;
using rendezvous::v1::GenerationStatus;
using rendezvous::v1::JobStatus;
using rendezvous::v1::NodeStatus;
using rendezvous::v1::TimeStatus;
using rendezvous::v1::WorkerStatus;

// A service remembers more; these fill a screen.
constexpr int kGenerationsShown = 10;

bool IsMarked(const WorkerStatus& worker) { return worker.phase() != "unmarked"; }

// The steps of workers that mark their progress: "12" or "12 to 13"; "-" = none does.
std::string StepsText(const NodeStatus& node) {
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const WorkerStatus& worker : node.workers()) {
    if (!IsMarked(worker)) continue;
    least = std::min(least, worker.step());
    most = std::max(most, worker.step());
  }
  return least > most ? "-" : RangeText(least, most);
}

// "train", or "checkpoint, train".
std::string PhasesText(const NodeStatus& node) {
  std::set<std::string> phases;
  for (const WorkerStatus& worker : node.workers()) phases.insert(worker.phase());
  return phases.empty() ? "-" : absl::StrJoin(phases, ", ");
}

std::string RateText(const NodeStatus& node) {
  if (node.step_us() == 0) return "-";
  return absl::StrFormat("%.3g", 1e6 / node.step_us());
}

// "2 of 2 workers, 1.8 s saved; 213.0 MiB parked", or why these workers, or the next ones, start
// cold.
std::string WarmText(const NodeStatus& node) {
  const rendezvous::v1::WarmStatus& warm = node.warm();
  const auto why = [&](bool belongs_here) {
    const bool is_known = belongs_here && !warm.why_cold().empty();
    return is_known ? absl::StrCat(" (", warm.why_cold(), ")") : std::string();
  };
  std::string text;
  if (const uint32_t all = warm.warm_workers() + warm.cold_workers(); all > 0) {
    absl::StrAppend(&text, warm.warm_workers(), " of ", CountText(all, "worker"));
    if (warm.saved_ms() > 0) absl::StrAppend(&text, ", ", TimeText(warm.saved_ms()), " saved");
    absl::StrAppend(&text, why(warm.cold_workers() > 0), "; ");
  }
  absl::StrAppend(&text, warm.parked_bytes() > 0
                             ? absl::StrCat(BytesText(warm.parked_bytes()), " parked")
                             : "none parked");
  return absl::StrCat(text, why(warm.cold_workers() == 0));
}

// "         rank 3: train, step 41", a line for each.
std::string RanksText(const NodeStatus& node) {
  std::string text;
  for (const WorkerStatus& worker : node.workers()) {
    absl::StrAppend(&text, "         rank ", worker.rank(), ": ", worker.phase(),
                    IsMarked(worker) ? absl::StrCat(", step ", worker.step()) : "", "\n");
  }
  return text;
}

std::string NodeText(const NodeStatus& node, StatusDetail detail) {
  const std::string rank = node.has_group_rank() ? absl::StrCat(node.group_rank()) : "-";
  std::string text =
      absl::StrFormat("  %5s  %-28s %-12s %7d  %8s  %-14s %7s  %-12s %s\n", rank, node.node_id(),
                      node.state(), node.worker_count(), TimeText(node.silent_ms()),
                      StepsText(node), RateText(node), PhasesText(node), node.address());
  for (const WorkerStatus& worker : node.workers()) {
    if (!worker.has_hold_up()) continue;
    absl::StrAppend(&text, "         rank ", worker.rank(), " holds up the job for ",
                    TimeText(worker.hold_up().lasted_ms()), ": ", worker.hold_up().why(), "\n");
  }
  const std::string gpus = GpuListText(node);
  if (!gpus.empty()) absl::StrAppend(&text, "         GPU ", gpus, "\n");
  if (node.has_warm()) absl::StrAppend(&text, "         warm: ", WarmText(node), "\n");
  if (node.has_checkpoint_bytes()) {
    absl::StrAppend(&text, "         checkpoints in memory: ", BytesText(node.checkpoint_bytes()),
                    "\n");
  }
  if (detail != StatusDetail::kWide) return text;
  if (!node.release().empty()) {
    absl::StrAppend(&text, "         release: ddprun ", node.release(), "\n");
  }
  if (!node.guards().empty()) absl::StrAppend(&text, "         guards: ", node.guards(), "\n");
  absl::StrAppend(&text, RanksText(node));
  return text;
}

std::string GenerationText(const GenerationStatus& generation) {
  const uint64_t ended = generation.has_ended_ms_ago() ? generation.ended_ms_ago() : 0;
  const uint64_t lasted = generation.began_ms_ago() - std::min(ended, generation.began_ms_ago());
  std::string text = absl::StrFormat(
      "  %5d  %s on %s, %s %s", generation.generation(), CountText(generation.world_size(), "rank"),
      CountText(generation.group_world_size(), "node"),
      generation.has_ended_ms_ago() ? "lasted" : "runs for", TimeText(lasted));
  if (generation.has_last_step()) {
    absl::StrAppend(&text, ", steps ", RangeText(generation.first_step(), generation.last_step()));
  }
  if (generation.has_warm()) {
    const rendezvous::v1::WarmStart& warm = generation.warm();
    absl::StrAppend(&text, ", ", warm.warm_workers(), " of ",
                    warm.warm_workers() + warm.cold_workers(), " warm");
    if (warm.saved_ms() > 0) absl::StrAppend(&text, " (", TimeText(warm.saved_ms()), " saved)");
  }
  absl::StrAppend(&text, "; began: ", generation.reason(), " (rule ", generation.rule(), ")\n");
  if (generation.has_ended_ms_ago()) {
    absl::StrAppend(&text, "         ended ", TimeText(ended), " ago: ", generation.end_reason(),
                    "\n");
  }
  return text;
}

// "goodput 91.2 %: training 1 h 2 min, restart 12.3 s, …", the largest first. Goodput only for jobs
// that mark their progress.
std::string LedgerText(const JobStatus& job) {
  uint64_t total = 0;
  uint64_t good = 0;
  bool marks = false;
  std::vector<const TimeStatus*> times;
  for (const TimeStatus& time : job.ledger()) {
    const bool is_good = time.cause() == "training" || time.cause() == "evaluation";
    marks = marks || is_good;
    if (is_good) good += time.us();
    total += time.us();
    if (time.us() >= 1000) times.push_back(&time);
  }
  if (times.empty()) return "";
  std::stable_sort(times.begin(), times.end(),
                   [](const TimeStatus* a, const TimeStatus* b) { return a->us() > b->us(); });
  const std::string parts =
      absl::StrJoin(times, ", ", [](std::string* text, const TimeStatus* time) {
        absl::StrAppend(text, absl::StrReplaceAll(time->cause(), {{"_", " "}}), " ",
                        TimeText(time->us() / 1000));
      });
  uint64_t saved_ms = 0;
  for (const GenerationStatus& generation : job.history()) saved_ms += generation.warm().saved_ms();
  const std::string saved =
      saved_ms > 0 ? absl::StrCat("; warm starts saved ", TimeText(saved_ms)) : "";
  if (!marks) return absl::StrCat("  time: ", parts, saved, "\n");
  return absl::StrFormat("  goodput %.1f %%: %s%s\n",
                         100.0 * static_cast<double>(good) / static_cast<double>(total), parts,
                         saved);
}

// Lines on restarts of the job's service, and on a record that can't be kept.
std::string RecordText(const JobStatus& job) {
  std::string text;
  if (job.recoveries() > 0) {
    absl::StrAppend(&text, "  its rendezvous service was started again ",
                    job.recoveries() == 1 ? "once" : absl::StrCat(job.recoveries(), " times"),
                    "; the record is in ", job.record(), "\n");
  }
  if (!job.record_lost().empty()) {
    absl::StrAppend(&text, "  the job ends if its rendezvous service does: ", job.record_lost(),
                    "\n");
  }
  return text;
}

// "  loss 2.31; 4000 samples/s"; "" = no worker reports any.
std::string TrainingText(const JobStatus& job) {
  const rendezvous::JobTraining training = rendezvous::TrainingOf(job);
  std::vector<std::string> parts;
  if (training.loss) parts.push_back(absl::StrFormat("loss %.4g", *training.loss));
  if (training.samples_per_second) {
    parts.push_back(absl::StrFormat("%.*f samples/s", *training.samples_per_second < 100 ? 2 : 0,
                                    *training.samples_per_second));
  }
  return parts.empty() ? "" : absl::StrCat("  ", absl::StrJoin(parts, "; "), "\n");
}

// "  warm start of generation 4: 7 of 8 workers, 6.4 s saved; 1.5 GiB parked", of all nodes; "" =
// none has workers that could.
std::string WarmStartText(const JobStatus& job) {
  uint64_t warm = 0;
  uint64_t cold = 0;
  uint64_t parked = 0;
  uint32_t saved_ms = 0;
  for (const NodeStatus& node : job.nodes()) {
    warm += node.warm().warm_workers();
    cold += node.warm().cold_workers();
    parked += node.warm().parked_bytes();
    saved_ms = std::max(saved_ms, node.warm().saved_ms());
  }
  if (warm + cold == 0) return "";
  std::string text = absl::StrCat("  warm start of generation ", job.generation(), ": ", warm,
                                  " of ", CountText(warm + cold, "worker"));
  if (saved_ms > 0) absl::StrAppend(&text, ", ", TimeText(saved_ms), " saved");
  if (parked > 0) absl::StrAppend(&text, "; ", BytesText(parked), " parked");
  return text + "\n";
}

std::string JobText(const JobStatus& job, StatusDetail detail) {
  std::string text =
      absl::StrFormat("job %s: %s, generation %d, %s\n  %s\n", job.run_id(), PhaseText(job),
                      job.generation(), RestartsText(job), job.description());
  if (!job.reason().empty()) absl::StrAppend(&text, "  ", job.reason(), "\n");
  absl::StrAppend(&text, RecordText(job), LedgerText(job), TrainingText(job), WarmStartText(job));
  absl::StrAppendFormat(&text, "  %5s  %-28s %-12s %7s  %8s  %-14s %7s  %-12s %s\n", "rank", "node",
                        "state", "workers", "silent", "step", "steps/s", "phase", "address");
  for (const NodeStatus& node : job.nodes()) absl::StrAppend(&text, NodeText(node, detail));
  for (const DrainedNode& drained : job.drained()) {
    absl::StrAppend(&text, "  drained: ", drained.node_id(), " on ", drained.hostname(),
                    drained.reason().empty() ? "" : absl::StrCat(" (", drained.reason(), ")"),
                    "; ddprun drain --undo lets that machine in again\n");
  }
  const int shown = detail == StatusDetail::kWide ? job.history_size() : kGenerationsShown;
  const int first = std::max(0, job.history_size() - shown);
  if (job.history_size() > 0) absl::StrAppend(&text, "  generations\n");
  if (first > 0) absl::StrAppend(&text, "      …  ", first, " more before (see -o wide)\n");
  for (int i = first; i < job.history_size(); ++i) {
    absl::StrAppend(&text, GenerationText(job.history(i)));
  }
  return text;
}

}  // namespace

std::string NodeStateText(const agent::v1::NodeState& node) {
  const agent::v1::ServiceAbsence& absence = node.absence();
  std::string text = absl::StrFormat(
      "job %s: no answer of the rendezvous service at %s for %s%s\n  %s\n", node.run_id(),
      node.endpoint(), TimeText(absence.for_ms()),
      absence.why().empty() ? "" : absl::StrCat(" (", absence.why(), ")"), node.description());
  const std::string generation =
      node.generation() == 0 ? "" : absl::StrCat(", generation ", node.generation());
  absl::StrAppend(&text, "  node ", node.node_id(), " of this machine: ", node.state(), generation,
                  absence.workers_go_on() ? "; its workers need no service"
                                          : "; its workers can't go on without it",
                  "\n  ",
                  absence.has_gives_up_in_ms() ? absl::StrCat("the service is tried for ",
                                                              TimeText(absence.gives_up_in_ms()),
                                                              " more, then this node ends")
                                               : "the service is tried without a bound",
                  "\n");
  return text;
}

std::string StatusText(const rendezvous::v1::GetStatusReply& reply, const std::string& target,
                       StatusDetail detail) {
  std::string text =
      absl::StrFormat("ddprun rendezvous service %s at %s, term %x, %s\n", reply.release(), target,
                      reply.term(), CountText(reply.jobs_size(), "job"));
  for (const JobStatus& job : reply.jobs()) {
    absl::StrAppend(&text, JobText(job, detail));
  }
  return text;
}

}  // namespace ddprun::launcher
