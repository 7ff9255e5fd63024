#include "tools/chaos/report_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tools/chaos/core/chaos_text.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json Milliseconds(const std::optional<absl::Duration>& time) {
  if (!time.has_value()) return nullptr;
  return absl::ToDoubleMilliseconds(*time);
}

Json Count(const std::optional<uint64_t>& number) {
  if (!number.has_value()) return nullptr;
  return *number;
}

Json FaultJson(const FaultCost& cost, Instant began) {
  return {{"fault", cost.fault},
          {"occurrence", cost.occurrence},
          {"kind", cost.kind},
          {"victim", cost.victim},
          {"node", cost.node},
          {"generation", cost.generation},
          {"after_s", absl::ToDoubleSeconds(cost.at - began)},
          {"outcome", cost.outcome},
          {"noticed_ms", Milliseconds(cost.noticed)},
          {"released_ms", Milliseconds(cost.released)},
          {"resumed_ms", Milliseconds(cost.resumed)},
          {"training_ms", Milliseconds(cost.training)},
          {"over_ms", Milliseconds(cost.over)},
          {"rejoined_ms", Milliseconds(cost.rejoined)},
          {"step_before", Count(cost.step_before)},
          {"step_after", Count(cost.step_after)},
          {"steps_lost", Count(cost.steps_lost)},
          {"restarts", Count(cost.restarts)},
          {"rule", cost.rule},
          {"missed", cost.missed}};
}

}  // namespace

std::string ChaosJson(const ChaosReport& report, const ChaosPlan& plan,
                      const std::vector<size_t>& not_here) {
  Json faults = Json::array();
  for (const FaultCost& cost : report.faults) faults.push_back(FaultJson(cost, report.began));
  Json missing = Json::array();
  for (const size_t index : not_here) {
    missing.push_back({{"fault", index + 1},
                       {"line", plan.faults[index].line},
                       {"text", DescribeFault(plan.faults[index])}});
  }
  Json others = Json::array();
  for (const OtherEnd& other : report.others) {
    others.push_back({{"generation", other.generation},
                      {"after_s", absl::ToDoubleSeconds(other.at - report.began)},
                      {"reason", other.reason},
                      {"rule", other.rule}});
  }
  const Json json = {{"seed", plan.seed},
                     {"faults", std::move(faults)},
                     {"not_injected", std::move(missing)},
                     {"beside_the_plan", std::move(others)},
                     {"outcome", report.outcome},
                     {"reason", report.reason},
                     {"rule", report.rule},
                     {"restarts", report.restarts},
                     {"judged", report.judged},
                     {"kept", report.kept()},
                     {"missed", report.missed}};
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

}  // namespace ddprun::launcher
