#ifndef DDPRUN_BENCH_LOAD_LOAD_RUN_H_
#define DDPRUN_BENCH_LOAD_LOAD_RUN_H_

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "bench/load/load_settings.h"
#include "bench/load/service_under_load.h"
#include "bench/load/simulated_agent.h"

namespace ddprun::bench {

// A job under load, from connect to verdict. Each phase ends when all agents have reached its
// state, and adds its figures to the report:
//
//   connect → form → steady → killed, regroup → frozen, regroup → service killed, all back →
//   verdict
//
// Threads: the loop's.
class LoadRun {
 public:
  LoadRun(EventLoop* loop, LoadSettings settings, std::string folder);
  ~LoadRun();

  // Errors: DEADLINE_EXCEEDED — a phase didn't end. INTERNAL — a phase ended in a wrong state.
  absl::StatusOr<nlohmann::json> Run();
  // The report of the phases so far.
  const nlohmann::json& report() const { return report_; }

 private:
  // The times and the use of the service since a phase began.
  struct Mark {
    Instant at;
    ProcessUse use;
    LinkBytes bytes;
  };

  absl::Status Form();
  absl::Status Steady();
  absl::Status Regroup(const std::string& name, const std::function<void(SimulatedAgent&)>& fault);
  absl::Status Restart();
  absl::Status Verdict();

  Mark Begin();
  // Adds the service's use since `since` to the phase's part of the report.
  void AddUse(const Mark& since, nlohmann::json& part);
  absl::Status Until(const std::string& what, const std::function<bool()>& done);
  // Waits until `list` has one entry for each agent that lives.
  absl::Status UntilAll(const std::string& what, const std::vector<Instant>& list);
  size_t Living() const;
  LinkBytes Bytes() const;

  EventLoop* const loop_;
  const LoadSettings settings_;
  ServiceUnderLoad service_;
  LinkPlace place_;
  Tally tally_;
  std::vector<std::unique_ptr<SimulatedAgent>> agents_;
  nlohmann::json report_ = nlohmann::json::object();
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_LOAD_RUN_H_
