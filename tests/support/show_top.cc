// What `ddprun top` shows of a job whose status is in a file, as bytes for a terminal:
//
//   show_top FILE COLUMNS ROWS     FILE: what `ddprun status --json` prints, of one job
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include <google/protobuf/util/json_util.h>

#include "absl/strings/numbers.h"
#include "ddprun/rendezvous/v1/status.pb.h"
#include "launcher/watch/top_view.h"

int main(int argc, char** argv) {
  ddprun::launcher::TopSize size;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &size.columns) ||
      !absl::SimpleAtoi(argv[3], &size.rows)) {
    std::fputs("usage: show_top FILE COLUMNS ROWS\n", stderr);
    return 2;
  }
  std::stringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  ddprun::rendezvous::v1::GetStatusReply reply;
  const auto read = google::protobuf::util::JsonStringToMessage(text.str(), &reply);
  if (!read.ok() || reply.jobs_size() != 1) {
    std::fprintf(stderr, "show_top: %s is no status of one job: %s\n", argv[1],
                 read.ToString().c_str());
    return 1;
  }
  const auto lines = ddprun::launcher::TopLines(reply.jobs(0), "host0:29400",
                                                ddprun::launcher::TopOrder::kRank, size);
  std::fputs(ddprun::launcher::ScreenText(lines, ddprun::launcher::kTopTitleLine).c_str(), stdout);
  return 0;
}
