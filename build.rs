//! Build script: hands on which device code `kvtide-kernels` chose, and says why.
//!
//! The folder comes as metadata of that package, since cargo leaves a nested package's files out of
//! this one. `KVTIDE_KERNELS_PTX_DIR` and `KVTIDE_KERNELS_PTX_ORIGIN` are set while the library
//! compiles.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["PTX_DIR", "PTX_ORIGIN"] {
        let value = env::var(format!("DEP_KVTIDE_KERNELS_{name}"))
            .expect("the build script of kvtide-kernels publishes it");
        // Shown by `cargo build -vv`; the other script warns when the choice is doubtful.
        println!("{name} of kvtide-kernels: {value}");
        println!("cargo::rustc-env=KVTIDE_KERNELS_{name}={value}");
    }
}
