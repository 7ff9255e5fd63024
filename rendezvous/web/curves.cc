#include "rendezvous/web/curves.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
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

}  // namespace ddprun::rendezvous
