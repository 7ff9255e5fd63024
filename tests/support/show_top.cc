// What people see of a job whose status is in a file:
//
//   show_top FILE COLUMNS ROWS     `ddprun top`, as bytes for a terminal
//   show_top FILE                  what the page gets: /api/v1/status
//
// FILE: what `ddprun status -o json` prints; the lag of workers needn't be in it.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include <google/protobuf/util/json_util.h>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/status.pb.h"
#include "rendezvous/web/status_json.h"
#include "rendezvous/wire/training.h"
#include "tools/watch/top_view.h"

int main(int argc, char** argv) {
  ddprun::launcher::TopSize size;
  if ((argc != 2 && argc != 4) || (argc == 4 && (!absl::SimpleAtoi(argv[2], &size.columns) ||
                                                 !absl::SimpleAtoi(argv[3], &size.rows)))) {
    std::fputs("usage: show_top FILE [COLUMNS ROWS]\n", stderr);
    return 2;
  }
  std::stringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  ddprun::rendezvous::v1::GetStatusReply reply;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // times of the wall clock
  const auto read = google::protobuf::util::JsonStringToMessage(text.str(), &reply, options);
  if (!read.ok() || reply.jobs_size() != 1) {
    std::fprintf(stderr, "show_top: %s is no status of one job: %s\n", argv[1],
                 read.ToString().c_str());
    return 1;
  }
  ddprun::rendezvous::NoteLag(reply.mutable_jobs(0));
  if (argc == 2) {
    // The same bytes each time: the clock of these pictures stands still.
    std::fputs(ddprun::rendezvous::StatusJson(reply, absl::FromUnixSeconds(1'800'000'000)).c_str(),
               stdout);
    return 0;
  }
  const auto lines = ddprun::launcher::TopLines(reply.jobs(0), "host0:29400",
                                                ddprun::launcher::TopOrder::kRank, size);
  std::fputs(ddprun::launcher::ScreenText(lines, ddprun::launcher::TopColours::kYes).c_str(),
             stdout);
  return 0;
}
