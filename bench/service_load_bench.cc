// What the rendezvous service of a large job costs: `ddprun rendezvous` as a process of its own,
// and thousands of simulated agents in this one that speak the real protocol over real gRPC.
//
//   service_load_bench --program build/release/bin/ddprun --agents 4096 --json result.json
//
// docs/SCALE.md has the figures and what follows from them.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "bench/load/load_report.h"
#include "bench/load/load_run.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::bench {
namespace {

constexpr char kUsage[] =
    "usage: service_load_bench --program DDPRUN [--agents N] [--heartbeats 0|1] [--steady "
    "SECONDS]\n"
    "         [--lease SECONDS] [--runs N] [--json FILE]\n";

struct Words {
  LoadSettings settings;
  uint32_t runs = 1;
  std::string json;
};

bool TakeSeconds(const std::string& text, absl::Duration& value) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || seconds <= 0) return false;
  value = absl::Seconds(seconds);
  return true;
}

bool Take(const std::string& name, const std::string& value, Words& words) {
  LoadSettings& settings = words.settings;
  if (name == "--program")
    settings.program = value;
  else if (name == "--json")
    words.json = value;
  else if (name == "--agents")
    return absl::SimpleAtoi(value, &settings.agents) && settings.agents >= 8;
  else if (name == "--runs")
    return absl::SimpleAtoi(value, &words.runs) && words.runs > 0;
  else if (name == "--heartbeats")
    return absl::SimpleAtob(value, &settings.heartbeats);
  else if (name == "--steady")
    return TakeSeconds(value, settings.steady);
  else if (name == "--lease")
    return TakeSeconds(value, settings.lease);
  else
    return false;
  return true;
}

absl::StatusOr<nlohmann::json> RunOnce(const LoadSettings& settings) {
  std::string folder = std::filesystem::temp_directory_path() / "service_load_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no folder for the journal");
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop.ok()) return loop.status();
  absl::StatusOr<nlohmann::json> report;
  {
    LoadRun run(loop->get(), settings, folder);
    report = run.Run();
    if (!report.ok()) std::fputs(ReportText(run.report()).c_str(), stderr);
  }
  if (report.ok()) {
    std::filesystem::remove_all(folder);
  } else {
    std::fprintf(stderr, "the service's events: %s/events.jsonl\n", folder.c_str());
  }
  return report;
}

int Main(int count, char** arguments) {
  Words words;
  for (int i = 1; i < count; i += 2) {
    if (i + 1 == count || !Take(arguments[i], arguments[i + 1], words)) {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (words.settings.program.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  RaiseDescriptorLimit();
  rendezvous::InitializeGrpc();
  nlohmann::json reports = nlohmann::json::array();
  for (uint32_t run = 0; run < words.runs; ++run) {
    const absl::StatusOr<nlohmann::json> report = RunOnce(words.settings);
    if (!report.ok()) {
      std::fprintf(stderr, "error: %s\n", std::string(report.status().message()).c_str());
      return 1;
    }
    std::printf("run %u of %u\n%s\n", run + 1, words.runs, ReportText(*report).c_str());
    std::fflush(stdout);
    reports.push_back(*report);
  }
  if (!words.json.empty()) std::ofstream(words.json) << reports.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace ddprun::bench

int main(int count, char** arguments) { return ddprun::bench::Main(count, arguments); }
