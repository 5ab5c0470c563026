#include "inspect/difference.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "mapping/name_refinement.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kParallelPrefix = "module.";  // DataParallel's, before every name

// Identifies tensors by name. If a name occurs several times (in subgraphs of a model), the first
// tensors of both sides correspond, and so on.
using Place = std::pair<std::string, std::size_t>;

std::map<Place, std::size_t> places_of(const Inspection& inspection, const NameFilter& filter) {
  const bool wrapped = std::all_of(
      inspection.tensors.begin(), inspection.tensors.end(),
      [](const InspectedTensor& tensor) { return tensor.name.starts_with(kParallelPrefix); });
  std::map<std::string, std::size_t> seen;
  std::map<Place, std::size_t> places;
  for (std::size_t i = 0; i < inspection.tensors.size(); ++i) {
    const std::string& full = inspection.tensors[i].name;
    const std::string name = drop_wrappers(wrapped ? full.substr(kParallelPrefix.size()) : full);
    if (filter(name)) {
      places.emplace(Place(name, seen[name]++), i);
    }
  }
  for (const auto& [dropped, kept] : inspection.tied_names) {  // one tensor of two names
    const auto tensor = places.find(Place(drop_wrappers(kept), 0));
    const std::string name = drop_wrappers(dropped);
    if (tensor != places.end() && filter(name)) {
      places.emplace(Place(name, 0), tensor->second);
    }
  }
  return places;
}

bool same_form(const InspectedTensor& a, const InspectedTensor& b) {
  return form_text(a) == form_text(b);
}

// Returns the tensors of `from` whose names do not occur in `others`.
std::vector<InspectedTensor> only_in(const Inspection& from,
                                     const std::map<Place, std::size_t>& places,
                                     const std::map<Place, std::size_t>& others) {
  std::set<std::size_t> alone;  // in the order of the file
  for (const auto& [place, index] : places) {
    if (!others.contains(place)) {
      alone.insert(index);
    }
  }
  std::vector<InspectedTensor> tensors;
  tensors.reserve(alone.size());
  for (const std::size_t index : alone) {
    tensors.push_back(from.tensors[index]);
  }
  return tensors;
}

struct Side {
  std::span<const fs::path> paths;
  InspectOptions options;
  Inspection inspection;
};

Result<Side> open_side(std::span<const fs::path> paths, InspectOptions options) {
  options.digests = Digests::kNone;
  options.selection = Selection::kStateDict;
  auto inspection = inspect(paths, options);
  if (!inspection && inspection.error().code != ErrorCode::kCancelled && options.open.key.empty()) {
    options.selection = Selection::kEverything;
    inspection = inspect(paths, options);
  }
  TRY_ASSIGN(auto listed, std::move(inspection));
  return Side{paths, options, std::move(listed)};
}

// The same files again, with digests of these tensors.
Status add_digests(const std::set<std::size_t>& wanted, Side& side) {
  if (wanted.empty()) {
    return {};
  }
  side.options.digests = Digests::kSha256;
  side.options.digest_if = [&](std::size_t index, const InspectedTensor&) {
    return wanted.contains(index);
  };
  TRY_ASSIGN(auto again, inspect(side.paths, side.options));
  std::vector<InspectedTensor>& tensors = side.inspection.tensors;
  bool same = again.tensors.size() == tensors.size();
  for (const std::size_t index : wanted) {
    same = same && again.tensors[index].name == tensors[index].name &&
           same_form(again.tensors[index], tensors[index]);
  }
  if (!same) {
    return fail(ErrorCode::kIo,
                side.paths.front().string() + ": was changed while it was being read");
  }
  tensors = std::move(again.tensors);
  return {};
}

struct Pairs {
  std::set<std::pair<std::size_t, std::size_t>> all;  // indices in a and in b
  std::set<std::size_t> read_a;                       // those of one form, which are compared
  std::set<std::size_t> read_b;
};

Pairs pair_up(const Inspection& a, const Inspection& b, const std::map<Place, std::size_t>& in_a,
              const std::map<Place, std::size_t>& in_b) {
  Pairs pairs;
  for (const auto& [place, index] : in_a) {
    const auto other = in_b.find(place);
    if (other == in_b.end()) {
      continue;
    }
    pairs.all.emplace(index, other->second);
    if (same_form(a.tensors[index], b.tensors[other->second])) {
      pairs.read_a.insert(index);
      pairs.read_b.insert(other->second);
    }
  }
  return pairs;
}

}  // namespace

Result<Difference> find_difference(std::span<const fs::path> a, std::span<const fs::path> b,
                                   const DifferenceOptions& options) {
  TRY_ASSIGN(auto first, open_side(a, options.inspect));
  TRY_ASSIGN(auto second, open_side(b, options.inspect));
  const auto in_a = places_of(first.inspection, options.filter);
  const auto in_b = places_of(second.inspection, options.filter);
  Difference found;
  found.only_a = only_in(first.inspection, in_a, in_b);
  found.only_b = only_in(second.inspection, in_b, in_a);
  const Pairs pairs = pair_up(first.inspection, second.inspection, in_a, in_b);
  if (options.bytes == CompareBytes::kYes) {
    for (auto [wanted, side] :
         {std::pair(&pairs.read_a, &first), std::pair(&pairs.read_b, &second)}) {
      TRY(add_digests(*wanted, *side));
    }
  }
  for (const auto& [index, other] : pairs.all) {
    TensorPair pair{first.inspection.tensors[index], second.inspection.tensors[other]};
    const bool compares = options.bytes == CompareBytes::kYes;
    const bool has_bytes = !pair.a.sha256.empty() && !pair.b.sha256.empty();
    found.bytes_read += has_bytes ? add_bytes(pair.a.nbytes, pair.b.nbytes) : 0;
    if (!same_form(pair.a, pair.b)) {
      found.forms.push_back(std::move(pair));
    } else if (compares && !has_bytes) {
      found.unreadable.push_back(std::move(pair));
    } else if (pair.a.sha256 != pair.b.sha256) {
      found.bytes.push_back(std::move(pair));
    } else {
      ++found.equal;
    }
  }
  return found;
}

}  // namespace onnx_external
