// What the rendezvous service of a large job costs: `ddprun rendezvous` as a process of its own,
// and thousands of simulated agents in this one that speak the real protocol over real gRPC.
//
//   service_load_bench --program build/release/bin/ddprun --agents 4096 --json result.json
//
// docs/SCALE.md has the figures and what follows from them. --check fails where one is beyond its
// bound, and names it; --judge does the same with the --json of an earlier call.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "bench/load/load_bounds.h"
#include "bench/load/load_report.h"
#include "bench/load/load_run.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::bench {
namespace {

constexpr char kUsage[] =
    "usage: service_load_bench --program DDPRUN [--agents N] [--heartbeats 0|1] [--steady "
    "SECONDS]\n"
    "         [--lease SECONDS] [--patience SECONDS] [--runs N] [--json FILE] [--check]\n"
    "       service_load_bench --judge FILE\n"
    "status: 1 = a run failed, 3 = a bound was missed, 77 = too few descriptors for so many "
    "agents\n";
constexpr int kMissed = 3;
constexpr int kSkipped = 77;  // as ctest has it

struct Words {
  LoadSettings settings;
  uint32_t runs = 1;
  std::string json;
  std::string judge;
  bool check = false;
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
  else if (name == "--judge")
    words.judge = value;
  else if (name == "--agents")
    return absl::SimpleAtoi(value, &settings.agents) && settings.agents >= 8;
  else if (name == "--runs")
    return absl::SimpleAtoi(value, &words.runs) && words.runs > 0;
  else if (name == "--heartbeats")
    return absl::SimpleAtob(value, &settings.heartbeats);
  else if (name == "--steady")
    return TakeSeconds(value, settings.steady);
  else if (name == "--patience")
    return TakeSeconds(value, settings.patience);
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

int Judge(const nlohmann::json& reports) {
  const std::vector<std::string> missed = MissedBounds(reports);
  for (const std::string& line : missed) std::fprintf(stderr, "missed: %s\n", line.c_str());
  return missed.empty() ? 0 : kMissed;
}

int JudgeFile(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json reports =
      nlohmann::json::parse(file, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (reports.is_array()) return Judge(reports);
  std::fprintf(stderr, "error: %s holds no reports\n", path.c_str());
  return 1;
}

int Main(int count, char** arguments) {
  Words words;
  for (int i = 1; i < count; i += 2) {
    if (std::string_view(arguments[i]) == "--check") {
      words.check = true;
      --i;
      continue;
    }
    if (i + 1 == count || !Take(arguments[i], arguments[i + 1], words)) {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (!words.judge.empty()) return JudgeFile(words.judge);
  if (words.settings.program.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  // The service has as many connections, and some for unauthenticated peers.
  if (const uint64_t limit = RaiseDescriptorLimit();
      limit < words.settings.agents * ConnectionsOfAgent(words.settings) + 256) {
    std::fprintf(stderr, "skipped: the hard limit is %llu descriptors\n",
                 static_cast<unsigned long long>(limit));
    return kSkipped;
  }
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
  return words.check ? Judge(reports) : 0;
}

}  // namespace
}  // namespace ddprun::bench

int main(int count, char** arguments) { return ddprun::bench::Main(count, arguments); }
