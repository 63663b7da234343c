// Model files: a whole model as JSON text, and back (docs/model_file.md).
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace mithril::model {

/// Number the format. A file of another major version is refused; files of a later minor version
/// load, and what they have more is ignored with a note.
inline constexpr int kFileMajor = 1, kFileMinor = 2;

/// The text of an outermost model. `history` adds, after all else, where in user code everything
/// was said and in which order: what `why` prints, and what changes in most diffs without need.
/// `training` is JSON text of what Python knows besides (TrainModel); it comes back as it is.
/// Throws kValue for a submodel, kUnsupported for values and constraints that only this process
/// has.
std::string to_json(const Model& model, bool history = true, std::string_view training = {});

struct Loaded {
  Model model;
  std::vector<std::string> notes;  // what was ignored
  std::string training;            // JSON text, or ""
};

/// The relation that is registered under a name, over so many keys; empty if there is none.
using FindRelation = std::function<infer::RelationFunction(std::string_view name, int keys)>;

/// Reads, checks and solves. Throws kParse (malformed, wrong version, beyond limits), kKey (ops and
/// constraints that are not registered), or what composing such a model would throw. No recursion
/// over models; memory beyond that of the model is proportional to the text.
Loaded from_json(std::string_view text, Location where = {}, const FindRelation& find = {});

}  // namespace mithril::model
