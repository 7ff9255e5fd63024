#include "rendezvous/wire/convert_failure.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kExitCodeMax = 255;
constexpr uint32_t kSignalMax = 64;  // SIGRTMAX on Linux, signal(7)

}  // namespace

WorkerFailure ReadFailure(FieldChecker* checker, absl::string_view field,
                          const v1::WorkerFailure& proto) {
  const auto path = [field](absl::string_view name) { return absl::StrCat(field, ".", name); };
  WorkerFailure failure;
  failure.rank = checker->Number(path("rank"), proto.rank(), 0, kNodesMax * kWorkersPerNodeMax - 1);
  failure.local_rank =
      checker->Number(path("local_rank"), proto.local_rank(), 0, kWorkersPerNodeMax - 1);
  failure.node_id = NodeId(checker->OptionalName(path("node_id"), proto.node_id()));
  failure.hostname = checker->OptionalName(path("hostname"), proto.hostname());
  failure.pid = checker->ProcessId(path("pid"), proto.pid());
  failure.exit_code =
      static_cast<int>(checker->Number(path("exit_code"), proto.exit_code(), 0, kExitCodeMax));
  failure.signal = static_cast<int>(checker->Number(path("signal"), proto.signal(), 0, kSignalMax));
  failure.core_dumped = proto.core_dumped();
  failure.start_error = checker->Text(path("start_error"), proto.start_error());
  failure.message = checker->Text(path("message"), proto.message());
  failure.traceback = checker->Text(path("traceback"), proto.traceback(), kTracebackBytesMax);
  failure.error_file = checker->Text(path("error_file"), proto.error_file());
  failure.stderr_tail = checker->Text(path("stderr_tail"), proto.stderr_tail());
  failure.wall_time_ms = proto.wall_time_ms();
  failure.after_first_ms = proto.after_first_ms();
  failure.generation = Generation(proto.generation());
  failure.hung = proto.hung();
  failure.preflight = proto.preflight();
  failure.texts_left_out = proto.texts_left_out();
  checker->Count(path("facts"), proto.facts_size(), kFactsMax);
  if (!checker->status().ok()) return failure;
  for (const std::string& fact : proto.facts()) {
    failure.facts.push_back(checker->Text(path("facts"), fact, kFactBytesMax));
  }
  return failure;
}

void WriteFailure(const WorkerFailure& failure, v1::WorkerFailure* proto) {
  proto->set_rank(failure.rank);
  proto->set_local_rank(failure.local_rank);
  proto->set_node_id(CutText(failure.node_id.value(), kNameBytesMax));
  proto->set_hostname(CutText(failure.hostname, kNameBytesMax));
  proto->set_pid(failure.pid);
  proto->set_exit_code(static_cast<uint32_t>(failure.exit_code));
  proto->set_signal(static_cast<uint32_t>(failure.signal));
  proto->set_core_dumped(failure.core_dumped);
  proto->set_start_error(CutText(failure.start_error, kTextBytesMax));
  proto->set_message(CutText(failure.message, kTextBytesMax));
  proto->set_traceback(CutTextFront(failure.traceback, kTracebackBytesMax));
  proto->set_error_file(CutText(failure.error_file, kTextBytesMax));
  proto->set_stderr_tail(CutTextFront(failure.stderr_tail, kTextBytesMax));
  proto->set_wall_time_ms(failure.wall_time_ms);
  proto->set_after_first_ms(failure.after_first_ms);
  proto->set_generation(failure.generation.value());
  proto->set_hung(failure.hung);
  proto->set_preflight(failure.preflight);
  proto->set_texts_left_out(failure.texts_left_out);
  for (size_t i = 0; i < std::min(failure.facts.size(), kFactsMax); ++i) {
    proto->add_facts(CutText(failure.facts[i], kFactBytesMax));
  }
}

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
