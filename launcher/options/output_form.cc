#include "launcher/options/output_form.h"

#include "absl/strings/str_cat.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"

namespace ddprun::launcher {

void DefineOutput(OutputArguments* target, const std::string& wide, const std::string& json,
                  OptionSet* options) {
  const bool has_wide = !wide.empty();
  options->AddValue(&target->form,
                    {.names = "-o,--output",
                     .placeholder = has_wide ? "json|wide" : "json",
                     .help = has_wide ? absl::StrCat("json: ", json, "; wide: ", wide, ".")
                                      : absl::StrCat("json: ", json, "."),
                     .default_text = "text for people",
                     .environment = ""});
  options->AddFlag(&target->json,
                   {.names = "--json", .help = "The same as -o json.", .environment = ""});
}

absl::StatusOr<OutputForm> ReadOutput(const OutputArguments& arguments, bool has_wide) {
  const Argument& form = arguments.form;
  if (form.given() && form.text != "json" && (form.text != "wide" || !has_wide)) {
    return BadWord(form, has_wide ? "give json or wide" : "give json");
  }
  if (arguments.json || form.text == "json") return OutputForm::kJson;
  return form.text == "wide" ? OutputForm::kWide : OutputForm::kText;
}

}  // namespace ddprun::launcher
