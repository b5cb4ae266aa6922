//! The device code: PTX text for the driver to compile for the GPU at hand.
//!
//! Chosen when the crate is built: the copy in the package, or what `KVTIDE_PTX_DIR` or
//! `KVTIDE_PTX=fresh` ask for. It exports the entry points of [`KERNELS`](crate::abi::KERNELS) and
//! needs a GPU of compute capability 7.5 or later and a driver that knows PTX 7.4.

/// The PTX, without the zero that ends it for a C interface.
///
/// ```
/// use kvtide_kernels::{abi, ptx};
///
/// for kernel in abi::KERNELS {
///     assert!(ptx::TEXT.contains(&format!(".visible .entry {}(", kernel.name)));
/// }
/// ```
pub const TEXT: &str = include_str!(env!("KVTIDE_KERNELS_PTX_FILE"));
