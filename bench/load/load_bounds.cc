#include "bench/load/load_bounds.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"

namespace ddprun::bench {
namespace {

struct Bound {
  const char* name;
  std::array<const char*, 2> figures;  // paths within a report; the larger counts. The second may
                                       // be null.
  double most;
  const char* unit;
};

constexpr std::array kBounds = {
    Bound{"formed", {"/form/assigned_after_last_connected/max_ms", nullptr}, 2000, "ms"},
    Bound{"regrouped",
          {"/killed/assigned/max_ms", "/frozen/assigned_after_noticed/max_ms"},
          1000,
          "ms"},
    Bound{"steady", {"/steady/percent_of_a_core", nullptr}, 10, "% of a core"},
    // Peaks since the service began, and since it was started again.
    Bound{"resident", {"/frozen/resident_peak_mb", "/restart/resident_peak_mb"}, 300, "MB"},
    Bound{"verdict", {"/verdict/told/max_ms", nullptr}, 1000, "ms"},
    Bound{"verdict_memory", {"/verdict/memory_more_mb", nullptr}, 100, "MB"},
    Bound{"restart", {"/restart/back_after_kill/max_ms", nullptr}, 3000, "ms"},
};

double FigureOf(const nlohmann::json& report, const char* path) {
  const nlohmann::json::json_pointer pointer(path);
  return report.contains(pointer) && report.at(pointer).is_number()
             ? report.at(pointer).get<double>()
             : std::numeric_limits<double>::infinity();
}

double FigureOf(const nlohmann::json& report, const Bound& bound) {
  const double first = FigureOf(report, bound.figures[0]);
  return bound.figures[1] == nullptr ? first : std::max(first, FigureOf(report, bound.figures[1]));
}

}  // namespace

std::vector<std::string> MissedBounds(const nlohmann::json& reports) {
  std::vector<std::string> missed;
  for (const Bound& bound : kBounds) {
    std::vector<double> figures;
    for (const nlohmann::json& report : reports) figures.push_back(FigureOf(report, bound));
    std::sort(figures.begin(), figures.end());
    if (!figures.empty() && figures[figures.size() / 2] <= bound.most) continue;
    const std::string seen =
        figures.empty() ? "no run" : absl::StrCat(figures[figures.size() / 2], " ", bound.unit);
    missed.push_back(
        absl::StrCat(bound.name, ": ", seen, ", allowed are ", bound.most, " ", bound.unit));
  }
  return missed;
}

}  // namespace ddprun::bench
