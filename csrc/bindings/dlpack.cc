#include "bindings/dlpack.h"

#include <mutex>
#include <optional>

#include "bindings/gil.h"
#include "bindings/native_program.h"

namespace mithril::bindings {
namespace {

constexpr int32_t kCpu = 1;
constexpr const char kName[] = "dltensor", kUsedName[] = "used_dltensor",
                     kVersionedName[] = "dltensor_versioned",
                     kUsedVersionedName[] = "used_dltensor_versioned";

struct DlDevice {
  int32_t kind, index;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlType type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};
struct Managed {
  DlTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct Versioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(Versioned*);
  uint64_t flags;
  DlTensor tensor;
};
constexpr uint64_t kReadOnly = 1;  // of flags

struct NamedType {
  core::DType dtype;
  DlType type;
};
constexpr uint8_t kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6;
constexpr NamedType kTypes[] = {
    {core::DType::kBool, {kBool, 8, 1}},      {core::DType::kUInt8, {kUint, 8, 1}},
    {core::DType::kInt8, {kInt, 8, 1}},       {core::DType::kInt16, {kInt, 16, 1}},
    {core::DType::kInt32, {kInt, 32, 1}},     {core::DType::kInt64, {kInt, 64, 1}},
    {core::DType::kFloat16, {kFloat, 16, 1}}, {core::DType::kBFloat16, {kBfloat, 16, 1}},
    {core::DType::kFloat32, {kFloat, 32, 1}}, {core::DType::kFloat64, {kFloat, 64, 1}},
};

[[noreturn]] void refuse(const std::string& message) {
  PyErr_SetString(PyExc_BufferError, message.c_str());
  throw py::error_already_set();
}

DlType type_of(const py::object& dtype) {
  for (const NamedType& one : kTypes) {
    if (numpy_dtype(one.dtype).equal(dtype)) return one.type;
  }
  refuse("DLPack has no dtype " + py::str(dtype).cast<std::string>());
}

/// NumPy's dtype.
py::object dtype_of(const DlType& type) {
  for (const auto& [dtype, own] : kTypes) {
    if (own.code == type.code && own.bits == type.bits && own.lanes == type.lanes) {
      return numpy_dtype(dtype);
    }
  }
  refuse("DLPack: elements of a type that no dtype is");
}

// ---------------------------------------------------------------- to others

/// Keeps an array, and its sizes where DLPack wants them, for as long as a consumer does.
struct Lent {
  DeviceArray array;
  Managed managed;
  Versioned versioned;
};

template <class Tensor>
void give_back(Tensor* tensor) {
  const GilAcquire gil;  // the array has references to Python's objects
  delete static_cast<Lent*>(tensor->context);
}

template <class Tensor>
void drop_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;  // somebody has taken it
  auto* const tensor = static_cast<Tensor*>(PyCapsule_GetPointer(capsule, name));
  tensor->deleter(tensor);
}
void drop_managed(PyObject* capsule) { drop_capsule<Managed>(capsule, kName); }
void drop_versioned(PyObject* capsule) { drop_capsule<Versioned>(capsule, kVersionedName); }

std::optional<device::Driver::Place> place_of(const DeviceArray& array) {
  return array.storage->place(array.offset);
}

/// Lets the consumer's stream, or the host, wait for the values.
void hand_over(const DeviceArray& array, const py::object& stream) {
  constexpr long long kNoWait = -1;
  device::Driver& driver = array.storage->driver();
  driver.check_process().or_throw();
  int overflow = 0;
  const long long number =
      PyLong_Check(stream.ptr()) ? PyLong_AsLongLongAndOverflow(stream.ptr(), &overflow) : 0;
  if (!stream.is_none() && (number == 0 || number < kNoWait || overflow != 0)) {
    refuse("__dlpack__: stream requires None, -1 or the number of a stream of CUDA, got " +
           py::repr(stream).cast<std::string>() + " (1 is the legacy default stream)");
  }
  core::Status status;
  if (number != kNoWait) {
    const GilRelease release;
    const auto lock = driver.lock();
    status = number == 0 ? driver.settle() : driver.let_wait(static_cast<uintptr_t>(number));
  }
  std::move(status).or_throw();
}

bool takes_versions(const py::object& max_version) {
  return !max_version.is_none() && max_version.cast<std::pair<int64_t, int64_t>>().first >= 1;
}

py::object own_capsule(const DeviceArray& array, const device::Driver::Place& place,
                       const py::object& stream, bool is_versioned) {
  const DlType type = type_of(array.dtype);
  if (array.is_read_only && !is_versioned) {
    refuse("the values must not be written over, which only DLPack 1.0 can say (max_version=)");
  }
  hand_over(array, stream);
  array.storage->lend();
  auto lent = std::make_unique<Lent>(Lent{array, {}, {}});
  const DlTensor tensor = {place.pointer,
                           {place.kind, place.index},
                           static_cast<int32_t>(array.shape.size()),
                           type,
                           lent->array.shape.data(),
                           nullptr,
                           0};
  lent->managed = {tensor, lent.get(), give_back<Managed>};
  lent->versioned = {1,     0, lent.get(), give_back<Versioned>, array.is_read_only ? kReadOnly : 0,
                     tensor};
  auto capsule = py::reinterpret_steal<py::object>(
      is_versioned ? PyCapsule_New(&lent->versioned, kVersionedName, drop_versioned)
                   : PyCapsule_New(&lent->managed, kName, drop_managed));
  if (!capsule) throw py::error_already_set();
  static_cast<void>(lent.release());
  return capsule;
}

// ---------------------------------------------------------------- from others

/// Keeps what a producer lent, and gives it back in the end.
class Borrowed {
 public:
  explicit Borrowed(const py::object& capsule) {
    if (PyCapsule_IsValid(capsule.ptr(), kVersionedName) != 0) {
      versioned_ = static_cast<Versioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersionedName));
      if (versioned_->major > 1) refuse("DLPack: a version that is not known");
      PyCapsule_SetName(capsule.ptr(), kUsedVersionedName);
    } else {
      managed_ = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), kName));
      if (managed_ == nullptr) throw py::error_already_set();
      PyCapsule_SetName(capsule.ptr(), kUsedName);
    }
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    if (Py_IsInitialized() == 0) return;
    const GilAcquire gil;
    if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
    if (managed_ != nullptr && managed_->deleter != nullptr) managed_->deleter(managed_);
  }
  const DlTensor& tensor() const {
    return versioned_ != nullptr ? versioned_->tensor : managed_->tensor;
  }
  bool is_read_only() const {
    return versioned_ != nullptr && (versioned_->flags & kReadOnly) != 0;
  }

 private:
  Managed* managed_ = nullptr;
  Versioned* versioned_ = nullptr;
};

bool is_row_major(const DlTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t step = 1;
  for (int32_t axis = tensor.rank - 1; axis >= 0; --axis) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != step) return false;
    step *= tensor.shape[axis];
  }
  return true;
}

py::object capsule_from(const py::object& source, const py::object& queue) {
  const py::object method = source.attr("__dlpack__");
  try {
    return method(py::arg("stream") = queue, py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // one of before version 1
  }
  return method(py::arg("stream") = queue);
}

}  // namespace

py::tuple dlpack_device(const DeviceArray& array) {
  const auto place = place_of(array);
  return py::make_tuple(place ? place->kind : kCpu, place ? place->index : 0);
}

py::object to_dlpack(const py::object& array, const py::object& stream,
                     const py::object& max_version, const py::object& dl_device,
                     const py::object& copy) {
  const auto& own = array.cast<const DeviceArray&>();
  const auto place = place_of(own);
  const bool is_here = place && (dl_device.is_none() || dl_device.equal(dlpack_device(own)));
  if (is_here && copy.ptr() != Py_True) {
    return own_capsule(own, *place, stream, takes_versions(max_version));
  }
  const bool is_wanted = dl_device.is_none() || dl_device.equal(py::make_tuple(kCpu, 0));
  if (!is_wanted || copy.ptr() == Py_False || (is_here && dl_device.is_none())) {
    refuse("the values can be had where they are, or as a copy of the host's");
  }
  const py::object values = host_array(own);
  return max_version.is_none() ? values.attr("__dlpack__")()
                               : values.attr("__dlpack__")(py::arg("max_version") = max_version);
}

py::object from_dlpack(const std::shared_ptr<device::Driver>& driver, const py::object& source,
                       const py::object& backend) {
  const auto where = source.attr("__dlpack_device__")().cast<std::pair<int32_t, int32_t>>();
  const auto own = driver->place({});
  if (!own || where.first != own->kind || where.second != own->index) return py::none();
  const py::object capsule = capsule_from(source, py::int_(own->queue));
  auto borrowed = std::make_shared<Borrowed>(capsule);
  const DlTensor& tensor = borrowed->tensor();
  if (!is_row_major(tensor)) return py::none();
  DeviceArray out;
  out.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  out.dtype = dtype_of(tensor.type);
  out.backend = backend;
  out.is_read_only = borrowed->is_read_only();
  void* const pointer = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const auto bytes = static_cast<int64_t>(out.bytes());
  out.storage = device::Storage::borrow(driver, pointer, bytes, std::move(borrowed)).or_throw();
  return py::cast(std::move(out));
}

}  // namespace mithril::bindings
