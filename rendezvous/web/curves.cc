#include "rendezvous/web/curves.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/wire/training.h"

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::ordered_json;

// The step of the rank that is furthest back, and when its node reported it.
StepReading StepsOf(const v1::JobStatus& job, Instant now) {
  StepReading reading{.at = now, .generation = job.generation(), .step = {}, .step_time = {}};
  for (const v1::NodeStatus& node : job.nodes()) {
    reading.step_time = std::max(reading.step_time, absl::Microseconds(node.step_us()));
    for (const v1::WorkerStatus& worker : node.workers()) {
      if (worker.phase() == "unmarked" || (reading.step && worker.step() >= *reading.step)) {
        continue;
      }
      reading.step = worker.step();
      reading.at = now - absl::Milliseconds(node.progress_age_ms());
    }
  }
  return reading;
}

std::optional<double> GpuBusy(const v1::JobStatus& job) {
  double sum = 0;
  int count = 0;
  for (const v1::NodeStatus& node : job.nodes()) {
    if (node.gpus_age_ms() > kFiguresFreshMs) continue;
    for (const v1::GpuStatus& gpu : node.gpus()) {
      if (gpu.lost() || !gpu.has_utilization_percent()) continue;
      sum += gpu.utilization_percent() / 100.0;
      ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

// Rounds to the digits that a curve shows.
Json NumberOf(std::optional<double> value) {
  if (!value.has_value()) return nullptr;
  if (std::isnan(*value)) return "nan";
  if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  return std::strtod(absl::StrFormat("%.5g", *value).c_str(), nullptr);
}

Json SeriesJson(const CurveSeries& series, Instant now) {
  static constexpr std::pair<const char*, Figure> kNames[] = {
      {"steps_per_second", Figure::kStepRate},
      {"loss", Figure::kLoss},
      {"samples_per_second", Figure::kSampleRate},
      {"gpu_busy", Figure::kGpuBusy},
  };
  Json ages = Json::array();
  for (const CurvePoint& point : series.points()) {
    ages.push_back(absl::ToInt64Milliseconds(now - point.middle()));
  }
  Json json = {{"ms_ago", std::move(ages)}};
  for (const auto& [name, figure] : kNames) {
    Json values = Json::array();
    for (const CurvePoint& point : series.points()) values.push_back(NumberOf(point.Mean(figure)));
    json[name] = std::move(values);
  }
  return json;
}

}  // namespace

std::vector<JobReading> ReadingsOf(const v1::GetStatusReply& reply, Instant now) {
  std::vector<JobReading> readings;
  for (const v1::JobStatus& job : reply.jobs()) {
    const JobTraining training = TrainingOf(job);
    readings.push_back({.run_id = job.run_id(),
                        .steps = StepsOf(job, now),
                        .loss = training.loss,
                        .sample_rate = training.samples_per_second,
                        .gpu_busy = GpuBusy(job)});
  }
  return readings;
}

std::string CurvesJson(const CurveBook& book, Instant now) {
  Json jobs = Json::array();
  for (const auto& [run_id, curves] : book.jobs()) {
    jobs.push_back({{"run_id", run_id},
                    {"latest", SeriesJson(curves.latest, now)},
                    {"whole", SeriesJson(curves.whole, now)}});
  }
  return Json{{"jobs", std::move(jobs)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

double Seconds(uint64_t ms) { return static_cast<double>(ms) / 1e3; }

// Prometheus' names for values that aren't numbers.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return absl::StrFormat("%.15g", value);
}

// One metric with its values. Names and help texts are ours; values of labels may come from any
// peer.
class Family {
 public:
  // Adds itself to `all`, the families of one text in their order.
  Family(std::vector<const Family*>* all, std::string name, const std::string& help,
         const char* type = "gauge")
      : name_(std::move(name)),
        head_(absl::StrCat("# HELP ", name_, " ", help, "\n# TYPE ", name_, " ", type, "\n")) {
    all->push_back(this);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  void Add(const Labels& labels, double value) {
    std::string line = name_;
    for (const auto& [name, text] : labels) {
      absl::StrAppend(&line, line.size() == name_.size() ? "{" : ",", name, "=\"",
                      absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
                      "\"");
    }
    absl::StrAppend(&lines_, line, labels.empty() ? " " : "} ", NumberText(value), "\n");
  }

  // A family without a value is left out.
  std::string Text() const { return lines_.empty() ? "" : head_ + lines_; }

 private:
  std::string name_;
  std::string head_;
  std::string lines_;
};

struct Families {
  std::vector<const Family*> all;
  Family build{&all, "ddprun_build_info", "The release that the service is of: always 1."};
  Family start{&all, "process_start_time_seconds", "When the service was started, since 1970."};
  Family service{&all, "ddprun_service_info", "The rendezvous service: always 1."};
  Family ended{&all, "ddprun_jobs_ended_total", "Jobs that ended since the service was started.",
               "counter"};
  Family job{&all, "ddprun_job_info", "A job and its phase: always 1."};
  Family age{&all, "ddprun_job_age_seconds", "Since the first node joined."};
  Family generation{&all, "ddprun_job_generation", "Number of the current generation."};
  Family restarts{&all, "ddprun_job_restarts_total", "Restarts after failures.", "counter"};
  Family restarts_left{&all, "ddprun_job_restarts_left", "Restarts after failures that remain."};
  Family world{&all, "ddprun_job_world_size", "Ranks of the current generation."};
  Family loss{&all, "ddprun_job_loss", "Loss as the workers report it: the mean of those that do."};
  Family samples{&all, "ddprun_job_samples_per_second",
                 "Samples a second, of all workers that report them."};
  Family seconds{&all, "ddprun_job_seconds_total",
                 "What the time since the first node joined went into, as far as that is certain.",
                 "counter"};
  Family node{&all, "ddprun_node_info", "A node and its state: always 1."};
  Family silent{&all, "ddprun_node_silent_seconds", "Since the node last proved to be alive."};
  Family step_time{&all, "ddprun_node_step_seconds",
                   "Median training step of the slowest worker of the node."};
  Family node_lag{
      &all, "ddprun_node_lag",
      "1: the node holds up the job, is slow or silent, by the rule of ddprun top; else absent."};
  Family gpu_busy{&all, "ddprun_gpu_utilization_ratio",
                  "Part of the last sample period in which a kernel ran on the GPU, 0 to 1."};
  Family gpu_used{&all, "ddprun_gpu_memory_used_bytes", "Memory of the GPU that is in use."};
  Family gpu_total{&all, "ddprun_gpu_memory_total_bytes", "Memory of the GPU."};
  Family gpu_lost{&all, "ddprun_gpu_lost", "1: the GPU is lost to its driver and has no figures."};
  Family step{&all, "ddprun_worker_step", "Step that the worker last marked."};
  Family behind{&all, "ddprun_worker_behind_steps", "Steps behind the furthest rank."};
  Family phase{&all, "ddprun_worker_phase_info",
               "What the worker last marked to be doing: always 1."};

  std::string Text() const {
    std::string text;
    for (const Family* family : all) text += family->Text();
    return text;
  }
};

void AddGpus(const Labels::value_type& run_id, const v1::NodeStatus& node, Families& families) {
  if (node.gpus_age_ms() > kFiguresFreshMs) return;
  for (const v1::GpuStatus& gpu : node.gpus()) {
    const Labels labels = {run_id, {"node", node.node_id()}, {"gpu", absl::StrCat(gpu.index())}};
    families.gpu_lost.Add(labels, gpu.lost() ? 1 : 0);
    if (gpu.lost()) continue;
    if (gpu.has_utilization_percent()) {
      families.gpu_busy.Add(labels, gpu.utilization_percent() / 100.0);
    }
    families.gpu_used.Add(labels, static_cast<double>(gpu.memory_used_bytes()));
    families.gpu_total.Add(labels, static_cast<double>(gpu.memory_total_bytes()));
  }
}

void AddNode(const Labels::value_type& run_id, const v1::NodeStatus& node, Families& families) {
  const Labels::value_type name{"node", node.node_id()};
  const std::string rank = node.has_group_rank() ? absl::StrCat(node.group_rank()) : "";
  families.node.Add(
      {run_id, name, {"hostname", node.hostname()}, {"state", node.state()}, {"group_rank", rank}},
      1);
  families.silent.Add({run_id, name}, Seconds(node.silent_ms()));
  if (node.step_us() > 0) families.step_time.Add({run_id, name}, node.step_us() / 1e6);
  if (!node.lag().empty()) families.node_lag.Add({run_id, name, {"lag", node.lag()}}, 1);
  AddGpus(run_id, node, families);
  for (const v1::WorkerStatus& worker : node.workers()) {
    Labels labels = {run_id, name, {"rank", absl::StrCat(worker.rank())}};
    if (worker.phase() != "unmarked") {
      families.step.Add(labels, static_cast<double>(worker.step()));
      families.behind.Add(labels, static_cast<double>(worker.behind()));
    }
    labels.emplace_back("phase", worker.phase());
    families.phase.Add(labels, 1);
  }
}

void AddJob(const v1::JobStatus& job, Families& families) {
  const Labels::value_type run_id{"run_id", job.run_id()};
  families.job.Add({run_id, {"phase", job.phase()}}, 1);
  families.age.Add({run_id}, Seconds(job.age_ms()));
  families.generation.Add({run_id}, static_cast<double>(job.generation()));
  families.restarts.Add({run_id}, job.restart_count());
  families.restarts_left.Add(
      {run_id}, job.max_restarts() - std::min(job.max_restarts(), job.restarts_charged()));
  if (job.phase() == "running" && job.history_size() > 0) {
    families.world.Add({run_id}, job.history(job.history_size() - 1).world_size());
  }
  const JobTraining training = TrainingOf(job);
  if (training.loss) families.loss.Add({run_id}, *training.loss);
  if (training.samples_per_second) families.samples.Add({run_id}, *training.samples_per_second);
  for (const v1::TimeStatus& time : job.counted()) {
    families.seconds.Add({run_id, {"cause", time.cause()}}, static_cast<double>(time.us()) / 1e6);
  }
  for (const v1::NodeStatus& node : job.nodes()) AddNode(run_id, node, families);
}

// Each outcome exists from the start, at 0: Prometheus sees no increase of a series that begins at
// 1.
void AddEnded(const v1::GetStatusReply& reply, Families& families) {
  std::map<std::string, uint32_t> jobs;
  for (const Outcome outcome : {Outcome::kSucceeded, Outcome::kFailed, Outcome::kFailedForGood,
                                Outcome::kStopped, Outcome::kPreempted}) {
    jobs[OutcomeName(outcome)] = 0;
  }
  for (const v1::EndedCount& count : reply.jobs_ended()) jobs[count.outcome()] = count.jobs();
  for (const auto& [outcome, number] : jobs) families.ended.Add({{"outcome", outcome}}, number);
}

}  // namespace

std::string MetricsText(const v1::GetStatusReply& reply, absl::Time started) {
  Families families;
  families.build.Add({{"version", reply.release()}, {"compiler", __VERSION__}}, 1);
  families.start.Add({}, absl::ToDoubleSeconds(started - absl::UnixEpoch()));
  families.service.Add({{"release", reply.release()}}, 1);
  AddEnded(reply, families);
  for (const v1::JobStatus& job : reply.jobs()) AddJob(job, families);
  return families.Text();
}

}  // namespace ddprun::rendezvous
