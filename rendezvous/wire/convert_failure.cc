#include "rendezvous/wire/convert_failure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/fields.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kExitCodeMax = 255;
constexpr uint32_t kSignalMax = 64;  // SIGRTMAX on Linux, signal(7)

}  // namespace

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, WorkerFailure>& core, ProtoOf<Wire, v1::WorkerFailure>& proto) {
  wire.Number(DDPRUN_FIELD(rank), 0, kWorkersMax - 1);
  wire.Number(DDPRUN_FIELD(local_rank), 0, kWorkersPerNodeMax - 1);
  wire.CutName(DDPRUN_FIELD(node_id));
  wire.CutName(DDPRUN_FIELD(hostname));
  wire.ProcessId(DDPRUN_FIELD(pid));
  wire.Number(DDPRUN_FIELD(exit_code), 0, kExitCodeMax);
  wire.Number(DDPRUN_FIELD(signal), 0, kSignalMax);
  wire.Any(DDPRUN_FIELD(core_dumped));
  wire.Text(DDPRUN_FIELD(start_error));
  wire.Text(DDPRUN_FIELD(message));
  wire.TextEnd(DDPRUN_FIELD(traceback), kTracebackBytesMax);
  wire.Text(DDPRUN_FIELD(error_file));
  wire.TextEnd(DDPRUN_FIELD(stderr_tail));
  wire.Any(DDPRUN_FIELD(wall_time_ms));
  wire.Any(DDPRUN_FIELD(after_first_ms));
  wire.Any(DDPRUN_FIELD(generation));
  wire.Any(DDPRUN_FIELD(hung));
  wire.Any(DDPRUN_FIELD(preflight));
  wire.Any(DDPRUN_FIELD(texts_left_out));
  if constexpr (Wire::kReads) {
    wire.checker()->Count(wire.Path("facts"), proto.facts_size(), kFactsMax);
    if (!wire.checker()->status().ok()) return;
    for (const std::string& fact : proto.facts()) {
      core.facts.push_back(wire.checker()->Text(wire.Path("facts"), fact, kFactBytesMax));
    }
  } else {
    for (size_t i = 0; i < std::min(core.facts.size(), kFactsMax); ++i) {
      proto.add_facts(CutText(core.facts[i], kFactBytesMax));
    }
  }
}

WorkerFailure ReadFailure(FieldChecker* checker, absl::string_view field,
                          const v1::WorkerFailure& proto) {
  return Read<WorkerFailure>(checker, field, proto);
}

void WriteFailure(const WorkerFailure& failure, v1::WorkerFailure* proto) { Write(failure, proto); }

std::vector<WorkerFailure> ReadFailures(
    FieldChecker* checker, absl::string_view field,
    const google::protobuf::RepeatedPtrField<v1::WorkerFailure>& protos) {
  std::vector<WorkerFailure> failures;
  checker->Count(field, protos.size(), kFailuresMax);
  if (!checker->status().ok()) return failures;
  for (int i = 0; i < protos.size(); ++i) {
    failures.push_back(ReadFailure(checker, absl::StrCat(field, "[", i, "]"), protos[i]));
  }
  return failures;
}

void WriteFailures(const std::vector<WorkerFailure>& failures,
                   google::protobuf::RepeatedPtrField<v1::WorkerFailure>* protos) {
  const size_t count = std::min(failures.size(), kFailuresMax);
  for (size_t i = 0; i < count; ++i) WriteFailure(failures[i], protos->Add());
}

}  // namespace ddprun::rendezvous
