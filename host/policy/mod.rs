//! Placeholder of the module tree.
