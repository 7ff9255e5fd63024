#ifndef DDPRUN_LAUNCHER_OUTPUT_COLLAPSING_CONSOLE_H_
#define DDPRUN_LAUNCHER_OUTPUT_COLLAPSING_CONSOLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "launcher/core/line_collapser.h"
#include "launcher/output/console.h"

namespace ddprun::launcher {

// One of the two output streams of all workers of a generation, on a console that shows equal lines
// of several workers once (--collapse_output).
//
// Memory: that of a LineCollapser, and lines that the console hasn't accepted; streams pause while
// there are any.
// Threads: the loop's.
class CollapsingConsole {
 public:
  // `prefix` returns the prefix of a line of these local ranks (ascending).
  using Prefix = std::function<std::string(const std::vector<uint32_t>& local_ranks)>;
  CollapsingConsole(EventLoop* loop, int fd, Prefix prefix);
  // Writes the lines that wait.
  ~CollapsingConsole();
  CollapsingConsole(const CollapsingConsole&) = delete;
  CollapsingConsole& operator=(const CollapsingConsole&) = delete;

  void Begin(uint32_t local_rank);
  // The stream has ended. Its lines are written now, or at their time if other workers may have
  // them.
  void End(uint32_t local_rank);
  // One line without its newline.
  void Add(uint32_t local_rank, absl::string_view line);
  // Writes the lines that are due; to be called after some Add().
  void Flush();

 private:
  void Write(const std::vector<LineCollapser::Line>& lines);

  EventLoop* loop_;
  const Prefix prefix_;
  std::shared_ptr<Console> console_;
  LineCollapser collapser_{LineCollapser::Bounds()};
  Timer timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_COLLAPSING_CONSOLE_H_
