// What can go wrong for a user: kinds (they choose the Python class), codes, facts, hint.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "core/location.h"

namespace mithril::core {

/// Decides the Python class (python/mithril/errors.py has the same names).
enum class ErrorKind : uint8_t {
  kShape,        // ShapeError(ValueError)
  kDType,        // DTypeError(TypeError): element kinds, dtypes, kinds of value
  kValue,        // ArgumentError(ValueError): a value that no rule of shape or dtype covers
  kKey,          // KeyNotFound(KeyError): unknown or missing names
  kName,         // WireNameError(KeyError, ValueError): names taken, reserved or malformed
  kFrozen,       // FrozenModelError(AttributeError)
  kCycle,        // CycleError(KeyError, ValueError)
  kMultiWrite,   // MultiWriteError(ValueError, KeyError)
  kParse,        // ParseError(ValueError)
  kIndex,        // DataIndexError(IndexError): an index out of bounds in data
  kOverflow,     // DataOverflowError(OverflowError)
  kMemory,       // MemoryError
  kUnsupported,  // UnsupportedError(NotImplementedError)
  kDevice,       // DeviceNotAvailable(RuntimeError)
  kInterrupted,  // KeyboardInterrupt
  kInternal,     // InternalError(RuntimeError): a bug in mithril
  kKeyword,      // UnexpectedKeyError(KeyNotFound, TypeError): a keyword that is no key
  kSealed,       // SealedModelError(FrozenModelError, NotImplementedError): leaves, TrainModel
};

/// One row per error that a user can meet. Numbers are public (`MTH101`) and never reused.
/// 1xx shape, 2xx dtype and kind, 3xx value, 4xx name and key, 5xx structure, 6xx parse,
/// 7xx run time, 8xx support and devices, 9xx internal.
enum class Code : uint16_t {
  kShapeConflict = 101,      // two facts about a shape clash
  kShapeRank = 102,          // a rank that the op cannot take
  kShapeBroadcast = 103,     // shapes that do not broadcast
  kShapeInner = 104,         // inner dimensions of a product differ
  kShapeUnknown = 105,       // a size is needed and not known
  kShapeElementCount = 106,  // reshape changes the number of elements
  kShapeTemplate = 107,      // a malformed shape template
  kShapeData = 108,          // data whose shape is not the compiled one
  kDTypeConflict = 201,      // two facts about a kind clash
  kDTypeOperand = 202,       // an op does not take this dtype
  kDTypeData = 203,          // data whose dtype cannot be cast
  kValueArgument = 301,      // a bad argument of an op or a function
  kValueAxis = 302,          // axis out of range or duplicate
  kValueConflict = 303,      // two values for one wire
  kKeyUnknown = 401,         // no such key
  kKeyMissing = 402,         // required data or parameters are missing
  kNameTaken = 403,          // a name that is used already
  kNameReserved = 404,       // a name that cannot be used
  kOpUnknown = 405,          // no op or constraint of that name
  kUnnamedInput = 406,       // data go into a key without a name
  kModelFrozen = 501,        // extending a model that cannot be extended
  kCycle = 502,              // the wiring has a cycle
  kMultiWrite = 503,         // two writers of one wire
  kForeign = 504,            // a connection of another model
  kCanonical = 505,          // `+=` without a single free input or output
  kDifferentiability = 506,  // a gradient is asked where none exists
  kParse = 601,              // malformed text or file
  kFileVersion = 602,        // a file of a version that this release cannot read
  kFileDamaged = 603,        // truncated, or a checksum that does not hold
  kFileLimit = 604,          // nested too deep, too many parts, too much compressed
  kIndexBounds = 701,        // an index in data is out of bounds
  kOverflow = 702,           // sizes or values that do not fit
  kOutOfMemory = 703,
  kInterrupted = 704,
  kUnsupported = 801,  // the target cannot do this
  kDevice = 802,
  kStepLimit = 803,  // a bounded search gave up
  kInternal = 901,
};

/// A typed error with everything that a message shows.
struct Error {
  struct Fact {
    std::string text;   // "features : [N, 512]"
    Location location;  // where it came from
    std::string by{};   // who said it: "Flatten 'flat'", "set_shapes"
    int depth = 0;      // 0: a side of the clash; 1: what that side follows from
  };
  ErrorKind kind = ErrorKind::kInternal;
  Code code = Code::kInternal;
  std::string message;               // "matmul: inner dimensions must be equal, got ..."
  Location location;                 // the user's call
  std::string source;                // the text of that line, where it can be read
  std::vector<Fact> facts;           // both sides of a clash, in the order found
  std::vector<std::string> reasons;  // why the facts clash, one line each
  std::string hint;                  // without "help:"

  /// The text that the user reads. Short: message, "in model ..." line, hint. With facts: message,
  /// the user's line, each fact with its place, the reasons, the hint.
  std::string text() const;
};

/// Thrown by the public functions of model/, compile and bindings only.
class ErrorException : public std::exception {
 public:
  explicit ErrorException(Error error);
  const Error& error() const { return error_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Error error_;
  std::string text_;
};

/// Candidates within two edits of `name`, nearest first: ", did you mean 'relu'?" or "".
std::string suggestion(std::string_view name, const std::vector<std::string>& candidates);

/// The suggestion; where no key is near, the keys that there are: "; its keys are 'input', 'u'".
std::string suggestion_or_keys(std::string_view name, const std::vector<std::string>& keys);

}  // namespace mithril::core
