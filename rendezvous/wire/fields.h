#ifndef DDPRUN_RENDEZVOUS_WIRE_FIELDS_H_
#define DDPRUN_RENDEZVOUS_WIRE_FIELDS_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"

// One list of a message's fields for both directions of its conversion:
//
//   template <typename Wire>
//   void Fields(Wire wire, CoreOf<Wire, Standby>& core, ProtoOf<Wire, v1::Standby>& proto) {
//     wire.Text(DDPRUN_FIELD(reason));
//     wire.Number(DDPRUN_FIELD(nodes_wanted), 0, kNodesMax);
//   }
//
// A FieldReader fills in `core`, a FieldWriter `proto`. The functions aren't in an unnamed
// namespace, where Read() and Write() wouldn't find them. Threads: any.
namespace ddprun::rendezvous {

template <typename Wire, typename Core>
using CoreOf = std::conditional_t<Wire::kReads, Core, const Core>;
template <typename Wire, typename Proto>
using ProtoOf = std::conditional_t<Wire::kReads, const Proto, Proto>;

template <typename M, typename Get, typename Set>
struct Field {
  absl::string_view name;  // in the proto
  M& member;               // of the core's message
  Get get;                 // from the proto
  Set set;
};
template <typename M, typename Get, typename Set>
Field(absl::string_view, M&, Get, Set) -> Field<M, Get, Set>;

// The field `field_` of `proto`, which is `member_` of `core`.
#define DDPRUN_FIELD_AS(member_, field_)                                         \
  ::ddprun::rendezvous::Field(                                                   \
      #field_, core.member_, [&]() -> decltype(auto) { return proto.field_(); }, \
      [&](auto value) { proto.set_##field_(std::move(value)); })
#define DDPRUN_FIELD(name_) DDPRUN_FIELD_AS(name_, name_)

// An enumeration's values on both sides. `noun`: for errors, "outcome".
template <typename Core, typename Proto, size_t kCount>
struct EnumTable {
  const char* noun;
  std::pair<Core, Proto> values[kCount];
};

// Each method says what a field may be, for errors as FieldChecker's of the same name, and how it
// is written: names and texts as UTF-8, times rounded up.
template <bool kIsReader>
class FieldWire {
 public:
  static constexpr bool kReads = kIsReader;

  FieldWire() = default;
  // Params: path: of the message, for errors.
  FieldWire(FieldChecker* checker, absl::string_view path) : checker_(checker), path_(path) {}
  std::string Path(absl::string_view name) const { return absl::StrCat(path_, ".", name); }
  // Null in a writer.
  FieldChecker* checker() const { return checker_; }

  // A number or flag without bounds.
  void Any(auto field) {
    if constexpr (kReads) {
      Take(field, field.get());
    } else {
      Give(field, kSame);
    }
  }
  void Optional(auto field, bool has) {
    if constexpr (kReads) {
      if (has) field.member = field.get();
    } else if (field.member.has_value()) {
      field.set(*field.member);
    }
  }
  void OptionalNumber(auto field, bool has, uint32_t least, uint32_t most) {
    Optional(field, has);
    if constexpr (kReads) {
      if (has) checker_->Number(Path(field.name), field.get(), least, most);
    }
  }
  void OptionalStep(auto field, bool has) {
    Optional(field, has);
    if constexpr (kReads) checker_->Step(Path(field.name), field.get());
  }
  void NonZero(auto field) { Both(field, kSame, &FieldChecker::NonZero); }
  void Number(auto field, uint32_t least, uint32_t most) {
    const auto unsign = [](auto value) { return static_cast<uint32_t>(value); };
    Both(field, unsign, &FieldChecker::Number, least, most);
  }
  void Step(auto field) { Both(field, kSame, &FieldChecker::Step); }
  void ProcessId(auto field) { Both(field, kSame, &FieldChecker::ProcessId); }
  void Port(auto field) { Both(field, kSame, &FieldChecker::Port); }
  // Names are not cut: they are identities, and the receiver refuses a long one by its field's
  // name.
  void Name(auto field) { Both(field, ValidUtf8, &FieldChecker::Name); }
  void OptionalName(auto field) { Both(field, ValidUtf8, &FieldChecker::OptionalName); }
  // A name for people only.
  void CutName(auto field) {
    const auto cut = [](const auto& value) { return CutText(value, kNameBytesMax); };
    Both(field, cut, &FieldChecker::OptionalName);
  }
  using Cut = std::string (*)(absl::string_view text, size_t bytes_max);
  void Text(auto field, size_t bytes_max = kTextBytesMax, Cut cut = CutText) {
    const auto spell = [&](const auto& value) { return cut(value, bytes_max); };
    Both(field, spell, &FieldChecker::Text, bytes_max);
  }
  // A text with the useful part at its end.
  void TextEnd(auto field, size_t bytes_max = kTextBytesMax) {
    Text(field, bytes_max, CutTextFront);
  }
  void Milliseconds(auto field, absl::Duration default_value,
                    absl::Duration least = absl::Milliseconds(1)) {
    Both(field, ToMilliseconds, &FieldChecker::Milliseconds, default_value, least);
  }
  void MillisecondsOrZero(auto field) {
    Both(field, ToMillisecondsOrZero, &FieldChecker::Milliseconds, absl::ZeroDuration(),
         absl::Milliseconds(1));
  }
  void Microseconds(auto field) { Both(field, ToMicroseconds, &FieldChecker::Microseconds); }
  void Nanoseconds(auto field) {
    const auto spell = [](absl::Duration time) { return absl::ToInt64Nanoseconds(time); };
    Both(field, spell, &FieldChecker::Nanoseconds);
  }
  void Rule(auto field) { Both(field, ValidUtf8, &FieldChecker::Rule); }
  void Enum(auto field, const auto& table) {
    for (const auto& [core, proto] : table.values) {
      if constexpr (kReads) {
        if (proto == field.get()) return Take(field, core);
      } else {
        if (core == field.member) return field.set(proto);
      }
    }
    // Open enumerations of proto3 take any number.
    Require(false, field.name, static_cast<int>(field.get()), " is no known ", table.noun);
  }
  // Refuses what isn't `ok`: "<path>.<name>: <wrong>".
  void Require(bool ok, absl::string_view name, const auto&... wrong) {
    if (kReads && !ok) checker_->Require(false, Path(name), absl::StrCat(wrong...));
  }

 private:
  static constexpr auto kSame = [](auto value) { return value; };

  // Takes what `check` makes of the proto's value, or sets what `spell` makes of the core's.
  void Both(auto& field, auto spell, auto check, auto... bounds) {
    if constexpr (kReads) {
      Take(field, (checker_->*check)(Path(field.name), field.get(), bounds...));
    } else {
      Give(field, spell);
    }
  }
  void Take(auto& field, auto value) {
    field.member = std::remove_cvref_t<decltype(field.member)>(std::move(value));
  }
  void Give(auto& field, auto spell) {
    if constexpr (requires { field.member.value(); }) {
      field.set(spell(field.member.value()));
    } else {
      field.set(spell(field.member));
    }
  }

  FieldChecker* checker_ = nullptr;
  std::string path_;
};
using FieldReader = FieldWire<true>;
using FieldWriter = FieldWire<false>;

// A visitor of these functions.
template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

template <typename Core>
Core Read(FieldChecker* checker, absl::string_view path, const auto& proto) {
  Core core;
  Fields(FieldReader(checker, path), core, proto);
  return core;
}

void Write(const auto& core, auto* proto) { Fields(FieldWriter(), core, *proto); }

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_FIELDS_H_
