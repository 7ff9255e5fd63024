#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/run_worker.h"
#include "ddprun/session.h"

namespace ddprun {

int RunSessions(int argc, char** argv, SessionOptions options,
                const std::function<void(const SessionOptions& options)>& program) {
  OptionTable table(options.introduction);
  AddTrainingOptions(&options.training, options.uses, &table);
  if (options.add_options != nullptr) {
    table.Group("Model");
    options.add_options(table);
  }
  const absl::StatusOr<bool> help = table.Parse(std::vector<std::string>(argv + 1, argv + argc));
  if (help.ok() && *help) {
    std::fputs(table.Help().c_str(), stdout);
    return 0;
  }
  absl::Status usage = help.status();
  usage.Update(CheckTrainingOptions(options.training));
  const int code = RunWorker(argc, argv, [&](int /*argc*/, char** /*argv*/) {
    if (!usage.ok()) return usage;
    program(options);
    return absl::OkStatus();
  });
  return usage.ok() ? code : 2;
}

int RunSession(int argc, char** argv, SessionOptions options,
               const std::function<void(Session& session)>& train) {
  return RunSessions(argc, argv, std::move(options), [&](const SessionOptions& parsed) {
    Session session(parsed);
    train(session);
  });
}

}  // namespace ddprun
