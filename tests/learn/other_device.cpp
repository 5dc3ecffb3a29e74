// A device of its own for torch, in the processor's memory: tensors of it and of the processor do not mix, as a GPU's do not.
#define AT_PER_OPERATOR_HEADERS
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

namespace {

constexpr auto HERE = c10::DeviceType::PrivateUse1;
const c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

struct Room final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* at = bytes ? c10::alloc_cpu(bytes) : nullptr;
    return {at, at, &c10::free_cpu, c10::Device(HERE, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
Room room;
REGISTER_ALLOCATOR(HERE, &room);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &room, KEYS, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &room, KEYS, c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the processor.
at::Tensor seen(const at::Tensor& x) {
  if (x.is_cpu()) return x;
  return at::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options().device(at::kCPU).requires_grad(false));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  auto out = seen(to);
  out.copy_(seen(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar scalar(const at::Tensor& x) { return seen(x).item(); }

const at::Tensor& resize(const at::Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  const auto bytes = x.nbytes();
  auto storage = x.storage().unsafeGetStorageImpl();
  if (storage->nbytes() < bytes) {
    storage->set_data_ptr_noswap(room.allocate(bytes));
    storage->set_nbytes(bytes);
  }
  return x;
}

at::Tensor conv(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b, at::IntArrayRef stride,
                at::IntArrayRef pad, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_pad, int64_t groups) {
  std::optional<at::Tensor> bias;
  if (b && b->defined()) bias = seen(*b);
  return at::convolution(seen(x), seen(w), bias, stride, pad, dilation, transposed, output_pad, groups).to(x.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> conv_back(
    const at::Tensor& g, const at::Tensor& x, const at::Tensor& w, at::IntArrayRef stride, at::IntArrayRef pad,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_pad, int64_t groups, std::array<bool, 3> mask) {
  std::vector<int64_t> bias{w.size(0)};
  auto [a, b, c] = at::convolution_backward(seen(g), seen(x), seen(w), bias, stride, pad, dilation, transposed, output_pad,
                                            groups, mask);
  auto back = [&](const at::Tensor& t) { return t.defined() ? t.to(x.device()) : t; };
  return {back(a), back(b), back(c)};
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack, true); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", scalar);
  m.impl("resize_", resize);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("convolution_overrideable", conv);
  m.impl("convolution_backward_overrideable", conv_back);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace
