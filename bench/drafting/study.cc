// How well drafters foresee texts that were generated: no model runs, the texts are read from files that
// bench/drafting/make_outputs.py writes. Prints, for each drafter and kind of text, tokens per step when
// drafts of k tokens are verified, how often each position is right, and what each class of evidence is
// worth.
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include "decoding/acceptance.h"
#include "decoding/ngram_drafter.h"
#include "decoding/suffix_drafter.h"

namespace kvasir {
namespace {

using Tokens = std::vector<TokenId>;

struct Text {
  std::string kind;
  Tokens tokens;  // prompt, then output
  uint32_t prompt = 0;
};

std::vector<Text> read_texts(const std::vector<std::string>& paths) {
  std::vector<Text> texts;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const boost::json::object object = boost::json::parse(line).as_object();
      Text text;
      text.kind = std::string_view(object.at("kind").as_string());
      for (const auto& token : object.at("prompt").as_array())
        text.tokens.push_back(token.to_number<TokenId>());
      text.prompt = static_cast<uint32_t>(text.tokens.size());
      for (const auto& token : object.at("output").as_array())
        text.tokens.push_back(token.to_number<TokenId>());
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

// Drafts of one class, or of all of them.
struct Tally {
  uint64_t drafts = 0, accepted = 0, tokens = 0;
  std::array<uint64_t, Draft::kMost> right{}, asked{};  // of position i, those before it being right

  void add(const Draft& draft, uint32_t right_ones) {
    ++drafts;
    tokens += draft.size;
    accepted += right_ones;
    for (uint32_t i = 0; i < draft.size && i <= right_ones; ++i) {
      ++asked[i];
      right[i] += i < right_ones;
    }
  }
  double rate(uint32_t i) const {
    return asked[i] == 0 ? 0 : static_cast<double>(right[i]) / static_cast<double>(asked[i]);
  }
};

using Classes = std::array<Tally, Draft::kEvidences>;
// How many tokens of a draft of each class are verified.
using Lengths = std::array<uint32_t, Draft::kEvidences>;

struct Walk {
  uint64_t tokens = 0, steps = 0, rows = 0, drafts = 0, accepted = 0;
  double speedup(double row_cost) const {
    const double time = static_cast<double>(steps) + row_cost * static_cast<double>(rows);
    return static_cast<double>(tokens) / time;
  }
};

using MakeDrafter = std::function<std::unique_ptr<Drafter>()>;

uint32_t right_tokens(const Draft& draft, const Text& text, size_t at) {
  uint32_t n = 0;
  while (n < draft.size && at + n < text.tokens.size() && draft.tokens[n] == text.tokens[at + n]) ++n;
  return n;
}

Draft ask(Drafter& drafter, const Text& text, size_t at, uint32_t k) {
  Draft draft;
  const auto left = static_cast<uint32_t>(text.tokens.size() - at);
  DraftJob job{.slot = 0,
               .known = {text.tokens.data(), at},
               .most = std::min(k, left),
               .output_tokens = static_cast<uint32_t>(at) - text.prompt,
               .draft = &draft};
  drafter.propose({&job, 1});
  return draft;
}

// A draft is made, and compared, at every token: what a controller sees that watches without verifying.
void shadow(const MakeDrafter& make, const Text& text, uint32_t k, Classes& classes) {
  const auto drafter = make();
  drafter->open(0, static_cast<uint32_t>(text.tokens.size()));
  for (size_t at = text.prompt; at < text.tokens.size(); ++at) {
    const Draft draft = ask(*drafter, text, at, k);
    if (draft.size > 0) classes[draft.evidence].add(draft, right_tokens(draft, text, at));
  }
}

// Steps as an engine takes them: a draft of at most lengths[evidence] tokens is verified, those that are
// right and one more token are had.
void walk(const MakeDrafter& make, const Text& text, const Lengths& lengths, Walk& sum) {
  const auto drafter = make();
  drafter->open(0, static_cast<uint32_t>(text.tokens.size()));
  const uint32_t k = *std::max_element(lengths.begin(), lengths.end());
  for (size_t at = text.prompt; at < text.tokens.size();) {
    Draft draft = ask(*drafter, text, at, k);
    draft.size = std::min(draft.size, lengths[draft.evidence]);
    const uint32_t n = right_tokens(draft, text, at);
    const size_t next = std::min(at + n + 1, text.tokens.size());
    ++sum.steps;
    sum.rows += draft.size;
    sum.drafts += draft.size > 0;
    sum.accepted += n;
    sum.tokens += next - at;
    at = next;
  }
}

// As long as the chance that the next token is needed is worth its row, at a speed of `speed` tokens per
// step.
Lengths worthwhile(const Classes& classes, uint32_t k, double row_cost, double speed) {
  Lengths lengths{};
  for (uint32_t c = 0; c < classes.size(); ++c) {
    double chance = 1;
    for (uint32_t i = 0; i < k; ++i) {
      chance *= classes[c].rate(i);
      if (chance > row_cost * speed) lengths[c] = i + 1;
    }
  }
  return lengths;
}

// One drafter's view of a text, as the engine's speculator keeps it.
struct View {
  std::unique_ptr<Drafter> drafter;
  Draft draft;
  DraftCheck check;
  SequenceAcceptance acceptance;
};

// The number of guesses that promise the most tokens per time; what they promise goes to `best` if it is
// more.
uint32_t worthwhile(const View& view, const Acceptance& all, double row_cost, double* best) {
  uint32_t guesses = 0;
  double tokens = 1, reach = 1;
  for (uint32_t i = 0; i < view.draft.size; ++i) {
    reach *= view.acceptance.rate(all.rate(view.draft.evidence, i));
    tokens += reach;
    const double speed = tokens / (1 + row_cost * (i + 1));
    if (speed <= *best) continue;
    *best = speed;
    guesses = i + 1;
  }
  return guesses;
}

// Steps as the engine takes them: of the drafter that promises most as many guesses as pay by what was learnt
// from the texts so far; other guesses are compared as the tokens come. Adds to the text's kind.
void walk_learning(const std::vector<MakeDrafter>& makes, const Text& text, uint32_t k, double row_cost,
                   std::vector<Acceptance>& all, Walk& sum) {
  constexpr double kMargin = 1.02;  // as engine/speculator.cc has it
  std::vector<View> views(makes.size());
  for (size_t d = 0; d < makes.size(); ++d) {
    views[d].drafter = makes[d]();
    views[d].drafter->open(0, static_cast<uint32_t>(text.tokens.size()));
  }
  for (size_t at = text.prompt; at < text.tokens.size();) {
    double best = kMargin;
    uint32_t guesses = 0;
    const View* chosen = nullptr;
    for (size_t d = 0; d < views.size(); ++d) {
      views[d].draft = ask(*views[d].drafter, text, at, k);
      const uint32_t n = worthwhile(views[d], all[d], row_cost, &best);
      if (n > 0) guesses = n, chosen = &views[d];
    }
    const uint32_t right = chosen == nullptr ? 0 : std::min(right_tokens(chosen->draft, text, at), guesses);
    const size_t next = std::min(at + right + 1, text.tokens.size());
    for (size_t d = 0; d < views.size(); ++d) {
      View& view = views[d];
      if (&view == chosen) view.draft.size = guesses;
      if (view.draft.size > 0 && (&view == chosen || !view.check.open())) view.check.start(view.draft);
      for (size_t i = at; i < next; ++i) view.check.compare(text.tokens[i], all[d], view.acceptance);
    }
    ++sum.steps;
    sum.rows += guesses;
    sum.drafts += guesses > 0;
    sum.accepted += right;
    sum.tokens += next - at;
    at = next;
  }
}

void print_learning(const std::string& name, const std::vector<MakeDrafter>& makes,
                    const std::vector<Text>& texts, uint32_t k, double row_cost) {
  std::vector<Acceptance> all;
  for (const MakeDrafter& make : makes) all.emplace_back(make()->chances());
  std::map<std::string, Walk> kinds;
  for (const Text& text : texts) walk_learning(makes, text, k, row_cost, all, kinds[text.kind]);
  fmt::print("{:14}", name);
  Walk sum;
  for (const auto& [kind, walk] : kinds) {
    fmt::print("  {} {:.3f}", kind, walk.speedup(row_cost));
    sum.steps += walk.steps, sum.rows += walk.rows, sum.tokens += walk.tokens;
  }
  fmt::print("  all {:.3f}\n", sum.speedup(row_cost));
}

struct Study {
  std::string name;
  MakeDrafter make;
  uint32_t k = 8;
  double row_cost = 0.1;
};

Walk walk_all(const Study& study, const std::vector<const Text*>& texts, const Lengths& lengths) {
  Walk sum;
  for (const Text* text : texts) walk(study.make, *text, lengths, sum);
  return sum;
}

void print_kind(const Study& study, const std::string& kind, const std::vector<const Text*>& texts) {
  Classes classes{};
  for (const Text* text : texts) shadow(study.make, *text, study.k, classes);
  Lengths all;
  all.fill(study.k);
  const Walk full = walk_all(study, texts, all);
  // What a controller that knows the classes gets: lengths depend on the speed, and the speed on lengths.
  double speed = 1;
  Walk chosen;
  for (int round = 0; round < 4; ++round) {
    chosen = walk_all(study, texts, worthwhile(classes, study.k, study.row_cost, speed));
    speed = chosen.speedup(study.row_cost);
  }
  Tally sum;
  for (const Tally& c : classes) {
    sum.drafts += c.drafts;
    for (uint32_t i = 0; i < study.k; ++i) sum.asked[i] += c.asked[i], sum.right[i] += c.right[i];
  }
  const auto part = [](uint64_t a, uint64_t b) {
    return b == 0 ? 0.0 : 100.0 * static_cast<double>(a) / static_cast<double>(b);
  };
  fmt::print("{:10} {:10} {:6} {:6.0f}% {:6.0f}% {:6.2f} {:6.2f} {:7.2f}  ", study.name, kind, full.tokens,
             part(full.drafts, full.steps), part(full.accepted, full.rows),
             static_cast<double>(full.tokens) / static_cast<double>(full.steps), full.speedup(study.row_cost),
             speed);
  for (uint32_t i = 0; i < study.k; ++i) fmt::print(" {:2.0f}", 100 * sum.rate(i));
  fmt::print("\n");
}

void print_classes(const Study& study, const std::vector<Text>& texts) {
  Classes classes{};
  uint64_t places = 0;
  for (const Text& text : texts) {
    shadow(study.make, text, study.k, classes);
    places += text.tokens.size() - text.prompt;
  }
  fmt::print("{:10} class  of places  mean length  mean accepted   right at position 1 2 ... (%)\n",
             study.name);
  for (uint32_t c = 0; c < classes.size(); ++c) {
    const Tally& t = classes[c];
    if (t.drafts == 0) continue;
    const auto n = static_cast<double>(t.drafts);
    fmt::print("{:10} {:5} {:9.1f}% {:12.2f} {:14.2f}  ", "", c, 100 * n / static_cast<double>(places),
               static_cast<double>(t.tokens) / n, static_cast<double>(t.accepted) / n);
    for (uint32_t i = 0; i < study.k; ++i) fmt::print(" {:2.0f}", 100 * t.rate(i));
    fmt::print("\n");
  }
}

void print_study(const Study& study, const std::vector<Text>& texts) {
  std::map<std::string, std::vector<const Text*>> kinds;
  for (const Text& text : texts) {
    kinds[text.kind].push_back(&text);
    kinds["all"].push_back(&text);
  }
  fmt::print(
      "\ndrafter    kind       tokens  drafts accepted  /step  gain  chosen   right at position 1 2 ... "
      "(%)\n");
  for (const auto& [kind, members] : kinds) print_kind(study, kind, members);
  print_classes(study, texts);
}

int run(int argc, char** argv) {
  CLI::App app(
      "How well drafters foresee generated texts (JSON lines of kind, prompt and output, as\n"
      "bench/drafting/make_outputs.py writes them). Columns: `drafts`, the part of steps that have a draft;\n"
      "`accepted`, of the tokens drafted; `/step`, tokens per step with drafts of --k tokens; `gain`, tokens "
      "per\n"
      "time then, where a row more costs --row-cost of a step; `chosen`, the same with drafts only as long "
      "as\n"
      "their class of evidence is worth.");
  std::vector<std::string> files;
  std::vector<uint32_t> lengths = {8};
  double row_cost = 0.1;
  NgramOptions ngram;
  SuffixOptions suffix;
  std::string only;
  app.add_option("files", files, "texts")->required()->check(CLI::ExistingFile);
  app.add_option("--k", lengths, "tokens of a draft, one or several")->check(CLI::Range(1u, Draft::kMost));
  app.add_option("--row-cost", row_cost, "a further row, as a part of a step")->capture_default_str();
  app.add_option("--only", only, "ngram or suffix")->check(CLI::IsMember({"ngram", "suffix"}));
  app.add_option("--ngram-min-match", ngram.min_match)->capture_default_str();
  app.add_option("--ngram-max-match", ngram.max_match)->capture_default_str();
  app.add_option("--ngram-occurrences", ngram.occurrences)->capture_default_str();
  app.add_option("--ngram-min-share", ngram.min_share)->capture_default_str();
  app.add_option("--suffix-min-match", suffix.min_match)->capture_default_str();
  app.add_option("--suffix-voters", suffix.voters)->capture_default_str();
  app.add_option("--suffix-gain", suffix.gain)->capture_default_str();
  app.add_option("--suffix-doubt", suffix.doubt)->capture_default_str();
  app.add_option("--suffix-min-path", suffix.min_path)->capture_default_str();
  app.add_option("--suffix-length-factor", suffix.length_factor)->capture_default_str();
  bool learning = false;
  app.add_flag("--learning", learning, "only the gain, of a controller that learns from text after text");
  CLI11_PARSE(app, argc, argv);
  const std::vector<Text> texts = read_texts(files);
  const MakeDrafter make_ngram = [&] { return std::make_unique<NgramDrafter>(1, ngram); };
  const MakeDrafter make_suffix = [&] { return std::make_unique<SuffixDrafter>(1, suffix); };
  for (const uint32_t k : lengths) {
    fmt::print("k = {}, a further row costs {} of a step\n", k, row_cost);
    if (learning) {
      print_learning("ngram", {make_ngram}, texts, k, row_cost);
      print_learning("suffix", {make_suffix}, texts, k, row_cost);
      print_learning("ngram, suffix", {make_ngram, make_suffix}, texts, k, row_cost);
      continue;
    }
    if (only != "suffix") print_study({"ngram", make_ngram, k, row_cost}, texts);
    if (only != "ngram") print_study({"suffix", make_suffix, k, row_cost}, texts);
  }
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  try {
    return kvasir::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "drafting_study: %s\n", e.what());
    return 1;
  }
}
